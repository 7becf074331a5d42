import { useWindowVirtualizer } from "@tanstack/react-virtual";
import { useEffect, useRef } from "react";
import { Link } from "wouter";
import type { ExecutionLine } from "../api/client";
import { useListKeys } from "../keys/list";
import { duration, percent } from "../ui/format";
import { Status } from "../ui/status";
import { Text } from "../ui/text";
import { Ago } from "../ui/time";

const WIDE = 44;
const NARROW = 72; // two lines, on a phone
const AHEAD = 10; // lines before the end at which the next page is asked for

export function ExecutionList({ lines, more }: { lines: ExecutionLine[]; more: () => void }) {
  const list = useRef<HTMLUListElement>(null);
  const narrow = window.matchMedia("(max-width: 700px)").matches;
  const rows = useWindowVirtualizer({
    count: lines.length,
    estimateSize: () => (narrow ? NARROW : WIDE),
    overscan: 8,
    scrollMargin: list.current?.offsetTop ?? 0,
  });
  const items = rows.getVirtualItems();
  const last = items.at(-1)?.index ?? -1;
  useEffect(() => {
    if (last >= lines.length - AHEAD) more();
  });
  useListKeys({
    count: lines.length,
    bring: (place) => rows.scrollToIndex(place),
    element: (place) => list.current?.querySelector<HTMLElement>(`[data-place="${place}"]`) ?? null,
  });
  return (
    <ul ref={list} className="executions" style={{ height: rows.getTotalSize() }}>
      {items.map((item) => {
        const line = lines[item.index];
        const top = item.start - rows.options.scrollMargin;
        return (
          line && (
            <li
              key={line.id}
              aria-setsize={lines.length}
              aria-posinset={item.index + 1}
              style={{ transform: `translateY(${top}px)`, height: item.size }}
            >
              <Line line={line} place={item.index} />
            </li>
          )
        );
      })}
    </ul>
  );
}

/** One that runs and asks a person is shown as waiting: nothing else about it needs anybody, unless its process is gone. */
export function shownStatus(line: ExecutionLine): { status: string; reason: string | null } {
  if (!line.driven && line.status === "running") return { status: "running", reason: "no process runs it" };
  if (line.status === "running" && line.waiting) return { status: "waiting", reason: line.waiting };
  return { status: line.status, reason: line.reason };
}

function Line({ line, place }: { line: ExecutionLine; place: number }) {
  return (
    <Link href={`/executions/${line.id}`} data-place={place}>
      <Status {...shownStatus(line)} />
      <Text className="name">{line.plan}</Text>
      <span className="progress">{line.status === "running" && <Progress line={line} />}</span>
      <code className="soft">{line.id.slice(-8)}</code>
      <span className="when soft">
        <Ago at={line.updated_at} />
      </span>
    </Link>
  );
}

function Progress({ line }: { line: ExecutionLine }) {
  if (line.progress === null || line.progress === undefined) return null;
  const left = line.eta === null || line.eta === undefined ? "" : ` · about ${duration(line.eta)} left`;
  return (
    <>
      <progress value={line.progress} max={100} aria-label="Progress" />
      <span className="soft">
        {percent(line.progress)}
        {left}
      </span>
    </>
  );
}
