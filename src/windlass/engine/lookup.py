"""Find executions and steps by a whole id, or the beginning or end of one."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING

from windlass.errors import Ambiguous, NotFound

if TYPE_CHECKING:
    from windlass.core.state import State, StepState
    from windlass.plan.model import Plan
    from windlass.ports import Head, Journal

__all__ = ["find_head", "find_plan_step", "find_step"]

_SHOWN = 8


async def find_head(journal: Journal, name: str) -> Head:
    """The one execution with an id that is, or begins with, `name`."""
    wanted = name.strip().lower()
    if wanted:
        found = await journal.heads(prefix=wanted, limit=_SHOWN + 1)
        if len(found) == 1 or (found and found[0].id == wanted):
            return found[0]
        if found:
            raise Ambiguous(f"{name!r} matches several executions:\n{_listed(found)}")
    recent = await journal.heads(limit=3)
    if not recent:
        raise NotFound("no executions here yet", advice=("start one: windlass run PLAN",))
    raise NotFound(f"no execution has the id {name!r}; the newest are:\n{_listed(recent)}")


def find_step(state: State, name: str) -> StepState:
    step = state.steps.get(name)
    if step is not None:
        return step
    raise _no_step(f"execution {state.id}", name, state.steps)


def find_plan_step(plan: Plan, name: str) -> str:
    """The id of a plan's step. An item of a foreach (`build[2]`) means its whole step."""
    found = name.partition("[")[0]
    if found in plan.by_id:
        return found
    raise _no_step(f"plan {plan.name}", name, plan.by_id)


def _no_step(where: str, name: str, there: Collection[str]) -> NotFound:
    import difflib  # for those who made a mistake

    near = difflib.get_close_matches(name, there, 3, 0.4)
    known = near or list(there)[:_SHOWN]
    return NotFound(f"{where} has no step {name!r}; it has {', '.join(known)}")


def _listed(heads: list[Head]) -> str:
    lines = [
        f"  {head.id}  {head.status:<9}  {head.name}  {datetime.fromtimestamp(head.created_at):%Y-%m-%d %H:%M}"
        for head in heads[:_SHOWN]
    ]
    return "\n".join([*lines, "  …"] if len(heads) > _SHOWN else lines)
