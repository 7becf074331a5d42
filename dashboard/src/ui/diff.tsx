import "./diff.css";
import { useMemo, useState } from "react";
import { visible } from "./text";

const MOST = 400;

/** Tells a unified diff from other text. */
export function looksLikeDiff(text: unknown): text is string {
  return typeof text === "string" && /^--- .*\n\+\+\+ .*\n@@ /m.test(text.slice(0, 5000));
}

/** A unified diff, line by line. Signs stay: colours alone tell nothing to some. */
export function Diff({ text }: { text: string }) {
  const [most, setMost] = useState(MOST);
  const lines = useMemo(() => text.split("\n"), [text]);
  return (
    <div className="diff" role="group" aria-label="Difference">
      {lines.slice(0, most).map((line, place) => (
        <pre key={place} className={kindOf(line)}>
          {visible(line.slice(0, 2000)) || " "}
        </pre>
      ))}
      {lines.length > most && (
        <button type="button" className="link" onClick={() => setMost(most + 5000)}>
          Show more ({lines.length.toLocaleString("en")} lines)
        </button>
      )}
    </div>
  );
}

function kindOf(line: string): string {
  if (line.startsWith("+++") || line.startsWith("---")) return "diff-file";
  if (line.startsWith("+")) return "diff-new";
  if (line.startsWith("-")) return "diff-old";
  return line.startsWith("@@") ? "diff-place" : "";
}
