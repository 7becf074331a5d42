import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { api, given, type Question } from "../api/client";
import { useListKeys } from "../keys/list";
import { useHomeStream } from "../live/home";
import type { StreamEvent } from "../live/stream";
import { ConnectionNote } from "../ui/connection";
import { useTitle } from "../ui/home";
import { Notice } from "../ui/notice";
import { ProblemNotice } from "../ui/problem";
import { Text } from "../ui/text";
import { QuestionCard } from "./question";
import "./approvals.css";

const MOST_TOLD = 20;
/** A question also ends unanswered: it expires, or somebody skips its step. */
const ENDS = new Set(["step.failed", "step.skipped"]);

/** The same question, whoever tells of it. */
const nameOf = (execution: string, step: string, digest: string) => `${execution} ${step} ${digest}`;

export default function ApprovalsPage() {
  useTitle("Approvals");
  const queries = useQueryClient();
  const { data, error } = useQuery({
    queryKey: ["approvals"],
    queryFn: () => given<Question[]>(api.GET("/api/approvals")),
  });
  const [told, setTold] = useState<StreamEvent[]>([]);
  const mine = useRef(new Set<string>());
  const connection = useHomeStream({
    apply: (events) => {
      const others = events.filter(
        (event) =>
          event.type === "approval.answered" &&
          !mine.current.has(nameOf(event.execution, String(event.step), String(event.digest))),
      );
      if (others.length > 0) setTold((before) => [...before, ...others].slice(-MOST_TOLD));
    },
    isNews: (event) => /^(approval|execution)\./.test(event.type) || ENDS.has(event.type),
    old: [["approvals"], ["health"]],
  });
  const list = useRef<HTMLUListElement>(null);
  useListKeys({
    count: data?.length ?? 0,
    element: (place) => list.current?.children[place]?.querySelector("a") ?? null,
  });
  const answered = () => {
    void queries.invalidateQueries({ queryKey: ["approvals"] });
    void queries.invalidateQueries({ queryKey: ["health"] });
  };
  return (
    <section className="page approvals" aria-labelledby="approvals">
      <div className="title">
        <h1 id="approvals">Approvals</h1>
        <ConnectionNote connection={connection} />
      </div>
      {told.map((event) => (
        <Notice key={event.position}>
          <p>
            Somebody else {event.allow ? "allowed" : "denied"} <Text>{String(event.step)}</Text> (
            <Text>{who(String(event.by))}</Text>){event.note ? ": " : "."}
            {event.note ? <Text>{String(event.note)}</Text> : null}
          </p>
        </Notice>
      ))}
      {error && <ProblemNotice error={error} />}
      {data?.length === 0 && <p className="soft">Nothing waits for your approval.</p>}
      <ul ref={list} className="unlisted questions">
        {data?.map((question) => (
          <li key={question.id}>
            <QuestionCard
              question={question}
              sending={() => mine.current.add(nameOf(question.execution, question.step, question.digest))}
              answered={answered}
            />
          </li>
        ))}
      </ul>
    </section>
  );
}

/** The journal names the surface that an answer came from. */
function who(by: string): string {
  return by === "http" ? "in another tab, or over the API" : by === "cli" ? "in a terminal" : by;
}
