import type { Connection } from "../live/stream";

const WORDS: Partial<Record<Connection, string>> = {
  lost: "Connection lost. Trying again …",
  "logged out": "Not logged in.",
};

/** Said where a page is not live, and only then. */
export function ConnectionNote({ connection }: { connection: Connection }) {
  return (
    <span className="wait" role="status">
      {WORDS[connection] ?? ""}
    </span>
  );
}
