/** Answers of the home's figures, as the server gives them. */
import { given } from "./client";

export interface Figures {
  runs: number;
  failed: number;
  attempts: number;
  p50_s: number | null;
  p90_s: number | null;
  queued_s: number;
  waited_s: number;
  person_s: number;
  worked_s: number;
  usd: number | null;
  unknown_costs: number;
  tokens_in: number;
  tokens_out: number;
  cpu_s: number | null;
  memory_bytes: number | null;
  changed_files: number | null;
}

export interface HistoryRow extends Figures {
  [field: string]: unknown;
}

export interface History {
  rows: HistoryRow[];
  total: Figures;
  complete: boolean;
}

export interface Slow {
  bottlenecks: { plan: string; step: string; share: number; seconds: number; on_path: number; executions: number }[];
  changes: { plan: string; step: string; kind: string; before: number; recent: number; runs_before: number }[];
}

export interface Score {
  done_percent: string;
  forecasts: number;
  coverage: number;
  median_error: number;
  bias: number;
}

export interface Scores {
  runs: number;
  band: number;
  scores: Score[];
  cost_scores: Score[];
}

export interface Spent {
  [heading: string]: unknown;
  spent_usd: number;
  unknown: number;
  reserved_usd: number;
  tokens_in: number;
  tokens_out: number;
  attempts: number;
}

export interface SpentPeriod {
  name: string;
  limit_usd: number | null;
  spent_usd: number;
  unknown: number;
  assumed_usd: number;
  reserved_usd: number;
  left_usd: number | null;
  limit_tokens: number | null;
  tokens: number;
  left_tokens: number | null;
}

export interface Budgets {
  day: SpentPeriod;
  month: SpentPeriod;
  limits: Record<string, { usd: number | null; tokens: number | null }>;
  by: Spent[];
}

export interface Breaker {
  circuit: string;
  failures: number;
  because: string;
  until: string | null;
  probing: boolean;
}

export interface ToolRow {
  name: string;
  kind: string;
  description: string;
  effect: string;
  terms: { timeout: number | null; rate: unknown; concurrent: number | null; sensitive: boolean };
  breaker: Breaker | null;
}

export interface Runtimes {
  runtimes: { name: string; ok: boolean; detail: string; advice: string }[];
  breakers: Record<string, Breaker>;
}

export interface SettingsTable {
  home: string;
  settings: { key: string; value: unknown; origin: string }[];
}

/** Reads a path of the API. */
export function look<T>(path: string, query: Record<string, string> = {}): Promise<T> {
  const filled = Object.entries(query).filter(([, value]) => value !== "");
  const search = new URLSearchParams(filled).toString();
  return given<T>(
    fetch(search ? `${path}?${search}` : path).then(async (response) => {
      const body: unknown = await response.json();
      return response.ok ? { data: body, response } : { error: body, response };
    }),
  );
}
