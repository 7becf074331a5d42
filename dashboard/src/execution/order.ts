/** The order of the rows: as the plan has them, or what needs a look first. */
import type { StepRow } from "../api/client";

export const FEW = 60; // steps that one sees at once: the graph shows them best

const FIRST: Record<string, number> = { failed: 0, waiting: 2, running: 1, paused: 3 };
const REST = 4;

function rank(step: StepRow): number {
  return step.asks ? -1 : (FIRST[step.status] ?? REST);
}

export function ordered(steps: readonly StepRow[]): StepRow[] {
  if (steps.length <= FEW) return [...steps];
  return steps
    .map((step, place) => ({ step, place, rank: rank(step) }))
    .sort((one, two) => one.rank - two.rank || one.place - two.place)
    .map(({ step }) => step);
}

/** The rows in which the text occurs: in their name, tool, agent, status, error or last output. */
export function found(steps: readonly StepRow[], text: string, status: string | null): StepRow[] {
  const wanted = text.trim().toLowerCase();
  return steps.filter((step) => {
    if (status !== null && step.status !== status) return false;
    if (!wanted) return true;
    const parts = [step.id, step.tool, step.status, step.role, step.runtime, step.model, step.error, step.last_output];
    return parts.some((part) => part?.toLowerCase().includes(wanted));
  });
}
