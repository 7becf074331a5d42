/** The steps that are left, where the forecast expects them. */
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, given, type StepForecasts, type StepRow } from "../api/client";

/** Moments, in seconds since the epoch. */
export interface Expected {
  start: number;
  end: number;
  /** The end that one of ten passes. */
  late: number;
}

const LOOK_EVERY = 4_000; // milliseconds, and some more for each step: the answer grows with them
const FOR_EACH_STEP = 4;
const SETTLED = new Set(["completed", "failed", "skipped", "cancelled"]);

/** Expected times by step, asked for again while the execution runs. */
export function useExpected(execution: string, live: boolean): ReadonlyMap<string, Expected> {
  const { data } = useQuery({
    queryKey: ["forecast", execution],
    queryFn: () =>
      given<StepForecasts>(api.GET("/api/executions/{execution}/forecast", { params: { path: { execution } } })),
    enabled: live,
    gcTime: 10_000,
    refetchInterval: (query) => LOOK_EVERY + FOR_EACH_STEP * (query.state.data?.steps.length ?? 0),
  });
  return useMemo(() => {
    const steps = (live && data?.steps) || [];
    const at = data?.at ?? 0;
    return new Map(
      steps.map((one) => [one.id, { start: at + one.begins_s, end: at + one.ends_s, late: at + one.late_s }]),
    );
  }, [data, live]);
}

/** The outline of a step: never before now, although the forecast may be older; null once the step has ended. */
export function outlineOf(step: StepRow, expected: Expected | undefined, now: number): Expected | null {
  if (!expected || SETTLED.has(step.status)) return null;
  const { start, end, late } = expected;
  if (step.status === "running") {
    return late > now ? { start: now, end: Math.max(now, end), late } : null;
  }
  const moved = Math.max(0, now - start);
  return { start: start + moved, end: end + moved, late: late + moved };
}
