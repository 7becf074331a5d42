/** The state of an execution and of its steps, in plain words. */
import type { StepList, StepRow, Summary } from "../api/client";
import { duration } from "../ui/format";

const PAUSED: Record<string, string> = {
  pause: "a person paused it",
  interrupt: "a person stopped it",
  approval: "it waits for an approval",
  decision: "it waits for a decision about an outcome that nobody saw",
  budget: "its budget is used up",
  quota: "the quota of a provider is used up",
  crash: "the process that ran it ended",
};

const WAITS: Record<string, string> = {
  approval: "your approval",
  outcome: "your decision",
  budget: "budget",
  quota: "a provider's quota",
  retry: "the next try",
  place: "a free slot",
  model: "the model's API",
};

export function waitWords(step: Pick<StepRow, "waiting_for">): string {
  return step.waiting_for ? (WAITS[step.waiting_for] ?? step.waiting_for) : "";
}

/** One sentence: what it does, or why it does not. */
export function stateSentence(list: StepList, summary: Summary | undefined): string {
  const took = list.started !== null && list.finished !== null ? duration(list.finished - list.started) : "";
  switch (list.status) {
    case "pending":
      return "not started yet";
    case "running":
      return summary && !summary.driven ? "no process runs it: resume it" : runningWords(list.steps);
    case "paused":
      return PAUSED[list.reason ?? ""] ?? list.reason ?? "a person paused it";
    case "completed":
      return took ? `in ${took}` : "";
    case "cancelled":
      return took ? `after ${took}` : "";
    default:
      return [endWords(list.steps), took && `after ${took}`].filter(Boolean).join(", ");
  }
}

/** The status as people see it, and as the list of executions has it: one that only a person holds up waits. */
export function shownStatus(list: StepList, summary: Summary | undefined): string {
  const waits = list.status === "running" && summary?.driven !== false && waitsForPerson(list.steps);
  return waits ? "waiting" : list.status;
}

function waitsForPerson(steps: readonly StepRow[]): boolean {
  return steps.some((step) => step.asks) && !steps.some((step) => step.status === "running");
}

function runningWords(steps: readonly StepRow[]): string {
  if (waitsForPerson(steps)) return "for you";
  const busy = steps.filter((step) => step.status === "running");
  if (busy.length === 0) return steps.some((step) => step.status === "waiting") ? "its steps wait" : "";
  const more = busy.length > 2 ? ` and ${busy.length - 2} more` : "";
  return `${busy
    .slice(0, 2)
    .map((step) => step.id)
    .join(", ")}${more}`;
}

function endWords(steps: readonly StepRow[]): string {
  const count = (status: string) => steps.filter((step) => step.status === status).length;
  const failed = count("failed");
  const skipped = count("skipped");
  const parts = [failed && `${failed} failed`, skipped && `${skipped} skipped`].filter(Boolean);
  return parts.length > 0 ? `${parts.join(", ")} of ${steps.length} steps` : "";
}

export function clockTime(at: number): string {
  return new Date(at * 1000).toLocaleTimeString("en-GB");
}
