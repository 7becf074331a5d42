/** j and k move through a list; enter opens the entry, because entries are links or buttons. */
import { useRef } from "react";
import { useKeys } from "./keys";

export interface ListOptions {
  count: number;
  /** Brings an entry into sight; where all entries are on the page, that is not needed. */
  bring?: (place: number) => void;
  /** The element that gets the focus, once it is on the page. */
  element: (place: number) => HTMLElement | null;
  name?: string;
}

const TRIES = 20; // frames until a virtualised entry is on the page

export function useListKeys({ count, bring, element, name = "Lists" }: ListOptions): void {
  const place = useRef(-1);
  const go = (by: number) => {
    if (count === 0) return;
    // Somebody may have moved by tab or mouse since.
    const focused = document.activeElement;
    for (let near = Math.max(0, place.current - 50); near < Math.min(count, place.current + 50); near++) {
      if (focused && element(near) === focused) place.current = near;
    }
    place.current = Math.max(0, Math.min(count - 1, place.current + by));
    bring?.(place.current);
    focus(() => element(place.current), TRIES);
  };
  useKeys(name, [
    { keys: "j", does: "Next entry", run: () => go(1) },
    { keys: "k", does: "Previous entry", run: () => go(-1) },
    { keys: "Enter", does: "Open the entry", run: () => (document.activeElement as HTMLElement | null)?.click() },
  ]);
}

function focus(element: () => HTMLElement | null, tries: number): void {
  const found = element();
  if (found) found.focus();
  else if (tries > 0) window.requestAnimationFrame(() => focus(element, tries - 1));
}
