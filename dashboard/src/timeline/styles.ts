/** The kinds of bars in the timeline. The legend is made from the same table. */
import type { StepRow } from "../api/client";

type Stretch = StepRow["stretches"][number];

export const STYLES = {
  queue: "queued",
  work: "working",
  retry: "retry",
  failed: "failed attempt",
  wait: "waiting",
  person: "waiting for a person",
  group: "items",
  ahead: "forecast",
  late: "nine of ten end by then",
} as const;

export type BarStyle = keyof typeof STYLES;

export function styleOf([kind, , , attempt, outcome]: Stretch): BarStyle {
  if (kind !== "work") return kind;
  if (outcome === "failed" || outcome === "lost" || outcome === "timeout") return "failed";
  return attempt > 1 ? "retry" : "work";
}
