import { useMutation } from "@tanstack/react-query";
import { useId, useState } from "react";
import { Link } from "wouter";
import { api, given, type Question, type Snapshot } from "../api/client";
import { Diff } from "../ui/diff";
import { Long } from "../ui/long";
import { Notice } from "../ui/notice";
import { ProblemNotice } from "../ui/problem";
import { Text } from "../ui/text";
import { Ago } from "../ui/time";
import { Always } from "./always";

interface Asked {
  question: Question;
  /** Called before an answer of ours is sent, and when it has come to something. */
  sending: () => void;
  answered: () => void;
}

/** One question with exactly what it asks for, and the buttons that answer it. */
export function QuestionCard({ question, sending, answered }: Asked) {
  const [note, setNote] = useState("");
  const field = useId();
  const answer = useMutation({
    mutationFn: ({ allow, always }: { allow: boolean; always?: string }) => {
      sending();
      const path = { execution: question.execution, step: question.step };
      // The digest binds the answer to what is shown here: another question is not answered by it.
      const body = { allow, note, digest: question.digest, ...(always !== undefined && { always }) };
      return given<Snapshot>(api.POST("/api/approvals/{execution}/{step}", { params: { path }, body }));
    },
    onSettled: answered,
  });
  return (
    <article className="card question" aria-labelledby={`${field}-title`}>
      <header>
        <h2 id={`${field}-title`}>
          <Text>{question.step}</Text> asks to use <Text className="tool">{question.tool}</Text>
        </h2>
        <p className="soft">
          <Link href={`/executions/${question.execution}`}>
            <Text>{question.plan}</Text>
          </Link>{" "}
          · asked <Ago at={question.asked_at} /> · expires {new Date(question.expires_at).toLocaleString()}, then it
          counts as denied
        </p>
      </header>
      {question.question && (
        <Notice kind="wait">
          <Text>{question.question}</Text>
        </Notice>
      )}
      <Exactly question={question} />
      {answer.error && <ProblemNotice error={answer.error} />}
      {answer.isSuccess ? (
        <Notice kind="good">Your answer was saved: {answer.variables.allow ? "allowed" : "denied"}.</Notice>
      ) : (
        <form className="answer" onSubmit={(event) => event.preventDefault()}>
          <label htmlFor={`${field}-note`}>Note (optional)</label>
          <input
            id={`${field}-note`}
            maxLength={10_000}
            value={note}
            onChange={(event) => setNote(event.target.value)}
            placeholder="For the record; an agent reads why it was denied"
          />
          <button
            type="button"
            className="primary"
            disabled={answer.isPending}
            onClick={() => answer.mutate({ allow: true })}
          >
            Allow
          </button>
          <button
            type="button"
            className="danger"
            disabled={answer.isPending}
            onClick={() => answer.mutate({ allow: false })}
          >
            Deny
          </button>
          {question.in_attempt && (
            <Always
              question={question}
              busy={answer.isPending}
              save={(always) => answer.mutate({ allow: true, always })}
            />
          )}
        </form>
      )}
    </article>
  );
}

function Exactly({ question }: { question: Question }) {
  const basis = Object.entries(question.basis);
  const forecast = question.forecast?.text;
  return (
    <>
      <h3>With exactly this input</h3>
      <Long text={JSON.stringify(question.input, null, 2)} />
      {question.hidden.length > 0 && (
        <p className="wait">
          Not shown, because they are secrets: <Text>{question.hidden.join(", ")}</Text>. The step gets their values.
        </p>
      )}
      {question.diff && (
        <>
          <h3>Which changes</h3>
          <Diff text={question.diff} />
        </>
      )}
      {basis.length > 0 && (
        <p className="soft">
          The answer covers:{" "}
          {basis.map(([name, hash]) => (
            <span key={name} className="basis">
              <Text>{name}</Text> <code>{hash.slice(0, 12)}</code>
            </span>
          ))}
        </p>
      )}
      {typeof forecast === "string" && forecast && (
        <p>
          Then, if you allow it: <Text>{forecast}</Text>
        </p>
      )}
    </>
  );
}
