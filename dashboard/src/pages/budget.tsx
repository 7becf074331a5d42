import { useQuery } from "@tanstack/react-query";
import { useSearchParams } from "wouter";
import { type Budgets, look, type SpentPeriod } from "../api/figures";
import { money } from "../ui/format";
import { useTitle } from "../ui/home";
import { ProblemNotice } from "../ui/problem";
import { Table } from "../ui/table";
import { Text } from "../ui/text";

const HEADINGS = ["day", "month", "model", "runtime", "role", "execution"] as const;

export default function BudgetPage() {
  useTitle("Budget");
  const [search, setSearch] = useSearchParams();
  const by = HEADINGS.find((one) => one === search.get("by")) ?? "day";
  const { data, error } = useQuery({
    queryKey: ["budget", by],
    queryFn: () => look<Budgets>("/api/budget", { by }),
    placeholderData: (before) => before,
    refetchInterval: 10_000,
  });
  return (
    <section className="page" aria-labelledby="budget">
      <h1 id="budget">Budget</h1>
      {error && <ProblemNotice error={error} />}
      {data && (
        <>
          <div className="columns">
            <Card title="Today" period={data.day} />
            <Card title="This month" period={data.month} />
            <Limits limits={data.limits} />
          </div>
          <div className="card">
            <div className="row-of">
              <label>
                Spent by{" "}
                <select value={by} onChange={(event) => setSearch({ by: event.target.value }, { replace: true })}>
                  {HEADINGS.map((one) => (
                    <option key={one}>{one}</option>
                  ))}
                </select>
              </label>
            </div>
            <Table
              caption={`Spent by ${by}`}
              rows={data.by}
              id={(row) => String(row[by])}
              empty="No agent has spent anything yet."
              columns={[
                { name: by, of: (row) => <Text>{String(row[by])}</Text> },
                { name: "Spent", number: true, of: (row) => money(row.spent_usd) },
                { name: "Reserved", number: true, of: (row) => money(row.reserved_usd) },
                { name: "Tokens in", number: true, of: (row) => row.tokens_in.toLocaleString() },
                { name: "Tokens out", number: true, of: (row) => row.tokens_out.toLocaleString() },
                { name: "Attempts", number: true, of: (row) => row.attempts.toLocaleString() },
                { name: "Cost unknown", number: true, of: (row) => row.unknown || "" },
              ]}
            />
          </div>
        </>
      )}
    </section>
  );
}

function Card({ title, period }: { title: string; period: SpentPeriod }) {
  const { limit_usd: limit, spent_usd: spent } = period;
  return (
    <section className="card" aria-label={title}>
      <h2>{title}</h2>
      <p className="large">
        {money(spent)} <span className="soft">{limit === null ? "spent, no limit" : `of ${money(limit)}`}</span>
      </p>
      {limit !== null && <progress value={Math.min(spent, limit)} max={limit || 1} aria-label={`${title}: spent`} />}
      <p className="soft">
        {period.left_usd !== null && `${money(period.left_usd)} left. `}
        {period.reserved_usd > 0 && `${money(period.reserved_usd)} reserved by running agents. `}
        {period.tokens.toLocaleString()} tokens
        {period.limit_tokens !== null && ` of ${period.limit_tokens.toLocaleString()}`}.
        {period.unknown > 0 && ` ${period.unknown} attempts of unknown cost.`}
      </p>
    </section>
  );
}

function Limits({ limits }: { limits: Budgets["limits"] }) {
  return (
    <section className="card" aria-label="Limits">
      <h2>Limits</h2>
      <dl className="pairs">
        {Object.entries(limits).map(([scope, limit]) => (
          <div key={scope}>
            <dt>each {scope}</dt>
            <dd>
              {limit.usd === null && limit.tokens === null
                ? "none"
                : [
                    limit.usd !== null && money(limit.usd),
                    limit.tokens !== null && `${limit.tokens.toLocaleString()} tokens`,
                  ]
                    .filter(Boolean)
                    .join(", ")}
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
