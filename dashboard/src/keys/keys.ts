/** Keys of the keyboard, by one listener for the whole page.
 *
 * A part of a page names its keys with `useKeys`, for as long as it is shown; `shownKeys` lists them all for the help.
 * Nothing happens while somebody types in a field, nor behind an open dialog.
 */
import { useEffect, useLayoutEffect, useRef } from "react";

export interface Key {
  /** One key as the browser names it (`j`, `?`, `Escape`), or two, one after the other: `g e`. */
  keys: string;
  /** What it does, for the help. */
  does: string;
  run: () => void;
}

export interface KeyGroup {
  name: string;
  keys: Key[];
}

const BETWEEN = 1500; // milliseconds that the second key of two may take
const FIELDS = "input, textarea, select, [contenteditable]:not([contenteditable='false'])";

let groups: { current: KeyGroup }[] = [];
let first = "";
let pressed = 0;

/** Has these keys answered while the component is shown. The part that came last wins. */
export function useKeys(name: string, keys: Key[]): void {
  const group = useRef<KeyGroup>({ name, keys });
  // With the page: a plain effect may come later than a key that is pressed for what is seen.
  useLayoutEffect(() => {
    group.current = { name, keys };
  });
  useEffect(() => {
    const mine = group;
    groups = [...groups, mine];
    if (groups.length === 1) document.addEventListener("keydown", onKey);
    return () => {
      groups = groups.filter((other) => other !== mine);
      if (groups.length === 0) document.removeEventListener("keydown", onKey);
    };
  }, []);
}

/** All keys that are answered now, in the order in which they came. */
export function shownKeys(): KeyGroup[] {
  return groups.map((group) => group.current).filter((group) => group.keys.length > 0);
}

function onKey(event: KeyboardEvent): void {
  if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target instanceof Element && event.target.closest(FIELDS)) return;
  if (document.querySelector("dialog[open]")) return;
  const two = `${first} ${event.key}`;
  const inTime = first !== "" && event.timeStamp - pressed < BETWEEN;
  const found = (inTime && find(two)) || find(event.key);
  first = found || event.key === "Shift" ? "" : event.key;
  pressed = event.timeStamp;
  if (!found) return;
  event.preventDefault();
  found.run();
}

function find(keys: string): Key | undefined {
  for (const group of [...groups].reverse()) {
    const key = group.current.keys.find((one) => one.keys === keys);
    if (key) return key;
  }
  return undefined;
}
