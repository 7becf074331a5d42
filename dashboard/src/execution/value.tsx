import { useMemo, useState } from "react";
import { visible } from "../ui/text";

const LONGEST = 20_000; // characters that are shown at first
const STEP = 500_000; // and with each further click: a browser lays out no 5 MB line in time

/** A value as JSON, or a text as it is; a long one is cut, and shown on. */
export function Value({ value, label }: { value: unknown; label?: string }) {
  const text = useMemo(() => (typeof value === "string" ? value : JSON.stringify(value, null, 2)) ?? "null", [value]);
  return <LongText text={text} {...(label ? { label } : {})} />;
}

export function LongText({ text, label }: { text: string; label?: string }) {
  const [most, setMost] = useState(LONGEST);
  const shown = useMemo(() => visible(text.slice(0, most)), [text, most]);
  return (
    <div className="value" {...(label ? { role: "group", "aria-label": label } : {})}>
      <pre dir="auto">{shown}</pre>
      {text.length > most && (
        <button type="button" className="link" onClick={() => setMost(most + STEP)}>
          Show {text.length - most > STEP ? "more" : "all"} ({text.length.toLocaleString("en")} characters)
        </button>
      )}
    </div>
  );
}
