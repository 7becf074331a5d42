import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef, useState } from "react";
import { api, given, type StepList, type StepRow } from "../api/client";
import { applyEvents } from "../live/rows";
import { type Connection, listen } from "../live/stream";
import { duration, money } from "../ui/format";
import { ProblemNotice } from "../ui/problem";
import { Status } from "../ui/status";

const ROW = 32;

export function ExecutionPage({ id }: { id: string }) {
  const { data, error } = useQuery({
    queryKey: ["steps", id],
    queryFn: () =>
      given<StepList>(api.GET("/api/executions/{execution}/steps", { params: { path: { execution: id } } })),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const connection = useLiveSteps(id, data);
  if (error) return <ProblemNotice error={error} />;
  if (!data) return <p>Loading …</p>;
  return (
    <section aria-labelledby="execution">
      <header className="execution">
        <h1 id="execution">
          <bdi>{data.plan}</bdi>
        </h1>
        <Status status={data.status} reason={data.reason} />
        <progress value={data.progress} max={100} aria-label="Progress" />
        <span>{Math.round(data.progress)} %</span>
        {connection !== "live" && <span className="connection">{connection}</span>}
      </header>
      <Steps list={data} />
    </section>
  );
}

function Steps({ list }: { list: StepList }) {
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: list.steps.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 12,
  });
  return (
    <div ref={box} className="steps" role="table" aria-rowcount={list.steps.length} aria-label="Steps">
      <div style={{ height: rows.getTotalSize(), position: "relative" }}>
        {rows.getVirtualItems().map((item) => {
          const step = list.steps[item.index];
          return step && <Row key={step.id} step={step} top={item.start} place={item.index} />;
        })}
      </div>
    </div>
  );
}

function Row({ step, top, place }: { step: StepRow; top: number; place: number }) {
  const took = step.started !== null && step.finished !== null ? step.finished - step.started : null;
  return (
    <div
      className="row"
      role="row"
      aria-rowindex={place + 1}
      style={{ transform: `translateY(${top}px)`, height: ROW }}
    >
      <span role="cell">
        <Status status={step.status} reason={step.waiting_for} />
      </span>
      <bdi role="cell" className="name">
        {step.id}
      </bdi>
      <span role="cell">{step.tool}</span>
      <span role="cell">{took === null ? "" : duration(took)}</span>
      <span role="cell">{step.cost_usd ? money(step.cost_usd) : ""}</span>
      <bdi role="cell" className="last">
        {step.error ?? step.last_output}
      </bdi>
    </div>
  );
}

/** Keeps the rows up to date with the stream, from the event that they were read after. */
function useLiveSteps(id: string, list: StepList | undefined): Connection {
  const queries = useQueryClient();
  const [connection, setConnection] = useState<Connection>("connecting");
  const after = list?.seq;
  const begun = useRef<number | null>(null);
  if (begun.current === null && after !== undefined) begun.current = after;
  const ready = after !== undefined;
  useEffect(() => {
    if (!ready) return;
    return listen({
      path: `/api/executions/${id}/stream`,
      after: begun.current,
      by: "seq",
      connection: setConnection,
      events: (batch) => {
        let again = false;
        queries.setQueryData<StepList>(["steps", id], (old) => {
          if (!old) return old;
          const [rows, asks] = applyEvents(old, batch);
          again = asks;
          return rows;
        });
        if (again) void queries.invalidateQueries({ queryKey: ["steps", id] });
      },
    });
  }, [id, ready, queries]);
  return connection;
}
