import { describe, expect, it } from "vitest";
import type { StepList, StepRow } from "../src/api/client";
import { changed, parsed } from "../src/execution/edit";
import { found, ordered } from "../src/execution/order";
import { applyEvents } from "../src/live/rows";
import type { StreamEvent } from "../src/live/stream";
import { scaleOf } from "../src/timeline/scale";
import { roundedEnd, ticksOf } from "../src/timeline/ticks";

function row(id: string, status = "pending", more: Partial<StepRow> = {}): StepRow {
  return { id, status, tool: "shell", needs: [], stretches: [], attempts: 0, started: null, ...more } as StepRow;
}

function list(steps: StepRow[]): StepList {
  return { seq: 5, at: 5, status: "running", progress: 0, steps } as unknown as StepList;
}

function event(seq: number, type: string, more: object = {}): StreamEvent {
  return { seq, at: seq, type, step: "a", status: "running", progress: 50, ...more } as StreamEvent;
}

describe("applyEvents", () => {
  it("applies each event once, and splits an attempt into queue and work", () => {
    const events = [event(5, "attempt.started", { attempt: 9 }), event(6, "attempt.started", { attempt: 1 })];
    const [running] = applyEvents(list([row("a")]), events);
    expect([running.steps[0]?.status, running.steps[0]?.attempts, running.seq]).toEqual(["running", 1, 6]);
    const [done] = applyEvents(running, [event(10, "attempt.finished", { attempt: 1, queued: 1 })]);
    expect(done.steps[0]?.stretches).toEqual([
      ["queue", 6, 7, 1, ""],
      ["work", 7, 10, 1, "completed"],
    ]);
  });

  it("asks again where the engine's rules decide", () => {
    expect(applyEvents(list([row("a")]), [event(6, "step.retried")])[1]).toBe(true);
    expect(applyEvents(list([row("a")]), [event(6, "output.written", { text: "x" })])[1]).toBe(false);
  });
});

describe("ordered and found", () => {
  it("keeps few steps as they are, and puts trouble first among many", () => {
    const few = [row("a", "completed"), row("b", "failed")];
    expect(ordered(few).map((step) => step.id)).toEqual(["a", "b"]);
    const many = Array.from({ length: 70 }, (_, place) => row(`s${place}`, "completed"));
    many.push(row("f", "failed"), row("r", "running"), row("q", "waiting", { asks: true }));
    expect(
      ordered(many)
        .slice(0, 4)
        .map((step) => step.id),
    ).toEqual(["q", "f", "r", "s0"]);
    expect(found(many, "S1", null).length).toBe(11);
    expect(found(many, "", "failed").length).toBe(1);
  });
});

describe("edits", () => {
  it("names what is no JSON object, and finds what changed", () => {
    expect(parsed("[1]")).toContain("object");
    expect(parsed("{")).toContain("not JSON");
    expect(changed({ a: 1, b: [1] }, { a: 1, b: [2], c: 3 })).toEqual({ b: [2], c: 3 });
  });
});

describe("the axis", () => {
  it("has ticks that do not overlap, and an end that moves in leaps", () => {
    const whole = { start: 100, end: 1300 };
    const ticks = ticksOf(scaleOf(whole, [whole], 900), whole, 100);
    expect(ticks.length).toBeGreaterThan(3);
    ticks.slice(1).forEach((tick, place) => {
      expect(tick.x - (ticks[place]?.x ?? 0)).toBeGreaterThan(60);
    });
    expect(roundedEnd(0, 61)).toBe(roundedEnd(0, 63));
    expect(roundedEnd(0, 61)).toBeGreaterThan(61);
  });
});
