"""Keys that the output of a step is known to have: those of a command, and of an agent with a closed schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from windlass.plan.model import Step

__all__ = ["COMMAND_OUTPUT", "UnknownKey", "output_form", "unknown_key"]

COMMAND_OUTPUT: Mapping[str, Any] = {
    "properties": {"exit_code": {}, "stdout": {}, "stderr": {}, "truncated": {}},
    "additionalProperties": False,
}


class UnknownKey(NamedTuple):
    """A key that is not in an output."""

    path: tuple[str, ...]
    """The keys before it."""
    key: str
    known: tuple[str, ...]


def output_form(step: Step) -> Mapping[str, Any] | None:
    """The schema of the step's output, where it is that of one command, or the agent has one."""
    if step.foreach is not None and step.pick is None:
        return None
    if step.tool_name == "shell":
        return COMMAND_OUTPUT
    return step.output if step.is_agent and isinstance(step.output, dict) else None


def unknown_key(form: Mapping[str, Any], path: Sequence[str]) -> UnknownKey | None:
    """Find the first key of a path that the schema excludes; None if there is none, or if it leaves that open."""
    for place, key in enumerate(path):
        known = form.get("properties")
        if not isinstance(known, Mapping) or form.get("additionalProperties") is not False:
            return None
        if form.get("patternProperties"):
            return None
        if key not in known:
            return UnknownKey(tuple(path[:place]), key, tuple(known))
        if not isinstance(known[key], Mapping):
            return None
        form = known[key]
    return None
