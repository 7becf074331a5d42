/** The scale of the timeline: time to pixels, with long idle gaps collapsed.
 *
 * A gap in which no step did anything, longer than a tenth of the whole, is drawn as a narrow band: what happened before
 * and after it stays readable.
 */

export interface Span {
  start: number;
  end: number;
}

export interface Gap extends Span {
  /** Pixels from the left at which its band begins. */
  at: number;
}

export interface Scale {
  gaps: Gap[];
  x(time: number): number;
  time(x: number): number;
  width: number;
}

const COLLAPSED = 0.1;
const BAND = 24;

/** The times in which nothing happened. `busy` in any order. */
export function idleGaps(busy: readonly Span[], whole: Span): Span[] {
  const sorted = [...busy].sort((one, two) => one.start - two.start);
  const gaps: Span[] = [];
  let until = whole.start;
  const most = (whole.end - whole.start) * COLLAPSED;
  for (const span of sorted) {
    if (span.start - until > most) gaps.push({ start: until, end: span.start });
    until = Math.max(until, span.end);
  }
  if (whole.end - until > most) gaps.push({ start: until, end: whole.end });
  return gaps;
}

export function scaleOf(whole: Span, busy: readonly Span[], width: number): Scale {
  const idle = idleGaps(busy, whole);
  const collapsed = idle.reduce((sum, gap) => sum + gap.end - gap.start, 0);
  const shown = Math.max(whole.end - whole.start - collapsed, 1e-6);
  const perSecond = Math.max(1, width - idle.length * BAND) / shown;
  const gaps: Gap[] = [];
  let before = 0;
  for (const gap of idle) {
    const at = (gap.start - whole.start - before) * perSecond + gaps.length * BAND;
    gaps.push({ ...gap, at });
    before += gap.end - gap.start;
  }
  const x = (time: number) => {
    let skipped = 0;
    let bands = 0;
    for (const gap of gaps) {
      if (time <= gap.start) break;
      if (time < gap.end) return gap.at + (BAND * (time - gap.start)) / (gap.end - gap.start);
      skipped += gap.end - gap.start;
      bands += BAND;
    }
    return (time - whole.start - skipped) * perSecond + bands;
  };
  const time = (at: number) => {
    let skipped = 0;
    let bands = 0;
    for (const gap of gaps) {
      if (at <= gap.at) break;
      if (at < gap.at + BAND) return gap.start + ((gap.end - gap.start) * (at - gap.at)) / BAND;
      skipped += gap.end - gap.start;
      bands += BAND;
    }
    return (at - bands) / perSecond + whole.start + skipped;
  };
  return { gaps, x, time, width };
}
