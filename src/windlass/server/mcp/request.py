"""The runtime that the agents of a client's request get (A6).

A client that is a runtime itself gets its own family: Claude Code asks, Claude Code works. The order is

1. the runtime that the request, the step or the plan names;
2. the one that the settings name;
3. the caller's own runtime, by the name that the client gives itself, if it is healthy;
4. the first healthy one in the table of runtimes.
"""

from __future__ import annotations

from windlass.engine.engine import Engine
from windlass.engine.plans import LoadedPlan
from windlass.plan.model import Plan
from windlass.runtimes import RUNTIMES

__all__ = ["own_runtime", "runtime_for"]


def own_runtime(client: str) -> str | None:
    """The runtime that the caller is, if it is one."""
    called = client.strip().lower()
    return next((row.name for row in RUNTIMES.values() if called in row.client_names), None)


async def runtime_for(engine: Engine, sourced: LoadedPlan, client: str) -> LoadedPlan:
    """The plan with a runtime for the agents that nobody has named one for."""
    plan = sourced.plan
    needed = plan.runtime is None and any(step.is_agent and step.runtime is None for step in plan.steps)
    if not needed or engine.settings.runtime is not None or engine.agents is None:
        return sourced
    own = own_runtime(client)
    order = [name for name in (own, *RUNTIMES) if name is not None]
    chosen = order[0]  # if none can be used, the error is about the one that was meant
    for name in dict.fromkeys(order):
        health = await engine.agents.runners[name].available()
        if health.ok and not health.unset:
            chosen = name
            break
    revised = Plan.model_validate_json(plan.model_copy(update={"runtime": chosen}).encoded)
    return LoadedPlan(revised, sourced.source, sourced.tools, sourced.warnings)
