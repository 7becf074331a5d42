/** One execution, kept up to date by its stream: its rows of steps, its summary, and its events for those who listen. */
import { keepPreviousData, type QueryClient, useQuery, useQueryClient } from "@tanstack/react-query";
import { useCallback, useEffect, useMemo, useRef, useState } from "react";
import { api, given, type StepList, type Summary } from "../api/client";
import { serverTime } from "./clock";
import { applyEvents } from "./rows";
import { type Connection, listen, type StreamEvent } from "./stream";

export type Listener = (events: StreamEvent[]) => void;

export interface LiveExecution {
  list: StepList | undefined;
  /** The number of its last event. */
  last: number;
  summary: Summary | undefined;
  /** When the summary came, in milliseconds by the server's clock: its forecast counts down from there. */
  summaryAt: number;
  error: Error | null;
  connection: Connection;
  /** Calls back with the events of a step, as they come. */
  follow: (step: string, listener: Listener) => () => void;
  /** Asks for everything again: after an action, say. */
  refresh: () => void;
}

const SOONEST = 400; // milliseconds between two questions for the same
const LATER = 2_000; // the same for figures that change with each step: the stream itself has status and percent
const OF_EACH_STEP = new Set(["attempt.started", "attempt.finished", "step.completed", "output.written"]);
const FORECASTS = 4_000; // milliseconds between two looks at the forecast

export function useExecution(id: string, at: number | null): LiveExecution {
  const queries = useQueryClient();
  const since = useRef<StreamEvent[] | null>(null);
  const seen = useRef(0);
  const now = useQuery({
    queryKey: ["steps", id],
    queryFn: async () => {
      // Events that come while the answer is on its way are newer than it.
      const newer: StreamEvent[] = [];
      since.current = newer;
      try {
        const list = await given<StepList>(
          api.GET("/api/executions/{execution}/steps", { params: { path: { execution: id } } }),
        );
        return applyEvents(list, newer)[0];
      } finally {
        if (since.current === newer) since.current = null; // a page that is left open keeps no event
      }
    },
    staleTime: Number.POSITIVE_INFINITY,
  });
  const past = useQuery({
    queryKey: ["steps", id, at],
    queryFn: () =>
      given<StepList>(
        api.GET("/api/executions/{execution}/steps", { params: { path: { execution: id }, query: { at } } }),
      ),
    enabled: at !== null,
    placeholderData: keepPreviousData,
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: 10_000,
  });
  const summary = useQuery({
    queryKey: ["summary", id, at],
    queryFn: () =>
      given<Summary>(
        api.GET("/api/executions/{execution}/summary", {
          params: { path: { execution: id }, query: at === null ? { seen: seen.current } : { at } },
        }),
      ),
    placeholderData: keepPreviousData,
    staleTime: Number.POSITIVE_INFINITY,
    gcTime: at === null ? 300_000 : 10_000,
  });
  const { connection, follow } = useStream(id, now.data, queries, since, seen);
  const refresh = useCallback(() => {
    for (const kind of ["steps", "summary", "items", "step"]) {
      void queries.invalidateQueries({ queryKey: [kind, id] });
    }
  }, [queries, id]);
  return {
    // While a moment is on its way, the page stays as it is.
    list: at === null ? now.data : (past.data ?? now.data),
    last: now.data?.seq ?? 1,
    summary: summary.data,
    summaryAt: serverTime(summary.dataUpdatedAt),
    error: now.error ?? (at === null ? null : past.error) ?? (now.data ? null : summary.error),
    connection,
    follow,
    refresh,
  };
}

function useStream(
  id: string,
  list: StepList | undefined,
  queries: QueryClient,
  since: { current: StreamEvent[] | null },
  seen: { current: number },
): Pick<LiveExecution, "connection" | "follow"> {
  const [connection, setConnection] = useState<Connection>("connecting");
  const listeners = useRef(new Map<string, Set<Listener>>());
  const first = useRef<number | null>(null);
  first.current ??= list?.seq ?? null;
  const ready = list !== undefined;
  useEffect(() => {
    if (!ready) return;
    const rows = asksAtMost(() => queries.invalidateQueries({ queryKey: ["steps", id], exact: true }));
    const items = asksAtMost(() => queries.invalidateQueries({ queryKey: ["items", id] }));
    const ask = () => queries.invalidateQueries({ queryKey: ["summary", id, null] });
    const summary = asksAtMost(ask);
    const figures = asksAtMost(ask, LATER);
    // A forecast changes without any event: while a long step runs, say.
    const forecasts = window.setInterval(() => {
      if (queries.getQueryData<StepList>(["steps", id])?.status === "running") figures.ask();
    }, FORECASTS);
    const end = listen({
      path: `/api/executions/${id}/stream`,
      after: first.current,
      by: "seq",
      connection: setConnection,
      events: (batch) => {
        since.current?.push(...batch);
        let again = false;
        queries.setQueryData<StepList>(["steps", id], (old) => {
          if (!old) return old;
          const [applied, asks] = applyEvents(old, batch);
          again = asks;
          return applied;
        });
        first.current = batch.at(-1)?.seq ?? first.current;
        if (again) rows.ask();
        if (batch.some((event) => event.step?.includes("["))) items.ask();
        const special = batch.findLast((event) => !OF_EACH_STEP.has(event.type));
        // The summary has to have this one. Figures of steps may be those of a moment ago, which all pages share.
        seen.current = Math.max(seen.current, special?.seq ?? 0);
        if (special) summary.ask();
        else if (batch.some((event) => event.type !== "output.written")) figures.ask();
        hand(batch, listeners.current);
      },
    });
    return () => {
      end();
      window.clearInterval(forecasts);
      for (const one of [rows, items, summary, figures]) one.end();
    };
  }, [id, ready, queries, since, seen]);
  const follow = useCallback((step: string, listener: Listener) => {
    const found = listeners.current.get(step) ?? new Set();
    listeners.current.set(step, found.add(listener));
    return () => void found.delete(listener);
  }, []);
  return useMemo(() => ({ connection, follow }), [connection, follow]);
}

function hand(batch: StreamEvent[], listeners: Map<string, Set<Listener>>): void {
  for (const [step, found] of listeners) {
    if (found.size === 0) continue;
    const events = batch.filter((event) => event.step === step);
    if (events.length > 0) for (const listener of found) listener(events);
  }
}

/** Asks soon, and again only when the last answer is here: the longer an answer takes, the rarer the question. */
function asksAtMost(question: () => Promise<void>, soonest = SOONEST): { ask: () => void; end: () => void } {
  let timer: number | undefined;
  let over = false;
  let busy = false;
  let wanted = false;
  let wait = SOONEST / 4;
  const ask = () => {
    wanted = true;
    if (busy || timer !== undefined || over) return;
    timer = window.setTimeout(() => void go(), wait);
  };
  const go = async () => {
    timer = undefined;
    busy = true;
    wanted = false;
    const began = performance.now();
    try {
      await question();
    } finally {
      busy = false;
      wait = Math.max(soonest, 3 * (performance.now() - began));
      if (wanted) ask();
    }
  };
  const end = () => {
    over = true;
    window.clearTimeout(timer);
  };
  return { ask, end };
}
