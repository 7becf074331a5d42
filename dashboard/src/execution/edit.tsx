import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, given, type StepList, type UsedPlan } from "../api/client";
import { Dialog } from "../ui/dialog";
import type { Detail } from "./pane";
import type { ExecutionActions } from "./use_actions";

interface EditProps {
  data: Detail;
  actions: ExecutionActions;
  close: () => void;
}

type Values = Record<string, unknown>;

/** The object that a text is as JSON, or what is wrong with it. */
export function parsed(text: string): Values | string {
  try {
    const value: unknown = JSON.parse(text);
    if (typeof value === "object" && value !== null && !Array.isArray(value)) return value as Values;
    return "This must be a JSON object: {…}";
  } catch (error) {
    return `This is not JSON: ${(error as Error).message}`;
  }
}

/** The values that differ from those before. */
export function changed(before: Values, now: Values): Values {
  const differs = (name: string) => JSON.stringify(before[name]) !== JSON.stringify(now[name]);
  return Object.fromEntries(Object.entries(now).filter(([name]) => differs(name)));
}

function JsonField({ label, text, setText }: { label: string; text: string; setText: (text: string) => void }) {
  const value = parsed(text);
  return (
    <label>
      {label}
      <textarea
        className="code"
        rows={Math.min(20, Math.max(4, text.split("\n").length))}
        spellCheck={false}
        value={text}
        onChange={(event) => setText(event.target.value)}
      />
      {typeof value === "string" && <span className="bad">{value}</span>}
    </label>
  );
}

/** Retries a step with other arguments than the plan's. */
export function EditInput({ data, actions, close }: EditProps) {
  const before = (data.input ?? {}) as Values;
  const [text, setText] = useState(JSON.stringify(before, null, 2));
  const value = parsed(text);
  const edits = typeof value === "string" ? {} : changed(before, value);
  const send = () => {
    actions.act({ kind: "retry", step: data.id, with: edits });
    close();
  };
  return (
    <Dialog title={`Retry ${data.id} with other input`} close={close}>
      <form action={send} className="form">
        <JsonField label="Input" text={text} setText={setText} />
        <p className="soft">
          {Object.keys(edits).length > 0 ? `Changes: ${Object.keys(edits).join(", ")}` : "Nothing is changed."}
        </p>
        <div className="row-of">
          <button type="submit" className="primary" disabled={Object.keys(edits).length === 0}>
            Retry with this input
          </button>
          <button type="button" onClick={close}>
            Back
          </button>
        </div>
      </form>
    </Dialog>
  );
}

/** The plan with its step of that name replaced; undefined when the text says the same as before. */
export function edited(plan: Values, name: string, step: Values): Values | undefined {
  const steps = (plan.steps ?? []) as Values[];
  const before = steps.find((one) => one.id === name);
  if (!before || JSON.stringify(before) === JSON.stringify(step)) return undefined;
  return { ...plan, steps: steps.map((one) => (one === before ? step : one)) };
}

/** Runs a step and all after it again, in a new execution. */
export function RunAgain({ list, ...rest }: EditProps & { list: StepList; isAgent: boolean }) {
  const { execution } = list;
  const { data: used } = useQuery({
    queryKey: ["plan", execution],
    queryFn: () => given<UsedPlan>(api.GET("/api/plans/{execution}", { params: { path: { execution } } })),
    staleTime: Number.POSITIVE_INFINITY,
  });
  return used ? <RunAgainForm used={used} {...rest} /> : null;
}

function RunAgainForm({ used, data, actions, close, isAgent }: EditProps & { used: UsedPlan; isAgent: boolean }) {
  const before = (used.inputs ?? {}) as Values;
  const plan = used.plan as Values;
  const name = data.id.replace(/\[\d+\]$/, "");
  const own = ((plan.steps ?? []) as Values[]).find((one) => one.id === name);
  const [text, setText] = useState(JSON.stringify(before, null, 2));
  const [stepText, setStepText] = useState(JSON.stringify(own ?? {}, null, 2));
  const [fresh, setFresh] = useState(false);
  const value = parsed(text);
  const step = parsed(stepText);
  const wrong = typeof value === "string" || typeof step === "string";
  const send = () => {
    if (wrong) return;
    const other = own && edited(plan, name, step);
    actions.act({ kind: "fork", step: data.id, inputs: changed(before, value), fresh, plan: other ?? null });
    close();
  };
  return (
    <Dialog title={`Run again from ${data.id}`} close={close}>
      <form action={send} className="form">
        <p>
          A new execution keeps the results before this step, and runs this step and all after it. This execution and
          the plan's file stay as they are.
        </p>
        {Object.keys(before).length > 0 && <JsonField label="Inputs of the plan" text={text} setText={setText} />}
        {own && <JsonField label="The step in the plan" text={stepText} setText={setStepText} />}
        {isAgent && (
          <label className="check">
            <input type="checkbox" checked={fresh} onChange={(event) => setFresh(event.target.checked)} /> Begin a new
            conversation with its agent
          </label>
        )}
        <div className="row-of">
          <button type="submit" className="primary" disabled={wrong}>
            Run again
          </button>
          <button type="button" onClick={close}>
            Back
          </button>
        </div>
      </form>
    </Dialog>
  );
}
