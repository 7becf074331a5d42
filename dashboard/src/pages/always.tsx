import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, given, type Question } from "../api/client";
import type { components } from "../api/schema";
import { ProblemNotice } from "../ui/problem";
import { Text } from "../ui/text";

type AlwaysRule = components["schemas"]["AlwaysRule"];

/** "Always for this": the rule in full, then the button that saves it with the answer. */
export function Always({ question, save, busy }: { question: Question; save: (rule: string) => void; busy: boolean }) {
  const [open, setOpen] = useState(false);
  const { data, error } = useQuery({
    queryKey: ["rule", question.execution, question.step, question.digest],
    queryFn: () =>
      given<AlwaysRule>(
        api.GET("/api/approvals/{execution}/{step}/rule", {
          params: { path: { execution: question.execution, step: question.step } },
        }),
      ),
    enabled: open,
    retry: false,
  });
  if (!open) {
    return (
      <button type="button" className="link" onClick={() => setOpen(true)}>
        Always for this …
      </button>
    );
  }
  return (
    <section className="always" aria-label="Always for this">
      {error && <ProblemNotice error={error} />}
      {data && (
        <>
          <p>
            This rule is added to <code>permissions.allow</code> in <Text>{data.file}</Text>:
          </p>
          <pre className="command">
            <Text>{data.rule}</Text>
          </pre>
          <p className="soft">{data.text}</p>
        </>
      )}
      <div className="answer">
        {data && (
          <button type="button" className="primary" disabled={busy} onClick={() => save(data.rule)}>
            Save this rule and allow
          </button>
        )}
        <button type="button" onClick={() => setOpen(false)}>
          Not always
        </button>
      </div>
    </section>
  );
}
