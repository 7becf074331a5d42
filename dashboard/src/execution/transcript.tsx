import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useReducer, useRef, useState } from "react";
import { api, given, type TranscriptPage } from "../api/client";
import type { StreamEvent } from "../live/stream";
import type { LiveExecution } from "../live/use_execution";
import { ProblemNotice } from "../ui/problem";
import { Text, visible } from "../ui/text";
import { SayBox } from "./say";
import { LongText, Value } from "./value";

interface Entry {
  seq: number;
  attempt: number;
  kind: string;
  text?: string;
  thinking?: string;
  runtime?: string;
  role?: string;
  model?: string;
  tool?: string;
  call?: string;
  input?: unknown;
  failed?: boolean;
  partial?: boolean;
  by?: string;
  how?: string;
  ids?: string[];
  tokens?: [number, number];
}

interface ConversationProps {
  execution: string;
  step: string;
  until: number | null;
  follow: LiveExecution["follow"];
  past: boolean;
}

const SHOWN = 200;
const LONGEST_PIECES = 200_000;

/** The conversation of an agent as it grows, and a box to say something in it. */
export function Conversation({ execution, step, until, follow, past }: ConversationProps) {
  const talk = useConversation(execution, step, until, follow);
  const [most, setMost] = useState(SHOWN);
  const blocks = blocksOf(talk.entries);
  return (
    <div className="talk">
      {talk.error && <ProblemNotice error={talk.error} />}
      {blocks.length > most && (
        <button type="button" className="link" onClick={() => setMost(most + 1000)}>
          Show {blocks.length - most} earlier ones
        </button>
      )}
      <ol className="unlisted" aria-label="Conversation">
        {blocks.slice(-most).map((block) => (
          <li key={block.key}>
            <Block block={block} />
          </li>
        ))}
        {talk.pieces && (
          <li className="said is-partial" aria-live="off">
            <pre dir="auto">{visible(talk.pieces.slice(-LONGEST_PIECES))}</pre>
          </li>
        )}
      </ol>
      {!past && <SayBox execution={execution} step={step} />}
    </div>
  );
}

interface Talk {
  entries: Entry[];
  /** The reply that is being written. */
  pieces: string;
  error: Error | null;
}

function useConversation(execution: string, step: string, until: number | null, follow: LiveExecution["follow"]): Talk {
  const [, redraw] = useReducer((count: number) => count + 1, 0);
  const talk = useMemo<Talk>(() => ({ entries: [], pieces: "", error: null }), [execution, step, until]);
  const news = useRef(false);
  const { error, refetch } = useQuery({
    queryKey: ["transcript", execution, step, until],
    queryFn: async ({ signal }) => {
      do {
        news.current = false;
        const after = talk.entries.at(-1)?.seq ?? 0;
        const page = await given<TranscriptPage>(
          api.GET("/api/executions/{execution}/transcript", {
            params: { path: { execution }, query: { step, after } },
            signal,
          }),
        );
        const found = page.entries as unknown as Entry[];
        talk.entries = [...talk.entries, ...found.filter((entry) => until === null || entry.seq <= until)];
        news.current ||= page.next !== null;
        redraw();
      } while (news.current);
      return talk.entries.length;
    },
    gcTime: 0,
  });
  useEffect(() => {
    if (until !== null) return;
    return follow(step, (events) => {
      if (takePieces(talk, events)) redraw();
      if (events.every((event) => event.type === "output.written" && event.stream === "agent")) return;
      news.current = true;
      void refetch({ cancelRefetch: false });
    });
  }, [step, until, follow, talk, refetch]);
  talk.error = error;
  return talk;
}

/** Keeps the pieces of the reply that is being written, until the whole reply comes. */
function takePieces(talk: Talk, events: StreamEvent[]): boolean {
  const before = talk.pieces;
  for (const event of events) {
    if (event.type === "output.written" && event.stream === "agent") talk.pieces += String(event.text);
    else if (event.type === "agent.spoke" || event.type.startsWith("attempt.")) talk.pieces = "";
  }
  return talk.pieces !== before;
}

interface OneBlock {
  key: string;
  entry: Entry;
  result?: Entry;
}

/** The entries, with each call and its result as one. */
function blocksOf(entries: readonly Entry[]): OneBlock[] {
  const blocks: OneBlock[] = [];
  const calls = new Map<string, OneBlock>();
  for (const [place, entry] of entries.entries()) {
    const name = `${entry.attempt} ${entry.call}`;
    const call = entry.kind === "result" ? calls.get(name) : undefined;
    if (call) {
      call.result = entry;
      continue;
    }
    const block = { key: `${entry.seq} ${place}`, entry };
    if (entry.kind === "call" && entry.call) calls.set(name, block);
    if (entry.kind !== "usage") blocks.push(block);
  }
  return blocks;
}

const HEARD: Record<string, string> = {
  steer: "given to the agent within its turn",
  "follow-up": "given to the agent after its turn",
  prompt: "given to the agent with its prompt",
};

function Block({ block: { entry, result } }: { block: OneBlock }) {
  switch (entry.kind) {
    case "prompt":
      return (
        <details className="prompt">
          <summary>
            Attempt {entry.attempt}: prompt to{" "}
            <Text>{[entry.role, entry.runtime, entry.model].filter(Boolean).join(" · ")}</Text>
          </summary>
          <LongText text={entry.text ?? ""} />
        </details>
      );
    case "reply":
      return (
        <div className={`said${entry.partial ? " is-partial" : ""}`}>
          {entry.thinking && (
            <details>
              <summary className="soft">Thinking</summary>
              <LongText text={entry.thinking} />
            </details>
          )}
          {entry.text && <LongText text={entry.text} />}
          {entry.partial && <span className="soft">broke off</span>}
        </div>
      );
    case "call":
      return (
        <details className="call">
          <summary>
            <span className={result ? (result.failed ? "bad" : "good") : "soft"}>
              {result ? (result.failed ? "✗" : "✓") : "…"}
            </span>{" "}
            <Text className="tool">{entry.tool}</Text> <Text className="soft">{entry.text}</Text>
          </summary>
          <Value value={entry.input ?? entry.text ?? null} label="Call" />
          {result && <LongText text={result.text ?? ""} label="Result" />}
        </details>
      );
    case "result":
      return (
        <details className="call">
          <summary>
            Result of <Text className="tool">{entry.tool}</Text>
          </summary>
          <LongText text={entry.text ?? ""} label="Result" />
        </details>
      );
    case "message":
      return (
        <div className="person">
          <span className="soft">You{entry.by ? ` (${entry.by})` : ""}: </span>
          <LongText text={entry.text ?? ""} />
        </div>
      );
    case "check":
      return (
        <details className="call" open={entry.failed}>
          <summary>{entry.failed ? "Check failed" : "Check passed"}</summary>
          <LongText text={entry.text ?? ""} label="Check" />
        </details>
      );
    case "heard":
      return <p className="soft heard">{HEARD[entry.how ?? ""] ?? entry.how}</p>;
    case "question":
      return (
        <p className="wait">
          Asked for permission: <Text>{entry.tool}</Text> <Text>{entry.text}</Text>
        </p>
      );
    case "answer":
      return (
        <p className="soft">
          {entry.how} by <Text>{entry.by}</Text> <Text>{entry.text}</Text>
        </p>
      );
    case "summary":
      return (
        <details>
          <summary className="soft">
            The conversation was summarised{entry.tokens && ` (${entry.tokens[0]} → ${entry.tokens[1]} tokens)`}
          </summary>
          <LongText text={entry.text ?? ""} />
        </details>
      );
    case "end":
      return entry.failed ? (
        <p className="bad">
          Attempt {entry.attempt} ended: <Text>{entry.text}</Text>
        </p>
      ) : (
        <p className="soft">Attempt {entry.attempt} ended.</p>
      );
    default:
      return (
        <p className="soft">
          <Text>{entry.text}</Text>
        </p>
      );
  }
}
