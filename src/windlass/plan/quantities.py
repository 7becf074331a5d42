"""Durations, sizes and shares as people write them (`1h30m`, `64mb`, `50%`), and the limits of a step made of them.

Quantities become plain numbers, seconds and bytes, as soon as they are read; nothing else ever sees the text. A step's
limits bound a command with everything that it starts, or a program with everything that it calls.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from windlass.values import After, Before, CheckedValue, ValidationError, field

__all__ = [
    "GB",
    "KB",
    "MB",
    "OF_COMMANDS",
    "CommandLimits",
    "Duration",
    "ProgramBounds",
    "Size",
    "StepLimits",
    "Wait",
    "at_most",
    "misfit",
    "parse_duration",
    "parse_share",
    "parse_size",
    "shown_size",
    "within",
]

KB, MB, GB = 1024, 1024**2, 1024**3
"""Sizes are binary, as memory is: `64mb` is 64 * 1024 * 1024 bytes."""

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_NO_TIME = re.compile(r"\s*0+(?:\.0+)?\s*(?:ms|s|m|h|d)?\s*")
_BYTES = {"": 1, "b": 1, "kb": KB, "kib": KB, "mb": MB, "mib": MB, "gb": GB, "gib": GB}
_SIZE = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)\s*([a-z]*)")


def parse_duration(value: Any) -> float:
    """Seconds from `90`, `"90"`, `"1h30m"`, `"250ms"`."""
    if isinstance(value, bool):
        raise ValueError("a duration is a number of seconds or text like 30s, 5m, 1h30m, 2d")
    if isinstance(value, int | float):
        seconds = float(value)
    else:
        text = str(value).strip().replace(" ", "")
        if re.fullmatch(r"\d+(\.\d+)?", text):
            seconds = float(text)
        elif text and _DURATION.sub("", text) == "":
            seconds = sum(float(n) * _SECONDS[unit] for n, unit in _DURATION.findall(text))
        else:
            raise ValueError(f"{value!r} is not a duration: write it like 30s, 5m, 1h30m, 2d")
    if not 0 < seconds < 10 * 365 * 86400:
        raise ValueError("a duration must be more than 0 and less than 10 years")
    return seconds


def parse_size(value: Any) -> int:
    """Bytes from `1024`, `"1024"`, `"64mb"`, `"1.5 GB"`."""
    if isinstance(value, str):
        found = _SIZE.fullmatch(value.strip().lower())
        if found is None or found[2] not in _BYTES:
            raise ValueError(f"{value!r} is not a size: write it like 512kb, 64mb, 1gb")
        size = float(found[1]) * _BYTES[found[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        size = value
    else:
        raise ValueError("a size is a number of bytes or text like 512kb, 64mb, 1gb")
    if not 0 <= size < 2**63 or size != int(size):
        raise ValueError("a size must be a whole number of bytes, 0 or more")
    return int(size)


def shown_size(size: int) -> str:
    """A size in the largest unit that shows it whole: `64mb`."""
    for unit, name in ((GB, "gb"), (MB, "mb"), (KB, "kb")):
        if size and size % unit == 0:
            return f"{size // unit}{name}"
    return f"{size}b"


def within(least: int, most: int) -> After:
    """Bounds of a size. They are told in the units that people write."""

    def check(size: int) -> int:
        if size < least:
            raise ValueError(f"must be at least {shown_size(least)}, not {shown_size(size)}")
        if size > most:
            raise ValueError(f"must be at most {shown_size(most)}, not {shown_size(size)}")
        return size

    return After(check)


def at_most(longest: str) -> After:
    """The upper bound of a duration."""
    most = parse_duration(longest)

    def check(seconds: float) -> float:
        if seconds > most:
            raise ValueError(f"must be at most {longest}, not {seconds:g}s")
        return seconds

    return After(check)


def parse_share(value: Any) -> float:
    """Processors from `"50%"`, `0.5`, `"150%"`: 1 is one processor, all the time."""
    text = str(value).strip()
    try:
        if isinstance(value, bool):
            raise ValueError
        share = float(text.removesuffix("%")) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError(f"{value!r} is not a share: write it like 50%, 150% (one processor is 100%)") from None
    if not 0.01 <= share <= 1024:
        raise ValueError("a share must be at least 1% of one processor and at most 1024 processors")
    return share


Share = Annotated[
    float,
    Before(
        parse_share,
        {
            "anyOf": [{"type": "number", "minimum": 0.01, "maximum": 1024}, {"type": "string"}],
            "description": "Of one processor: 50%, 150%, or 0.5, 1.5",
        },
    ),
]

Duration = Annotated[
    float,
    Before(
        parse_duration,
        {
            "anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}],
            "description": "Seconds, or text like 30s, 5m, 1h30m, 2d",
        },
    ),
]

Wait = Annotated[
    Literal[0] | Duration, Before(lambda value: 0 if isinstance(value, str) and _NO_TIME.fullmatch(value) else value)
]
"""A duration, or none: `0`, `0s`."""

Size = Annotated[
    int,
    Before(
        parse_size,
        {
            "anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}],
            "description": "Bytes, or text like 512kb, 64mb, 1gb",
        },
    ),
]


class CommandLimits(CheckedValue):
    """Limits for a command and everything that it starts, together."""

    memory: Annotated[Size, within(16 * MB, 1024 * GB)] | None = None
    """Bytes in memory."""
    cpu: Annotated[Duration, at_most("7d")] | None = None
    """Computing time."""
    cpu_share: Share | None = None
    """The most of the processors at any time: it is slowed down, never killed. 100% is one processor."""
    processes: int | None = field(default=None, ge=1, le=1_000_000)
    """Processes that live at the same time."""


class ProgramBounds(CheckedValue):
    """Limits of a program and everything that it calls, as far as the sandbox can enforce them."""

    memory: Annotated[Size, within(8 * MB, GB)] | None = None
    """Bytes of its machine, all included."""
    cpu: Annotated[Duration, at_most("10m")] | None = None
    """Computing time."""
    wall: Annotated[Duration, at_most("1d")] | None = None
    """Of a program: time from its beginning to its end; the time that a person takes to answer is left out."""
    calls: int | None = field(default=None, ge=0, le=100_000)
    """Calls of tools by a program."""
    output: Annotated[Size, within(1, 16 * MB)] | None = None
    """Bytes of a program's result, and of the arguments of each call, as JSON."""
    log: Annotated[Size, within(0, 16 * MB)] | None = None
    """Bytes of what a program logs."""


class StepLimits(ProgramBounds):
    """Limits of a step in a plan; a program and a command take different ones."""

    memory: Annotated[Size, within(8 * MB, 1024 * GB)] | None = None
    """Bytes in memory, all included."""
    cpu: Annotated[Duration, at_most("7d")] | None = None
    """Computing time."""
    cpu_share: Share | None = None
    """The most of the processors that a command has at any time: it is slowed down, never killed."""
    processes: int | None = field(default=None, ge=1, le=1_000_000)
    """Processes of a command that live at the same time."""


OF_COMMANDS = frozenset(CommandLimits.model_fields)


def misfit(bounds: type[CheckedValue], told: Mapping[str, Any]) -> str | None:
    """Return the problem of limits for this kind of step, as in "`limits.memory`: must be at most 1gb, not 2gb"."""
    try:
        bounds.model_validate(dict(told))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(("limits", *map(str, first["loc"])))
        return f"`{where}`: {first['msg'].removeprefix('Value error, ')}"
    return None
