import type { RefObject } from "react";
import type { StepList } from "../api/client";
import { VIEWS, type View } from "./address";
import type { Filter } from "./use_lines";

const NAMES: Record<View, string> = { graph: "Graph", timeline: "Timeline", list: "List" };
const ORDER = ["failed", "waiting", "running", "paused", "pending", "completed", "skipped"];

interface ToolbarProps {
  list: StepList;
  view: View;
  setView: (view: View) => void;
  filter: Filter;
  setFilter: (filter: Filter) => void;
  search: RefObject<HTMLInputElement | null>;
  shown: number;
}

/** The view, the search, and the steps counted by status: each count shows those steps only. */
export function Toolbar({ list, view, setView, filter, setFilter, search, shown }: ToolbarProps) {
  const counts = new Map<string, number>();
  for (const step of list.steps) counts.set(step.status, (counts.get(step.status) ?? 0) + 1);
  const chosen = (status: string) => setFilter({ ...filter, status: filter.status === status ? null : status });
  return (
    <div className="toolbar">
      <div className="views" role="group" aria-label="View">
        {VIEWS.map((name) => (
          <button key={name} type="button" aria-pressed={view === name} onClick={() => setView(name)}>
            {NAMES[name]}
          </button>
        ))}
      </div>
      <div className="counts" role="group" aria-label="Show only">
        {ORDER.filter((status) => counts.has(status)).map((status) => (
          <button
            key={status}
            type="button"
            className={`chip status ${status}`}
            aria-pressed={filter.status === status}
            onClick={() => chosen(status)}
          >
            {counts.get(status)} {status}
          </button>
        ))}
      </div>
      <input
        ref={search}
        type="search"
        aria-label="Search the steps"
        placeholder="Search  /"
        value={filter.text}
        onChange={(event) => setFilter({ ...filter, text: event.target.value })}
        onKeyDown={(event) => {
          if (event.key === "Escape") event.currentTarget.blur();
        }}
      />
      {(filter.text || filter.status) && (
        <span className="soft" role="status">
          {shown} found
        </span>
      )}
    </div>
  );
}
