import { Link } from "wouter";
import type { WaitingGate } from "../api/client";
import { duration } from "../ui/format";
import { Text } from "../ui/text";
import { useNow } from "../ui/time";

const GATES: Record<WaitingGate["gate"], string> = {
  slot: "a slot: as many attempts run as may",
  place: "a place of",
  rate: "the rate of",
  breaker: "the breaker of",
};

/** The steps that wait before their work, by what they wait for, as links to them. */
export function Waiting({ gates }: { gates: WaitingGate[] }) {
  if (gates.length === 0) return null;
  return (
    <section className="card" aria-label="Waiting steps">
      <h2>Waiting</h2>
      <dl className="waits">
        {gates.map((one) => (
          <div key={`${one.gate} ${one.name}`}>
            <dt>
              {one.count} for {GATES[one.gate]} {one.name && <Text>{one.name}</Text>}
            </dt>
            <dd>
              <WaitingSteps found={one} />
            </dd>
          </div>
        ))}
      </dl>
    </section>
  );
}

function WaitingSteps({ found }: { found: WaitingGate }) {
  const now = useNow(5_000);
  const more = found.count - found.steps.length;
  return (
    <ul className="unlisted">
      {found.steps.map(({ execution, plan, step, since, until }) => (
        <li key={`${execution} ${step} ${since}`}>
          <Link href={`/executions/${execution}?${new URLSearchParams({ step })}`}>
            <Text>{plan}</Text> · <Text>{step}</Text>
          </Link>{" "}
          <span className="soft">
            {duration(Math.max(0, now - since))}
            {until !== null && until > now && `, next attempt in ${duration(until - now)}`}
          </span>
        </li>
      ))}
      {more > 0 && <li className="soft">and {more} more</li>}
    </ul>
  );
}

/** How many wait there, beside a tool or a breaker. */
export function WaitCount({ gates }: { gates: (WaitingGate | undefined)[] }) {
  const count = gates.reduce((sum, one) => sum + (one?.count ?? 0), 0);
  return count > 0 ? <span className="status wait">{count} waiting</span> : null;
}
