/** The home that this server serves. Several homes never mix: its path stands in the title and the header, and in the
 * key of everything of it that the browser keeps. */
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { ApiError, given } from "../api/client";

export interface Health {
  ok: boolean;
  version: string;
  home: string;
  uptime_s: number;
  questions: number;
  driven: number;
  waiting: number;
  journal: string;
  recovery: string;
  breakers: Record<string, unknown>;
  intake: Record<string, unknown>;
  damaged: { execution: string; seq: number; reason: string }[];
}

const LOOK_EVERY = 10_000;

export function useHealth(): Health | undefined {
  return useHealthQuery().data;
}

/** Asks again for what could not be asked while the server was away. */
export function useServerBack(): void {
  const queries = useQueryClient();
  const { dataUpdatedAt } = useHealthQuery();
  useEffect(() => {
    if (dataUpdatedAt === 0) return;
    void queries.refetchQueries({
      type: "active",
      predicate: ({ state }) => state.status === "error" && !(state.error instanceof ApiError),
    });
  }, [queries, dataUpdatedAt]);
}

function useHealthQuery() {
  return useQuery({
    queryKey: ["health"],
    queryFn: () => given<Health>(fetch("/api/health").then(read)),
    refetchInterval: LOOK_EVERY,
    retry: false,
  });
}

/** A server whose journal has trouble answers 503, with the same body. */
async function read(response: Response) {
  const body: unknown = await response.json();
  return response.status === 401 ? { error: body, response } : { data: body, response: new Response() };
}

/** Names the page in the browser's title, with the home. */
export function useTitle(page: string): void {
  const home = useHealth()?.home;
  useEffect(() => {
    document.title = [page, home && short(home), "Windlass"].filter(Boolean).join(" · ");
  }, [page, home]);
}

/** The end of a path, which tells homes apart. */
export function short(path: string, longest = 40): string {
  if (path.length <= longest) return path;
  const parts = path.split("/");
  let end = parts.pop() ?? "";
  while (parts.length > 0 && end.length + (parts.at(-1)?.length ?? 0) < longest) end = `${parts.pop()}/${end}`;
  return `…/${end}`;
}
