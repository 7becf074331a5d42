import { describe, expect, it } from "vitest";
import type { ExecutionLine, ExecutionPage } from "../src/api/client";
import { withNewest } from "../src/pages/execution-lines";

const page = (ids: string[], next: string | null, status = "running"): ExecutionPage => ({
  executions: ids.map((id) => ({ id, status }) as ExecutionLine),
  next,
});

describe("the newest executions of a long list", () => {
  const list = { pages: [page(["d", "c"], "more"), page(["b", "a"], null)], pageParams: ["", "c"] };

  it("stand before those that are there, which are as they are now", () => {
    const joined = withNewest(list, page(["e", "d", "c"], "more", "completed"));
    expect(joined?.pages.map((one) => one.executions.map((line) => `${line.id} ${line.status}`))).toEqual([
      ["e completed", "d completed", "c completed"],
      ["b running", "a running"],
    ]);
  });

  it("are no list when some between would be missing", () => {
    expect(withNewest(list, page(["z", "y"], "more"))).toBeUndefined();
  });
});
