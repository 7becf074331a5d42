"""What the programs of a step did: their calls and what came of them, in the order in which it came (G1).

A program that is made again gets the same results in the same order, and so does the same again. Folded from the
step's `program.began` and `call.*` events.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from windlass.errors import CUT_OFF, Failure
from windlass.plan.model import Effect

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
    """What is done again in exactly this way, by the names of the calls."""
    spare: list[tuple[str, CallRecord]] = field(default_factory=list)
    """What worked on a way that was left, or was cut off there: whoever makes such a call takes that instead."""
    ends: int = 0
    """Calls that ended so far."""

    def forget_failures(self) -> None:
        """A further attempt makes the calls again that failed, and none that worked, whichever way it goes."""
        self.leave("")

    def leave(self, program: str) -> None:
        """The way that this program took, with all that it called, is not taken again."""
        prefix = f"{program}." if program else ""
        left = {name: call for name, call in self.calls.items() if name.startswith(prefix)}
        self.calls = {name: call for name, call in self.calls.items() if name not in left}
        for name, call in left.items():
            if call.failure is not None and call.failure.kind == CUT_OFF:
                call.order, call.failure = None, None  # nobody saw its end
            if call.failure is None and (call.ended or call.effect == Effect.ONCE):
                self.spare.append((name, call))

    def at_hand(self, name: str, tool: str, input: Any, taken: Collection[int] = ()) -> CallRecord | None:
        """What is known of such a call from a way that was left: of the same place, if it can be.

        `taken` are those that are spoken for, by `id`. Each program of an agent is a thing of its own.
        """
        root, program = _root(name), name.rpartition(".")[0]
        found = [
            (place != name, place.rpartition(".")[0] != program, number)
            for number, (place, call) in enumerate(self.spare)
            if call.tool == tool and call.input == input and _root(place) == root and id(call) not in taken
        ]
        return self.spare[min(found)[2]][1] if found else None

    def begin(self, name: str, call: CallRecord) -> None:
        """A call was begun, or its result taken from what is at hand."""
        took = self.at_hand(name, call.tool, call.input)
        self.spare = [(place, spare) for place, spare in self.spare if spare is not took]
        self.calls[name] = call

    def of(self, program: str) -> dict[int, CallRecord]:
        """The calls of one program, by their numbers."""
        prefix = f"{program}." if program else ""
        own = ((name[len(prefix) :], call) for name, call in self.calls.items() if name.startswith(prefix))
        return {int(number): call for number, call in own if number.isdigit()}


def _root(name: str) -> str:
    """Which program of the step a call belongs to in the end: the step's own, or the use of an agent's."""
    first = name.partition(".")[0]
    return "" if first.isdigit() else first
