"""What a command and everything that it starts may use together, and what it has used.

These are values alone. Who holds a command to them is its keeper, with `bounds`, or `group` where there are no keepers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

__all__ = ["LimitName", "MemoryPool", "ProcessLimits", "Used"]

LimitName = Literal["memory", "cpu", "processes", "pool"]


class MemoryPool(NamedTuple):
    """Memory that several commands may use together, such as all those of an execution."""

    name: str
    """Letters, digits and dashes: the kernel's cgroup of them is named after it."""
    memory: int
    """Bytes."""
    folder: str
    """Where their keepers tell each other what they use; made when it is needed."""


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
    pool: MemoryPool | None = None
    """It is one of those that share this memory. The one that grows beyond it is killed."""

    def __post_init__(self) -> None:
        for name in ("memory", "cpu", "processes", "cpu_share"):
            bound = getattr(self, name)
            if bound is not None and not bound > 0:
                raise ValueError(f"a limit of {name} must be more than 0, not {bound!r}")

    def __bool__(self) -> bool:
        return any(one is not None for one in (self.memory, self.cpu, self.processes, self.cpu_share, self.pool))


@dataclass(frozen=True, slots=True)
class Used:
    """What a process tree has used by its end."""

    cpu: float
    """Seconds of computing, of all processes that were waited for."""
    memory: int
    """The most bytes that were in memory at one time."""
    scope: Literal["tree", "largest"]
    """Whose memory that was: of the whole tree, which is known where a limit was set, or of its largest process."""
