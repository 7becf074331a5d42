/** Lines about executions, kept up to date with what events say by themselves. */
import type { InfiniteData } from "@tanstack/react-query";
import type { ExecutionPage } from "../api/client";
import type { StreamEvent } from "../live/stream";

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
      return { ...line, status: status ?? line.status, progress: progress ?? line.progress, eta, updated_at };
    });
    return { ...page, executions };
  });
  return { ...list, pages };
}
