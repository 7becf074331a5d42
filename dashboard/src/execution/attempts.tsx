import { duration } from "../ui/format";
import { Text } from "../ui/text";
import type { Detail } from "./pane";
import type { StepEvents } from "./use_step_events";
import { clockTime } from "./words";

type Stretch = Detail["stretches"][number];

/** Every try of a step: when, how long, and how it ended. */
export function Attempts({ data, events }: { data: Detail; events: StepEvents }) {
  const attempts = byAttempt(data.stretches);
  if (attempts.length === 0) return <p className="soft">It has not been tried yet.</p>;
  return (
    <div className="scroll">
      <table>
        <thead>
          <tr>
            <th>Attempt</th>
            <th>Began</th>
            <th>Queued</th>
            <th>Worked</th>
            <th>Outcome</th>
          </tr>
        </thead>
        <tbody>
          {attempts.map(({ attempt, queue, work }) => {
            const end = events.ends.findLast((one) => one.attempt === attempt);
            return (
              <tr key={attempt}>
                <td className="number">{attempt}</td>
                <td>{clockTime((queue ?? work)?.[1] ?? 0)}</td>
                <td className="number">{queue ? span(queue) : ""}</td>
                <td className="number">{work ? span(work) : ""}</td>
                <td>
                  <Outcome outcome={end?.outcome ?? work?.[4] ?? ""} />
                  {end?.message && (
                    <div className="attempt-error">
                      <Text>{end.message.slice(0, 1000)}</Text>
                    </div>
                  )}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

const WORDS: Record<string, string> = {
  "": "running",
  lost: "cut off by a crash",
  changed: "what was approved has changed: nothing was done",
  critical: "stopped: a critical step failed",
  timeout: "stopped: its time was over",
  quota: "stopped: the quota is used up",
  budget: "stopped: the budget is used up",
};

function Outcome({ outcome }: { outcome: string }) {
  const kind = outcome === "completed" ? "good" : outcome === "failed" ? "bad" : "soft";
  return <span className={kind}>{WORDS[outcome] ?? outcome}</span>;
}

function span([, start, end]: Stretch): string {
  return end === null ? "…" : duration(end - start);
}

function byAttempt(stretches: readonly Stretch[]) {
  const found = new Map<number, { attempt: number; queue?: Stretch; work?: Stretch }>();
  for (const stretch of stretches) {
    const [kind, , , attempt] = stretch;
    if (kind !== "queue" && kind !== "work") continue;
    found.set(attempt, { attempt, ...found.get(attempt), [kind]: stretch });
  }
  return [...found.values()];
}
