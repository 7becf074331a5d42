import { useQuery } from "@tanstack/react-query";
import { look, type Score, type Scores, type Slow } from "../api/figures";
import { duration } from "../ui/format";
import { Table } from "../ui/table";
import { Text } from "../ui/text";

const MOST = 30;
const KINDS: Record<string, string> = {
  slower: "takes longer",
  failing: "fails more often",
  edited: "was edited, so it is not compared",
};

/** Steps that hold executions up, and steps that got worse. */
export function SlowSteps({ since, plan }: { since: string; plan: string }) {
  const { data } = useQuery({
    queryKey: ["history", "slow", since, plan],
    queryFn: () => look<Slow>("/api/history", { slow: "true", since, plan }),
    placeholderData: (before) => before,
  });
  if (!data) return null;
  return (
    <div className="columns">
      <section className="card" aria-label="Bottlenecks">
        <h2>Bottlenecks</h2>
        <Table
          caption="Steps by their share of the time of their plan"
          rows={data.bottlenecks.slice(0, MOST)}
          id={(row) => `${row.plan} ${row.step}`}
          columns={[
            {
              name: "Step",
              of: (row) => <Text>{`${row.plan} › ${row.step}`}</Text>,
            },
            { name: "Share", number: true, of: (row) => `${Math.round(row.share * 100)} %` },
            { name: "A run", number: true, of: (row) => duration(row.seconds) },
            { name: "Critical in", number: true, of: (row) => `${row.on_path} of ${row.executions}` },
          ]}
        />
      </section>
      <section className="card" aria-label="Regressions">
        <h2>Regressions</h2>
        <Table
          caption="Steps that got worse lately"
          rows={data.changes.slice(0, MOST)}
          id={(row) => `${row.plan} ${row.step} ${row.kind}`}
          empty="No step takes longer or fails more often than before."
          columns={[
            {
              name: "Step",
              of: (row) => <Text>{`${row.plan} › ${row.step}`}</Text>,
            },
            { name: "Change", of: (row) => KINDS[row.kind] ?? row.kind },
            { name: "Before", number: true, of: (row) => amount(row.kind, row.before) },
            { name: "Lately", number: true, of: (row) => amount(row.kind, row.recent) },
          ]}
        />
      </section>
    </div>
  );
}

function amount(kind: string, value: number): string {
  if (kind === "slower") return duration(value);
  return kind === "failing" ? `${Math.round(value * 100)} %` : `${value} runs`;
}

/** How often forecasts came true. */
export function ForecastScores({ plan }: { plan: string }) {
  const { data } = useQuery({
    queryKey: ["history", "forecasts", plan],
    queryFn: () => look<Scores>("/api/history/forecasts", { plan }),
    placeholderData: (before) => before,
  });
  if (!data) return null;
  const rows = [
    ...data.scores.map((score) => ({ of: "time", ...score })),
    ...data.cost_scores.map((score) => ({ of: "cost", ...score })),
  ];
  const percent = (value: number) => `${Math.round(value * 100)} %`;
  return (
    <section className="card" aria-label="Forecasts">
      <h2>Forecasts</h2>
      <Table<Score & { of: string }>
        caption={`How good they were, over ${data.runs} runs; ${percent(data.band)} should lie in the band`}
        rows={rows}
        id={(row) => `${row.of} ${row.done_percent}`}
        empty="No forecast has an outcome yet: runs of over a second are forecast, and scored once they complete."
        columns={[
          { name: "Of", of: (row) => `${row.of}, at ${row.done_percent}${row.done_percent === "all" ? "" : " %"}` },
          { name: "Forecasts", number: true, of: (row) => row.forecasts },
          { name: "In the band", number: true, of: (row) => percent(row.coverage) },
          { name: "Median error", number: true, of: (row) => percent(row.median_error) },
          { name: "Bias", number: true, of: (row) => percent(row.bias) },
        ]}
      />
    </section>
  );
}
