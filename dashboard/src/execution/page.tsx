import { useDeferredValue, useMemo, useRef, useState } from "react";
import type { StepList, Summary } from "../api/client";
import { Graph } from "../graph/graph";
import { useKeys } from "../keys/keys";
import { useExecution } from "../live/use_execution";
import { Timeline } from "../timeline/timeline";
import { ProblemNotice } from "../ui/problem";
import { type Address, useAddress, type View } from "./address";
import { CANCEL, Confirmation, canPause, canResume } from "./controls";
import { Header } from "./header";
import { type LinesProps, StepTable } from "./list";
import { FEW } from "./order";
import { Pane } from "./pane";
import { Questions } from "./questions";
import { Scrubber } from "./scrubber";
import { Toolbar } from "./toolbar";
import { useActions } from "./use_actions";
import { type Filter, useLines } from "./use_lines";
import "./execution.css";

const NO_FILTER: Filter = { text: "", status: null };

/** The page of one execution. */
export function ExecutionPage({ id }: { id: string }) {
  const [address, change] = useAddress();
  const live = useExecution(id, address.at);
  const actions = useActions(id, live.refresh);
  const { list, summary } = live;
  if (!list) return live.error ? <ProblemNotice error={live.error} /> : <p className="soft">Loading …</p>;
  const past = address.at !== null || live.connection === "saved";
  return (
    <section className="run" aria-labelledby="execution">
      <Header {...{ list, summary, past, actions }} summaryAt={live.summaryAt} connection={live.connection} />
      {live.error && <ProblemNotice error={live.error} />}
      {actions.error && <ProblemNotice error={actions.error} />}
      {summary && !past && (
        <Questions execution={list.execution} summary={summary} actions={actions} select={(step) => change({ step })} />
      )}
      {live.connection !== "saved" && (
        <Scrubber list={list} last={live.last} at={address.at} go={(at) => change({ at })} />
      )}
      <Steps key={id} {...{ list, live, actions, address, change, past }} />
      <Confirmation actions={actions} />
    </section>
  );
}

interface StepsProps {
  list: StepList;
  live: ReturnType<typeof useExecution>;
  actions: ReturnType<typeof useActions>;
  address: Address;
  /** Nothing can be done: it is a moment of the past, or a saved copy. */
  past: boolean;
  change: (change: Partial<Address>) => void;
}

/** The steps as a graph, a timeline or a list, with one selection, and the pane of the selected one. */
function Steps({ list, live, actions, address, change, past }: StepsProps) {
  const [filter, setFilter] = useState(NO_FILTER);
  const [open, setOpen] = useState<readonly string[]>([]);
  const [paneOpen, setPaneOpen] = useState(address.step !== null);
  const search = useRef<HTMLInputElement>(null);
  const few = useRef(list.steps.length <= FEW).current;
  const view: View = address.view ?? (few ? "graph" : "timeline");
  const lines = useLines(list, open, useDeferredValue(filter), address.at);
  const choose = useMemo(
    () => (step: string) => {
      setPaneOpen(true);
      change({ step });
    },
    [change],
  );
  const toggle = useMemo(
    () => (step: string) =>
      setOpen((old) => (old.includes(step) ? old.filter((name) => name !== step) : [...old, step])),
    [],
  );
  const move = (by: number) => {
    const place = lines.findIndex((line) => line.step.id === address.step);
    const next = lines[Math.max(0, Math.min(lines.length - 1, place + by))];
    if (next) change({ step: next.step.id });
  };
  const enter = () => {
    const focused = document.activeElement;
    if (focused instanceof HTMLElement && focused.matches("button, a, summary, [role=tab]")) focused.click();
    else if (address.step) setPaneOpen(true);
  };
  useKeys("This execution", [
    { keys: "j", does: "Next step", run: () => move(1) },
    { keys: "k", does: "Previous step", run: () => move(-1) },
    { keys: "Enter", does: "Open the step", run: enter },
    { keys: "Escape", does: "Close the step", run: () => setPaneOpen(false) },
    { keys: "/", does: "Search the steps", run: () => search.current?.focus() },
    { keys: "p", does: "Pause", run: () => !past && canPause(list) && actions.act({ kind: "pause" }) },
    { keys: "r", does: "Resume", run: () => !past && canResume(list, live.summary) && actions.act({ kind: "resume" }) },
    { keys: "c", does: "Cancel (asks first)", run: () => !past && canPause(list) && actions.ask(CANCEL) },
  ]);
  const shown = { lines, selected: address.step, choose, open, toggle };
  return (
    <div className={`run-body${paneOpen && address.step ? " with-pane" : ""}`}>
      <div className="run-steps">
        <Toolbar
          {...{ list, view, filter, setFilter, search }}
          setView={(wanted) => change({ view: wanted })}
          shown={lines.length}
        />
        <StepsView {...{ view, list, past }} summary={live.summary} {...shown} />
      </div>
      {paneOpen && address.step && (
        <Pane
          key={address.step}
          list={list}
          step={address.step}
          at={address.at}
          past={past}
          follow={live.follow}
          actions={actions}
          choose={choose}
          close={() => setPaneOpen(false)}
        />
      )}
    </div>
  );
}

interface ViewProps extends LinesProps {
  view: View;
  list: StepList;
  summary: Summary | undefined;
  past: boolean;
}

function StepsView({ view, list, summary, past, ...lines }: ViewProps) {
  switch (view) {
    case "graph":
      return <Graph list={list} {...lines} />;
    case "timeline":
      return <Timeline {...{ list, summary, past }} {...lines} />;
    case "list":
      return <StepTable {...lines} />;
  }
}
