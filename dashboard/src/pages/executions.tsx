import { useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link, useSearchParams } from "wouter";
import { api, type ExecutionLine, type ExecutionPage, given } from "../api/client";
import { type Connection, listen } from "../live/stream";
import { ago } from "../ui/format";
import { useTitle } from "../ui/home";
import { ProblemNotice } from "../ui/problem";
import { Status } from "../ui/status";
import { Text } from "../ui/text";

const STATUSES = ["running", "paused", "failed", "partial", "completed", "cancelled", "pending"] as const;
type StatusWord = (typeof STATUSES)[number];
const PAGE = 50;

export function ExecutionsPage() {
  useTitle("Executions");
  const [search, setSearch] = useSearchParams();
  const status = STATUSES.filter((word) => search.getAll("status").includes(word));
  const name = search.get("name") ?? "";
  const connection = useLiveList();
  const found = useInfiniteQuery({
    queryKey: ["executions", status, name],
    initialPageParam: "",
    queryFn: ({ pageParam }) =>
      given<ExecutionPage>(
        api.GET("/api/executions", {
          params: { query: { limit: PAGE, ...(status.length ? { status } : {}), name, before: pageParam } },
        }),
      ),
    getNextPageParam: (page) => (page.next ? page.executions.at(-1)?.id : undefined),
  });
  const choose = (word: StatusWord) =>
    setSearch((old) => {
      const chosen = new URLSearchParams(old);
      if (status.includes(word)) chosen.delete("status", word);
      else chosen.append("status", word);
      return chosen;
    });
  const lines = found.data?.pages.flatMap((page) => page.executions) ?? [];
  return (
    <section aria-labelledby="executions">
      <h1 id="executions">Executions</h1>
      <div className="filters">
        <label>
          Plan{" "}
          <input
            type="search"
            value={name}
            onChange={(event) => setSearch(event.target.value ? { name: event.target.value } : {})}
          />
        </label>
        {STATUSES.map((word) => (
          <button key={word} type="button" aria-pressed={status.includes(word)} onClick={() => choose(word)}>
            {word}
          </button>
        ))}
        <span className="connection">{connection === "live" ? "" : connection}</span>
      </div>
      {found.error && <ProblemNotice error={found.error} />}
      {found.isSuccess && lines.length === 0 && <p>None here yet. Start one: windlass run plan.yaml</p>}
      <ul className="lines">
        {lines.map((line) => (
          <Line key={line.id} line={line} />
        ))}
      </ul>
      {found.hasNextPage && (
        <button type="button" onClick={() => void found.fetchNextPage()} disabled={found.isFetchingNextPage}>
          Older
        </button>
      )}
    </section>
  );
}

function Line({ line }: { line: ExecutionLine }) {
  const now = Date.now() / 1000;
  return (
    <li>
      <Link href={`/executions/${line.id}`}>
        <Status status={line.status} reason={line.reason} />
        <Text className="name">{line.plan}</Text>
        <code>{line.id.slice(0, 8)}</code>
        <time dateTime={line.updated_at}>{ago(Date.parse(line.updated_at) / 1000, now)}</time>
      </Link>
    </li>
  );
}

/** Has the list asked for again, at most once in a second, when an execution begins, pauses or ends. */
function useLiveList(): Connection {
  const queries = useQueryClient();
  const [connection, setConnection] = useState<Connection>("connecting");
  useEffect(() => {
    let due: number | undefined;
    const stop = listen({
      path: "/api/stream",
      after: null,
      by: "position",
      connection: setConnection,
      events: (batch) => {
        if (due === undefined && batch.some((event) => event.type.startsWith("execution."))) {
          due = window.setTimeout(() => {
            due = undefined;
            void queries.invalidateQueries({ queryKey: ["executions"] });
          }, 1000);
        }
      },
    });
    return () => {
      window.clearTimeout(due);
      stop();
    };
  }, [queries]);
  return connection;
}
