import { type InfiniteData, keepPreviousData, useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { useRef } from "react";
import { Link, useSearchParams } from "wouter";
import { api, type ExecutionPage, given, type PlanList } from "../api/client";
import { useKeys } from "../keys/keys";
import { serverTime } from "../live/clock";
import { useHomeStream } from "../live/home";
import { ConnectionNote } from "../ui/connection";
import { useTitle } from "../ui/home";
import { ProblemNotice } from "../ui/problem";
import { oneLine } from "../ui/text";
import { useSettled } from "../ui/time";
import { applyToLines, withNewest } from "./execution-lines";
import { ExecutionList } from "./execution-list";
import "./executions.css";

const STATUSES = ["running", "waiting", "paused", "failed", "partial", "completed", "cancelled", "pending"] as const;
type StatusWord = (typeof STATUSES)[number];
const WAITING = "waiting"; // no status of its own: an unfinished execution that asks a person
const TIMES: Record<string, [string, number]> = {
  "1h": ["last hour", 3600],
  "24h": ["last 24 hours", 86_400],
  "7d": ["last 7 days", 7 * 86_400],
  "30d": ["last 30 days", 30 * 86_400],
};
const PAGE = 50;
const MOST_PAGES = 3; // as many are asked for again as a whole; of a longer list only the first page
const LOOK_EVERY = 10_000; // milliseconds: no event tells that a process is gone

interface Filters {
  status: StatusWord[];
  name: string;
  text: string;
  since: string;
}

export function ExecutionsPage() {
  useTitle("Executions");
  const [filters, change] = useFilters();
  const box = useRef<HTMLInputElement>(null);
  useKeys("Executions", [{ keys: "/", does: "Search", run: () => box.current?.focus() }]);
  const { found, connection } = useExecutions(filters);
  const lines = (found.data?.pages.flatMap((page) => page.executions) ?? []).filter(
    (line) =>
      filters.status.length === 0 ||
      filters.status.some((word) => (word === WAITING ? line.waiting : word === line.status)),
  );
  const filtered = filters.status.length > 0 || Boolean(filters.name || filters.text || filters.since);
  return (
    <section className="page" aria-labelledby="executions">
      <div className="title">
        <h1 id="executions">Executions</h1>
        <ConnectionNote connection={connection} />
        <Link href="/start" className="button primary">
          Start a plan
        </Link>
      </div>
      <form className="filters" role="search" onSubmit={(event) => event.preventDefault()}>
        <input
          ref={box}
          type="search"
          aria-label="Search by plan or id"
          placeholder="Search by plan or id"
          value={filters.text}
          onChange={(event) => change({ text: event.target.value })}
        />
        <PlanChoice name={filters.name} change={(name) => change({ name })} />
        <select aria-label="Created" value={filters.since} onChange={(event) => change({ since: event.target.value })}>
          <option value="">any time</option>
          {Object.entries(TIMES).map(([key, [words]]) => (
            <option key={key} value={key}>
              {words}
            </option>
          ))}
        </select>
        <fieldset>
          <legend className="unseen">Status</legend>
          {STATUSES.map((word) => (
            <button
              key={word}
              type="button"
              aria-pressed={filters.status.includes(word)}
              onClick={() => change({ status: toggled(filters.status, word) })}
            >
              {word}
            </button>
          ))}
        </fieldset>
        {filtered && (
          <button type="button" className="link" onClick={() => change({ status: [], name: "", text: "", since: "" })}>
            Clear filters
          </button>
        )}
      </form>
      {found.error && <ProblemNotice error={found.error} />}
      {found.isPending && <p className="soft">Loading …</p>}
      {found.isSuccess && lines.length === 0 && !found.isPlaceholderData && (filtered ? <NoneFit /> : <NoneYet />)}
      <ExecutionList
        lines={lines}
        more={() => found.hasNextPage && !found.isFetchingNextPage && void found.fetchNextPage()}
      />
    </section>
  );
}

/** Filters are kept in the address, so that a link or the back button brings them back. */
function useFilters(): [Filters, (change: Partial<Filters>) => void] {
  const [search, setSearch] = useSearchParams();
  const filters: Filters = {
    status: STATUSES.filter((word) => search.getAll("status").includes(word)),
    name: search.get("name") ?? "",
    text: search.get("text") ?? "",
    since: (search.get("since") ?? "") in TIMES ? (search.get("since") ?? "") : "",
  };
  const change = (part: Partial<Filters>) => {
    const { status, ...texts } = { ...filters, ...part };
    const chosen = new URLSearchParams(status.map((word) => ["status", word]));
    for (const [key, value] of Object.entries(texts)) if (value) chosen.set(key, value);
    // Letters as they are typed are no steps of the way back.
    setSearch(chosen, { replace: part.text !== undefined });
  };
  return [filters, change];
}

/** Statuses are chosen together; `waiting` goes across them, and is chosen alone. */
function toggled(chosen: StatusWord[], word: StatusWord): StatusWord[] {
  if (chosen.includes(word)) return chosen.filter((other) => other !== word);
  return word === WAITING ? [word] : [...chosen.filter((other) => other !== WAITING), word];
}

function useExecutions(filters: Filters) {
  const queries = useQueryClient();
  const text = useSettled(filters.text);
  const key = ["executions", filters.status, filters.name, text, filters.since];
  const page = async (before: string): Promise<ExecutionPage> => {
    const clock = serverTime(0);
    const span = TIMES[filters.since]?.[1];
    const since = span === undefined ? 0 : Math.floor(serverTime() / 1000 - span);
    const statuses = filters.status.filter((word) => word !== WAITING);
    const query = {
      limit: PAGE,
      name: filters.name,
      text,
      since,
      before,
      ...(statuses.length > 0 && { status: statuses }),
      ...(filters.status.includes(WAITING) && { waiting: "approval" as const }),
    };
    const found = await given<ExecutionPage>(api.GET("/api/executions", { params: { query } }));
    // The first answer tells the server's time: what was asked for by another one is asked for again.
    return span === undefined || clock === serverTime(0) ? found : page(before);
  };
  const found = useInfiniteQuery({
    queryKey: key,
    initialPageParam: "",
    queryFn: ({ pageParam }) => page(pageParam),
    getNextPageParam: (page) => (page.next ? page.executions.at(-1)?.id : undefined),
    placeholderData: keepPreviousData,
    refetchInterval: ({ state }) => mayStop(state.data?.pages ?? []) && LOOK_EVERY,
  });
  const long = (found.data?.pages.length ?? 0) > MOST_PAGES;
  const newest = async () => {
    const first = await page("").catch(() => undefined); // the next event asks again
    const old = queries.getQueryData<InfiniteData<ExecutionPage>>(key);
    if (!first || !old) return;
    const joined = withNewest(old, first);
    if (joined) queries.setQueryData(key, joined);
    else void queries.invalidateQueries({ queryKey: key });
  };
  const connection = useHomeStream({
    apply: (events) =>
      queries.setQueriesData<InfiniteData<ExecutionPage>>({ queryKey: ["executions"] }, (old) =>
        old ? applyToLines(old, events) : old,
      ),
    isNews: (event) =>
      event.type.startsWith("execution.") || event.type.startsWith("approval.") || event.type === "step.failed",
    old: long ? [] : [["executions"]],
    ...(long && { again: () => void newest() }),
  });
  return { found, connection };
}

/** Whether a process that runs one of these could be gone unnoticed. */
function mayStop(pages: ExecutionPage[]): boolean {
  return pages.length <= MOST_PAGES && pages.some((page) => page.executions.some((line) => line.status === "running"));
}

function PlanChoice({ name, change }: { name: string; change: (name: string) => void }) {
  const { data } = useQuery({
    queryKey: ["plans"],
    queryFn: () => given<PlanList>(api.GET("/api/plans")),
    staleTime: 60_000,
  });
  const names = [...new Set([...(name ? [name] : []), ...(data?.plans ?? []).map((plan) => plan.name)])];
  return (
    <select aria-label="Plan" value={name} onChange={(event) => change(event.target.value)}>
      <option value="">any plan</option>
      {names.map((one) => (
        <option key={one} value={one}>
          {oneLine(one)}
        </option>
      ))}
    </select>
  );
}

function NoneFit() {
  return <p className="soft">No execution fits these filters.</p>;
}

function NoneYet() {
  return (
    <div className="card">
      <h2>Nothing has run here yet</h2>
      <p>
        Start a plan in a terminal, or <Link href="/start">start one here</Link>:
      </p>
      <pre className="command">{"windlass run plan.yaml"}</pre>
      <p className="soft">A plan can be as short as this:</p>
      <pre className="command">{"name: hello\nsteps:\n  - id: greet\n    run: echo hello"}</pre>
    </div>
  );
}
