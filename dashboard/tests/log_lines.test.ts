import { describe, expect, it } from "vitest";
import { LogLines, plain } from "../src/execution/log_lines";

const piece = (text: string, stream = "stdout") => ({ stream, attempt: 1, text });

describe("LogLines", () => {
  it("joins the pieces of a line, each stream by itself", () => {
    const log = new LogLines();
    for (const one of [piece("on"), piece("err\n", "stderr"), piece("e\ntwo\n\nth"), piece("ree")]) log.add(one);
    expect(log.lines.map((line) => line.text)).toEqual(["one", "err", "two", "", "three"]);
  });

  it("forgets the oldest of very many lines", () => {
    const log = new LogLines();
    for (let count = 0; count < 12; count++) log.add(piece("x\n".repeat(10_000)));
    expect(log.lines.length + log.left).toBe(120_000);
    expect(log.left).toBeGreaterThan(0);
  });
});

describe("plain", () => {
  it("takes out colours, titles and what was written over", () => {
    expect(plain("\u001b[1;31mred\u001b[0m")).toBe("red");
    expect(plain("\u001b]0;title\u0007text")).toBe("text");
    expect(plain("10 %\r50 %\r100 %")).toBe("100 %");
    expect(plain("windows\r")).toBe("windows");
  });
});
