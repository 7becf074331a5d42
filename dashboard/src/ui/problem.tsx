import { ApiError } from "../api/client";
import { Advice } from "./advice";
import { Notice } from "./notice";
import { Text } from "./text";

/** An error, with what to do about it. An expired login is told once, at the top of the page. */
export function ProblemNotice({ error }: { error: Error }) {
  if (error instanceof ApiError && error.status === 401) return null;
  const advice = error instanceof ApiError ? error.advice : ["check that the server runs: windlass serve"];
  return (
    <Notice kind="bad">
      {[...new Set(error.message.split("\n"))].map((line) => (
        <p key={line}>
          <Text>{line}</Text>
        </p>
      ))}
      <Advice lines={advice} />
    </Notice>
  );
}
