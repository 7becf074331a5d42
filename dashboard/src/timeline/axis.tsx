import { type PointerEvent, useState } from "react";
import { duration } from "../ui/format";
import type { Scale, Span } from "./scale";
import { ticksOf } from "./ticks";

const SMALLEST = 4; // pixels of a brush; less is a click

interface AxisProps {
  scale: Scale;
  shown: Span;
  whole: Span;
  start: number;
  zoomed: boolean;
  setZoom: (span: Span | null) => void;
}

/** The times above the bars. A brush over them shows that part of the time only. */
export function Axis({ scale, shown, whole, start, zoomed, setZoom }: AxisProps) {
  const [brush, setBrush] = useState<[number, number] | null>(null);
  const place = (event: PointerEvent<HTMLElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    return Math.max(0, Math.min(scale.width, event.clientX - box.left));
  };
  const done = () => {
    if (brush) {
      const [left, right] = [...brush].sort((one, two) => one - two) as [number, number];
      if (right - left >= SMALLEST) setZoom({ start: scale.time(left), end: scale.time(right) });
    }
    setBrush(null);
  };
  const step = (factor: number) => {
    const half = ((shown.end - shown.start) / 2) * factor;
    const middle = (shown.start + shown.end) / 2;
    const wider = { start: Math.max(whole.start, middle - half), end: Math.min(whole.end, middle + half) };
    setZoom(wider.start === whole.start && wider.end === whole.end ? null : wider);
  };
  return (
    <>
      <div
        className="axis"
        role="img"
        aria-label={`${duration(shown.end - shown.start)} of time. Drag over it to zoom in.`}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          setBrush([place(event), place(event)]);
        }}
        onPointerMove={(event) => brush && setBrush([brush[0], place(event)])}
        onPointerUp={done}
        onPointerCancel={() => setBrush(null)}
        onDoubleClick={() => setZoom(null)}
      >
        {ticksOf(scale, shown, start).map(({ time, x }) => (
          <span key={time} className="tick" style={{ left: x }}>
            {time === start ? new Date(start * 1000).toLocaleTimeString("en-GB") : `+${short(time - start)}`}
          </span>
        ))}
        {scale.gaps.map((gap) => (
          <span
            key={gap.start}
            className="gap-word"
            style={{ left: gap.at }}
            title={`idle ${duration(gap.end - gap.start)}`}
          >
            ⋯
          </span>
        ))}
        {brush && (
          <span
            className="brush"
            style={{ left: Math.min(...brush), width: Math.max(1, Math.abs(brush[1] - brush[0])) }}
          />
        )}
      </div>
      <span className="axis-buttons">
        <button type="button" className="quiet" aria-label="Zoom in" onClick={() => step(0.5)}>
          +
        </button>
        <button type="button" className="quiet" aria-label="Zoom out" disabled={!zoomed} onClick={() => step(2)}>
          −
        </button>
        {zoomed && (
          <button type="button" className="link" onClick={() => setZoom(null)}>
            Whole time
          </button>
        )}
      </span>
    </>
  );
}

/** Seconds as short as the axis needs them. */
function short(seconds: number): string {
  if (seconds < 60) return `${Number(seconds.toFixed(1))} s`;
  if (seconds < 3600) return `${Number((seconds / 60).toFixed(1))} min`;
  return `${Number((seconds / 3600).toFixed(1))} h`;
}
