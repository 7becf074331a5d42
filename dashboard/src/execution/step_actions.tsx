import { useState } from "react";
import type { StepList } from "../api/client";
import { Dialog } from "../ui/dialog";
import { RUNTIMES, type Runtime } from "./actions";
import { EditInput, RunAgain } from "./edit";
import type { Detail } from "./pane";
import type { ExecutionActions } from "./use_actions";

interface StepActionsProps {
  list: StepList;
  data: Detail;
  actions: ExecutionActions;
  isAgent: boolean;
}

const OPEN = ["pending", "running", "waiting", "paused"];

/** What can be done about a step: the advice of its error, as buttons. */
export function StepActions({ list, data, actions, isAgent }: StepActionsProps) {
  const [dialog, setDialog] = useState<"edit" | "runtime" | "fork" | null>(null);
  const step = data.id;
  const ended = ["completed", "cancelled"].includes(list.status);
  const canRetry = data.status === "failed" && !ended;
  const canSkip = (data.status === "failed" || OPEN.includes(data.status)) && !ended;
  const canFork = !step.includes("[") && list.status !== "pending";
  if (!canRetry && !canSkip && !canFork) return null;
  const close = () => setDialog(null);
  return (
    <div className="row-of step-actions" role="group" aria-label="Actions on the step">
      {canRetry && (
        <button
          type="button"
          className="primary"
          disabled={actions.busy}
          onClick={() => actions.act({ kind: "retry", step })}
        >
          {data.items ? "Retry failed items" : "Retry"}
        </button>
      )}
      {canRetry && !data.items && (
        <button type="button" onClick={() => setDialog("edit")}>
          Edit input …
        </button>
      )}
      {canRetry && isAgent && (
        <button type="button" onClick={() => setDialog("runtime")}>
          Change runtime …
        </button>
      )}
      {canSkip && (
        <button
          type="button"
          disabled={actions.busy}
          onClick={() =>
            actions.ask({
              title: `Skip ${step}?`,
              text: "It is stopped if it runs, and does not run again. Steps that depend on it get null for its output.",
              word: "Skip the step",
              action: { kind: "skip", step },
            })
          }
        >
          Skip …
        </button>
      )}
      {canFork && (
        <button type="button" onClick={() => setDialog("fork")}>
          Run again from here …
        </button>
      )}
      {dialog === "edit" && <EditInput {...{ data, actions, close }} />}
      {dialog === "fork" && <RunAgain {...{ list, data, actions, close, isAgent }} />}
      {dialog === "runtime" && <ChangeRuntime {...{ data, actions, close }} />}
    </div>
  );
}

function ChangeRuntime({ data, actions, close }: Pick<StepActionsProps, "data" | "actions"> & { close: () => void }) {
  const [runtime, setRuntime] = useState<Runtime>(RUNTIMES.find((name) => name !== data.agent?.runtime) ?? "cli");
  const [model, setModel] = useState("");
  const send = () => {
    actions.act({ kind: "retry", step: data.id, runtime, ...(model ? { model } : {}) });
    close();
  };
  return (
    <Dialog title={`Retry ${data.id} on another runtime`} close={close}>
      <form action={send} className="form">
        <label>
          Runtime
          <select value={runtime} onChange={(event) => setRuntime(event.target.value as Runtime)}>
            {RUNTIMES.map((name) => (
              <option key={name}>{name}</option>
            ))}
          </select>
        </label>
        <label>
          Model
          <input placeholder="as before" value={model} onChange={(event) => setModel(event.target.value)} />
        </label>
        <p className="soft">A conversation cannot move to another runtime: the agent begins a new one.</p>
        <div className="row-of">
          <button type="submit" className="primary">
            Retry
          </button>
          <button type="button" onClick={close}>
            Back
          </button>
        </div>
      </form>
    </Dialog>
  );
}
