import { describe, expect, it } from "vitest";
import { layOut } from "../src/graph/layout";

describe("layOut", () => {
  it("puts each node after those that it needs", () => {
    const { layer, layers, rows } = layOut([[], [0], [0], [1, 2], []]);
    expect([...layer]).toEqual([0, 1, 1, 2, 0]);
    expect([layers, rows]).toEqual([3, 2]);
  });

  it("gives every node of a layer a row of its own", () => {
    const needs = Array.from({ length: 500 }, (_, node) => (node < 50 ? [] : [node - 50, (node * 7) % (node - 49)]));
    const { layer, row } = layOut(needs);
    expect(new Set(Array.from(layer, (at, node) => `${at}:${row[node]}`)).size).toBe(500);
  });

  it("untangles two chains", () => {
    const { row } = layOut([[], [], [1], [0], [2], [3]]);
    expect(row[2] === row[1]).toBe(true);
    expect(row[4] === row[2]).toBe(true);
  });

  it("takes no nodes and ten thousand", () => {
    expect(layOut([]).layers).toBe(0);
    const chain = Array.from({ length: 10_000 }, (_, node) => (node ? [node - 1] : []));
    expect(layOut(chain).layers).toBe(10_000);
  });
});
