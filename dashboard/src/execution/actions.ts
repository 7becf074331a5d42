/** What a person can do to an execution. Each action says what is wrong if it is refused. */
import { useMutation } from "@tanstack/react-query";
import { api, given, type SaidMessage, type Snapshot } from "../api/client";
import type { components } from "../api/schema";

export type Runtime = NonNullable<components["schemas"]["RetryStep"]["runtime"]>;
/** As a record, because then the compiler says if one is missing. */
const RUNTIME_NAMES: Record<Runtime, true> = {
  "claude-code": true,
  "open-code": true,
  cli: true,
  codex: true,
  gemini: true,
  acp: true,
};
export const RUNTIMES = Object.keys(RUNTIME_NAMES) as Runtime[];

export type Action =
  | { kind: "pause" | "resume" | "cancel" }
  | { kind: "approve"; step: string; allow: boolean; note: string; digest: string }
  | { kind: "decide"; step: string; choice: "again" | "done" | "fail" }
  | { kind: "budget"; step: string; scope: string; unit: "usd" | "tokens"; allow: boolean; limit: number | null }
  | { kind: "retry"; step: string; with?: Record<string, unknown>; runtime?: Runtime; model?: string; fresh?: boolean }
  | { kind: "skip"; step: string }
  | {
      kind: "fork";
      step: string;
      inputs: Record<string, unknown>;
      fresh: boolean;
      plan: Record<string, unknown> | null;
    };

type Scope = "step" | "execution" | "day" | "month";

export function useAction(id: string, done: (action: Action, told: Snapshot) => void) {
  return useMutation({
    mutationFn: (action: Action) => send(id, action),
    onSuccess: (told, action) => done(action, told),
  });
}

async function send(execution: string, action: Action): Promise<Snapshot> {
  const path = { execution };
  switch (action.kind) {
    case "pause":
      return given(
        api.POST("/api/executions/{execution}/pause", { params: { path }, body: { now: false, within: 0 } }),
      );
    case "cancel":
      return given(api.POST("/api/executions/{execution}/cancel", { params: { path }, body: { within: 0 } }));
    case "resume":
      return given(api.POST("/api/executions/{execution}/resume", { params: { path } }));
    case "approve": {
      const { step, allow, note, digest } = action;
      const told = await given<Snapshot>(
        api.POST("/api/approvals/{execution}/{step}", {
          params: { path: { execution, step } },
          body: { allow, note, digest },
        }),
      );
      return goOn(execution, told);
    }
    case "decide": {
      const { step, choice } = action;
      const told = await given<Snapshot>(
        api.POST("/api/executions/{execution}/decisions", { params: { path }, body: { step, choice } }),
      );
      return goOn(execution, told);
    }
    case "budget": {
      const { step, allow, unit, limit } = action;
      const scope = action.scope as Scope;
      const told = await given<Snapshot>(
        api.POST("/api/executions/{execution}/budget", {
          params: { path },
          body: { allow, scope, step: scope === "step" ? step : "", ...(allow ? { [unit]: limit } : {}) },
        }),
      );
      return goOn(execution, told);
    }
    case "retry": {
      const { step, kind: _kind, ...body } = action;
      return given(
        api.POST("/api/executions/{execution}/steps/{step}/retry", { params: { path: { execution, step } }, body }),
      );
    }
    case "skip":
      return given(
        api.POST("/api/executions/{execution}/steps/{step}/skip", {
          params: { path: { execution, step: action.step } },
        }),
      );
    case "fork":
      return given(
        api.POST("/api/executions/{execution}/fork", {
          params: { path },
          body: { from_step: action.step, inputs: action.inputs, fresh: action.fresh, plan: action.plan },
        }),
      );
  }
}

/** An answer to an execution that stands still is followed by its resumption, unless somebody paused it. */
async function goOn(execution: string, told: Snapshot): Promise<Snapshot> {
  const asked = told.status === "paused" && ["approval", "decision", "budget"].includes(told.reason ?? "");
  if (!asked || told.steps.some((step) => step.question)) return told;
  return given(api.POST("/api/executions/{execution}/resume", { params: { path: { execution } } }));
}

export function say(execution: string, step: string, text: string): Promise<SaidMessage> {
  return given(
    api.POST("/api/executions/{execution}/steps/{step}/say", {
      params: { path: { execution, step } },
      body: { text, within: 5 },
    }),
  );
}
