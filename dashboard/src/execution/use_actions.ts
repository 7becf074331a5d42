import { useState } from "react";
import { useLocation } from "wouter";
import { type Action, useAction } from "./actions";

export interface ExecutionActions {
  act: (action: Action) => void;
  busy: boolean;
  /** The action that is under way. */
  doing: Action["kind"] | null;
  error: Error | null;
  /** A question to the person before something is lost. */
  asking: Asking | null;
  ask: (asking: Asking | null) => void;
}

export interface Asking {
  title: string;
  text: string;
  word: string;
  action: Action;
}

/** The actions on an execution: one at a time, with the error of the last one. */
export function useActions(id: string, refresh: () => void): ExecutionActions {
  const [, navigate] = useLocation();
  const [asking, ask] = useState<Asking | null>(null);
  const mutation = useAction(id, (action, told) => {
    refresh();
    if (action.kind === "fork") navigate(`/executions/${told.id}`);
  });
  return {
    act: (action) => mutation.mutate(action, { onError: refresh }),
    busy: mutation.isPending,
    doing: mutation.isPending ? mutation.variables.kind : null,
    error: mutation.error,
    asking,
    ask,
  };
}
