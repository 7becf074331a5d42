import { describe, expect, it } from "vitest";
import { idleGaps, scaleOf } from "../src/timeline/scale";

const WHOLE = { start: 0, end: 1000 };
const BUSY = [
  { start: 0, end: 100 },
  { start: 50, end: 120 },
  { start: 900, end: 1000 },
];

describe("idleGaps", () => {
  it("finds the times in which nothing happened, and only long ones", () => {
    expect(idleGaps(BUSY, WHOLE)).toEqual([{ start: 120, end: 900 }]);
    expect(idleGaps([...BUSY, { start: 190, end: 850 }], WHOLE)).toEqual([]);
  });
});

describe("scaleOf", () => {
  it("collapses a gap and goes there and back", () => {
    const scale = scaleOf(WHOLE, BUSY, 500);
    expect(scale.x(0)).toBeCloseTo(0);
    expect(scale.x(1000)).toBeCloseTo(500);
    expect(scale.x(900) - scale.x(120)).toBeCloseTo(24);
    for (const time of [0, 60, 120, 500, 900, 999]) expect(scale.time(scale.x(time))).toBeCloseTo(time);
  });

  it("grows with time everywhere", () => {
    const scale = scaleOf(WHOLE, BUSY, 500);
    let before = -1;
    for (let time = 0; time <= 1000; time += 7) {
      expect(scale.x(time)).toBeGreaterThan(before);
      before = scale.x(time);
    }
  });

  it("takes an execution that has just begun", () => {
    const scale = scaleOf({ start: 5, end: 5 }, [], 500);
    expect(Number.isFinite(scale.x(5))).toBe(true);
  });
});
