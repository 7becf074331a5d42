import { useQuery } from "@tanstack/react-query";
import { useId, useState } from "react";
import { api, given, type OneStep, type Summary } from "../api/client";
import { Diff } from "../ui/diff";
import { money } from "../ui/format";
import { Text } from "../ui/text";
import type { ExecutionActions } from "./use_actions";
import { Value } from "./value";

export interface Question {
  step: string;
  kind: "approval" | "budget" | "outcome";
  text?: string;
  tool?: string;
  input?: unknown;
  digest?: string;
  expires_at?: string;
  scope?: string;
  unit?: "usd" | "tokens";
  needed?: number | null;
}

interface QuestionsProps {
  execution: string;
  summary: Summary;
  actions: ExecutionActions;
  select: (step: string) => void;
}

const SHOWN = 3;

/** What the execution waits for, each with the buttons that answer it. */
export function Questions({ execution, summary, actions, select }: QuestionsProps) {
  const [all, setAll] = useState(false);
  const questions = summary.questions as unknown as Question[];
  if (questions.length === 0) return null;
  const shown = all ? questions : questions.slice(0, SHOWN);
  return (
    <section className="questions" aria-label="Waits for you">
      {shown.map((question) => (
        <OneQuestion
          key={`${question.step} ${question.digest ?? question.kind}`}
          {...{ execution, question, actions, select }}
        />
      ))}
      {questions.length > shown.length && (
        <button type="button" className="link" onClick={() => setAll(true)}>
          {questions.length - shown.length} more questions
        </button>
      )}
    </section>
  );
}

interface OneProps {
  execution: string;
  question: Question;
  actions: ExecutionActions;
  select?: (step: string) => void;
}

export function OneQuestion({ execution, question, actions, select }: OneProps) {
  const heading = useId();
  return (
    <article className="question" aria-labelledby={heading}>
      <h2 id={heading}>
        {select ? (
          <button type="button" className="link" onClick={() => select(question.step)}>
            <Text>{question.step}</Text>
          </button>
        ) : (
          <Text>{question.step}</Text>
        )}{" "}
        {title(question)}
      </h2>
      {question.text && (
        <p>
          <Text>{question.text}</Text>
        </p>
      )}
      {question.kind === "approval" && <Approval {...{ execution, question, actions }} />}
      {question.kind === "budget" && <Budget {...{ question, actions }} />}
      {question.kind === "outcome" && <Outcome {...{ question, actions }} />}
    </article>
  );
}

function title(question: Question) {
  switch (question.kind) {
    case "approval":
      return (
        <>
          asks to use <Text className="tool">{question.tool}</Text>
        </>
      );
    case "budget":
      return "needs more budget";
    case "outcome":
      return "was cut off: nobody saw how it ended";
  }
}

function Approval({ execution, question, actions }: Omit<OneProps, "select">) {
  const [note, setNote] = useState("");
  const { data } = useQuery({
    queryKey: ["step", execution, question.step, "question", question.digest],
    queryFn: () =>
      given<OneStep>(
        api.GET("/api/executions/{execution}/steps/{step}", { params: { path: { execution, step: question.step } } }),
      ),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const seen = data?.question as { diff?: string | null; digest?: string } | null | undefined;
  const diff = seen?.digest === question.digest ? seen?.diff : null;
  const answer = (allow: boolean) =>
    actions.act({ kind: "approve", step: question.step, allow, note, digest: question.digest ?? "" });
  return (
    <>
      {diff ? <Diff text={diff} /> : <Value value={question.input} />}
      <div className="row-of">
        <button type="button" className="primary" disabled={actions.busy} onClick={() => answer(true)}>
          Allow
        </button>
        <button type="button" className="danger" disabled={actions.busy} onClick={() => answer(false)}>
          Deny
        </button>
        <input
          aria-label="Note to the agent"
          placeholder="Note (optional)"
          value={note}
          onChange={(event) => setNote(event.target.value)}
        />
        {question.expires_at && (
          <span className="soft">unanswered until {new Date(question.expires_at).toLocaleString()}: denied</span>
        )}
      </div>
    </>
  );
}

function Budget({ question, actions }: Omit<OneProps, "select" | "execution">) {
  const unit = question.unit ?? "usd";
  const needed = question.needed ?? 0;
  const [limit, setLimit] = useState(String(unit === "usd" ? Math.ceil(needed * 100) / 100 : Math.ceil(needed)));
  const value = Number(limit);
  const common = { kind: "budget", step: question.step, scope: question.scope || "execution", unit } as const;
  return (
    <div className="row-of">
      <label>
        New limit of the {question.scope || "execution"} {unit === "usd" ? "in $" : "in tokens"}{" "}
        <input
          type="number"
          min={0}
          step="any"
          value={limit}
          onChange={(event) => setLimit(event.target.value)}
          className="limit"
        />
      </label>
      <button
        type="button"
        className="primary"
        disabled={actions.busy || !(value > 0)}
        onClick={() => actions.act({ ...common, allow: true, limit: value })}
      >
        Allow up to {unit === "usd" ? money(value) : `${value} tokens`}
      </button>
      <button
        type="button"
        className="danger"
        disabled={actions.busy}
        onClick={() => actions.act({ ...common, allow: false, limit: null })}
      >
        Refuse
      </button>
    </div>
  );
}

const CHOICES = [
  ["done", "It was done"],
  ["again", "Run it again"],
  ["fail", "Count it as failed"],
] as const;

function Outcome({ question, actions }: Omit<OneProps, "select" | "execution">) {
  return (
    <div className="row-of">
      {CHOICES.map(([choice, words]) => (
        <button
          key={choice}
          type="button"
          disabled={actions.busy}
          onClick={() => actions.act({ kind: "decide", step: question.step, choice })}
        >
          {words}
        </button>
      ))}
    </div>
  );
}
