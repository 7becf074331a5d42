/** Lines about executions, kept up to date with what events say by themselves. */
import type { InfiniteData } from "@tanstack/react-query";
import type { ExecutionPage } from "../api/client";
import type { StreamEvent } from "../live/stream";

/** The list with what the first page is now: new executions before it, and those it had as they are now. Undefined if
 * more have come than a page holds, so that some between would be missing. */
export function withNewest(
  list: InfiniteData<ExecutionPage>,
  newest: ExecutionPage,
): InfiniteData<ExecutionPage> | undefined {
  const fresh = new Map(newest.executions.map((line) => [line.id, line]));
  const known = new Set(list.pages.flatMap((page) => page.executions.map((line) => line.id)));
  const added = newest.executions.filter((line) => !known.has(line.id));
  if (newest.next && added.length === newest.executions.length) return undefined;
  const pages = list.pages.map((page, place) => {
    const kept = page.executions.map((line) => fresh.get(line.id) ?? line);
    return { ...page, executions: place === 0 ? [...added, ...kept] : kept };
  });
  return { ...list, pages };
}

export function applyToLines(list: InfiniteData<ExecutionPage>, events: StreamEvent[]): InfiniteData<ExecutionPage> {
  const last = new Map(events.map((event) => [event.execution, event]));
  const known = (page: ExecutionPage) => page.executions.some((line) => last.has(line.id));
  if (!list.pages.some(known)) return list;
  const pages = list.pages.map((page) => {
    if (!known(page)) return page;
    const executions = page.executions.map((line) => {
      const event = last.get(line.id);
      if (!event) return line;
      const { status, progress, eta } = event;
      const updated_at = new Date(event.at * 1000).toISOString();
      const driven = line.driven || status === "running"; // who resumed it wrote the event
      return { ...line, status: status ?? line.status, progress: progress ?? line.progress, eta, driven, updated_at };
    });
    return { ...page, executions };
  });
  return { ...list, pages };
}
