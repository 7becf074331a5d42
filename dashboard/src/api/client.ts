/** The server's API, with types made from its OpenAPI document. */
import createClient from "openapi-fetch";
import { noteTime } from "../live/clock";
import { saved, savedAnswer } from "./saved";
import type { components, paths } from "./schema";

export type ExecutionLine = components["schemas"]["ExecutionLine"];
export type ExecutionPage = components["schemas"]["ExecutionPage"];
export type Snapshot = components["schemas"]["Snapshot"];
export type Summary = components["schemas"]["ExecutionSummary"];
export type StepList = components["schemas"]["StepList"];
export type StepRow = components["schemas"]["StepRow"];
export type StepForecasts = components["schemas"]["StepForecasts"];
export type OneStep = components["schemas"]["OneStep"];
export type PlanList = components["schemas"]["PlanList"];
export type CheckedPlan = components["schemas"]["CheckedPlan"];
export type UsedPlan = components["schemas"]["UsedPlan"];
export type Question = components["schemas"]["Question"];
export type SaidMessage = components["schemas"]["SaidMessage"];
export type TranscriptPage = components["schemas"]["TranscriptPage"];
export type EventPage = components["schemas"]["EventPage"];
export type ArtifactList = components["schemas"]["ArtifactList"];
export type FileChanges = components["schemas"]["FileChanges"];
export type ListedFolder = components["schemas"]["ListedFolder"];
export type FolderList = components["schemas"]["FolderList"];
export type WaitingGate = components["schemas"]["WaitingGate"];
export type Problem = components["schemas"]["ProblemDetails"];

export const api = createClient<paths>({ baseUrl: "", ...(saved && { fetch: savedAnswer }) });

/** An answer that is an error: what is wrong, and what to do about it. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly problem: Partial<Problem>,
  ) {
    super(problem.detail ?? `the server answered ${status}`);
  }

  get advice(): string[] {
    return this.problem.advice ?? [];
  }
}

interface Reply {
  data?: unknown;
  error?: unknown;
  response: Response;
}

let loggedOut = false;
const listeners = new Set<() => void>();

export const isLoggedOut = () => loggedOut;

/** Calls back when the login expires, and when it is good again. */
export function onLogin(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function noteLogin(status: number): void {
  if (loggedOut === (status === 401)) return;
  loggedOut = status === 401;
  for (const listener of listeners) listener();
}

/** The data of an answer, or an `ApiError`. The client knows no tuples, so the type is named. */
export async function given<T>(reply: Promise<Reply>): Promise<T> {
  const { data, error, response } = await reply;
  noteLogin(response.status);
  noteTime(response.headers.get("date"));
  if (!response.ok || data === undefined) throw new ApiError(response.status, (error ?? {}) as Partial<Problem>);
  return data as T;
}
