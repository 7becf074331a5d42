import { ApiError } from "../api/client";

/** An error, with what to do about it. */
export function ProblemNotice({ error }: { error: Error }) {
  const advice = error instanceof ApiError ? error.advice : [];
  return (
    <div className="problem" role="alert">
      <p>{error.message}</p>
      {advice.length > 0 && (
        <ul>
          {advice.map((line) => (
            <li key={line}>{line}</li>
          ))}
        </ul>
      )}
    </div>
  );
}
