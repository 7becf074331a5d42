import { keepPreviousData, useQueries } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, given, type StepList, type StepRow } from "../api/client";
import { found, ordered } from "./order";

/** A line of the list and the timeline: a step, or an item of a foreach that is open. */
export interface Line {
  step: StepRow;
  item: boolean;
}

export interface Filter {
  text: string;
  status: string | null;
}

/** The lines of an execution, with the items of the foreach steps that are open. */
export function useLines(list: StepList | undefined, open: readonly string[], filter: Filter, at: number | null) {
  const id = list?.execution ?? "";
  const items = useQueries({
    queries: open.map((step) => ({
      queryKey: ["items", id, step, at],
      queryFn: () =>
        given<StepList>(
          api.GET("/api/executions/{execution}/steps", {
            params: { path: { execution: id }, query: { items: step, at } },
          }),
        ),
      enabled: id !== "",
      placeholderData: keepPreviousData,
      staleTime: Number.POSITIVE_INFINITY,
    })),
    combine: (answers) => answers.map((answer) => answer.data?.steps),
  });
  return useMemo(() => {
    const byStep = new Map(open.map((step, place) => [step, items[place] ?? []]));
    const steps = list?.steps ?? [];
    if (byStep.size === 0) return found(ordered(steps), filter.text, filter.status).map(line);
    return ordered(steps).flatMap((step) => {
      const own = found([step], filter.text, filter.status).map(line);
      const inside = byStep.get(step.id);
      if (!inside) return own;
      return [...own, ...found(ordered(inside), filter.text, filter.status).map((one) => ({ step: one, item: true }))];
    });
  }, [list, open, items, filter]);
}

function line(step: StepRow): Line {
  return { step, item: false };
}
