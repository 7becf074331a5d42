"""Whether the programs of a plan can be read at all: said before anything of the plan runs."""

from __future__ import annotations

import re

from windlass.errors import PlanInvalid, Problem
from windlass.plan.model import Plan
from windlass.ports import ProgramError, Sandbox

__all__ = ["refuse_unreadable"]

MOST = 500
"""Programs of one plan that are looked at; a mistake in a later one shows when its turn comes."""
_PLACE = re.compile(r"program\.js:(\d+)(?::(\d+))?")


async def refuse_unreadable(sandbox: Sandbox, plan: Plan) -> None:
    """Raise PlanInvalid with every program that is none."""
    sources: dict[str, str] = {}
    for index, step in enumerate(plan.steps):
        if step.code is not None:
            sources.setdefault(step.code, f"steps[{index}].code")
    problems = []
    for source, where in list(sources.items())[:MOST]:
        try:
            said = await sandbox.check(source)
        except ProgramError:
            return  # there is no sandbox here: the steps will say so, with what to do
        if said is not None:
            problems.append(_problem(plan, where, said))
    if problems:
        raise PlanInvalid(problems)


def _problem(plan: Plan, where: str, said: str) -> Problem:
    step = plan.steps[int(where[6 : where.index("]")])]
    place = _PLACE.search(said)
    at = f" in line {place[1]} of the program" if place else ""
    message = f"step {step.id}: {said.splitlines()[0]}{at}"
    return Problem(message, where=where, hint="`code` is the body of an async JavaScript function")
