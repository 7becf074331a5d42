"""Record of a step's programs: their calls and results, in the order in which the results came (G1).

A program that is made again gets the same results in the same order, and so does the same again. Folded from the
step's `program.began` and `call.*` events.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from windlass.errors import CUT_OFF, Failure
from windlass.plan.model import Effect

__all__ = ["CallRecord", "ProgramLog", "ProgramRecord"]


class ProgramRecord(msgspec.Struct):
    began_at: float
    digest: str


class CallRecord(msgspec.Struct):
    """One call of a program."""

    tool: str
    input: Any
    effect: str
    attempt: int
    """The attempt that began it."""
    order: int | None = None
    """Its place in the order in which the step's calls ended; None while its end is unknown."""
    ended_at: float = 0.0
    output: Any = None
    failure: Failure | None = None
    seen: str = ""
    """The message that the program saw of its failure."""

    @property
    def ended(self) -> bool:
        return self.order is not None


class ProgramLog(msgspec.Struct):
    """Everything the programs of one step did, over all its attempts."""

    programs: dict[str, ProgramRecord] = msgspec.field(default_factory=dict)
    calls: dict[str, CallRecord] = msgspec.field(default_factory=dict)
    """Calls that a replay makes again in exactly this way, by their names."""
    reusable: list[tuple[str, CallRecord]] = msgspec.field(default_factory=list)
    """Results from an abandoned replay path, and calls cut off there; the same call reuses them."""
    ends: int = 0
    """Calls that ended so far."""

    def forget_failures(self) -> None:
        """Let a further attempt repeat the calls that failed, and none that worked, on any path."""
        self.abandon_path("")

    def abandon_path(self, program: str) -> None:
        """Give up the replay path of this program, with all its calls; keep their results for reuse."""
        prefix = f"{program}." if program else ""
        left = {name: call for name, call in self.calls.items() if name.startswith(prefix)}
        self.calls = {name: call for name, call in self.calls.items() if name not in left}
        for name, call in left.items():
            if call.failure is not None and call.failure.kind == CUT_OFF:
                call.order, call.failure = None, None  # its outcome is unknown
            if call.failure is None and (call.ended or call.effect == Effect.ONCE):
                self.reusable.append((name, call))

    def find_reusable(self, name: str, tool: str, input: Any, taken: Collection[int] = ()) -> CallRecord | None:
        """Find the record of such a call on an abandoned path, preferably from the same place.

        `taken` are the ids of records already in use. Programs of an agent do not share records.
        """
        root, program = _root(name), name.rpartition(".")[0]
        found = [
            (place != name, place.rpartition(".")[0] != program, number)
            for number, (place, call) in enumerate(self.reusable)
            if call.tool == tool and call.input == input and _root(place) == root and id(call) not in taken
        ]
        return self.reusable[min(found)[2]][1] if found else None

    def begin(self, name: str, call: CallRecord) -> None:
        """Record the start of a call; a reusable record of it is used up."""
        took = self.find_reusable(name, call.tool, call.input)
        self.reusable = [(place, other) for place, other in self.reusable if other is not took]
        self.calls[name] = call

    def of(self, program: str) -> dict[int, CallRecord]:
        """The calls of one program, by their numbers."""
        prefix = f"{program}." if program else ""
        own = ((name[len(prefix) :], call) for name, call in self.calls.items() if name.startswith(prefix))
        return {int(number): call for number, call in own if number.isdigit()}


def _root(name: str) -> str:
    """The top-level program that a call belongs to: the step's own (empty), or the use by an agent."""
    first = name.partition(".")[0]
    return "" if first.isdigit() else first
