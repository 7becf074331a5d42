import { useEffect, useState, useSyncExternalStore } from "react";
import { isLoggedOut, onLogin, type StepList, type Summary } from "../api/client";
import { serverTime } from "../live/clock";
import type { Connection } from "../live/stream";
import { duration, money, percent } from "../ui/format";
import { Status } from "../ui/status";
import { Text } from "../ui/text";
import { Controls } from "./controls";
import type { ExecutionActions } from "./use_actions";
import { shownStatus, stateSentence } from "./words";

interface HeaderProps {
  list: StepList;
  summary: Summary | undefined;
  summaryAt: number;
  connection: Connection;
  past: boolean;
  actions: ExecutionActions;
}

/** The state at a glance: the status and why, percent, time left, money, and what can be done. */
export function Header({ list, summary, summaryAt, connection, past, actions }: HeaderProps) {
  return (
    <header className="run-head">
      <div className="run-title">
        <h1 id="execution">
          <Text>{list.plan}</Text>
        </h1>
        <code className="soft run-id">{list.execution}</code>
        {(!past || connection === "saved") && <ConnectionWord connection={connection} />}
        {connection !== "saved" && (
          <a
            className="soft"
            href={`/api/executions/${list.execution}/saved`}
            download
            title="One HTML file that opens anywhere, without a server"
          >
            Save as file
          </a>
        )}
        {!past && <Controls list={list} summary={summary} actions={actions} />}
      </div>
      <dl className="facts">
        <div className="fact-state">
          <dt>State</dt>
          <dd>
            <Status status={shownStatus(list, summary)} /> <Text className="soft">{stateSentence(list, summary)}</Text>
          </dd>
        </div>
        {!["failed", "partial", "cancelled"].includes(list.status) && (
          <div>
            <dt>Done</dt>
            <dd>
              <progress value={list.progress} max={100} aria-label="Progress" /> {percent(list.progress)}
            </dd>
          </div>
        )}
        <TimeLeft list={list} summary={summary} summaryAt={summaryAt} past={past} />
        <Money summary={summary} />
      </dl>
    </header>
  );
}

const WORDS: Record<Connection, string> = {
  connecting: "reconnecting …",
  live: "live",
  lost: "reconnecting …",
  "logged out": "logged out: log in again",
  saved: "saved copy",
};

function ConnectionWord({ connection }: { connection: Connection }) {
  // A stream that is open outlives the login by which it was opened.
  const state = useSyncExternalStore(onLogin, isLoggedOut) ? "logged out" : connection;
  return (
    <span className={`connection ${state === "live" ? "is-live" : "is-lost"}`} role="status">
      {WORDS[state]}
    </span>
  );
}

interface Band {
  p10: number;
  p50: number;
  p90: number;
}

/** The forecast's median with its band, counted down between two forecasts; after the end, how long it took. */
function TimeLeft({ list, summary, summaryAt, past }: Pick<HeaderProps, "list" | "summary" | "summaryAt" | "past">) {
  const running = list.status === "running" && summary?.driven !== false && !past;
  const now = useSeconds(running);
  const since = list.started === null ? null : (list.finished ?? (running ? now / 1000 : list.at)) - list.started;
  const forecast = summary?.forecast as { left_s: Band | null; wrapping_up: boolean; text: string } | null | undefined;
  const left = running ? forecast?.left_s : null;
  const passed = Math.max(0, (now - summaryAt) / 1000);
  return (
    <div>
      <dt>{left ? "Time left" : "Time"}</dt>
      <dd title={forecast?.text}>
        {left ? (
          <>
            {forecast?.wrapping_up ? "wrapping up" : `about ${duration(Math.max(0, left.p50 - passed))}`}{" "}
            <span className="soft band">{band(left, passed)}</span>
          </>
        ) : (
          <>
            {since === null ? "–" : duration(since)} {running && <span className="soft">no forecast yet</span>}
          </>
        )}
      </dd>
    </div>
  );
}

function band({ p10, p90 }: Band, passed: number): string {
  const low = duration(Math.max(0, p10 - passed));
  const high = duration(Math.max(0, p90 - passed));
  return low === high ? "" : `(${low} – ${high})`;
}

function Money({ summary }: { summary: Summary | undefined }) {
  if (!summary) return null;
  const cost = summary.cost as { usd: number | null; known: boolean; text: string; tokens_in: number };
  const budget = summary.budget as { limit_usd: number | null; overruns: { text: string }[] };
  const usual = summary.forecast?.usd as Band | null | undefined;
  const of = budget.limit_usd === null ? "" : ` of ${money(budget.limit_usd)}`;
  return (
    <div>
      <dt>Money</dt>
      <dd title={cost.text}>
        <span className={budget.overruns.length > 0 ? "bad" : ""}>
          {cost.known ? "" : "at least "}
          {money(cost.usd ?? 0)}
          {of}
        </span>{" "}
        {budget.limit_usd !== null && budget.limit_usd > 0 && (
          <meter
            className="spent"
            value={Math.min(cost.usd ?? 0, budget.limit_usd)}
            max={budget.limit_usd}
            high={budget.limit_usd * 0.8}
            aria-label="Part of the budget that is spent"
          />
        )}
        {usual && usual.p50 > 0 && <span className="soft"> about {money(usual.p50)} at the end</span>}
      </dd>
    </div>
  );
}

/** The time by the server's clock, each second while it is wanted. */
export function useSeconds(wanted: boolean): number {
  const [now, setNow] = useState(() => serverTime());
  useEffect(() => {
    if (!wanted) return;
    setNow(serverTime());
    const timer = window.setInterval(() => setNow(serverTime()), 1000);
    return () => window.clearInterval(timer);
  }, [wanted]);
  return now;
}
