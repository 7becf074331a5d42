import { useVirtualizer } from "@tanstack/react-virtual";
import { memo, useLayoutEffect, useMemo, useRef, useState } from "react";
import type { StepList, StepRow, Summary } from "../api/client";
import { useSeconds } from "../execution/header";
import { ItemsButton } from "../execution/items_button";
import { type LinesProps, useScrollToSelected } from "../execution/list";
import { duration } from "../ui/format";
import { Status } from "../ui/status";
import { Text } from "../ui/text";
import { Axis } from "./axis";
import { type Expected, outlineOf, useExpected } from "./forecast";
import { type Scale, type Span, scaleOf } from "./scale";
import { type BarStyle, STYLES, styleOf } from "./styles";
import { roundedEnd } from "./ticks";
import "./timeline.css";

const ROW = 30;
const MOST_LATE = 1.5; // times as long as by the median

interface TimelineProps extends LinesProps {
  list: StepList;
  summary: Summary | undefined;
  past: boolean;
}

/** The steps over time: when each was queued, worked, waited and was tried again. */
export function Timeline({ list, summary, past, lines, selected, choose, open, toggle }: TimelineProps) {
  const box = useRef<HTMLDivElement>(null);
  const [area, width] = useWidth();
  const [zoom, setZoom] = useState<Span | null>(null);
  const live = list.status === "running" && summary?.driven !== false && !past;
  const now = useSeconds(live) / 1000;
  const expected = useExpected(list.execution, live);
  const times = useTimes(list, summary, live, now, expected);
  const shown = zoom ?? times.whole;
  const scale = useMemo(() => scaleOf(shown, busyWithin(times.busy, shown), width), [shown, times.busy, width]);
  const rows = useVirtualizer({
    count: lines.length,
    getScrollElement: () => box.current,
    estimateSize: () => ROW,
    overscan: 12,
  });
  useScrollToSelected(lines, selected, (place) => rows.scrollToIndex(place, { align: "auto" }));
  return (
    <div className="timeline">
      <div className="timeline-head">
        <Legend />
        <div ref={area} className="timeline-axis">
          <Axis {...{ scale, shown, setZoom }} whole={times.whole} start={times.start} zoomed={zoom !== null} />
        </div>
      </div>
      <div ref={box} className="steps-box" role="table" aria-rowcount={lines.length} aria-label="Timeline">
        <div className="steps-all" style={{ height: Math.max(rows.getTotalSize(), 1) }}>
          <div className="timeline-back" aria-hidden="true">
            {scale.gaps.map((gap) => (
              <div key={gap.start} className="gap" style={{ left: gap.at }} title={`idle ${length(gap)}`} />
            ))}
            <Ahead times={times} scale={scale} shown={shown} now={live ? now : null} />
          </div>
          {rows.getVirtualItems().map((item) => {
            const line = lines[item.index];
            if (!line) return null;
            return (
              // biome-ignore lint/a11y/useKeyWithClickEvents: the name in it is a button that does the same
              <div
                key={line.step.id}
                className={`timeline-row${line.step.id === selected ? " is-selected" : ""}${line.item ? " is-item" : ""}`}
                role="row"
                aria-rowindex={item.index + 1}
                aria-selected={line.step.id === selected}
                style={{ transform: `translateY(${item.start}px)`, height: ROW }}
                onClick={() => choose(line.step.id)}
              >
                <span role="cell" className="timeline-name">
                  <Status status={line.step.status} short />
                  {line.step.items && (
                    <ItemsButton step={line.step} isOpen={open.includes(line.step.id)} toggle={toggle} />
                  )}
                  <button type="button" className="name" onClick={() => choose(line.step.id)}>
                    <Text>{line.step.id}</Text>
                  </button>
                </span>
                <span role="cell" className="bars">
                  <Bars step={line.step} scale={scale} shown={shown} now={live ? now : list.at} />
                  {live && (
                    <Outline {...outlineOf(line.step, expected.get(line.step.id), now)} {...{ scale, shown, now }} />
                  )}
                </span>
              </div>
            );
          })}
        </div>
      </div>
    </div>
  );
}

interface Times {
  start: number;
  whole: Span;
  busy: Span[];
  /** Ends of the forecast: its median, and the later end of its band. */
  ahead: { middle: number; late: number } | null;
}

/** The span of the axis, and the times in which something worked. While it runs, both change in leaps only. */
function useTimes(
  list: StepList,
  summary: Summary | undefined,
  live: boolean,
  now: number,
  expected: ReadonlyMap<string, Expected>,
): Times {
  const start = list.started ?? list.created;
  const left = live ? (summary?.forecast?.left_s as { p50: number; p90: number } | null | undefined) : null;
  const steps = useMemo(() => lastOf(expected), [expected]);
  const middle = Math.max(left ? now + left.p50 : 0, steps.end);
  // The late end of the band is on the axis, too, unless the rest would be crowded by it.
  const late = Math.min(Math.max(left ? now + left.p90 : 0, steps.late), start + MOST_LATE * (middle - start));
  const end = live ? roundedEnd(start, Math.max(now, middle, late)) : Math.max(list.finished ?? list.at, start + 0.001);
  const last = live ? end : list.at;
  const busy = useMemo(() => {
    const spans: Span[] = [];
    for (const step of list.steps) {
      if (step.items && step.started !== null) spans.push({ start: step.started, end: step.finished ?? last });
      for (const [kind, from, until] of step.stretches) {
        if (kind === "work" || kind === "queue") spans.push({ start: from, end: until ?? last });
      }
    }
    for (const { start, late } of expected.values()) spans.push({ start, end: late });
    return spans;
  }, [list.steps, last, expected]);
  const whole = useMemo(() => ({ start, end }), [start, end]);
  // Where the steps themselves are outlined, they show the end.
  const ahead = left && expected.size === 0 ? { middle, late: now + left.p90 } : null;
  return { start, whole, busy, ahead };
}

function lastOf(expected: ReadonlyMap<string, Expected>): { end: number; late: number } {
  let end = 0;
  let late = 0;
  for (const one of expected.values()) {
    end = Math.max(end, one.end);
    late = Math.max(late, one.late);
  }
  return { end, late };
}

function busyWithin(busy: readonly Span[], { start, end }: Span): Span[] {
  return busy.filter((span) => span.end >= start && span.start <= end);
}

interface BarsProps {
  step: StepRow;
  scale: Scale;
  shown: Span;
  now: number;
}

const Bars = memo(
  function Bars({ step, scale, shown, now }: BarsProps) {
    const bars: { style: BarStyle; start: number; end: number; open: boolean; words: string }[] = [];
    if (step.items && step.started !== null) {
      const end = step.finished ?? now;
      bars.push({ style: "group", start: step.started, end, open: step.finished === null, words: "items" });
    }
    for (const stretch of step.stretches) {
      const [, start, end, attempt, outcome] = stretch;
      const style = styleOf(stretch);
      const words = [STYLES[style], attempt > 1 && `attempt ${attempt}`, outcome].filter(Boolean).join(", ");
      bars.push({ style, start, end: end ?? now, open: end === null, words });
    }
    return bars
      .filter((bar) => bar.end >= shown.start && bar.start <= shown.end)
      .map((bar) => {
        const left = scale.x(Math.max(bar.start, shown.start));
        const width = Math.max(2, scale.x(Math.min(bar.end, shown.end)) - left);
        return (
          <span
            key={`${bar.style} ${bar.start}`}
            className={`bar bar-${bar.style}${bar.open ? " is-open" : ""}`}
            style={{ left, width }}
            title={`${bar.words}: ${length(bar)}`}
          />
        );
      });
  },
  (old, now) =>
    old.step === now.step &&
    old.scale === now.scale &&
    old.shown === now.shown &&
    (old.now === now.now || isStill(now.step)),
);

function isStill(step: StepRow): boolean {
  return step.stretches.every((stretch) => stretch[2] !== null) && !(step.items && step.finished === null);
}

interface OutlineProps extends Partial<Expected> {
  scale: Scale;
  shown: Span;
  now: number;
}

/** Where the forecast expects a step: up to the median of its end, and on to the end that one of ten passes. */
function Outline({ start, end, late, scale, shown, now }: OutlineProps) {
  if (start === undefined || end === undefined || late === undefined) return null;
  if (late < shown.start || start > shown.end) return null;
  const x = (time: number) => scale.x(Math.min(Math.max(time, shown.start), shown.end));
  const begins = start - now >= 1 ? `begins in about ${duration(start - now)}, ` : "";
  const words = `forecast: ${begins}ends in about ${duration(end - now)}, in nine of ten runs within ${duration(late - now)}`;
  const [left, middle, right] = [x(start), x(end), x(late)];
  return (
    <>
      <span className="bar bar-late" style={{ left: middle, width: Math.max(1, right - middle) }} title={words} />
      <span className="bar bar-ahead" style={{ left, width: Math.max(2, middle - left) }} title={words} />
    </>
  );
}

/** What lies ahead, in outline, and the line of now. */
function Ahead({ times, scale, shown, now }: { times: Times; scale: Scale; shown: Span; now: number | null }) {
  if (now === null || now < shown.start) return null;
  const at = scale.x(Math.min(now, shown.end));
  const end = (time: number) => Math.max(0, scale.x(Math.min(time, shown.end)) - at);
  return (
    <>
      {times.ahead && (
        <>
          <div className="ahead is-late" style={{ left: at, width: end(times.ahead.late) }} />
          <div className="ahead" style={{ left: at, width: end(times.ahead.middle) }} />
        </>
      )}
      <div className="now-line" style={{ left: at }} />
    </>
  );
}

function Legend() {
  return (
    <ul className="unlisted legend" aria-label="Legend">
      {Object.entries(STYLES).map(([style, words]) => (
        <li key={style}>
          <span className={`bar bar-${style}`} aria-hidden="true" /> {words}
        </li>
      ))}
    </ul>
  );
}

function length({ start, end }: Span): string {
  return duration(end - start);
}

function useWidth(): [React.RefObject<HTMLDivElement | null>, number] {
  const element = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(600);
  useLayoutEffect(() => {
    const shown = element.current;
    if (!shown) return;
    const watch = new ResizeObserver(() => setWidth(Math.max(50, shown.clientWidth)));
    setWidth(Math.max(50, shown.clientWidth));
    watch.observe(shown);
    return () => watch.disconnect();
  }, []);
  return [element, width];
}
