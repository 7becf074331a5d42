import { memo, useEffect, useMemo } from "react";
import type { StepList, StepRow } from "../api/client";
import type { Line } from "../execution/use_lines";
import { waitWords } from "../execution/words";
import { duration } from "../ui/format";
import { Status } from "../ui/status";
import { Text } from "../ui/text";
import { type Box, cornersOf, HEIGHT, type Point, pathOf, rectanglesOf, sizeOf, WIDTH, within } from "./places";
import { type Placed, useLayout } from "./use_layout";
import { useViewport } from "./use_viewport";
import "./graph.css";

const FAR = 0.45; // below that, nobody can read a name

interface GraphProps {
  list: StepList;
  lines: Line[];
  selected: string | null;
  choose: (step: string) => void;
}

/** The steps and what they need, from left to right. */
export function Graph({ list, lines, selected, choose }: GraphProps) {
  const placed = useLayout(list.steps);
  const corners = useMemo(() => (placed ? cornersOf(placed) : []), [placed]);
  const size = useMemo(() => (placed ? sizeOf(placed) : null), [placed]);
  const { box, view, size: area, fit, zoom, drag, bring, seen } = useViewport(size);
  const rows = useMemo(() => new Map(list.steps.map((step) => [step.id, step])), [list.steps]);
  const found = useMemo(
    () => (lines.filter((line) => !line.item).length < list.steps.length ? new Set(lines.map((l) => l.step.id)) : null),
    [lines, list.steps.length],
  );
  const place = placed && selected !== null ? placed.shape.names.indexOf(parentOf(selected)) : -1;
  useEffect(() => {
    const corner = corners[place];
    if (corner) bring(corner);
  }, [place, corners, bring]);
  const far = view.scale < FAR;
  const nodes = useSeen(corners, seen);
  const onClick = (step: string, clicks: number) => {
    if (clicks === 0 || !drag.wasDrag()) choose(step); // a key makes a click of no clicks
  };
  return (
    <div className="graph">
      <div
        ref={box}
        className="graph-box"
        onPointerDown={drag.onPointerDown}
        onPointerMove={drag.onPointerMove}
        onPointerUp={drag.onPointerUp}
        onPointerCancel={drag.onPointerCancel}
      >
        {placed && (
          <div
            className="graph-all"
            role="group"
            aria-label={`Graph of ${list.steps.length} steps`}
            style={{ transform: `translate(${view.x}px, ${view.y}px) scale(${view.scale})` }}
          >
            <Edges placed={placed} corners={corners} seen={seen} selected={place} size={size} />
            {far ? (
              <FarNodes {...{ placed, corners, nodes, rows, size, found, selected: place }} choose={onClick} />
            ) : (
              nodes.map((node) => {
                const step = rows.get(placed.shape.names[node] ?? "");
                const corner = corners[node];
                return (
                  step &&
                  corner && (
                    <Node
                      key={step.id}
                      step={step}
                      x={corner.x}
                      y={corner.y}
                      selected={node === place}
                      dimmed={found !== null && !found.has(step.id)}
                      choose={onClick}
                    />
                  )
                );
              })
            )}
          </div>
        )}
        {!placed && <p className="soft graph-wait">Laying out …</p>}
      </div>
      <div className="graph-buttons">
        <button type="button" aria-label="Zoom in" onClick={() => zoom(1.4, middle(area))}>
          +
        </button>
        <button type="button" aria-label="Zoom out" onClick={() => zoom(1 / 1.4, middle(area))}>
          −
        </button>
        <button type="button" onClick={fit}>
          Fit
        </button>
      </div>
    </div>
  );
}

/** An item of a foreach is shown by its step. */
function parentOf(step: string): string {
  return step.replace(/\[\d+\]$/, "");
}

function middle({ width, height }: { width: number; height: number }): Point {
  return { x: width / 2, y: height / 2 };
}

function useSeen(corners: Point[], { left, top, right, bottom }: Box): number[] {
  return useMemo(() => within(corners, { left, top, right, bottom }), [corners, left, top, right, bottom]);
}

interface EdgesProps {
  placed: Placed;
  corners: Point[];
  seen: Box;
  selected: number;
  size: { width: number; height: number } | null;
}

const Edges = memo(
  function Edges({ placed, corners, seen, selected, size }: EdgesProps) {
    const needs = placed.shape.needs;
    return (
      <svg className="edges" width={size?.width} height={size?.height} aria-hidden="true">
        <path d={pathOf(needs, corners, seen)} />
        {selected >= 0 && <path className="is-near" d={pathOf(needs, corners, seen, selected)} />}
      </svg>
    );
  },
  (old, now) =>
    old.placed === now.placed &&
    old.selected === now.selected &&
    old.seen.left === now.seen.left &&
    old.seen.top === now.seen.top &&
    old.seen.right === now.seen.right &&
    old.seen.bottom === now.seen.bottom,
);

interface FarProps {
  placed: Placed;
  corners: Point[];
  nodes: number[];
  rows: Map<string, StepRow>;
  size: { width: number; height: number } | null;
  found: Set<string> | null;
  selected: number;
  choose: (step: string, clicks: number) => void;
}

/** Nodes that are too small to be read: a rectangle each, one path for each status. */
const FarNodes = memo(function FarNodes({ placed, corners, nodes, rows, size, found, selected, choose }: FarProps) {
  const byStatus = new Map<string, number[]>();
  for (const node of nodes) {
    const name = placed.shape.names[node] ?? "";
    const dimmed = found !== null && !found.has(name);
    const status = `${rows.get(name)?.status ?? "pending"}${dimmed ? " is-dimmed" : ""}`;
    const same = byStatus.get(status);
    if (same) same.push(node);
    else byStatus.set(status, [node]);
  }
  const chosen = corners[selected];
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the list has the same steps for the keyboard
    <svg
      className="far-nodes"
      width={size?.width}
      height={size?.height}
      role="img"
      aria-label={`${nodes.length} steps; zoom in to read them`}
      onClick={(event) => {
        const box = event.currentTarget.getBoundingClientRect();
        const scale = (size?.width ?? 1) / box.width;
        const [x, y] = [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
        const node = within(corners, { left: x, right: x, top: y, bottom: y })[0];
        const name = node === undefined ? undefined : placed.shape.names[node];
        if (name !== undefined) choose(name, event.detail);
      }}
    >
      {[...byStatus].map(([status, same]) => (
        <path key={status} className={`far ${status}`} d={rectanglesOf(corners, same)} />
      ))}
      {chosen && <rect className="far-selected" x={chosen.x} y={chosen.y} width={WIDTH} height={HEIGHT} />}
    </svg>
  );
});

interface NodeProps {
  step: StepRow;
  x: number;
  y: number;
  selected: boolean;
  dimmed: boolean;
  choose: (step: string, clicks: number) => void;
}

const Node = memo(
  function Node({ step, x, y, selected, dimmed, choose }: NodeProps) {
    return (
      <button
        type="button"
        className={`node ${step.status}${step.items ? " is-many" : ""}${selected ? " is-selected" : ""}${dimmed ? " is-dimmed" : ""}`}
        aria-pressed={selected}
        style={{ transform: `translate(${x}px, ${y}px)`, width: WIDTH, height: HEIGHT }}
        onClick={(event) => choose(step.id, event.detail)}
      >
        <span className="node-name">
          <Status status={step.status} short /> <Text className="name">{step.id}</Text>
        </span>
        <span className="node-words">
          <Text className="name">{wordsOf(step)}</Text>
        </span>
      </button>
    );
  },
  (old, now) =>
    old.step === now.step &&
    old.x === now.x &&
    old.y === now.y &&
    old.selected === now.selected &&
    old.dimmed === now.dimmed,
);

/** The one thing about a step that tells most. */
function wordsOf(step: StepRow): string {
  if (step.items) {
    const { done = 0, failed = 0, total = 0 } = step.items;
    return `${done} of ${total} items${failed ? `, ${failed} failed` : ""}`;
  }
  if (step.status === "failed") return step.error ?? "failed";
  if (step.status === "waiting") return `waits for ${waitWords(step)}`;
  if (step.status === "running") return step.last_output || (step.role ?? step.tool);
  const took = step.started !== null && step.finished !== null ? duration(step.finished - step.started) : "";
  return [step.role ?? step.tool, took].filter(Boolean).join(" · ");
}
