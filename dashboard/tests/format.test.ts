import { expect, it } from "vitest";
import { duration, percent } from "../src/ui/format";

it("says 100 percent of what is done alone", () => {
  expect([0, 33.3, 66.7, 99.4, 99.9, 100].map(percent)).toEqual(["0 %", "33 %", "67 %", "99 %", "99 %", "100 %"]);
});

it("carries what is rounded up into the next unit", () => {
  expect([9.94, 9.97, 59.7, 119.7, 3599.6].map(duration)).toEqual([
    "9.9 s",
    "10 s",
    "1 min 0 s",
    "2 min 0 s",
    "1 h 0 min",
  ]);
});
