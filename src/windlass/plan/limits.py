"""What one step may use: a command with everything that it starts, or a program with everything that it calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from windlass.plan.quantities import GB, MB, Duration, Share, Size, at_most, within

__all__ = ["OF_COMMANDS", "CommandLimits", "ProgramBounds", "StepLimits", "misfit"]


class _Bounds(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class CommandLimits(_Bounds):
    """What a command and everything that it starts may use together."""

    memory: Annotated[Size, within(16 * MB, 1024 * GB)] | None = None
    """Bytes in memory."""
    cpu: Annotated[Duration, at_most("7d")] | None = None
    """Computing time."""
    cpu_share: Share | None = None
    """The most of the processors at any time: it is slowed down, never killed. 100% is one processor."""
    processes: int | None = Field(default=None, ge=1, le=1_000_000)
    """Processes that live at the same time."""


class ProgramBounds(_Bounds):
    """What a program may use, with everything that it calls, as far as the sandbox can hold it to that."""

    memory: Annotated[Size, within(8 * MB, GB)] | None = None
    """Bytes of its machine, all included."""
    cpu: Annotated[Duration, at_most("10m")] | None = None
    """Computing time."""
    wall: Annotated[Duration, at_most("1d")] | None = None
    """Of a program: time from its beginning to its end; the time that a person takes to answer is left out."""
    calls: int | None = Field(default=None, ge=0, le=100_000)
    """Calls of tools by a program."""
    output: Annotated[Size, within(1, 16 * MB)] | None = None
    """Bytes of a program's result, and of the arguments of each call, as JSON."""
    log: Annotated[Size, within(0, 16 * MB)] | None = None
    """Bytes of what a program logs."""


class StepLimits(ProgramBounds):
    """What can be written in a plan, for either. Which of it fits, the step decides by what it is."""

    memory: Annotated[Size, within(8 * MB, 1024 * GB)] | None = None
    """Bytes in memory, all included."""
    cpu: Annotated[Duration, at_most("7d")] | None = None
    """Computing time."""
    cpu_share: Share | None = None
    """The most of the processors that a command has at any time: it is slowed down, never killed."""
    processes: int | None = Field(default=None, ge=1, le=1_000_000)
    """Processes of a command that live at the same time."""


OF_COMMANDS = frozenset(CommandLimits.model_fields)


def misfit(bounds: type[BaseModel], told: Mapping[str, Any]) -> str | None:
    """What is wrong with limits for this kind of step, at its place: `limits.memory`: must be at most 1gb, not 2gb."""
    try:
        bounds.model_validate(dict(told))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(("limits", *map(str, first["loc"])))
        return f"`{where}`: {first['msg'].removeprefix('Value error, ')}"
    return None
