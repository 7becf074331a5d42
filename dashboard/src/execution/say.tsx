import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { Link } from "wouter";
import type { SaidMessage } from "../api/client";
import { ProblemNotice } from "../ui/problem";
import { oneLine, Text } from "../ui/text";
import { say } from "./actions";

interface SayBoxProps {
  execution: string;
  step: string;
  /** A file: the words are a comment on it. */
  about?: string;
}

/** Says something to the agent of a step, and tells how it was delivered. */
export function SayBox({ execution, step, about }: SayBoxProps) {
  const [text, setText] = useState("");
  const sent = useMutation({
    mutationFn: (message: string) =>
      say(execution, step, about ? `About your change to ${about}: ${message}` : message),
    onSuccess: () => setText(""),
  });
  const send = () => {
    if (text.trim() && !sent.isPending) sent.mutate(text);
  };
  return (
    <form className="say" action={send}>
      <textarea
        aria-label={about ? `Comment on ${oneLine(about)}` : "Say something to the agent"}
        placeholder={about ? "Comment, to the agent" : "Say something to the agent"}
        rows={2}
        value={text}
        onChange={(event) => setText(event.target.value)}
        onKeyDown={(event) => {
          if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) send();
        }}
      />
      <div className="row-of">
        <button type="submit" disabled={!text.trim() || sent.isPending}>
          {sent.isPending ? "Saying …" : about ? "Comment" : "Say"}
        </button>
        {sent.data && <Receipt told={sent.data} execution={execution} />}
      </div>
      {sent.error && <ProblemNotice error={sent.error} />}
    </form>
  );
}

const HOW: Record<string, string> = {
  steer: "Steered: the agent has it within its turn.",
  "follow-up": "Follows: the agent has it after its turn.",
  prompt: "The agent has it with the prompt of this attempt.",
};

function Receipt({ told, execution }: { told: SaidMessage; execution: string }) {
  return (
    <span className="soft" role="status">
      {told.how ? HOW[told.how] : <Text>{`Kept: ${told.detail}`}</Text>}{" "}
      {told.execution !== execution && (
        <Link href={`/executions/${told.execution}?step=${encodeURIComponent(told.step)}`}>
          It goes on in a new execution
        </Link>
      )}
    </span>
  );
}
