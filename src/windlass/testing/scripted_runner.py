"""A runner that follows a script: for tests of plans that need no runtime, no model and no time.

    runner = ScriptedRunner([Turn().say("built").spend(tokens_in=900, tokens_out=40), Turn().fail("no disk")])

It is a `Runner` like any other: the engine's rules, permissions, tools and budgets all take part, only the agent is
made up. Its calls are kept in `requests`, `interrupts`, `answers` and `returns`. A `Turn` is its reaction to one
request, a frozen value made of moves: every word gives another one with one move more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias, TypeVar

from windlass.core.budget import Amount
from windlass.core.events import Usage
from windlass.errors import Category, Failure
from windlass.ports.runner import AgentRequest, AgentResult, Answer, Host, Runner, RunnerHooks, ToolReturn
from windlass.ports.tool import Health
from windlass.testing.scripted.reply import Chooser

__all__ = ["ScriptedRunner", "Turn"]


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


T = TypeVar("T")
TurnScript: TypeAlias = Sequence[Turn | AgentResult] | Callable[[AgentRequest], Turn | AgentResult]


class ScriptedRunner(RunnerHooks):
    """A `Runner` that plays turns. It keeps to one event loop."""

    def __init__(self, script: TurnScript = (), *, name: str = "scripted", health: Health | None = None) -> None:
        self.name = name
        self.call = Amount(0.25, 20_000)
        """Most that one call of its model can use."""
        self.health = health or Health(True, "scripted")
        """Answer of `available`; set it to let the runtime come and go."""
        self.requests: list[AgentRequest] = []
        self.interrupts: list[str] = []
        """Ids that `interrupt` was called with."""
        self.answers: list[Answer] = []
        """Answers to `Turn.ask`."""
        self.returns: list[ToolReturn] = []
        """Results of `Turn.call`."""
        self.errors: list[str] = []
        """A script that ran out."""
        self.closed = False
        self._chooser: Chooser[AgentRequest, Turn] = Chooser(_turns(script), _told)
        self._running: dict[str, asyncio.Event] = {}
        self._arrived = asyncio.Condition()

    async def available(self) -> Health:
        return self.health

    def call_cost(self, model: str | None, prompt: int) -> Amount:
        return self.call

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        interrupted = self._running[request.id] = asyncio.Event()
        self.requests.append(request)
        async with self._arrived:
            self._arrived.notify_all()
        try:
            turn = self._chooser.choose(request)
            if turn is None:
                self.errors.append(f"{request.id}: the script has no turn left for {request.task!r}")
                return AgentResult(failure=Failure(Category.LOGIC, self.errors[-1]))
            return await _ScriptedRun(self, request, host, interrupted).play(turn)
        finally:
            self._running.pop(request.id, None)

    async def interrupt(self, request: str) -> None:
        self.interrupts.append(request)
        if request in self._running:
            self._running[request].set()

    async def close(self) -> None:
        self.closed = True

    async def wait_for(self, count: int, timeout: float = 60.0) -> list[AgentRequest]:
        """Wait until so many requests have come, and give them. TimeoutError when they do not."""
        async with asyncio.timeout(timeout), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests[:count]

    def check(self) -> None:
        """AssertionError when the script ran out or a turn was never asked for; lists all of it."""
        if complaints := [*self.errors, *self._chooser.unused()]:
            lines = "\n".join(f"  - {line}" for line in complaints)
            raise AssertionError(f"the scripted runner {self.name} found problems:\n{lines}")


_IS_A_RUNNER: type[Runner] = ScriptedRunner
"""The type checker holds it to the port."""


class _Interrupted(Exception):
    """Somebody asked the run to end now."""


class _ScriptedRun:
    """One turn as it is played."""

    def __init__(self, runner: ScriptedRunner, request: AgentRequest, host: Host, interrupted: asyncio.Event) -> None:
        self._runner, self._request, self._host, self._interrupted = runner, request, host, interrupted
        self._said = ""
        self._usage = Usage()
        self._denied: list[str] = []
        self._calls = 0

    async def play(self, turn: Turn) -> AgentResult:
        session = turn.session or self._request.session or f"scripted-{self._request.id}"
        self._host.session(session)
        try:
            turn = await self._moves(turn)
        except _Interrupted:
            return AgentResult(
                self._said, usage=self._usage, session=session, interrupted=True, adjustments=tuple(self._denied)
            )
        if turn.result is not None:
            return turn.result
        output = self._said if turn.output is None else turn.output
        return AgentResult(output, turn.failure, self._usage, session, adjustments=tuple(self._denied))

    async def _moves(self, turn: Turn) -> Turn:
        """Make all moves; gives the turn that was played to its end, which a denial may have changed."""
        for move in turn.moves:
            # Every move is a moment in which others may act, as between two events of a real runtime.
            await self._unless_interrupted(asyncio.sleep(0))
            instead = await self._move(move)
            if instead is not None:
                return await self._moves(instead)
        return turn

    async def _move(self, move: Move) -> Turn | None:
        match move:
            case SayMove(text):
                self._said += text
                self._host.text(text)
            case ActMove(tool, summary, input):
                self._host.acted(tool, summary, input)
            case SpendMove(usage):
                self._usage = usage
                self._host.usage(usage)
            case NoteMove(text):
                self._host.note(text)
            case AskMove(tool, input, if_denied):
                answer = await self._unless_interrupted(self._host.ask(tool, input))
                self._runner.answers.append(answer)
                if not answer.allow:
                    self._denied.append(f"{tool} was denied" + (f": {answer.note}" if answer.note else ""))
                    return if_denied
            case CallMove(tool, arguments):
                self._calls += 1
                use = self._host.use(tool, arguments, f"scripted-{self._calls}")
                self._runner.returns.append(await self._unless_interrupted(use))
            case HangMove():
                await self._interrupted.wait()
                raise _Interrupted
        return None

    async def _unless_interrupted(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the work; an interrupt that comes first cancels it, and it has ended then."""
        doing, told = asyncio.ensure_future(work), asyncio.ensure_future(self._interrupted.wait())
        try:
            await asyncio.wait((doing, told), return_when=asyncio.FIRST_COMPLETED)
            if told.done():
                raise _Interrupted
            return doing.result()
        finally:
            doing.cancel()
            told.cancel()
            await asyncio.gather(doing, told, return_exceptions=True)


def _turns(script: TurnScript) -> Sequence[Turn] | Callable[[AgentRequest], Turn]:
    if callable(script):
        function = script
        return lambda request: _turn(function(request))
    return [_turn(entry) for entry in script]


def _turn(entry: Turn | AgentResult) -> Turn:
    if isinstance(entry, AgentResult):
        return Turn.giving(entry)
    if not isinstance(entry, Turn):
        raise TypeError(f"a runner's script is made of Turn and AgentResult values, and this is neither: {entry!r}")
    return entry


def _told(request: AgentRequest) -> str:
    """The agent's system prompt, prompt and task."""
    return "\n".join((request.brief.system, request.brief.prompt, request.task))
