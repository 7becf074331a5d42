"""CPU, memory and data of executions and attempts, in plain text (H1)."""

from __future__ import annotations

from windlass.core.resources import Resources
from windlass.plan.quantities import GB, KB, MB

__all__ = ["in_brief", "size_text", "used_text"]

_WORTH_A_LOOK = Resources(cpu=0.1, memory=32 * MB, received=100 * KB, sent=100 * KB)
"""In a log, less than this would only be in the way: every command takes some memory to begin with."""

_LEAST = Resources(received=KB, sent=KB)
"""Less data than this is no more than a few words of a command."""


def used_text(used: Resources | None, least: Resources | None = None) -> str:
    """`used 1.2 s of computing, at most 45 MB of memory, 3.1 MB of data in, 12 kB of data out`: as much as is known.

    Data is also what a command printed and was given, so it is not called traffic. What is below `least` is left out,
    and so is what is nothing at all; all of that is an empty text.
    """
    used, least = used or Resources(), least or _LEAST
    parts = [
        f"{_seconds(used.cpu)} of computing" if _counts(used.cpu, least.cpu) else "",
        f"at most {size_text(used.memory or 0)} of memory" if _counts(used.memory, least.memory) else "",
        f"{size_text(used.received or 0)} of data in" if _counts(used.received, least.received) else "",
        f"{size_text(used.sent or 0)} of data out" if _counts(used.sent, least.sent) else "",
    ]
    told = ", ".join(filter(None, parts))
    return f"used {told}" if told else ""


def in_brief(used: Resources | None) -> str:
    """For the end of a line about an attempt: only what is worth a look."""
    told = used_text(used, _WORTH_A_LOOK)
    return f" ({told})" if told else ""


def _counts(found: float | None, least: float | None) -> bool:
    return bool(found) and (found or 0) >= (least or 0)


def _seconds(cpu: float | None) -> str:
    """Of computing, not of waiting: that it was little says more than 0.0."""
    cpu = cpu or 0.0
    return "less than 0.1 s" if cpu < 0.1 else f"{cpu:.1f} s" if cpu < 100 else f"{cpu:,.0f} s"


def size_text(count: int) -> str:
    """In the units of limits, so that the one can be held against the other: 1 MB is 1024 kB."""
    for unit, name in ((GB, "GB"), (MB, "MB"), (KB, "kB")):
        if count >= unit:
            number = count / unit
            return f"{number:.1f} {name}" if number < 10 else f"{number:.0f} {name}"
    return f"{count} B"
