import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { Link, useLocation, useSearchParams } from "wouter";
import { api, type CheckedPlan, given, type OneStep, type PlanList, type Snapshot, type UsedPlan } from "../api/client";
import { useTitle } from "../ui/home";
import { Notice } from "../ui/notice";
import { ProblemNotice } from "../ui/problem";
import { oneLine, Text } from "../ui/text";
import { useSettled } from "../ui/time";
import { Estimate } from "./estimate";
import { InputFields, inputValues } from "./inputs";
import { PlanProblems } from "./plan-problems";
import "./start.css";

/** A plan to start: its text, or the one that an execution used. */
export interface Given {
  plan_text?: string;
  plan_file?: string;
  plan?: Record<string, unknown>;
  workdir?: string;
}

const FEW_STEPS = 12;

export default function StartPage() {
  useTitle("Start a plan");
  const [search, setSearch] = useSearchParams();
  const used = search.get("plan") ?? "";
  const draft = search.get("draft");
  return (
    <section className="page start" aria-labelledby="start">
      <h1 id="start">Start a plan</h1>
      <UsedPlans used={used} choose={(id) => setSearch(id ? { plan: id } : {})} />
      {draft ? (
        <DraftForm execution={draft} step={search.get("step") ?? "draft"} />
      ) : used ? (
        <UsedPlanForm key={used} execution={used} />
      ) : (
        <TextForm />
      )}
    </section>
  );
}

function UsedPlans({ used, choose }: { used: string; choose: (execution: string) => void }) {
  const { data } = useQuery({ queryKey: ["plans"], queryFn: () => given<PlanList>(api.GET("/api/plans")) });
  const plans = data?.plans ?? [];
  const listed = plans.some((plan) => plan.execution === used);
  return (
    <div className="field">
      <label htmlFor="used-plan">Plan</label>
      <select id="used-plan" value={used} onChange={(event) => choose(event.target.value)}>
        <option value="">a new one, from a file or pasted</option>
        {used && !listed && <option value={used}>the plan of {used.slice(-8)}</option>}
        {plans.map((plan) => (
          <option key={plan.execution} value={plan.execution}>
            {oneLine(plan.name)}
          </option>
        ))}
      </select>
    </div>
  );
}

function UsedPlanForm({ execution }: { execution: string }) {
  const { data, error } = useQuery({
    queryKey: ["plan", execution],
    queryFn: () => given<UsedPlan>(api.GET("/api/plans/{execution}", { params: { path: { execution } } })),
  });
  const [asItWas, setAsItWas] = useState(false);
  if (error) return <ProblemNotice error={error} />;
  if (!data) return <p className="soft">Loading …</p>;
  const file = asItWas ? null : data.plan_file;
  const chosen: Given = file ? { plan_file: file } : { plan: data.plan };
  return (
    <>
      <p className="soft">
        {file ? (
          <>
            From the file <Text>{file}</Text>, as it is now.{" "}
            <button type="button" className="link" onClick={() => setAsItWas(true)}>
              Use the plan as it ran last
            </button>
          </>
        ) : (
          <>The plan as it ran last.</>
        )}
      </p>
      <Checked key={file ?? "as it was"} chosen={{ ...chosen, workdir: data.workdir }} last={data.inputs} />
    </>
  );
}

/** A plan that an agent drafted: nothing of it runs before a person has read it, and maybe changed it. */
function DraftForm({ execution, step }: { execution: string; step: string }) {
  const { data, error } = useQuery({
    queryKey: ["draft", execution, step],
    queryFn: async () => {
      const path = { execution, step };
      const drafted = await given<OneStep>(api.GET("/api/executions/{execution}/steps/{step}", { params: { path } }));
      const plan = await given<UsedPlan>(api.GET("/api/plans/{execution}", { params: { path: { execution } } }));
      return { text: drafted.output, workdir: plan.workdir };
    },
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (error) return <ProblemNotice error={error} />;
  if (!data) return <p className="soft">Loading …</p>;
  if (typeof data.text !== "string") return <p className="soft">This step has no drafted plan.</p>;
  return (
    <>
      <p>
        An agent drafted this plan in <Link href={`/executions/${execution}`}>{execution.slice(-8)}</Link>. Nothing of
        it has run. Change its text as you like; it runs when you start it.
      </p>
      <TextForm first={data.text} workdir={data.workdir} />
    </>
  );
}

function TextForm({ first = "", workdir }: { first?: string; workdir?: string }) {
  const [text, setText] = useState(first);
  const settled = useSettled(text, 400);
  const read = async (file: File | undefined) => file && setText(await file.text());
  return (
    <>
      <div className="field">
        <label htmlFor="plan-file">File (YAML or JSON)</label>
        <input
          id="plan-file"
          type="file"
          accept=".yaml,.yml,.json"
          onChange={(event) => void read(event.target.files?.[0])}
        />
      </div>
      <label className="field">
        Or its text
        <textarea
          className="code"
          rows={12}
          spellCheck={false}
          value={text}
          onChange={(event) => setText(event.target.value)}
          placeholder={"name: hello\nsteps:\n  - id: greet\n    run: echo hello"}
        />
      </label>
      {!text && <DraftRequest />}
      {settled.trim() && <Checked chosen={{ plan_text: settled, ...(workdir ? { workdir } : {}) }} text={settled} />}
    </>
  );
}

/** Has an agent draft a plan for a task; the page of that execution leads back here. */
function DraftRequest() {
  const [, navigate] = useLocation();
  const [task, setTask] = useState("");
  const draft = useMutation({
    mutationFn: () =>
      // The server fills in what is left out; its types have every field.
      given<Snapshot>(api.POST("/api/executions", { body: { task, strategy: "plan" } as never })),
    onSuccess: (started) => navigate(`/executions/${started.id}?step=draft`),
  });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        if (task.trim()) draft.mutate();
      }}
    >
      <label className="field">
        Or a task, for which an agent drafts a plan
        <textarea rows={3} value={task} onChange={(event) => setTask(event.target.value)} />
      </label>
      {draft.error && <PlanProblems error={draft.error} />}
      <div>
        <button type="submit" disabled={draft.isPending || !task.trim()}>
          {draft.isPending ? "Starting …" : "Draft a plan"}
        </button>{" "}
        <span className="soft">You read it before it runs.</span>
      </div>
    </form>
  );
}

/** A plan that the server has checked: its problems, or what it needs to start. */
function Checked({ chosen, text, last }: { chosen: Given; text?: string; last?: Record<string, unknown> }) {
  const { data, error } = useQuery({
    queryKey: ["checked plan", chosen],
    queryFn: () => given<CheckedPlan>(api.POST("/api/plans/check", { body: chosen })),
    retry: false,
    placeholderData: (before) => before,
  });
  if (error) return <PlanProblems error={error} {...(text === undefined ? {} : { text })} />;
  if (!data) return <p className="soft">Checking …</p>;
  return <StartForm key={JSON.stringify(data.inputs)} plan={data} chosen={chosen} {...(last ? { last } : {})} />;
}

/** The steps as they will run, with what each waits for and where a person is asked. */
function Outline({ plan }: { plan: CheckedPlan }) {
  const left = plan.steps - plan.outline.length;
  return (
    <details className="outline" open={plan.outline.length <= FEW_STEPS}>
      <summary>Steps</summary>
      <ol>
        {plan.outline.map((step) => (
          <li key={step.id}>
            <strong>
              <Text>{step.id}</Text>
            </strong>{" "}
            <Text>{step.does}</Text>
            {step.needs.length > 0 && <span className="soft"> after {step.needs.join(", ")}</span>}
            {step.foreach && <span className="soft"> · once for each item</span>}
            {step.asks && <span className="wait"> · asks for approval</span>}
          </li>
        ))}
      </ol>
      {left > 0 && <p className="soft">and {left} more</p>}
    </details>
  );
}

function StartForm({ plan, chosen, last }: { plan: CheckedPlan; chosen: Given; last?: Record<string, unknown> }) {
  const [, navigate] = useLocation();
  const [texts, setTexts] = useState<Record<string, string>>({});
  const [usd, setUsd] = useState("");
  const [values, wrong] = inputValues(plan.inputs, texts);
  const limit = Number(usd);
  const badBudget = usd !== "" && !(Number.isFinite(limit) && limit > 0);
  const start = useMutation({
    mutationFn: () => {
      const budget = usd === "" ? {} : { budget: { usd: limit } };
      // The server fills in what is left out; its types have every field.
      const body = { ...chosen, inputs: values, ...budget } as never;
      return given<Snapshot>(api.POST("/api/executions", { body }));
    },
    onSuccess: (started) => navigate(`/executions/${started.id}`),
  });
  return (
    <form
      className="card"
      onSubmit={(event) => {
        event.preventDefault();
        if (wrong.size === 0 && !badBudget) start.mutate();
      }}
    >
      <header>
        <h2>
          <Text>{plan.name}</Text>
        </h2>
        <p className="soft">
          {plan.steps} {plan.steps === 1 ? "step" : "steps"}
          {plan.agents > 0 && `, ${plan.agents} by agents`}
          {plan.description && " · "}
          <Text>{plan.description}</Text>
        </p>
      </header>
      {plan.warnings.map((warning) => (
        <Notice key={warning} kind="wait">
          <Text>{warning}</Text>
        </Notice>
      ))}
      <InputFields
        inputs={plan.inputs}
        texts={texts}
        wrong={wrong}
        {...(last ? { last } : {})}
        change={(name, text) => setTexts({ ...texts, [name]: text })}
      />
      <label className="field">
        Budget in dollars{plan.budget?.usd ? ` (the plan's own: $${String(plan.budget.usd)})` : ""}
        <input
          inputMode="decimal"
          value={usd}
          placeholder="no limit of its own"
          aria-invalid={badBudget}
          onChange={(event) => setUsd(event.target.value.trim())}
        />
        {badBudget && <span className="bad">Write an amount like 2.50.</span>}
      </label>
      <Outline plan={plan} />
      <Estimate chosen={chosen} />
      {start.error && <PlanProblems error={start.error} />}
      <div>
        <button type="submit" className="primary" disabled={start.isPending || wrong.size > 0 || badBudget}>
          {start.isPending ? "Starting …" : "Start"}
        </button>
      </div>
    </form>
  );
}
