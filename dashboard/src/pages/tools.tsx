import { useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { api, given, type WaitingGate } from "../api/client";
import { type Breaker, look, type Runtimes, type ToolRow } from "../api/figures";
import { useKeys } from "../keys/keys";
import { duration } from "../ui/format";
import { type Health, useHealth, useTitle } from "../ui/home";
import { Notice } from "../ui/notice";
import { ProblemNotice } from "../ui/problem";
import { Table } from "../ui/table";
import { Text } from "../ui/text";
import { WaitCount, Waiting } from "./waiting";

const LOOK_EVERY = 10_000;
const LOOK_AT_WAITS_EVERY = 3_000;

export default function ToolsPage() {
  useTitle("Tools and runtimes");
  const health = useHealth();
  const tools = useQuery({
    queryKey: ["tools"],
    queryFn: () => look<ToolRow[]>("/api/tools"),
    refetchInterval: LOOK_EVERY,
  });
  const runtimes = useQuery({
    queryKey: ["runtimes"],
    queryFn: () => look<Runtimes>("/api/runtimes"),
    refetchInterval: LOOK_EVERY,
  });
  const waiting = useQuery({
    queryKey: ["waiting"],
    queryFn: () => given<WaitingGate[]>(api.GET("/api/waiting")),
    refetchInterval: LOOK_AT_WAITS_EVERY,
  });
  const at = (gate: WaitingGate["gate"], name: string) =>
    waiting.data?.find((one) => one.gate === gate && one.name === name);
  const error = tools.error ?? runtimes.error ?? waiting.error;
  const breakers = Object.entries(runtimes.data?.breakers ?? {});
  return (
    <section className="page" aria-labelledby="tools">
      <h1 id="tools">Tools and runtimes</h1>
      {error && <ProblemNotice error={error} />}
      <div className="columns">
        {health && <AtWork health={health} />}
        <section className="card" aria-label="Runtimes">
          <h2>Runtimes</h2>
          <ul className="unlisted">
            {runtimes.data?.runtimes.map((runtime) => (
              <li key={runtime.name}>
                <Sign good={runtime.ok} /> <strong>{runtime.name}</strong>{" "}
                <Text className="soft">{runtime.detail}</Text>
                {!runtime.ok && runtime.advice && (
                  <p className="soft">
                    <Text>{runtime.advice}</Text>
                  </p>
                )}
              </li>
            ))}
          </ul>
        </section>
      </div>
      <Waiting gates={waiting.data ?? []} />
      <section className="card" aria-label="Breakers">
        <h2>Breakers</h2>
        <Table
          caption="Tools, hosts and runtimes that failed lately"
          rows={breakers}
          id={([name]) => name}
          empty="No tool, host or runtime fails."
          columns={[
            { name: "Name", of: ([name]) => <Text>{name}</Text> },
            { name: "State", of: ([, breaker]) => <Circuit breaker={breaker} /> },
            { name: "Failures", number: true, of: ([, breaker]) => breaker.failures },
            { name: "Last failure", of: ([, breaker]) => <Text>{breaker.because}</Text> },
            {
              name: "Next probe",
              of: ([, breaker]) => (breaker.until ? new Date(breaker.until).toLocaleTimeString() : ""),
            },
            { name: "Waiting", of: ([name]) => <WaitCount gates={[at("breaker", name)]} /> },
          ]}
        />
      </section>
      <ToolTable tools={tools.data ?? []} at={at} />
    </section>
  );
}

function AtWork({ health }: { health: Health }) {
  const { under_way, waiting, limit, held_back } = health.intake as {
    under_way: number;
    waiting: number;
    limit: number;
    held_back: string[];
  };
  return (
    <section className="card" aria-label="At work">
      <h2>At work</h2>
      <dl className="figures">
        <div>
          <dt>Executions</dt>
          <dd>{health.driven}</dd>
        </div>
        <div>
          <dt>Attempts</dt>
          <dd>
            {under_way} <span className="soft">of {limit}</span>
          </dd>
        </div>
        <div>
          <dt>Waiting for a place</dt>
          <dd>{waiting}</dd>
        </div>
      </dl>
      {held_back.length > 0 && (
        <Notice kind="wait">
          New attempts are held back: <Text>{held_back.join("; ")}</Text>
        </Notice>
      )}
      {(health.journal !== "ok" || health.recovery !== "ok") && (
        <Notice kind="bad">
          <Text>{[health.journal, health.recovery].filter((one) => one !== "ok").join("; ")}</Text>
        </Notice>
      )}
      {health.damaged.map((one) => (
        <Notice kind="bad" key={one.execution}>
          Execution {one.execution.slice(-8)} is damaged: <Text>{one.reason}</Text>
        </Notice>
      ))}
    </section>
  );
}

interface ToolTableProps {
  tools: ToolRow[];
  at: (gate: WaitingGate["gate"], name: string) => WaitingGate | undefined;
}

function ToolTable({ tools, at }: ToolTableProps) {
  const [search, setSearch] = useState("");
  const box = useRef<HTMLInputElement>(null);
  useKeys("Tools", [{ keys: "/", does: "Search", run: () => box.current?.focus() }]);
  const wanted = search.toLowerCase();
  const rows = tools.filter((tool) => `${tool.name} ${tool.description}`.toLowerCase().includes(wanted));
  return (
    <section className="card" aria-label="Tools">
      <div className="title">
        <h2>Tools</h2>
        <input
          ref={box}
          type="search"
          aria-label="Search tools"
          placeholder="Search tools"
          value={search}
          onChange={(event) => setSearch(event.target.value)}
        />
      </div>
      <Table
        caption={`${rows.length} of ${tools.length} tools`}
        rows={rows}
        id={(tool) => tool.name}
        empty={tools.length === 0 ? "Loading …" : "No tool fits."}
        columns={[
          { name: "Name", of: (tool) => <Text>{tool.name}</Text> },
          { name: "Description", of: (tool) => <Text>{tool.description.split("\n")[0]}</Text> },
          { name: "Kind", of: (tool) => <span className="status">{tool.kind}</span> },
          { name: "State", of: (tool) => (tool.breaker ? <Circuit breaker={tool.breaker} /> : "") },
          { name: "Terms", of: (tool) => <Text>{terms(tool)}</Text> },
          {
            name: "Waiting",
            of: (tool) => <WaitCount gates={[at("rate", tool.name), at("place", tool.name)]} />,
          },
        ]}
      />
    </section>
  );
}

function terms({ terms: { timeout, rate, concurrent, sensitive }, effect }: ToolRow): string {
  return [
    effect === "once" && "once only",
    sensitive && "sensitive",
    timeout !== null && `timeout ${duration(timeout)}`,
    rate !== null && `rate ${typeof rate === "string" ? rate : JSON.stringify(rate)}`,
    concurrent !== null && `${concurrent} at a time`,
  ]
    .filter(Boolean)
    .join(", ");
}

function Circuit({ breaker }: { breaker: Breaker }) {
  const closed = breaker.circuit === "closed";
  return (
    <span className={closed ? "good status" : "bad status"}>
      <span aria-hidden="true">{closed ? "✓" : "✗"}</span>{" "}
      {closed ? "working" : `circuit ${breaker.circuit}${breaker.probing ? ", being probed" : ""}`}
    </span>
  );
}

function Sign({ good }: { good: boolean }) {
  return (
    <span className={good ? "good" : "bad"}>
      <span aria-hidden="true">{good ? "✓" : "✗"}</span>
      <span className="unseen">{good ? "ready" : "not ready"}</span>
    </span>
  );
}
