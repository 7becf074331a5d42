import { keepPreviousData, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { Link } from "wouter";
import { api, given, type OneStep, type StepList } from "../api/client";
import type { LiveExecution } from "../live/use_execution";
import { Diff, looksLikeDiff } from "../ui/diff";
import { duration, money } from "../ui/format";
import { ProblemNotice } from "../ui/problem";
import { Status } from "../ui/status";
import { Text } from "../ui/text";
import { Attempts } from "./attempts";
import { Changes } from "./changes";
import { Failure } from "./failure";
import { Files } from "./files";
import { Items } from "./items";
import { Log } from "./log";
import { OneQuestion, type Question } from "./questions";
import { StepActions } from "./step_actions";
import { Tabs } from "./tabs";
import { Conversation } from "./transcript";
import type { ExecutionActions } from "./use_actions";
import { useStepEvents } from "./use_step_events";
import { Value } from "./value";
import { type CheckedAgent, Verdict } from "./verdict";
import { waitWords } from "./words";
import { Worktrees } from "./worktrees";

interface PaneProps {
  list: StepList;
  step: string;
  at: number | null;
  past: boolean;
  follow: LiveExecution["follow"];
  actions: ExecutionActions;
  choose: (step: string) => void;
  close: () => void;
}

export interface Detail extends OneStep {
  question?: Question | null;
  agent?: ({ role: string | null; runtime: string; model: string | null } & CheckedAgent) | null;
  items?: { total: number } | null;
  cost_usd?: number | null;
  queued_s?: number;
  waited_s?: number;
  worked_s?: number;
  skipped_because?: string | null;
  waiting_because?: string | null;
  waiting_for?: string | null;
}

/** Everything about one step. */
export function Pane({ list, step, at, past, follow, actions, choose, close }: PaneProps) {
  const execution = list.execution;
  const { data, error } = useStep(execution, step, at, follow);
  return (
    <aside className="pane" aria-label={`Step ${step}`}>
      <header className="pane-head">
        <h2>
          <Text>{step}</Text>
        </h2>
        <button type="button" className="quiet" aria-label="Close the step" onClick={close}>
          ✕
        </button>
      </header>
      {error && <ProblemNotice error={error} />}
      {data && <Whole {...{ list, data, at, past, follow, actions, choose }} />}
    </aside>
  );
}

/** A step with everything, asked for again when it changes. */
function useStep(execution: string, step: string, at: number | null, follow: LiveExecution["follow"]) {
  const queries = useQueryClient();
  const key = ["step", execution, step, at];
  useEffect(() => {
    if (at !== null) return;
    return follow(step, (events) => {
      if (events.some((event) => event.type !== "output.written")) {
        void queries.invalidateQueries({ queryKey: ["step", execution, step, null] });
      }
    });
  }, [follow, queries, execution, step, at]);
  return useQuery({
    queryKey: key,
    queryFn: () =>
      given<Detail>(
        api.GET("/api/executions/{execution}/steps/{step}", {
          params: { path: { execution, step }, query: { at } },
        }),
      ),
    placeholderData: keepPreviousData, // of another moment of the same step
    staleTime: at === null ? 0 : Number.POSITIVE_INFINITY,
    gcTime: 10_000, // outputs can be long
  });
}

type WholeProps = Omit<PaneProps, "step" | "close"> & { data: Detail };

function Whole({ list, data, at, past, follow, actions, choose }: WholeProps) {
  const { execution } = list;
  const events = useStepEvents(execution, data.id, at, follow);
  const isAgent = Boolean(data.agent) || data.tool === "agent" || events.prompts.length > 0;
  const tabs = [
    ...(data.items ? [{ name: "Items", part: <Items {...{ execution, at, choose }} step={data.id} /> }] : []),
    { name: "Output", part: <Output data={data} /> },
    ...(isAgent
      ? [{ name: "Conversation", part: <Conversation {...{ execution, follow, past }} step={data.id} until={at} /> }]
      : []),
    ...(isAgent && !past && !data.items
      ? [{ name: "Changes", part: <Changes execution={execution} step={data.id} status={data.status} /> }]
      : []),
    ...(!past && hasFolders(data, isAgent)
      ? [{ name: "Worktrees", part: <Worktrees {...{ execution, choose }} step={data.id} status={data.status} /> }]
      : []),
    { name: "Log", part: <Log events={events} /> },
    { name: "Input", part: <Input data={data} prompts={events.prompts} /> },
    { name: "Attempts", part: <Attempts data={data} events={events} /> },
    { name: "Files", part: <Files execution={execution} step={data.id} status={data.status} /> },
  ];
  const [tab, setTab] = useState(() => firstTab(data, isAgent));
  return (
    <>
      <Facts data={data} />
      {data.question && !past && (
        <OneQuestion execution={execution} question={{ ...data.question, step: data.id }} actions={actions} />
      )}
      {data.agent && <Verdict agent={data.agent} />}
      {data.error && <Failure step={data.id} error={data.error} choose={choose} />}
      {!past && <StepActions {...{ list, data, actions, isAgent }} />}
      <Tabs tabs={tabs} chosen={tab} choose={setTab} />
    </>
  );
}

/** A merge, an agent with a folder of its own, or several agents, of which each may have one. */
function hasFolders(data: Detail, isAgent: boolean): boolean {
  const given = data.input as { workspace?: unknown } | null;
  return data.tool === "merge" || (isAgent && Boolean(data.items || given?.workspace));
}

function firstTab(data: Detail, isAgent: boolean): string {
  if (data.items) return "Items";
  if (data.status === "completed") return "Output";
  return isAgent ? "Conversation" : "Log";
}

function Facts({ data }: { data: Detail }) {
  const agent = data.agent;
  const times = [
    ["queued", data.queued_s],
    ["waited", data.waited_s],
    ["worked", data.worked_s],
  ] as const;
  return (
    <p className="pane-facts">
      <Status status={data.status} />
      {data.waiting_for && <span className="wait">waits for {waitWords({ waiting_for: data.waiting_for })}</span>}
      {(data.waiting_because || data.skipped_because) && (
        <Text className="soft">{data.waiting_because ?? data.skipped_because}</Text>
      )}
      <Text>{agent ? [agent.role, agent.runtime, agent.model].filter(Boolean).join(" · ") : data.tool}</Text>
      {times.map(([word, seconds]) =>
        seconds ? (
          <span key={word} className="soft">
            {word} {duration(seconds)}
          </span>
        ) : null,
      )}
      {data.cost_usd ? <span className="soft">{money(data.cost_usd)}</span> : null}
    </p>
  );
}

function Output({ data }: { data: Detail }) {
  if (data.output === null) return <p className="soft">No output{data.status === "running" ? " yet" : ""}.</p>;
  const text = typeof data.output === "string" ? data.output : (data.output as { diff?: unknown })?.diff;
  return (
    <>
      {isDraft(data) && (
        <p>
          <Link href={`/start?draft=${data.execution}&step=${encodeURIComponent(data.id)}`}>
            Review, edit and start this plan
          </Link>
        </p>
      )}
      {looksLikeDiff(text) && <Diff text={text} />}
      <Value value={data.output} label="Output" />
    </>
  );
}

function isDraft(data: Detail): boolean {
  return typeof data.output === "string" && (data.input as { output?: unknown } | null)?.output === "plan";
}

function Input({ data, prompts }: { data: Detail; prompts: { attempt: number; system: string; prompt: string }[] }) {
  const last = prompts.at(-1);
  return (
    <>
      {last && (
        <>
          <h3>Prompt</h3>
          <Value value={last.prompt} label="Prompt" />
          <details>
            <summary>System prompt</summary>
            <Value value={last.system} label="System prompt" />
          </details>
        </>
      )}
      <h3>Input</h3>
      {data.input === null ? (
        <p className="soft">It has not been given its input yet.</p>
      ) : (
        <Value value={data.input} label="Input" />
      )}
    </>
  );
}
