"""What a command and everything that it starts may use together, and what it has used.

These are values alone. Who holds a command to them is its keeper, with `bounds`, or `group` where there are no keepers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["LimitName", "ProcessLimits", "Used"]

LimitName = Literal["memory", "cpu", "processes"]


@dataclass(frozen=True, slots=True)
class ProcessLimits:
    """Bounds of a whole process tree; None is no limit. What passes one is killed at once, except a share."""

    memory: int | None = None
    """Bytes in memory, of all its processes together."""
    cpu: float | None = None
    """Seconds of computing, of the living and of those that have ended."""
    processes: int | None = None
    """Processes that live at the same time."""
    cpu_share: float | None = None
    """Processors that it has at any time, 0.5 is half of one. It is slowed down and never killed."""

    def __post_init__(self) -> None:
        for name in ("memory", "cpu", "processes", "cpu_share"):
            bound = getattr(self, name)
            if bound is not None and not bound > 0:
                raise ValueError(f"a limit of {name} must be more than 0, not {bound!r}")

    def __bool__(self) -> bool:
        return not (self.memory is self.cpu is self.processes is self.cpu_share is None)


@dataclass(frozen=True, slots=True)
class Used:
    """What a process tree has used by its end."""

    cpu: float
    """Seconds of computing, of all processes that were waited for."""
    memory: int
    """The most bytes that were in memory at one time."""
    scope: Literal["tree", "largest"]
    """Whose memory that was: of the whole tree, which is known where a limit was set, or of its largest process."""
