import { useState } from "react";
import { Lines } from "./text";

const SHOWN = 4000;

/** A text that may be long: its beginning, until somebody asks for all of it. */
export function Long({ text, shown = SHOWN }: { text: string; shown?: number }) {
  const [all, setAll] = useState(false);
  const cut = !all && text.length > shown;
  return (
    <>
      <Lines className="exact">{cut ? text.slice(0, shown) : text}</Lines>
      {cut && (
        <p>
          <button type="button" onClick={() => setAll(true)}>
            Show all ({text.length.toLocaleString()} characters)
          </button>
        </p>
      )}
    </>
  );
}
