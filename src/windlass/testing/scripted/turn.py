"""A scripted runner's reaction to one request: one `Turn`, made of moves.

    Turn().say("I look. ").spend(tokens_in=900, tokens_out=40, usd=0.01).ask("Bash", {"command": "ls"}).done("looked")
    Turn().say("half of it").hang()
    Turn().fail("the model is overloaded", category="transient", elsewhere=True)

A turn is a frozen value: every word gives another one with one move more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

from windlass.core.events import Usage
from windlass.errors import Category, Failure
from windlass.ports.runner import AgentRequest, AgentResult

__all__ = ["ActMove", "AskMove", "CallMove", "HangMove", "Move", "NoteMove", "SayMove", "SpendMove", "Turn"]


class SayMove(NamedTuple):
    text: str


class ActMove(NamedTuple):
    tool: str
    summary: str
    input: Any


class SpendMove(NamedTuple):
    usage: Usage


class NoteMove(NamedTuple):
    text: str


class AskMove(NamedTuple):
    tool: str
    input: Any
    if_denied: Turn | None


class CallMove(NamedTuple):
    tool: str
    arguments: Mapping[str, Any]


class HangMove(NamedTuple):
    pass


Move: TypeAlias = SayMove | ActMove | SpendMove | NoteMove | AskMove | CallMove | HangMove


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of an agent. It ends with `done`, `fail` or a result of your own; without them, with all it said."""

    when: str | Callable[[AgentRequest], bool] | None = None
    """Only for a request whose brief has this text in it, or for which the function says yes."""
    times: int = 1
    """For how many requests it serves."""
    repeat: bool = False
    """It serves for ever."""
    session: str | None = None
    """The conversation's name; without one, the name that the request asks to go on with, or a new one."""
    moves: tuple[Move, ...] = ()
    result: AgentResult | None = None
    """Given back as it is."""
    output: str | None = None
    failure: Failure | None = None

    def __post_init__(self) -> None:
        if self.times < 1:
            raise ValueError(f"times={self.times}: a turn serves at least once")

    @classmethod
    def giving(cls, result: AgentResult) -> Turn:
        """Give exactly this result; the host hears its text, usage and session first, as from a runtime."""
        said = (SayMove(result.output),) if result.output else ()
        spent = (SpendMove(result.usage),) if result.usage != Usage() else ()
        return cls(session=result.session, moves=(*said, *spent), result=result)

    def say(self, *pieces: str) -> Turn:
        """Text, a piece at a time."""
        return self._and(*map(SayMove, pieces))

    def act(self, tool: str, summary: str = "", input: Any = None) -> Turn:
        """Use a tool of the runtime itself. The runner only reports it: nothing is done."""
        return self._and(ActMove(tool, summary, input))

    def spend(
        self,
        *,
        tokens_in: int = 0,
        tokens_out: int = 0,
        cache_read: int = 0,
        cache_write: int = 0,
        usd: float | None = None,
        model: str = "",
    ) -> Turn:
        """Report the usage of the run so far, in all."""
        counts = (tokens_in, tokens_out, cache_read, cache_write, usd)
        return self._and(SpendMove(Usage(*counts, source="unknown" if usd is None else "runtime", model=model)))

    def note(self, text: str) -> Turn:
        """Something the user should know."""
        return self._and(NoteMove(text))

    def ask(self, tool: str, input: Any = None, *, if_denied: Turn | None = None) -> Turn:
        """Ask for permission. Denied, `if_denied` goes on in place of the rest; without it, the run just goes on."""
        return self._and(AskMove(tool, input, if_denied))

    def call(self, tool: str, arguments: Mapping[str, Any] | None = None) -> Turn:
        """Use a tool of the engine, for real, by way of the host."""
        return self._and(CallMove(tool, dict(arguments or {})))

    def hang(self) -> Turn:
        """Never go on, until somebody interrupts or cancels it."""
        return self._and(HangMove())

    def done(self, output: str) -> Turn:
        """The end, with this output in place of what was said."""
        return replace(self, output=output, failure=None)

    def fail(
        self,
        failure: Failure | str,
        *,
        category: Category | str = Category.LOGIC,
        retry_after: float | None = None,
        resets_at: float | None = None,
        elsewhere: bool = False,
    ) -> Turn:
        """End with a failure. Text and usage from before stay in the result."""
        if isinstance(failure, str):
            failure = Failure(
                Category(category), failure, retry_after=retry_after, resets_at=resets_at, elsewhere=elsewhere
            )
        return replace(self, failure=failure)

    def _and(self, *moves: Move) -> Turn:
        return replace(self, moves=(*self.moves, *moves))

    def __str__(self) -> str:
        """One line for people: which turn of a script this is."""
        words = [type(move).__name__.removesuffix("Move").lower() for move in self.moves]
        end = f"fail: {self.failure.message}" if self.failure else "done"
        condition = f", when {self.when!r}" if self.when else ""
        return f"{', '.join([*words, end])}{condition}"
