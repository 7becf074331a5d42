import { Text } from "../ui/text";
import { LongText } from "./value";

export interface CheckedAgent {
  verdict?: "verified" | "stale" | "refuted" | "claimed" | null;
  /** Files of the checks that the agent had changed: put back, or left as they were. */
  put_back?: string[];
  touched?: string[];
  checks?: { check: string; passed: boolean; exit_code: number | null; output: string }[];
}

const WORDS = {
  verified: "Verified: its work passed",
  stale: "Stale: its work passed, and files have changed since",
  refuted: "Refuted: its work does not pass",
  claimed: "Claimed: nothing has checked its work",
};

/** The verdict on an agent's work, with the checks behind it. */
export function Verdict({ agent }: { agent: CheckedAgent }) {
  if (!agent.verdict) return null;
  const kind = { verified: "good", stale: "soft", refuted: "bad", claimed: "soft" }[agent.verdict];
  return (
    <section className="verdict" aria-label="Verdict">
      <p className={kind}>{WORDS[agent.verdict]}</p>
      {agent.put_back && (
        <p className="soft">
          Changed by the agent and put back: <Text>{agent.put_back.join(", ")}</Text>
        </p>
      )}
      {agent.touched && (
        <p className="soft">
          The check runs what the agent changed: <Text>{agent.touched.join(", ")}</Text>
        </p>
      )}
      {agent.checks?.map((one, index) => (
        <details key={`${index} ${one.check}`} className="call" open={!one.passed}>
          <summary>
            {one.passed ? "passed" : "failed"}: <Text>{one.check}</Text>
            {one.exit_code !== null && !one.passed && ` (exit code ${one.exit_code})`}
          </summary>
          <LongText text={one.output || "It printed nothing."} label="Output of the check" />
        </details>
      ))}
    </section>
  );
}
