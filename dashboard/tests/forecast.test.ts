import { describe, expect, it } from "vitest";
import type { StepRow } from "../src/api/client";
import { outlineOf } from "../src/timeline/forecast";

const EXPECTED = { start: 100, end: 110, late: 130 };
const step = (status: string) => ({ id: "a", status }) as StepRow;

describe("outlineOf", () => {
  it("draws a step where it is expected", () => {
    expect(outlineOf(step("pending"), EXPECTED, 90)).toEqual(EXPECTED);
  });

  it("never draws what is to come before now", () => {
    expect(outlineOf(step("pending"), EXPECTED, 105)).toEqual({ start: 105, end: 115, late: 135 });
    expect(outlineOf(step("waiting"), EXPECTED, 200)).toEqual({ start: 200, end: 210, late: 230 });
  });

  it("draws the rest of a step that runs", () => {
    expect(outlineOf(step("running"), EXPECTED, 105)).toEqual({ start: 105, end: 110, late: 130 });
    expect(outlineOf(step("running"), EXPECTED, 120)).toEqual({ start: 120, end: 120, late: 130 });
    expect(outlineOf(step("running"), EXPECTED, 140)).toBeNull();
  });

  it("draws nothing of a step that has ended, or of which nothing is known", () => {
    for (const status of ["completed", "failed", "skipped", "cancelled"]) {
      expect(outlineOf(step(status), EXPECTED, 90)).toBeNull();
    }
    expect(outlineOf(step("pending"), undefined, 90)).toBeNull();
  });
});
