import { useQuery } from "@tanstack/react-query";
import { ApiError, given } from "../api/client";
import { duration, money } from "../ui/format";
import { Text } from "../ui/text";
import type { Given } from "./start";

interface Band {
  p50: number;
  p90: number;
}

interface Found {
  forecast: {
    left_s: Band | null;
    usd: Band | null;
    low_confidence: boolean;
    runs: number;
    from: Record<string, number>;
    unknown: string[];
    unknown_cost: string[];
    approvals_ahead: number;
  };
}

const SOURCES: Record<string, string> = {
  step: "from earlier runs of the same steps",
  same: "from earlier runs of the same steps",
  kind: "from other steps of their kind",
  estimate: "as their tools expect",
};

/** Time and cost of a plan before it runs, and where these come from. */
export function Estimate({ chosen }: { chosen: Given }) {
  const { data, error } = useQuery({
    queryKey: ["estimate", chosen],
    queryFn: () => given<Found>(ask(chosen)),
    retry: false,
  });
  if (error instanceof ApiError && error.status === 422) return null; // told by the check of the plan
  if (error) return <p className="soft">No forecast: {error.message}</p>;
  if (!data) return <p className="soft">Forecast …</p>;
  const { left_s: time, usd, runs, from, unknown, unknown_cost, low_confidence, approvals_ahead } = data.forecast;
  const sources = Object.entries(from).map(([source, count]) => `${count} ${SOURCES[source] ?? source}`);
  return (
    <section className="forecast" aria-label="Forecast">
      <h3>Forecast</h3>
      <dl className="figures">
        <div>
          <dt>Time</dt>
          <dd>{time ? `${duration(time.p50)} (P50) – ${duration(time.p90)} (P90)` : "not known yet"}</dd>
        </div>
        <div>
          <dt>Cost</dt>
          <dd>{usd ? cost(usd) : "not known yet"}</dd>
        </div>
      </dl>
      <p className="soft">
        From {runs} {runs === 1 ? "run" : "runs"} of this plan
        {sources.length > 0 && `; steps: ${sources.join(", ")}`}.{low_confidence && " That is little to go by."}
        {unknown.length > 0 && (
          <>
            {" "}
            Not counted, because nothing like them ran here yet: <Text>{named(unknown)}</Text>.
          </>
        )}
        {unknown_cost.length > 0 && (
          <>
            {" "}
            Cost not known of: <Text>{named(unknown_cost)}</Text>.
          </>
        )}
        {approvals_ahead > 0 && ` It will ask for ${approvals_ahead} approvals.`}
      </p>
    </section>
  );
}

function cost(usd: Band): string {
  return usd.p90 === 0 ? "nothing" : `${money(usd.p50)} (P50) – ${money(usd.p90)} (P90)`;
}

function named(steps: string[]): string {
  return steps.slice(0, 8).join(", ") + (steps.length > 8 ? ` and ${steps.length - 8} more` : "");
}

async function ask(chosen: Given) {
  const headers = { "content-type": "application/json" };
  const response = await fetch("/api/plans/estimate", { method: "POST", headers, body: JSON.stringify(chosen) });
  const body: unknown = await response.json();
  return response.ok ? { data: body, response } : { error: body, response };
}
