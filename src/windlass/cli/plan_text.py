"""A plan as lines: its steps in the order in which they can run, with what each waits for."""

from __future__ import annotations

from collections.abc import Iterator

from windlass.plan.model import Plan
from windlass.plan.prepare import prepare

__all__ = ["plan_lines"]


def plan_lines(plan: Plan) -> Iterator[str]:
    graph = prepare(plan).graph
    depth: dict[str, int] = {}
    for step_id in graph.order:
        step, needs = plan.by_id[step_id], graph.needs[step_id]
        depth[step_id] = max((depth[need] + 1 for need in needs), default=0)
        marks = [str(step.importance)] if step.importance != "normal" else []
        marks += ["needs approval"] if step.approve == "always" else []
        marks += [f"when {step.when}"] if step.when is not None else []
        marks += ["foreach"] if step.foreach is not None else []
        after = f" ← {', '.join(needs)}" if needs else ""
        remark = f"  ({'; '.join(marks)})" if marks else ""
        yield f"{'  ' * depth[step_id]}{step_id}: {step.tool_name}{after}{remark}"
