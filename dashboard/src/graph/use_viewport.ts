import { type PointerEvent, type RefObject, useCallback, useEffect, useLayoutEffect, useRef, useState } from "react";
import type { Box, Point } from "./places";
import { HEIGHT, WIDTH } from "./places";

export interface Viewport {
  x: number;
  y: number;
  scale: number;
}

const SMALLEST = 0.02;
const LARGEST = 2;
const MARGIN = 24;
const FIT_AT_MOST = 1; // a graph of two steps is not blown up

interface Size {
  width: number;
  height: number;
}

/** Where one looks in the graph: all of it, until somebody drags or zooms. */
export function useViewport(graph: Size | null) {
  const box = useRef<HTMLDivElement>(null);
  const [size, setSize] = useState<Size>({ width: 800, height: 500 });
  const [view, setView] = useState<Viewport>({ x: MARGIN, y: MARGIN, scale: 1 });
  const touched = useRef(false);
  const shown = useRef(view);
  shown.current = view;

  useLayoutEffect(() => {
    const element = box.current;
    if (!element) return;
    const measure = () => setSize({ width: element.clientWidth, height: element.clientHeight });
    const watch = new ResizeObserver(measure);
    measure();
    watch.observe(element);
    return () => watch.disconnect();
  }, []);

  const fit = useCallback(() => {
    if (!graph) return;
    touched.current = false;
    setView(fitted(graph, size));
  }, [graph, size]);
  useLayoutEffect(() => {
    if (!touched.current) fit();
  }, [fit]);

  const zoom = useCallback((factor: number, at: Point) => {
    touched.current = true;
    setView((old) => {
      const scale = Math.min(LARGEST, Math.max(SMALLEST, old.scale * factor));
      const part = scale / old.scale;
      return { scale, x: at.x - (at.x - old.x) * part, y: at.y - (at.y - old.y) * part };
    });
  }, []);
  useWheel(box, zoom);
  const drag = useDrag(box, shown, zoom, (wanted) => {
    touched.current = true;
    setView(wanted);
  });

  /** Moves no farther than is needed to see a node. */
  const bring = useCallback(
    ({ x, y }: Point) => {
      const { scale, x: left, y: top } = shown.current;
      const at = { x: x * scale + left, y: y * scale + top };
      const sees = at.x >= 0 && at.y >= 0 && at.x + WIDTH * scale <= size.width && at.y + HEIGHT * scale <= size.height;
      if (sees) return;
      touched.current = true;
      const near = Math.max(scale, 0.6);
      setView({
        scale: near,
        x: size.width / 2 - (x + WIDTH / 2) * near,
        y: size.height / 2 - (y + HEIGHT / 2) * near,
      });
    },
    [size],
  );
  return { box, view, size, fit, zoom, drag, bring, seen: seenOf(view, size) };
}

export function fitted(graph: Size, size: Size): Viewport {
  const wide = (size.width - 2 * MARGIN) / graph.width;
  const high = (size.height - 2 * MARGIN) / graph.height;
  const scale = Math.max(SMALLEST, Math.min(FIT_AT_MOST, wide, high));
  return { scale, x: (size.width - graph.width * scale) / 2, y: (size.height - graph.height * scale) / 2 };
}

/** The part of the graph that is seen, and a little around it, in steps: it changes rarely while one drags. */
function seenOf({ x, y, scale }: Viewport, { width, height }: Size): Box {
  const step = Math.max(width, height) / 2 / scale;
  const down = (value: number) => (Math.floor(value / step) - 0.25) * step;
  const up = (value: number) => (Math.ceil(value / step) + 0.25) * step;
  return {
    left: down(-x / scale),
    top: down(-y / scale),
    right: up((width - x) / scale),
    bottom: up((height - y) / scale),
  };
}

function placeIn(element: HTMLElement | null, event: { clientX: number; clientY: number }): Point {
  const box = element?.getBoundingClientRect();
  return { x: event.clientX - (box?.left ?? 0), y: event.clientY - (box?.top ?? 0) };
}

/** React's own listener cannot keep the page from scrolling. */
function useWheel(box: RefObject<HTMLDivElement | null>, zoom: (factor: number, at: Point) => void): void {
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const wheel = (event: WheelEvent) => {
      event.preventDefault();
      const lines = event.deltaMode === WheelEvent.DOM_DELTA_LINE ? 16 : 1;
      zoom(Math.exp(-event.deltaY * lines * (event.ctrlKey ? 0.01 : 0.0015)), placeIn(element, event));
    };
    element.addEventListener("wheel", wheel, { passive: false });
    return () => element.removeEventListener("wheel", wheel);
  }, [box, zoom]);
}

const STILL = 4; // pixels that a click may move

/** Drags with one pointer, zooms with two. */
function useDrag(
  box: RefObject<HTMLDivElement | null>,
  shown: RefObject<Viewport>,
  zoom: (factor: number, at: Point) => void,
  setView: (view: Viewport) => void,
) {
  const pointers = useRef(new Map<number, Point>());
  const moved = useRef(0);
  return {
    /** Whether the last press was a drag, so that its click chooses nothing. */
    wasDrag: () => moved.current > STILL,
    onPointerDown: (event: PointerEvent<HTMLElement>) => {
      moved.current = 0;
      pointers.current.set(event.pointerId, placeIn(box.current, event));
    },
    onPointerMove: (event: PointerEvent<HTMLElement>) => {
      const before = pointers.current.get(event.pointerId);
      if (!before) return;
      const now = placeIn(box.current, event);
      const other = [...pointers.current].find(([id]) => id !== event.pointerId)?.[1];
      pointers.current.set(event.pointerId, now);
      moved.current += Math.hypot(now.x - before.x, now.y - before.y);
      if (moved.current > STILL) box.current?.setPointerCapture(event.pointerId);
      if (other) {
        const apart = (point: Point) => Math.max(1, Math.hypot(point.x - other.x, point.y - other.y));
        zoom(apart(now) / apart(before), { x: (now.x + other.x) / 2, y: (now.y + other.y) / 2 });
        return;
      }
      const { x, y, scale } = shown.current;
      shown.current = { scale, x: x + now.x - before.x, y: y + now.y - before.y };
      setView(shown.current);
    },
    onPointerUp: (event: PointerEvent<HTMLElement>) => void pointers.current.delete(event.pointerId),
    onPointerCancel: (event: PointerEvent<HTMLElement>) => void pointers.current.delete(event.pointerId),
  };
}
