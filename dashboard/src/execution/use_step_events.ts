import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useReducer, useRef } from "react";
import { api, type EventPage, given } from "../api/client";
import type { StreamEvent } from "../live/stream";
import type { LiveExecution } from "../live/use_execution";
import { LogLines } from "./log_lines";

export interface AttemptEnd {
  attempt: number;
  at: number;
  outcome: string;
  message: string;
  advice: string[];
}

export interface Prompt {
  attempt: number;
  runtime: string;
  model: string;
  system: string;
  prompt: string;
}

/** What the events of a step say, as far as they are read. */
export class StepEvents {
  readonly log = new LogLines();
  readonly ends: AttemptEnd[] = [];
  readonly prompts: Prompt[] = [];
  seq = 0;
  /** All that was there at first has come. */
  whole = false;
  error: Error | null = null;

  take(events: readonly StreamEvent[], until: number | null): void {
    for (const event of events) {
      if (event.seq <= this.seq || (until !== null && event.seq > until)) continue;
      this.seq = event.seq;
      this.#take(event);
    }
  }

  #take(event: StreamEvent): void {
    const attempt = Number(event.attempt ?? 0);
    switch (event.type) {
      case "output.written":
        this.log.add({ stream: String(event.stream), attempt, text: String(event.text) });
        break;
      case "agent.began":
        this.prompts.push({ ...(event as unknown as Prompt) });
        break;
      case "attempt.finished":
        this.ends.push({ attempt, at: event.at, outcome: "completed", message: "", advice: [] });
        break;
      case "attempt.failed": {
        const failure = event.failure as { message: string; advice?: string[] };
        const { message, advice = [] } = failure;
        this.ends.push({ attempt, at: event.at, outcome: "failed", message, advice });
        break;
      }
      case "attempt.stopped":
        this.ends.push({ attempt, at: event.at, outcome: String(event.reason), message: "", advice: [] });
        break;
    }
  }
}

const PAGE = 5000;

/** The events of a step: those of the past page by page, then the live ones. */
export function useStepEvents(
  execution: string,
  step: string,
  until: number | null,
  follow: LiveExecution["follow"],
): StepEvents {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  const events = useMemo(() => new StepEvents(), [execution, step, until]);
  const early = useRef<StreamEvent[]>([]);
  useEffect(() => {
    early.current = [];
    if (until !== null) return;
    return follow(step, (batch) => {
      if (events.whole) {
        events.take(batch, until);
        redraw();
      } else early.current.push(...batch);
    });
  }, [step, until, follow, events]);
  // As a query, it is asked again as all others are: after an error, and when the server is back.
  const { error } = useQuery({
    queryKey: ["events", execution, step, until],
    queryFn: async ({ signal }) => {
      let after: number | null = events.seq;
      while (after !== null) {
        const page: EventPage = await given<EventPage>(
          api.GET("/api/executions/{execution}/steps/{step}/events", {
            params: { path: { execution, step }, query: { after, limit: PAGE } },
            signal,
          }),
        );
        const read = page.events as unknown as StreamEvent[];
        events.take(read, until);
        after = page.next ? (read.at(-1)?.seq ?? null) : null;
        redraw();
      }
      events.take(early.current, until);
      early.current = [];
      events.whole = true;
      return events.seq;
    },
    gcTime: 0,
  });
  events.error = error;
  return events;
}
