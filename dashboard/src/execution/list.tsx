import { useVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";
import { duration, money } from "../ui/format";
import { Status } from "../ui/status";
import { Text } from "../ui/text";
import { ItemsButton } from "./items_button";
import type { Line } from "./use_lines";
import { waitWords } from "./words";

const ROW = 34;

export interface LinesProps {
  lines: Line[];
  selected: string | null;
  /** Selects a step, and opens its pane. */
  choose: (step: string) => void;
  open: readonly string[];
  toggle: (step: string) => void;
}

export function StepTable({ lines, selected, choose, open, toggle }: LinesProps) {
  const box = useRef<HTMLDivElement>(null);
  const rows = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 12,
  });
  useScrollToSelected(lines, selected, (place) => rows.scrollToIndex(place, { align: "auto" }));
  return (
    <div ref={box} className="steps-box" role="table" aria-rowcount={lines.length} aria-label="Steps">
      <div className="steps-all" style={{ height: rows.getTotalSize() }}>
        {rows.getVirtualItems().map((item) => {
          const line = lines[item.index];
          if (!line) return null;
          return (
            <Row
              key={line.step.id}
              line={line}
              place={item.index}
              top={item.start}
              selected={line.step.id === selected}
              choose={choose}
              isOpen={open.includes(line.step.id)}
              toggle={toggle}
            />
          );
        })}
      </div>
    </div>
  );
}

/** Brings the selected line into sight when another one is selected, not each time that lines change. */
export function useScrollToSelected(lines: Line[], selected: string | null, bring: (place: number) => void): void {
  const latest = useRef({ lines, bring });
  latest.current = { lines, bring };
  const there = lines.length > 0;
  useEffect(() => {
    if (selected === null || !there) return;
    const place = latest.current.lines.findIndex((line) => line.step.id === selected);
    if (place >= 0) latest.current.bring(place);
  }, [selected, there]);
}

interface RowProps {
  line: Line;
  place: number;
  top: number;
  selected: boolean;
  choose: (step: string) => void;
  isOpen: boolean;
  toggle: (step: string) => void;
}

function Row({ line, place, top, selected, choose, isOpen, toggle }: RowProps) {
  const { step } = line;
  const took = step.started !== null && step.finished !== null ? step.finished - step.started : null;
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the name in it is a button that does the same
    <div
      className={`step-row${selected ? " is-selected" : ""}${line.item ? " is-item" : ""}`}
      role="row"
      aria-rowindex={place + 1}
      aria-selected={selected}
      style={{ transform: `translateY(${top}px)`, height: ROW }}
      onClick={() => choose(step.id)}
    >
      <span role="cell">
        <Status status={step.status} />
      </span>
      <span role="cell" className="step-name">
        {step.items && <ItemsButton step={step} isOpen={isOpen} toggle={toggle} />}
        <button type="button" className="name" onClick={() => choose(step.id)}>
          <Text>{step.id}</Text>
        </button>
        {step.items && <ItemCount step={step} />}
      </span>
      <span role="cell" className="name soft">
        <Text>{step.role ?? step.tool}</Text>
      </span>
      <span role="cell" className="number">
        {took === null ? "" : duration(took)}
      </span>
      <span role="cell" className="number">
        {step.cost_usd ? money(step.cost_usd) : ""}
      </span>
      <span role="cell" className={`last${step.error ? " bad" : ""}`}>
        {step.status === "waiting" ? (
          <span className="wait">waits for {waitWords(step)}</span>
        ) : (
          <Text>{joined(step.error ?? step.last_output)}</Text>
        )}
      </span>
    </div>
  );
}

/** A text of several lines, in the one line that it has here. */
function joined(text: string | null): string {
  return (text ?? "").trim().replace(/\s*\n\s*/g, " ");
}

function ItemCount({ step }: { step: Line["step"] }) {
  const { done = 0, failed = 0, total = 0 } = step.items ?? {};
  return (
    <span className="soft item-count">
      {done}/{total}
      {failed > 0 && <span className="bad"> {failed} failed</span>}
    </span>
  );
}
