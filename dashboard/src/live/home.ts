/** The stream of the whole home, for lists: which queries an event makes old, at most once in a second. */
import { type QueryKey, useQueryClient } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { type Connection, listen, type StreamEvent } from "./stream";

const SOON = 1000;

export interface HomeStream {
  /** Applies what events say by themselves. */
  apply?: (events: StreamEvent[]) => void;
  /** Tells whether an event changes more than it says. */
  isNews: (event: StreamEvent) => boolean;
  /** Asked for again then. */
  old: QueryKey[];
  /** Called then, for what is asked for in another way. */
  again?: () => void;
}

export function useHomeStream(stream: HomeStream): Connection {
  const queries = useQueryClient();
  const [connection, setConnection] = useState<Connection>("connecting");
  const last = useRef(stream);
  useEffect(() => {
    last.current = stream;
  });
  useEffect(() => {
    let due: number | undefined;
    let begun = false;
    const askAgain = () => {
      due = undefined;
      for (const queryKey of last.current.old) void queries.invalidateQueries({ queryKey });
      last.current.again?.();
    };
    const stop = listen({
      path: "/api/stream",
      after: null,
      by: "position",
      connection: (state) => {
        setConnection(state);
        if (state === "live" && !begun) {
          begun = true;
          askAgain(); // for what happened between the first answer and the first heartbeat
        }
      },
      events: (batch) => {
        last.current.apply?.(batch);
        if (due === undefined && batch.some(last.current.isNews)) due = window.setTimeout(askAgain, SOON);
      },
    });
    return () => {
      window.clearTimeout(due);
      stop();
    };
  }, [queries]);
  return connection;
}
