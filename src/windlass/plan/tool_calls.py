"""Checks of the tools that a program calls: they exist, a program can call them, and they are granted to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from windlass.plan.model import STEP_TOOLS
from windlass.plan.program import granted_tools, program_calls
from windlass.plan.yamlread import FilePosition

__all__ = ["CallProblem", "wrong_calls"]


class CallProblem(NamedTuple):
    message: str
    hint: str
    place: FilePosition


def wrong_calls(
    source: str, grants: Sequence[str] | None, knows: Callable[[str], bool], did_you_mean: Callable[[str], str]
) -> Iterator[CallProblem]:
    """The calls of a program that cannot work, each tool once."""
    told: set[str] = set()
    for call in program_calls(source):
        names = [".".join(call.path[:count]) for count in range(len(call.path), 0, -1)]
        name = next(filter(knows, names), "")  # `tools.files.read.call(…)` calls files.read
        if not name:
            name, reason = names[0], "is not a tool"
            hint = did_you_mean(name)
        elif name in STEP_TOOLS:
            reason, hint = "no program can call", "make it a step of its own"
        elif not granted_tools(grants, (name,)):
            reason, hint = "is not granted to this program", f"add {name} to `grants`"
        else:
            continue
        if name not in told:
            yield CallProblem(f"calls `tools.{name[:80]}`, which {reason}", hint, FilePosition(call.line, call.column))
        told.add(name)
