/** The server's stream of events, resumed without gaps after every break, and handed over many at a time. */
import { saved } from "../api/saved";

export interface StreamEvent {
  type: string;
  at: number;
  position: number;
  execution: string;
  seq: number;
  status: string | null;
  progress: number | null;
  eta: number | null;
  step?: string;
  [field: string]: unknown;
}

/** `saved`: there is no server, the page is a file. */
export type Connection = "connecting" | "live" | "lost" | "logged out" | "saved";

export interface StreamOptions {
  /** The path of the stream, and the sequence or position after which it begins. */
  path: string;
  after: number | null;
  /** The field by which it goes on: `seq` of one execution, `position` of all. */
  by: "seq" | "position";
  events: (batch: StreamEvent[]) => void;
  connection: (state: Connection) => void;
}

const FIRST_WAIT = 500;
const LONGEST_WAIT = 10_000;
const SILENCE = 45_000;
const REFUSED = 1008; // the event to go on from is not in the journal
const TOGETHER = 16; // milliseconds; a tab that is hidden has no frames, but it has timers
const ANSWERS_WITHIN = 5_000;

/** Listens until the returned function is called. */
export function listen(options: StreamOptions): () => void {
  if (saved) {
    options.connection("saved");
    return () => {};
  }
  let last = options.after;
  let wait = FIRST_WAIT;
  let over = false;
  let socket: WebSocket | null = null;
  let timer: number | undefined;
  let silence: number | undefined;
  let soon: number | undefined;
  let batch: StreamEvent[] = [];

  const handOver = () => {
    soon = undefined;
    const events = batch;
    batch = [];
    if (!over && events.length > 0) options.events(events);
  };

  const heard = () => {
    window.clearTimeout(silence);
    silence = window.setTimeout(giveUp, SILENCE);
  };

  // A server that says nothing may not say goodbye either: nobody waits for that.
  const giveUp = () => {
    if (over) return;
    if (socket) {
      socket.onopen = socket.onmessage = socket.onclose = null;
      socket.close();
    }
    options.connection("lost");
    goOn();
  };

  const goOn = () => {
    window.clearTimeout(silence);
    void whyLost().then((state) => {
      if (over) return;
      options.connection(state);
      timer = window.setTimeout(connect, wait);
      wait = Math.min(LONGEST_WAIT, wait * 2);
    });
  };

  const connect = () => {
    heard();
    const scheme = window.location.protocol === "https:" ? "wss" : "ws";
    const query = last === null ? "" : `?after=${last}`;
    socket = new WebSocket(`${scheme}://${window.location.host}${options.path}${query}`);
    socket.onopen = heard;
    socket.onmessage = (message: MessageEvent<string>) => {
      heard();
      wait = FIRST_WAIT;
      options.connection("live");
      const event = JSON.parse(message.data) as StreamEvent;
      const place = event[options.by];
      if (typeof place === "number") last = place;
      if (event.type === "heartbeat") return;
      batch.push(event);
      soon ??= window.setTimeout(handOver, TOGETHER);
    };
    socket.onclose = (close) => {
      if (over) return;
      // The journal was replaced: nothing on the page is from the one that is there now.
      if (close.code === REFUSED) window.location.reload();
      else goOn();
    };
  };

  options.connection("connecting");
  connect();
  return () => {
    over = true;
    window.clearTimeout(timer);
    window.clearTimeout(silence);
    window.clearTimeout(soon);
    socket?.close();
  };
}

/** A socket that is refused does not say why; a request does. */
async function whyLost(): Promise<Connection> {
  try {
    const answer = await fetch("/api/health", { signal: AbortSignal.timeout(ANSWERS_WITHIN) });
    return answer.status === 401 ? "logged out" : "lost";
  } catch {
    return "lost";
  }
}
