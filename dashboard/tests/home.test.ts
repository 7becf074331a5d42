import { expect, test } from "vitest";
import { short } from "../src/ui/home";

test("a long path keeps its end", () => {
  expect(short("/home/ann/work/.windlass")).toBe("/home/ann/work/.windlass");
  expect(short("/very/long/path/of/some/company/with/a/project/.windlass", 24)).toBe("…/with/a/project/.windlass");
});
