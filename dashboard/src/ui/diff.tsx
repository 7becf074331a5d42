import { visible } from "./text";

const KINDS: Record<string, string> = { "+": "added", "-": "removed", "@": "place" };

/** A change in unified form; additions and removals keep their sign, for those who do not see their colour. */
export function Diff({ text }: { text: string }) {
  return (
    <pre className="diff" dir="auto">
      {visible(text.trimEnd())
        .split("\n")
        .map((line, place) => (
          <span key={place} className={KINDS[line[0] ?? ""]}>
            {line}
            {"\n"}
          </span>
        ))}
    </pre>
  );
}
