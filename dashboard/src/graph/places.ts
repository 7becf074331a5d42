/** Pixels of a layout's nodes and edges, before zooming. */
import type { Placed } from "./use_layout";

export const WIDTH = 190;
export const HEIGHT = 46;
const COLUMN = WIDTH + 70;
const ROW = HEIGHT + 18;

export interface Point {
  x: number;
  y: number;
}

export interface Box {
  left: number;
  top: number;
  right: number;
  bottom: number;
}

/** The upper left corners of all nodes. Short layers stand in the middle of the graph's height. */
export function cornersOf({ layout }: Placed): Point[] {
  const sizes = new Int32Array(layout.layers);
  for (const layer of layout.layer) sizes[layer] = (sizes[layer] ?? 0) + 1;
  return Array.from(layout.layer, (layer, node) => ({
    x: layer * COLUMN,
    y: ((layout.row[node] ?? 0) + (layout.rows - (sizes[layer] ?? 0)) / 2) * ROW,
  }));
}

export function sizeOf({ layout }: Placed): { width: number; height: number } {
  return {
    width: Math.max(WIDTH, layout.layers * COLUMN - (COLUMN - WIDTH)),
    height: Math.max(HEIGHT, layout.rows * ROW - (ROW - HEIGHT)),
  };
}

/** The nodes that lie in a box. */
export function within(corners: readonly Point[], box: Box): number[] {
  const found: number[] = [];
  corners.forEach(({ x, y }, node) => {
    if (x < box.right && x + WIDTH > box.left && y < box.bottom && y + HEIGHT > box.top) found.push(node);
  });
  return found;
}

/** The edges that touch a box, as one path; of one node only, if it is given. */
export function pathOf(needs: readonly number[][], corners: readonly Point[], box: Box, only?: number): string {
  const parts: string[] = [];
  needs.forEach((given, node) => {
    const to = corners[node];
    if (!to) return;
    for (const need of given) {
      if (only !== undefined && node !== only && need !== only) continue;
      const from = corners[need];
      if (!from || from.x > box.right || to.x < box.left) continue;
      if (Math.max(from.y, to.y) < box.top - HEIGHT || Math.min(from.y, to.y) > box.bottom) continue;
      const [x1, y1] = [from.x + WIDTH, from.y + HEIGHT / 2];
      const [x2, y2] = [to.x, to.y + HEIGHT / 2];
      const bend = Math.max(30, (x2 - x1) / 2);
      parts.push(`M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`);
    }
  });
  return parts.join("");
}

/** Plain rectangles of nodes, as one path. */
export function rectanglesOf(corners: readonly Point[], nodes: readonly number[]): string {
  return nodes
    .map((node) => {
      const { x, y } = corners[node] ?? { x: 0, y: 0 };
      return `M${x} ${y}h${WIDTH}v${HEIGHT}h${-WIDTH}z`;
    })
    .join("");
}
