import { ApiError } from "../api/client";
import { Notice } from "../ui/notice";
import { ProblemNotice } from "../ui/problem";
import { Text } from "../ui/text";

interface PlanProblem {
  message: string;
  line?: number;
  column?: number;
  where?: string;
  hint?: string;
}

/** What is wrong with a plan, each problem with its line. */
export function PlanProblems({ error, text }: { error: Error; text?: string }) {
  const problems = error instanceof ApiError ? (error.problem.problems as PlanProblem[] | null | undefined) : undefined;
  if (!problems || problems.length === 0) return <ProblemNotice error={error} />;
  const lines = text?.split("\n") ?? [];
  return (
    <Notice kind="bad">
      <p>{problems.length === 1 ? "The plan has a problem:" : `The plan has ${problems.length} problems:`}</p>
      <ol className="problems">
        {problems.map((problem) => (
          <li key={`${problem.line}:${problem.column}:${problem.where}:${problem.message}`}>
            {problem.line !== undefined && <strong>Line {problem.line}: </strong>}
            {problem.line === undefined && problem.where && (
              <strong>
                <Text>{problem.where}</Text>:{" "}
              </strong>
            )}
            <Text>{problem.message}</Text>
            {problem.hint && (
              <span className="soft">
                {" "}
                (<Text>{problem.hint}</Text>)
              </span>
            )}
            {problem.line !== undefined && lines[problem.line - 1] !== undefined && (
              <pre className="place">
                <Text>{lines[problem.line - 1]?.slice(0, 200)}</Text>
              </pre>
            )}
          </li>
        ))}
      </ol>
    </Notice>
  );
}
