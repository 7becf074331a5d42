"""What the programs of a step did: their calls and what came of them, in the order in which it came (G1).

A program that is made again gets the same results in the same order, and so does the same again. Folded from the
step's `program.began` and `call.*` events.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from windlass.errors import Failure

__all__ = ["CallRecord", "ProgramLog", "ProgramRecord"]


@dataclass(slots=True)
class ProgramRecord:
    began_at: float
    digest: str


@dataclass(slots=True)
class CallRecord:
    """One call of a program."""

    tool: str
    input: Any
    effect: str
    attempt: int
    """The attempt that began it."""
    order: int | None = None
    """Which one it was to end, of all of the step; None while nobody has seen its end."""
    ended_at: float = 0.0
    output: Any = None
    failure: Failure | None = None
    seen: str = ""
    """What the program got to know of its failure."""

    @property
    def ended(self) -> bool:
        return self.order is not None


@dataclass(slots=True)
class ProgramLog:
    """Everything the programs of one step did, over all its attempts."""

    programs: dict[str, ProgramRecord] = field(default_factory=dict)
    calls: dict[str, CallRecord] = field(default_factory=dict)
    ends: int = 0
    """Calls that ended so far."""
    failed_before: bool = False
    """An attempt failed: a further one may leave the path that was taken before."""

    def forget_failures(self) -> None:
        """A further attempt makes the calls again that failed, and none that worked."""
        self.calls = {name: call for name, call in self.calls.items() if call.failure is None}
        self.failed_before = True

    def of(self, program: str) -> dict[int, CallRecord]:
        """The calls of one program, by their numbers."""
        prefix = f"{program}." if program else ""
        own = ((name[len(prefix) :], call) for name, call in self.calls.items() if name.startswith(prefix))
        return {int(number): call for number, call in own if number.isdigit()}
