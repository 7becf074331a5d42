"""Estimates of the time that a plan takes, from earlier runs and from the tools' own estimates.

A first, plain form: the median time of each step's earlier completed attempts (same plan name and step id,
else the same tool, else the tool's own `estimate`), laid along the plan's graph with its parallel limit. The band comes
from the 10th and 90th percentile of the same attempts. Steps of which nothing is known are named, never guessed.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

from windlass.core import events as ev
from windlass.errors import Damaged
from windlass.plan.graph import Graph
from windlass.plan.model import Plan, Step
from windlass.ports import Estimate as ToolEstimate
from windlass.ports import Journal, Toolbox

__all__ = ["PlanEstimate", "estimate"]

EXECUTIONS_READ = 50
"""The number of the newest executions that are read."""


@dataclass(frozen=True, slots=True)
class PlanEstimate:
    expected_s: float | None
    low_s: float | None
    high_s: float | None
    samples: int
    unknown: tuple[str, ...]
    """Steps that nothing is known about; their time is not in the figures."""
    by_tools: tuple[str, ...] = ()
    """Steps that never ran here, with the time that their tools expect."""
    usd: float | None = None
    """Dollars that tools expect to cost; None where none says so."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "expected_s": self.expected_s,
            "low_s": self.low_s,
            "high_s": self.high_s,
            "samples": self.samples,
            "unknown": list(self.unknown),
            "by_tools": list(self.by_tools),
            "usd": self.usd,
        }


async def estimate(journal: Journal, plan: Plan, tools: Toolbox) -> PlanEstimate:
    by_step, by_tool = await _records(journal, plan.name)
    times: dict[str, list[float]] = {}
    told = {step.id: _of_tool(tools, step) for step in plan.steps}
    for step in plan.steps:
        times[step.id] = by_step.get(step.id) or by_tool.get(step.tool_name) or []
    samples = sum(map(len, times.values()))
    by_tools = tuple(step for step, said in told.items() if not times[step] and said.seconds is not None)
    times |= {step: [told[step].seconds or 0.0] for step in by_tools}
    costs = [said.usd for said in told.values() if said.usd is not None]
    usd = sum(costs) if costs else None
    known = {step: sorted(found) for step, found in times.items() if found}
    unknown = tuple(step for step, found in times.items() if not found)
    if not known:
        return PlanEstimate(None, None, None, 0, unknown, usd=usd)
    graph = Graph.of(plan)
    low, expected, high = (
        _makespan(graph, plan, {step: _quantile(found, q) for step, found in known.items()}) for q in (0.1, 0.5, 0.9)
    )
    return PlanEstimate(expected, low, high, samples, unknown, by_tools, usd)


def _of_tool(tools: Toolbox, step: Step) -> ToolEstimate:
    """The tool's own estimate. Arguments with templates are not known yet, and it may need them."""
    tool = tools.get(step.tool_name)
    if tool is None or tool.validate(step.arguments):
        return ToolEstimate()
    return tool.estimate(step.arguments)


async def _records(journal: Journal, plan_name: str) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds of completed attempts: by step for executions of this plan, by tool for all."""
    by_step: defaultdict[str, list[float]] = defaultdict(list)
    by_tool: defaultdict[str, list[float]] = defaultdict(list)
    for head in await journal.heads(limit=EXECUTIONS_READ):
        started: dict[str, ev.AttemptStarted] = {}
        try:
            entries = await journal.read(head.id)
        except Damaged:
            continue
        for entry in entries:
            if isinstance(entry.event, ev.AttemptStarted):
                started[entry.event.step] = entry.event
            elif isinstance(entry.event, ev.AttemptFinished):
                begun = started.pop(entry.event.step, None)
                if begun is None:
                    continue
                took = max(0.0, entry.event.at - begun.at)
                by_tool[begun.tool].append(took)
                if head.name == plan_name:
                    by_step[begun.step.partition("[")[0]].append(took)
    return by_step, by_tool


def _quantile(ordered: list[float], q: float) -> float:
    return ordered[round(q * (len(ordered) - 1))]


def _makespan(graph: Graph, plan: Plan, times: dict[str, float]) -> float:
    """The time at which the last step ends, with no more than `parallel` at once."""
    unmet = {step: len(needs) for step, needs in graph.needs.items()}
    ready = [step for step, count in unmet.items() if count == 0]
    running: list[tuple[float, str]] = []
    now = 0.0
    while ready or running:
        while ready and len(running) < plan.limits.parallel:
            step = ready.pop(0)
            heapq.heappush(running, (now + times.get(step, 0.0), step))
        now, ended = heapq.heappop(running)
        for after in graph.dependents[ended]:
            unmet[after] -= 1
            if unmet[after] == 0:
                ready.append(after)
    return now
