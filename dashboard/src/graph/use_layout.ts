import { useEffect, useRef, useState } from "react";
import type { StepRow } from "../api/client";
import { saved } from "../api/saved";
import { type Layout, layOut } from "./layout";

export interface Shape {
  names: string[];
  needs: number[][];
}

export interface Placed {
  shape: Shape;
  layout: Layout;
}

/** The shape of the graph: the same object until a step or a dependency is another one. */
function useShape(steps: readonly StepRow[]): Shape {
  const kept = useRef<{ shape: Shape; steps: readonly StepRow[] } | null>(null);
  if (!kept.current || !isSame(kept.current.steps, steps)) {
    const places = new Map(steps.map((step, place) => [step.id, place]));
    const needs = steps.map((step, place) =>
      // A step comes after those that it needs; anything else would be a circle.
      step.needs.flatMap((name) => places.get(name) ?? []).filter((need) => need < place),
    );
    kept.current = { shape: { names: steps.map((step) => step.id), needs }, steps };
  } else kept.current.steps = steps;
  return kept.current.shape;
}

function isSame(one: readonly StepRow[], two: readonly StepRow[]): boolean {
  if (one === two) return true;
  if (one.length !== two.length) return false;
  return one.every((step, place) => {
    const other = two[place];
    if (step === other || step.needs === other?.needs) return step.id === other?.id;
    return step.id === other?.id && step.needs.join("\n") === other.needs.join("\n");
  });
}

/** The layout of the steps, made by a worker; null until the first one is there. */
export function useLayout(steps: readonly StepRow[]): Placed | null {
  const shape = useShape(steps);
  const [placed, setPlaced] = useState<Placed | null>(null);
  useEffect(() => {
    if (saved) {
      setPlaced({ shape, layout: layOut(shape.needs) }); // a file has no second one for a worker
      return;
    }
    const worker = new Worker(new URL("./layout.worker.ts", import.meta.url), { type: "module" });
    worker.onmessage = (message: MessageEvent<Layout>) => {
      setPlaced({ shape, layout: message.data });
      worker.terminate();
    };
    worker.postMessage(shape.needs);
    return () => worker.terminate();
  }, [shape]);
  return placed;
}
