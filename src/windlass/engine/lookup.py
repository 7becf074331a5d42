"""Find executions and steps by a whole id, the beginning or end of one, or a word such as `@last`."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

from windlass.errors import Ambiguous, NotFound

if TYPE_CHECKING:
    from windlass.core.state import State, StepState
    from windlass.plan.model import Plan
    from windlass.ports import Head, Journal

__all__ = ["LATEST", "find_head", "find_plan_step", "find_step"]

_SHOWN = 8
_SHORTEST_END = 4
"""Characters of an id's end, the random part of it."""


class _Latest(NamedTuple):
    statuses: tuple[str, ...]
    help: str


LATEST = {
    "@last": _Latest((), "the newest execution"),
    "@last-failed": _Latest(("failed", "partial"), "the newest one that failed or is partial"),
}
"""Words that stand for an execution, as they are typed."""


async def find_head(journal: Journal, name: str) -> Head:
    """The one execution with an id that is, begins with, or ends with `name`, or the one that `name` stands for."""
    wanted = name.strip().lower()
    if wanted.startswith("@"):
        return await _latest(journal, wanted)
    if wanted:
        found = await journal.heads(prefix=wanted, limit=_SHOWN + 1)
        if not found and len(wanted) >= _SHORTEST_END:
            found = [head for head in await journal.heads(text=wanted) if head.id.endswith(wanted)]
        if len(found) == 1:
            return found[0]
        if found:
            raise Ambiguous(f"{name!r} matches several executions:\n{_listed(found)}")
    recent = await journal.heads(limit=3)
    if not recent:
        raise _nothing_here()
    raise NotFound(f"no execution has the id {name!r}; the newest are:\n{_listed(recent)}")


async def _latest(journal: Journal, word: str) -> Head:
    if word not in LATEST:
        raise NotFound(f"{word!r} is not a name of an execution: use {' or '.join(LATEST)}")
    if found := await journal.heads(statuses=LATEST[word].statuses, limit=1):
        return found[0]
    raise NotFound("no execution has failed here") if await journal.heads(limit=1) else _nothing_here()


def _nothing_here() -> NotFound:
    return NotFound("no executions here yet", advice=("start one: windlass run PLAN",))


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
    more = f" and {len(there) - _SHOWN} more" if len(there) > _SHOWN else ""
    known = f"did you mean {' or '.join(near)}?" if near else f"it has {', '.join(list(there)[:_SHOWN])}{more}"
    return NotFound(f"{where} has no step {name!r}; {known}")


def _listed(heads: list[Head]) -> str:
    lines = [
        f"  {head.id}  {head.status:<9}  {head.name}  {datetime.fromtimestamp(head.created_at):%Y-%m-%d %H:%M}"
        for head in heads[:_SHOWN]
    ]
    return "\n".join([*lines, "  …"] if len(heads) > _SHOWN else lines)
