import { useVirtualizer } from "@tanstack/react-virtual";
import { useDeferredValue, useEffect, useRef, useState } from "react";
import { ProblemNotice } from "../ui/problem";
import { visible } from "../ui/text";
import { type LogLine, plain } from "./log_lines";
import type { StepEvents } from "./use_step_events";
import { LongText } from "./value";

const ROW = 20;
const LONGEST = 1000; // characters of a line in the list

/** The output of a step as it comes, with a search. It follows the end until one scrolls up. */
export function Log({ events }: { events: StepEvents }) {
  const [text, setText] = useState("");
  const wanted = useDeferredValue(text.toLowerCase());
  const [whole, setWhole] = useState<LogLine | null>(null);
  const { lines, left } = events.log;
  const shown = wanted ? lines.filter((line) => line.text.toLowerCase().includes(wanted)) : lines;
  return (
    <div className="log-part">
      <div className="row-of">
        <input
          type="search"
          aria-label="Search the log"
          placeholder="Search the log"
          value={text}
          onChange={(event) => setText(event.target.value)}
        />
        <span className="soft" role="status">
          {wanted ? `${shown.length} of ${lines.length} lines` : lineCount(lines.length)}
          {left > 0 && `, ${left} older ones are not shown`}
        </span>
      </div>
      {events.error && <ProblemNotice error={events.error} />}
      {lines.length === 0 ? (
        !events.error && <p className="soft">{events.whole ? "It has written nothing." : "Loading …"}</p>
      ) : (
        <Rows lines={shown} count={shown.length} follow={!wanted} show={setWhole} />
      )}
      {whole && (
        <section aria-label="Whole line">
          <button type="button" className="link" onClick={() => setWhole(null)}>
            Hide the line
          </button>
          <LongText text={plain(whole.text)} />
        </section>
      )}
    </div>
  );
}

function lineCount(count: number): string {
  return count === 1 ? "1 line" : `${count} lines`;
}

interface RowsProps {
  lines: LogLine[];
  count: number;
  follow: boolean;
  show: (line: LogLine) => void;
}

function Rows({ lines, count, follow, show }: RowsProps) {
  const box = useRef<HTMLDivElement>(null);
  const atEnd = useRef(true);
  const rows = useVirtualizer({
    count,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 20,
  });
  useEffect(() => {
    if (follow && atEnd.current && count > 0) rows.scrollToIndex(count - 1, { align: "end" });
  }, [follow, count, rows]);
  const scrolled = () => {
    const { scrollTop = 0, clientHeight = 0, scrollHeight = 0 } = box.current ?? {};
    atEnd.current = scrollTop + clientHeight >= scrollHeight - 2 * ROW;
  };
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by keyboard
    <div ref={box} className="log" role="log" aria-label="Log" tabIndex={0} onScroll={scrolled}>
      <div style={{ height: rows.getTotalSize(), position: "relative" }}>
        {rows.getVirtualItems().map((item) => {
          const line = lines[item.index];
          return line && <OneLine key={item.index} line={line} top={item.start} show={show} />;
        })}
      </div>
    </div>
  );
}

function OneLine({ line, top, show }: { line: LogLine; top: number; show: (line: LogLine) => void }) {
  // Only what is shown is looked through: a line can have millions of characters.
  const long = line.text.length > LONGEST;
  const text = visible(plain(long ? line.text.slice(0, LONGEST) : line.text));
  return (
    <pre className={`log-line ${line.stream === "stderr" ? "is-error" : ""}`} style={{ top, height: ROW }} dir="auto">
      {long && (
        <button type="button" className="link" onClick={() => show(line)}>
          {line.text.length.toLocaleString("en")} characters
        </button>
      )}{" "}
      {text}
    </pre>
  );
}
