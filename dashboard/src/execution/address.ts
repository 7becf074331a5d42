/** What the page shows, kept in its address: the view, the step that is selected, the moment. */
import { useCallback } from "react";
import { useSearchParams } from "wouter";

export const VIEWS = ["graph", "timeline", "list"] as const;
export type View = (typeof VIEWS)[number];

export interface Address {
  view: View | null;
  step: string | null;
  /** The event after which the page shows the execution; null is now. */
  at: number | null;
}

export function useAddress(): [Address, (change: Partial<Address>) => void] {
  const [search, setSearch] = useSearchParams();
  const view = VIEWS.find((name) => name === search.get("view")) ?? null;
  const at = Number(search.get("at"));
  const address = { view, step: search.get("step"), at: Number.isSafeInteger(at) && at > 0 ? at : null };
  const change = useCallback(
    (wanted: Partial<Address>) =>
      setSearch(
        (old) => {
          const found = new URLSearchParams(old);
          for (const [name, value] of Object.entries(wanted)) {
            if (value === null) found.delete(name);
            else found.set(name, String(value));
          }
          return found;
        },
        { replace: true }, // j held down would fill the browser's history
      ),
    [setSearch],
  );
  return [address, change];
}
