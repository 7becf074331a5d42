/** Times to write at the axis. */
import type { Scale, Span } from "./scale";

const STEPS = [0.1, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 43_200, 86_400];
const APART = 90; // pixels

export interface Tick {
  time: number;
  x: number;
}

/** Round times since the start, far enough from each other; none in a collapsed gap. */
export function ticksOf(scale: Scale, whole: Span, start: number): Tick[] {
  const collapsed = scale.gaps.reduce((sum, gap) => sum + gap.end - gap.start, 0);
  const seconds = Math.max(1e-3, whole.end - whole.start - collapsed);
  const wanted = (seconds * APART) / Math.max(1, scale.width);
  const step = STEPS.find((one) => one >= wanted) ?? Math.ceil(wanted / 86_400) * 86_400;
  const ticks: Tick[] = [];
  let time = start + Math.ceil((whole.start - start) / step) * step;
  while (time <= whole.end) {
    const gap = scale.gaps.find((one) => time > one.start && time < one.end);
    if (gap) {
      time = start + Math.ceil((gap.end - start) / step) * step;
      continue;
    }
    const x = scale.x(time);
    if (x - (ticks.at(-1)?.x ?? -APART) >= APART * 0.7) ticks.push({ time, x });
    time += step;
  }
  return ticks;
}

/** The end of the axis while an execution runs: it moves in leaps, so that the bars hold still between them. */
export function roundedEnd(start: number, now: number): number {
  const passed = Math.max(1, now - start);
  const leap = 10 ** Math.floor(Math.log10(passed)) / 2;
  return start + Math.ceil((passed * 1.02) / leap) * leap;
}
