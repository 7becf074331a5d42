import { expect, test } from "vitest";
import { oneLine, visible } from "../src/ui/text";

test("text of others cannot turn or hide anything", () => {
  // As `windlass.visible.visible` writes them.
  expect(visible("\x1b[31mred\x07\x7f")).toBe("\\u001b[31mred\\u0007\\u007f");
  expect(visible("user\u202egnp.exe")).toBe("user\\u202egnp.exe");
  expect(visible("\b\f\r|\r\n|\t|\n")).toBe("\\b\\f\\r|\n|\t|\n");
  expect(visible("a\u200bb\ufeffc\u{e0041}")).toBe("a\\u200bb\\ufeffc\\udb40\\udc41");
  expect(visible("عربي 👩‍🚀 日本")).toBe("عربي 👩‍🚀 日本");
});

test("a name stays on its line", () => {
  expect(oneLine("one\ntwo")).toBe("one\\ntwo");
});
