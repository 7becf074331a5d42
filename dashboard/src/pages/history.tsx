import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense } from "react";
import { useSearchParams } from "wouter";
import { type Figures, type History, type HistoryRow, look } from "../api/figures";
import { serverTime } from "../live/clock";
import { duration, money, size } from "../ui/format";
import { useTitle } from "../ui/home";
import { ProblemNotice } from "../ui/problem";
import { Table } from "../ui/table";
import { oneLine, Text } from "../ui/text";
import { ForecastScores, SlowSteps } from "./performance";

const Chart = lazy(() => import("./chart"));

const SPANS: Record<string, string> = { "7d": "last 7 days", "30d": "last 30 days", "90d": "last 90 days" };
const HEADINGS = ["step", "tool", "plan", "model", "role", "runtime", "category", "status"] as const;

export default function HistoryPage() {
  useTitle("History");
  const [search, setSearch] = useSearchParams();
  const since = (search.get("since") ?? "30d") in SPANS ? (search.get("since") ?? "30d") : "";
  const by = HEADINGS.find((one) => one === search.get("by")) ?? "step";
  const plan = search.get("plan") ?? "";
  const set = (part: Record<string, string>) => {
    const all = { since: search.get("since") ?? "30d", by, plan, ...part };
    setSearch(Object.fromEntries(Object.entries(all).filter(([, value]) => value)), { replace: true });
  };
  const days = useHistory("day", since, plan);
  const rows = useHistory(by, since, plan);
  const plans = useHistory("plan", since, "");
  const error = days.error ?? rows.error;
  return (
    <section className="page" aria-labelledby="history">
      <div className="title">
        <h1 id="history">History</h1>
        <select aria-label="Plan" value={plan} onChange={(event) => set({ plan: event.target.value })}>
          <option value="">all plans</option>
          {[...new Set([plan, ...(plans.data?.rows.map((row) => String(row.plan)) ?? [])])]
            .filter(Boolean)
            .map((one) => (
              <option key={one} value={one}>
                {oneLine(one)}
              </option>
            ))}
        </select>
        <select aria-label="Time" value={since} onChange={(event) => set({ since: event.target.value || "all" })}>
          {Object.entries(SPANS).map(([key, words]) => (
            <option key={key} value={key}>
              {words}
            </option>
          ))}
          <option value="">all time</option>
        </select>
      </div>
      {error && <ProblemNotice error={error} />}
      {days.data && <Totals total={days.data.total} />}
      {days.data && days.data.rows.length > 0 && <Days rows={days.data.rows} />}
      <section className="card" aria-label="Time and failures">
        <div className="row-of">
          <label>
            Time and failures by{" "}
            <select value={by} onChange={(event) => set({ by: event.target.value })}>
              {HEADINGS.map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </label>
        </div>
        {rows.data && <Rows by={by} rows={rows.data.rows} />}
      </section>
      <SlowSteps since={since} plan={plan} />
      <ForecastScores plan={plan} />
    </section>
  );
}

function useHistory(by: string, since: string, plan: string) {
  return useQuery({
    queryKey: ["history", by, since, plan],
    queryFn: () => look<History>("/api/history", { by, since, plan }),
    placeholderData: (before) => before,
  });
}

function Totals({ total }: { total: Figures }) {
  const figures: [string, string][] = [
    ["Executions", total.runs.toLocaleString()],
    ["Failed", share(total.failed, total.runs)],
    ["Median time", total.p50_s === null ? "–" : duration(total.p50_s)],
    ["Cost", cost(total)],
    ["Tokens", (total.tokens_in + total.tokens_out).toLocaleString()],
    ["Computing", total.cpu_s === null ? "–" : duration(total.cpu_s)],
    ["Waited for people", duration(total.person_s)],
  ];
  return (
    <dl className="figures card">
      {figures.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Days({ rows }: { rows: HistoryRow[] }) {
  const sorted = [...rows].sort((a, b) => String(a.day).localeCompare(String(b.day)));
  const days = everyDay(String(sorted[0]?.day));
  const found = new Map(sorted.map((row) => [noon(String(row.day)), row]));
  const values = (of: (row: HistoryRow) => number) => days.map((day) => of(found.get(day) ?? NOTHING));
  return (
    <div className="columns wide">
      <div className="card">
        <Suspense fallback={<p className="soft">Loading …</p>}>
          <Chart
            label="Executions a day"
            days={days}
            show={(value) => (Number.isInteger(value) ? String(value) : "")}
            series={[
              { name: "all", colour: "--busy", values: values((row) => row.runs), bars: true },
              { name: "failed", colour: "--bad", values: values((row) => row.failed), bars: true },
            ]}
          />
          {sorted.some((row) => (row.usd ?? 0) > 0) && (
            <Chart
              label="Cost a day"
              days={days}
              show={money}
              series={[{ name: "dollars", colour: "--good", values: values((row) => row.usd ?? 0) }]}
            />
          )}
        </Suspense>
      </div>
      <div className="card days">
        <Table
          caption="By day"
          rows={[...sorted].reverse()}
          id={(row) => String(row.day)}
          columns={[
            { name: "Day", of: (row) => String(row.day) },
            { name: "Executions", number: true, of: (row) => row.runs },
            { name: "Failed", number: true, of: (row) => share(row.failed, row.runs) },
            { name: "Median", number: true, of: (row) => (row.p50_s === null ? "–" : duration(row.p50_s)) },
            { name: "CPU", number: true, of: (row) => (row.cpu_s === null ? "–" : duration(row.cpu_s)) },
            { name: "Cost", number: true, of: (row) => cost(row) },
          ]}
        />
      </div>
    </div>
  );
}

const NOTHING = { runs: 0, failed: 0, usd: 0 } as HistoryRow;
const LEAST_DAYS = 7;
const noon = (day: string) => Date.parse(`${day}T12:00Z`) / 1000;

/** Days from the first one to today, also those on which nothing ran: a gap in time is a gap in the chart. */
function everyDay(first: string): number[] {
  const today = noon(new Date(serverTime()).toISOString().slice(0, 10));
  const from = Math.min(noon(first), today - (LEAST_DAYS - 1) * 86_400);
  return Array.from({ length: Math.round((today - from) / 86_400) + 1 }, (_, day) => from + day * 86_400);
}

function Rows({ by, rows }: { by: string; rows: HistoryRow[] }) {
  const name = (row: HistoryRow) => (by === "step" ? `${row.plan} › ${row.step}` : String(row[by]));
  return (
    <Table
      caption={`By ${by}`}
      rows={rows}
      id={name}
      empty="Nothing of this kind ran in this time."
      columns={[
        { name: by, of: (row) => <Text>{name(row)}</Text> },
        { name: "Runs", number: true, of: (row) => row.runs.toLocaleString() },
        { name: "Failed", number: true, of: (row) => share(row.failed, row.runs) },
        { name: "Median", number: true, of: (row) => (row.p50_s === null ? "–" : duration(row.p50_s)) },
        { name: "P90", number: true, of: (row) => (row.p90_s === null ? "–" : duration(row.p90_s)) },
        { name: "Worked", number: true, of: (row) => duration(row.worked_s) },
        { name: "Queued", number: true, of: (row) => duration(row.queued_s) },
        { name: "Waited", number: true, of: (row) => duration(row.waited_s + row.person_s) },
        { name: "CPU", number: true, of: (row) => (row.cpu_s === null ? "–" : duration(row.cpu_s)) },
        { name: "Memory", number: true, of: (row) => (row.memory_bytes === null ? "–" : size(row.memory_bytes)) },
        { name: "Files", number: true, of: (row) => row.changed_files?.toLocaleString() ?? "–" },
        { name: "Cost", number: true, of: (row) => cost(row) },
      ]}
    />
  );
}

/** The part of the cost that is known, and that there is more. */
function cost({ usd, unknown_costs }: Figures): string {
  return usd !== null && unknown_costs > 0 ? `at least ${money(usd)}` : money(usd);
}

function share(part: number, whole: number): string {
  return part === 0 || whole === 0 ? "0" : `${part} (${Math.round((100 * part) / whole)} %)`;
}
