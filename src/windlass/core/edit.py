"""Edits of a step's arguments by a person, put in place of the plan's (D10). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from windlass.core.step import StepState
from windlass.plan.model import Step

__all__ = ["edited", "misplaced"]

AGENT_KEYS = ("prompt", "role", "skills", "files", "max_turns")
"""Arguments of an agent step that can be edited. Its runtime and model have options of their own."""


def edited(step: StepState, arguments: dict[str, Any]) -> dict[str, Any]:
    """The arguments with the person's own: `run`, `code` and `prompt` are named as in the plan."""
    edits, spec = dict(step.edits or {}), step.spec
    if spec.is_agent:
        chosen = {"runtime": step.runtime, "model": step.model}
        return {**arguments, **edits, **{name: value for name, value in chosen.items() if value}}
    if spec.is_code:
        source = edits.pop("code", arguments["source"])
        return {**arguments, "source": source, **({"args": {**arguments.get("args", {}), **edits}} if edits else {})}
    if spec.run is not None and "run" in edits:
        run = edits.pop("run")
        arguments = {name: value for name, value in arguments.items() if name not in ("line", "argv")}
        arguments = {**arguments, ("line" if isinstance(run, str) else "argv"): run}
    return {**arguments, **edits}


def misplaced(spec: Step, names: Iterable[str]) -> list[str]:
    """Names among these that an agent step does not have; of other steps, their tool knows."""
    return [name for name in names if name not in AGENT_KEYS] if spec.is_agent else []
