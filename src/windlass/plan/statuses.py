"""Checks of conditions on `steps.ID.status`: words that are no status, and failures after which nothing runs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from windlass.plan.model import Importance, Step
from windlass.plan.template import Reference, TemplateProblem, references

__all__ = ["StepFinding", "failure_handlers", "wrong_statuses"]


class StepFinding(NamedTuple):
    """A step that waits for a failure after which it cannot run."""

    place: int
    """Its place in the plan, from 0."""
    message: str
    hint: str


def wrong_statuses(text: str, *, expression: bool) -> Iterator[tuple[str, str]]:
    """The problems of comparisons with a text that is no status, with hints. Raises `TemplateProblem`."""
    from windlass.plan.status_conditions import STATUSES, compared_statuses, nearest_status  # it imports Jinja2

    for step, word in sorted(set(compared_statuses(text, expression=expression))):
        if word not in STATUSES:
            near = nearest_status(word)
            hint = f"did you mean '{near}'?" if near else f"there are: {', '.join(STATUSES)}"
            yield f"compares `steps.{step}.status` with {word[:40]!r}, which is not a status", hint


def failure_handlers(steps: Sequence[Step | None], waits: Mapping[str, Sequence[str]]) -> Iterator[StepFinding]:
    """Steps that wait for a failure after which they cannot run. `waits` has the steps that each step waits for."""
    known = {step.id: step for step in steps if step is not None}
    for index, step in enumerate(steps):
        when = step.when if step is not None else None
        if not isinstance(when, str):
            continue
        for name, ends in _needed_ends(when).items():
            awaited = known.get(name)
            if awaited is None or not ends or awaited.importance is Importance.OPTIONAL:
                continue
            asked = Reference("steps", name, "status") in references(when, expression=True)
            if awaited.importance is Importance.CRITICAL:
                # A step is skipped by its condition, or because of a step that it waits for.
                may_be_skipped = awaited.when is not None or waits.get(name)
                if ends <= ({"failed"} if may_be_skipped else {"failed", "skipped"}):
                    yield _after_critical(index, name, asked)
            elif ends == {"failed"} and not asked:
                message = f"it never runs: `{name}` has to have failed, and its failure skips the steps that need it"
                yield StepFinding(index, message, f"ask for its status, too: `steps.{name}.status == 'failed'`")


def _after_critical(index: int, name: str, asked: bool) -> StepFinding:
    message = f"it runs only after `{name}` has failed, but a failure of the critical step `{name}` ends the execution"
    hint = f"give `{name}` `importance: normal`"
    # Without asking for the status, the failure skips the step.
    return StepFinding(index, message, hint if asked else f"{hint}, and ask for `steps.{name}.status`")


def _needed_ends(when: str) -> Mapping[str, Set[str]]:
    """The ends of other steps that a condition needs; none for one that cannot be read."""
    if "status" not in when and "error" not in when:
        return {}
    from windlass.plan.status_conditions import needed_ends  # it imports Jinja2

    try:
        return needed_ends(when)
    except TemplateProblem:
        return {}
