"""One use of a tool, through all its gates: cache, breaker, rate, places, time, and the substitute when it cannot be.

A tool without terms whose breaker is closed pays for one look-up. Everything here is about the tool, not about its
caller: approval and budget are asked for before.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from windlass.clock import Clock, SystemClock
from windlass.core.breaker import counts
from windlass.engine.basis import basis_of, compare, definition
from windlass.engine.gates.circuit import CircuitOfUse, NotBegun, TookTooLong, cancelled
from windlass.engine.gates.ending import UseTookTooLong, await_or_abandon
from windlass.engine.gates.outflow import OutputCap
from windlass.engine.gates.places import Slots
from windlass.engine.gates.terms import PLAIN, TermsOfUse
from windlass.errors import Category, classify, ordinary
from windlass.plan.model import Effect, Step
from windlass.ports import Call, GateStore, Rate, Terms, Tool, Toolbox, effect_of

if TYPE_CHECKING:
    from windlass.ports.places import SharedPlaces

__all__ = ["Gates"]

PATIENCE = 300.0
"""Seconds that a use waits for its turn at a rate; for a longer wait it fails, with `retry_after`."""
_key = msgspec.json.Encoder(order="deterministic").encode


class UseWait(NamedTuple):
    """An attempt that waits before its work."""

    gate: Literal["slot", "rate", "place"]
    tool: str
    """Empty for a slot, which every attempt needs."""
    execution: str
    step: str
    since: float


class Waits:
    """All of this process, those that wait longest first."""

    def __init__(self) -> None:
        self._waits: dict[object, UseWait] = {}

    def __iter__(self) -> Iterator[UseWait]:
        return iter(list(self._waits.values()))

    @contextmanager
    def noted(self, gate: Literal["slot", "rate", "place"], tool: str, call: Call, now: float) -> Iterator[None]:
        """Within this, the attempt waits there."""
        mark = object()
        self._waits[mark] = UseWait(gate, tool, call.execution, call.step, now)
        try:
            yield
        finally:
            del self._waits[mark]


class Gates:
    def __init__(
        self,
        book: GateStore | None = None,
        terms: TermsOfUse | None = None,
        places: Path | SharedPlaces | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`places` is the folder in which processes share how many uses there are, or where several machines do;
        without one, each process has its own."""
        if book is None:
            from windlass.engine.gates.memory import MemoryGateStore  # a home has its own

            book = MemoryGateStore()
        self.book = book
        self.terms = terms or TermsOfUse()
        self._shared = None if isinstance(places, Path) else places
        self._places = Slots(places if isinstance(places, Path) else None, self._shared)
        self.clock = clock or SystemClock()
        self.waits = Waits()

    async def close(self) -> None:
        self.book.close()
        if self._shared is not None:
            await self._shared.close()

    def use(self, tool: Tool, arguments: Mapping[str, Any], call: Call, tools: Toolbox) -> Coroutine[Any, Any, Any]:
        """The result of the tool, or of its substitute."""
        if not isinstance(call.output, OutputCap):
            call.output = OutputCap(call.output)
        if self.terms.of(tool) is PLAIN and call.approved is None and getattr(call.contact, "limit", None) is None:
            name = tool.circuit(arguments)
            if name is None or not self.book.breaker(name).until:
                return self._use_directly(tool, arguments, call, name)
        return self._use_on_terms(tool, arguments, call, tools)

    async def _use_on_terms(self, tool: Tool, arguments: Mapping[str, Any], call: Call, tools: Toolbox) -> Any:
        tried: list[str] = []
        while True:
            try:
                return await self._use(tool, arguments, call, None if tried else tools)
            except (Exception, SystemExit) as error:
                if cancelled():
                    raise
                substitute = self._substitute(tool, arguments, tools, [*tried, tool.name], error)
                if substitute is None or not _foreseen(substitute, call):
                    raise
                why = classify(error).message
                _say(call, f"{tool.name} cannot be used ({why}): using {substitute.name} instead")
                tried.append(tool.name)
                tool = substitute

    async def _use_directly(self, tool: Tool, arguments: Mapping[str, Any], call: Call, name: str | None) -> Any:
        """A use without terms, with a closed breaker of that name: no wait, no substitute."""
        try:
            value = await tool.execute(arguments, call)
        except (asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as raised:
            error = ordinary(raised)
            if not cancelled() and not isinstance(error, KeyboardInterrupt):
                CircuitOfUse(self.book, name, self.clock).failed(classify(error))
            raise error  # noqa: B904  # nearly always the same
        if name is not None and self.book.breaker(name).failures:
            CircuitOfUse(self.book, name, self.clock).worked()
        return value

    def basis(
        self, tool: Tool | None, arguments: Any, workdir: Path, tools: Toolbox, step: Step | None = None
    ) -> dict[str, str]:
        """The basis of an approval of this use, a substitute included."""
        substitute = self.terms.of(tool).fallback if tool is not None else None
        return basis_of(tool, arguments, workdir, tools, step=step, substitute=substitute or "")

    def _check_approval(self, tool: Tool, arguments: Mapping[str, Any], call: Call, tools: Toolbox | None) -> None:
        """The last look before the act; `tools` is None for a substitute, which was looked at when it was chosen."""
        if call.approved is not None and tools is not None:
            compare(call.approved, self.basis(tool, arguments, call.workdir, tools), tool)

    async def _use(self, tool: Tool, arguments: Mapping[str, Any], call: Call, tools: Toolbox | None) -> Any:
        terms = self.terms.of(tool)
        circuit = CircuitOfUse(self.book, tool.circuit(arguments), self.clock)
        # The step's own limit, if this is the step's own use: one of many uses within it is not to blame for it.
        limit = getattr(call.contact, "limit", None)
        if terms is PLAIN and limit is None and circuit.closed:
            self._check_approval(tool, arguments, call, tools)
            return await circuit.watch(_execute(tool, arguments, call))
        key = self._cache_key(tool, arguments, call, terms)
        if key is not None and (known := self.book.known(key, self.clock.now(), terms.cache or 0.0)) is not None:
            return known[0]
        began = self.clock.now()
        if not circuit.closed:
            if terms.fallback is None:
                await circuit.probed()
            circuit.look()  # a use that would be refused waits for no turn and takes none from others
        if terms.rate is not None and (wait := self.book.take(tool.name, terms.rate, began)) > 0:
            with self.waits.noted("rate", tool.name, call, began):
                await self._wait_for_turn(tool.name, terms.rate, wait)
        async with nullcontext() if terms.concurrent is None else self._place(tool, terms.concurrent, call):
            self._check_approval(tool, arguments, call, tools)
            circuit.enter()
            call.meter.queued += self.clock.now() - began
            limited = terms.timeout is not None or limit is not None
            use = _stoppable(tool, arguments, call, terms.timeout) if limited else _execute(tool, arguments, call)
            value = await circuit.watch(use, limit)
        if key is not None and terms.cache is not None:
            self.book.learn(key, value, self.clock.now() + terms.cache)
        return value

    def _place(self, tool: Tool, count: int, call: Call) -> AbstractAsyncContextManager[None]:
        waiting = lambda: self.waits.noted("place", tool.name, call, self.clock.now())  # noqa: E731 - for few uses
        return self._places.one_of(tool.name, count, waiting)

    async def _wait_for_turn(self, name: str, rate: Rate, wait: float) -> None:
        while wait > 0:
            if wait > PATIENCE:
                raise NotBegun(
                    f"{name} is limited to {rate}; retry in {wait:.0f} s",
                    category=Category.TRANSIENT,
                    retry_after=wait,
                )
            await asyncio.sleep(min(wait, 5.0))
            wait = self.book.take(name, rate, self.clock.now())

    def _cache_key(self, tool: Tool, arguments: Mapping[str, Any], call: Call, terms: Terms) -> str | None:
        if terms.cache is None or effect_of(tool, arguments) is not Effect.NONE or tool.stateful:
            return None
        told = _key([tool.name, str(call.workdir), arguments])
        return hashlib.sha256(told).hexdigest()

    def _substitute(
        self, tool: Tool, arguments: Mapping[str, Any], tools: Toolbox, tried: list[str], error: BaseException
    ) -> Tool | None:
        """The tool that takes its place, after a failure of the tool itself that had no effect."""
        name = self.terms.of(tool).fallback
        found = tools.get(name) if name is not None and name not in tried else None
        if found is None or not counts(classify(error)) or found.validate(arguments):
            return None
        did_nothing = isinstance(error, NotBegun) or effect_of(tool, arguments) is not Effect.ONCE
        return found if did_nothing else None


def _foreseen(substitute: Tool, call: Call) -> bool:
    """True if a person that allowed the use was shown this substitute, too."""
    return call.approved is None or call.approved.get(f"substitute {substitute.name}") == definition(substitute)


async def _execute(tool: Tool, arguments: Mapping[str, Any], call: Call) -> Any:
    try:
        return await tool.execute(arguments, call)
    except BaseException as error:
        raise ordinary(error)  # noqa: B904  # nearly always the same


async def _stoppable(tool: Tool, arguments: Mapping[str, Any], call: Call, seconds: float | None) -> Any:
    """A use that a limit can stop, even if it does not want to: the step's, or one of `seconds`."""

    def abandoned() -> None:
        _say(
            call,
            f"{tool.name} did not stop when cancelled: the engine no longer waits for it, and it may still be running",
        )

    try:
        return await await_or_abandon(_execute(tool, arguments, call), call.grace, abandoned, seconds)
    except UseTookTooLong as error:
        raise TookTooLong(
            f"{tool.name} took longer than {seconds:g} s and was stopped",
            category=Category.TRANSIENT,
            advice=("raise tools.NAME.timeout in your settings, or give it less to do",),
        ) from error


def _say(call: Call, text: str) -> None:
    """In the engine's own words: they are not held back after a flood."""
    say = call.output.say if isinstance(call.output, OutputCap) else call.output
    say("note", f"{text}\n")
