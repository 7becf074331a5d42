/** Rows of steps, kept up to date by events.
 *
 * Only what an event says by itself is applied here. Events that change other steps by the engine's rules (a retry, a
 * changed plan, a resume) ask for the rows again: the rules are the server's alone.
 */
import type { StepList, StepRow } from "../api/client";
import type { StreamEvent } from "./stream";

const ASKS_AGAIN = new Set([
  "execution.resumed",
  "execution.replanned",
  "execution.reopened",
  "step.retried",
  "step.skip_requested",
  "step.expanded",
  "decision.made",
  "budget.answered",
  "approval.answered",
]);

type Stretch = StepRow["stretches"][number];

/** The rows after these events, and whether they have to be asked for again. */
export function applyEvents(list: StepList, events: StreamEvent[]): [StepList, boolean] {
  const places = new Map(list.steps.map((step, place) => [step.id, place]));
  const steps = [...list.steps];
  const copied = new Set<number>();
  let { status, progress, seq, at, finished, started, reason } = list;
  let again = false;
  for (const event of events) {
    if (event.seq <= seq) continue;
    seq = event.seq;
    at = event.at;
    status = event.status ?? status;
    progress = event.progress ?? progress;
    again ||= ASKS_AGAIN.has(event.type);
    if (event.type === "execution.started") started ??= event.at;
    if (event.type === "execution.finished") finished = event.at;
    if (event.type === "execution.paused") reason = String(event.reason ?? "");
    const place = event.step === undefined ? undefined : places.get(event.step);
    if (place === undefined) {
      again ||= event.step?.includes("[") === true && event.type !== "output.written";
      continue;
    }
    const row = steps[place];
    if (!row) continue;
    if (!copied.has(place)) {
      copied.add(place);
      steps[place] = { ...row, stretches: [...row.stretches] };
    }
    applyToStep(steps[place] as StepRow, event);
  }
  return [{ ...list, steps, status, progress, seq, at, finished, started, reason }, again];
}

function applyToStep(row: StepRow, event: StreamEvent): void {
  switch (event.type) {
    case "attempt.started":
      endWait(row, event.at);
      row.status = "running";
      row.attempts = Number(event.attempt);
      row.started ??= event.at;
      row.waiting_for = row.waiting_because = null;
      row.asks = false;
      row.stretches.push(["work", event.at, null, row.attempts, ""]);
      break;
    case "attempt.finished":
      endAttempt(row, event, "completed");
      row.status = "completed";
      row.finished = event.at;
      break;
    case "attempt.failed":
      endAttempt(row, event, "failed");
      break;
    case "attempt.stopped":
      endAttempt(row, event, String(event.reason));
      row.status = "paused";
      break;
    case "step.waiting":
      wait(row, event.at, String(event.reason), event.reason === "outcome");
      row.until = (event.until as number | null) ?? null;
      break;
    case "approval.asked":
      wait(row, event.at, "approval", true);
      break;
    case "step.completed":
    case "step.failed":
    case "step.skipped":
      endWait(row, event.at);
      row.status = event.type.slice("step.".length);
      row.finished = event.at;
      if (event.type === "step.failed") {
        const failure = event.failure as { category: string; message: string };
        row.category = failure.category;
        row.error = failure.message.slice(0, 300);
      }
      break;
    case "output.written": {
      const lines = String(event.text).trimEnd().split("\n");
      const last = lines.at(-1);
      if (last?.trim()) row.last_output = last.slice(-500);
      break;
    }
  }
}

function wait(row: StepRow, at: number, reason: string, person: boolean): void {
  endWait(row, at);
  row.status = "waiting";
  row.waiting_for = reason;
  row.asks = person;
  row.stretches.push([person ? "person" : "wait", at, null, row.attempts, reason]);
}

function endWait(row: StepRow, at: number): void {
  end(row, at, (stretch) => stretch[0] === "wait" || stretch[0] === "person");
}

function endAttempt(row: StepRow, event: StreamEvent, outcome: string): void {
  const queued = Number(event.queued ?? 0);
  row.stretches = row.stretches.flatMap((stretch): Stretch[] => {
    const [kind, start, until, attempt] = stretch;
    if (kind !== "work" || until !== null) return [stretch];
    const worked = Math.min(event.at, start + queued);
    const work: Stretch = ["work", worked, event.at, attempt, outcome];
    return queued > 0 ? [["queue", start, worked, attempt, ""], work] : [work];
  });
}

function end(row: StepRow, at: number, which: (stretch: Stretch) => boolean): void {
  row.stretches = row.stretches.map((stretch) =>
    which(stretch) && stretch[2] === null ? ([stretch[0], stretch[1], at, stretch[3], stretch[4]] as Stretch) : stretch,
  );
}
