import type { StepList, Summary } from "../api/client";
import { Dialog } from "../ui/dialog";
import { Text } from "../ui/text";
import type { ExecutionActions } from "./use_actions";

const OVER = ["completed", "partial", "failed", "cancelled"];

export const canPause = (list: StepList) => list.status === "running";

export function canResume(list: StepList, summary: Summary | undefined): boolean {
  if (list.status === "paused" || list.status === "pending") return true;
  return list.status === "running" && summary?.driven === false;
}

export const CANCEL = {
  title: "Cancel this execution?",
  text: "Running steps are stopped and the execution ends for good. What is completed stays.",
  word: "Cancel the execution",
  action: { kind: "cancel" },
} as const;

/** Pause, resume, cancel. */
export function Controls({
  list,
  summary,
  actions,
}: {
  list: StepList;
  summary: Summary | undefined;
  actions: ExecutionActions;
}) {
  if (OVER.includes(list.status)) return null;
  const { act, ask, busy, doing } = actions;
  return (
    <div className="row-of controls">
      {canResume(list, summary) ? (
        <button type="button" className="primary" disabled={busy} onClick={() => act({ kind: "resume" })}>
          {doing === "resume" ? "Resuming …" : "Resume"}
        </button>
      ) : (
        <button
          type="button"
          disabled={busy}
          title="Running steps finish, no new ones start"
          onClick={() => act({ kind: "pause" })}
        >
          {doing === "pause" ? "Pausing …" : "Pause"}
        </button>
      )}
      <button type="button" className="danger" disabled={busy} onClick={() => ask(CANCEL)}>
        {doing === "cancel" ? "Cancelling …" : "Cancel"}
      </button>
    </div>
  );
}

/** The question before an action by which something is lost. */
export function Confirmation({ actions }: { actions: ExecutionActions }) {
  const { asking, ask, act } = actions;
  if (!asking) return null;
  const answer = () => {
    ask(null);
    act(asking.action);
  };
  return (
    <Dialog title={asking.title} close={() => ask(null)}>
      <p>
        <Text>{asking.text}</Text>
      </p>
      <div className="row-of">
        <button type="button" className="danger" onClick={answer}>
          {asking.word}
        </button>
        <button type="button" onClick={() => ask(null)}>
          Back
        </button>
      </div>
    </Dialog>
  );
}
