"""Triggers of a plan: the times at which it starts by itself (L1).

A plan holds its triggers as the data that was written, and only those who start plans by them read them here: an
execution has no use for them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Literal

from windlass.plan.cron import cron_problem, zone_problem
from windlass.plan.model import Budget, Duration, Plan, StepId
from windlass.plan.report import Report
from windlass.plan.schema import kind_of, nearest
from windlass.values import CheckedValue, ValidationError, field

__all__ = ["Trigger", "check_triggers", "triggers_of"]


class Trigger(CheckedValue):
    """One way in which a plan starts by itself."""

    id: StepId
    cron: str
    """Minute, hour, day of month, month and day of week: `0 3 * * *` is at 3:00 each day."""
    zone: str = "UTC"
    """The time zone of `cron`: `Europe/Berlin`."""
    catch_up: Literal[0] | Duration = 3600.0
    """How late it may start; what is later than that is missed."""
    overlap: Literal["skip", "queue", "allow"] = "skip"
    """At a time while an earlier execution is unfinished: start none, start it afterwards, or start it beside it."""
    jitter: Literal[0] | Duration = 0
    """Longest time by which it starts later, so that not everything starts at once."""
    pause_after: int = field(default=0, ge=0, le=50)
    """Executions in a row that fail before it is paused; 0 never pauses it."""
    budget: Budget | None = None
    """What the agents of all its executions may spend on one day."""
    inputs: dict[str, Any] = field(default_factory=dict)
    """Values for the plan's inputs."""

    def _after(self) -> Trigger:
        if problem := cron_problem(self.cron):
            raise ValueError(f"`cron`: {problem}")
        if problem := zone_problem(self.zone):
            raise ValueError(f"`zone`: {problem}")
        if self.budget is not None and self.overlap == "allow":
            raise ValueError(
                "`overlap`: `allow` does not go with a `budget`, which is for one execution after the other"
            )
        return self

    @property
    def schedule(self) -> str:
        """Its times in one line: another text makes it another schedule."""
        return f"{self.cron} {self.zone}"


def triggers_of(plan: Plan) -> list[Trigger]:
    """The triggers of a plan that was checked."""
    return [Trigger.model_validate(data) for data in plan.triggers]


def check_triggers(found: Any, inputs: Collection[str], report: Report) -> None:
    """Report the problems of triggers. What is no list of mappings is a problem of the plan's shape."""
    ids: set[str] = set()
    for index, data in enumerate(found if isinstance(found, list | tuple) else ()):
        if not isinstance(data, Mapping):
            continue
        name = data.get("id") if isinstance(data.get("id"), str) else index + 1
        for path, message, hint in _problems(data, inputs, ids):
            report.problem(f"trigger {name}: {message}", ("triggers", index, *path), hint)
        ids.add(str(data.get("id")))


def _problems(
    data: Mapping[str, Any], inputs: Collection[str], ids: Collection[str]
) -> list[tuple[tuple[str | int, ...], str, str]]:
    try:
        trigger = Trigger.model_validate(data)
    except ValidationError as error:
        return [_in_words(entry) for entry in error.errors(include_url=False)]
    problems: list[tuple[tuple[str | int, ...], str, str]] = []
    if trigger.id in ids:
        problems.append((("id",), "this id is already used by another trigger", ""))
    for name in trigger.inputs:
        if name not in inputs:
            meant = nearest(name, inputs)
            hint = f"did you mean `{meant}`?" if meant else "name it in the plan's `inputs`"
            problems.append((("inputs", name), f"the plan has no input `{name}`", hint))
    return problems


def _in_words(entry: Any) -> tuple[tuple[str | int, ...], str, str]:
    """One error of the validator: its place, the problem, and a hint."""
    place = tuple(part for part in entry["loc"] if part in Trigger.model_fields)
    key = ".".join(str(part) for part in place) or ".".join(str(part) for part in entry["loc"])
    match entry["type"]:
        case "extra_forbidden":
            meant = nearest(key, Trigger.model_fields)
            known = f"did you mean `{meant}`?" if meant else f"known here: {', '.join(Trigger.model_fields)}"
            return (key,), f"unknown key `{key}`", known
        case "missing":
            return (), f"`{key}` is missing", ""
        case "value_error":
            text = str(entry["ctx"]["error"])
            return (place or tuple(text.split("`")[1:2])), text if not place else f"`{key}`: {text}", ""
        case _:
            return place, f"`{key}`: {entry['msg'][:1].lower()}{entry['msg'][1:]}, found {kind_of(entry['input'])}", ""
