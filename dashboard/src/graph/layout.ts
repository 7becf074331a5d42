/** A layered layout: each node one layer after the last of those it needs, and few crossings between layers. */

export interface Layout {
  /** Places by node: layer, and row in the layer. */
  layer: Int32Array;
  row: Int32Array;
  layers: number;
  rows: number;
}

const SWEEPS = 6;

/** `needs[i]` are the indexes of the nodes that node i waits for. Nodes come after those that they need. */
export function layOut(needs: readonly (readonly number[])[]): Layout {
  const count = needs.length;
  const layer = new Int32Array(count);
  for (let node = 0; node < count; node++) {
    for (const need of needs[node] ?? []) layer[node] = Math.max(layer[node] ?? 0, (layer[need] ?? 0) + 1);
  }
  const layers: number[][] = [];
  for (let node = 0; node < count; node++) {
    const at = layer[node] ?? 0;
    layers[at] ??= [];
    layers[at].push(node);
  }
  const dependents: number[][] = needs.map(() => []);
  needs.forEach((given, node) => {
    for (const need of given) dependents[need]?.push(node);
  });
  const row = new Int32Array(count);
  const number = (nodes: number[]) => {
    nodes.forEach((node, place) => {
      row[node] = place;
    });
  };
  layers.forEach(number);
  for (let sweep = 0; sweep < SWEEPS; sweep++) {
    const down = sweep % 2 === 0;
    const order = down ? layers.slice(1) : layers.slice(0, -1).reverse();
    for (const nodes of order) {
      const weight = new Map(nodes.map((node) => [node, centre(down ? needs[node] : dependents[node], row, node)]));
      nodes.sort((one, two) => (weight.get(one) ?? 0) - (weight.get(two) ?? 0) || one - two);
      number(nodes);
    }
  }
  return { layer, row, layers: layers.length, rows: Math.max(0, ...layers.map((nodes) => nodes.length)) };
}

/** The mean row of the neighbours; a node without any stays where it is. */
function centre(neighbours: readonly number[] | undefined, row: Int32Array, node: number): number {
  if (!neighbours || neighbours.length === 0) return row[node] ?? 0;
  let sum = 0;
  for (const neighbour of neighbours) sum += row[neighbour] ?? 0;
  return sum / neighbours.length;
}
