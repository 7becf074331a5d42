"""Run a program from beginning to end, over every restart: make its calls and deliver their results.

Results from before a stop are in the step's `ProgramLog`, and are delivered again in the same order; so the program
comes back to its position, and goes on. After a failed attempt the program may take another path: calls that worked are
reused at any place on it, and recorded once more, in their new place and order.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.program import CallRecord
from windlass.engine.code.caller import ProgramOrigin, Tree
from windlass.engine.code.calls import Calls
from windlass.engine.code.failures import failure_of
from windlass.engine.contact import off_the_clock
from windlass.errors import Failure, ToolError
from windlass.plan.program import granted_tools
from windlass.ports import (
    Call,
    Contact,
    Delivery,
    GuestCall,
    GuestError,
    Program,
    ProgramError,
    ProgramLimits,
    ProgramRun,
    ProgramTurn,
    Sandbox,
)

__all__ = ["ProgramDeps", "run_program"]


_LINE = re.compile(r"program\.js:(\d+)")


class ProgramDeps(msgspec.Struct, frozen=True):
    """Services that running a program needs."""

    sandbox: Sandbox
    clock: Clock


async def run_program(
    desk: ProgramDeps,
    call: Call,
    origin: ProgramOrigin,
    source: str,
    data: Mapping[str, Any],
    *,
    grants: tuple[str, ...] | None,
    limits: ProgramLimits,
    folder: str = "",
) -> Any:
    """The program's result. Raises ToolError on a failure. Paths of its calls are in `folder`, if one is given."""
    if call.contact is None:
        raise ToolError("a program runs only inside an execution")
    if origin.tree is not None:
        return await _Running(desk, call, call.contact, origin, origin.tree, source, data, grants).perform()
    wall = asyncio.timeout(limits.wall)
    tree = Tree(limits, wall, folder)
    try:
        async with wall:
            return await _Running(desk, call, call.contact, origin, tree, source, data, grants).perform()
    except TimeoutError:
        if not wall.expired():
            raise
        error = ProgramError("wall", f"it was not finished after {limits.wall:g} s")
        raise ToolError.of(failure_of(error)) from None


class _Running:
    """One program under way."""

    def __init__(
        self,
        desk: ProgramDeps,
        call: Call,
        contact: Contact,
        origin: ProgramOrigin,
        tree: Tree,
        source: str,
        data: Mapping[str, Any],
        grants: tuple[str, ...] | None,
    ) -> None:
        self._desk, self._call, self._contact = desk, call, contact
        self._origin, self._tree = origin, tree
        self._source, self._data = source, data
        self._granted = granted_tools(grants, origin.names())
        self._before: dict[int, CallRecord] = {}
        self._order: list[int] = []
        """Calls with results from before, in the order of their ends, that are not delivered yet."""
        self._issued: dict[int, GuestCall] = {}
        self._flying: dict[int, asyncio.Task[None]] = {}
        self._arrived: list[Delivery] = []
        self._news = asyncio.Event()
        self._failures: dict[int, Failure] = {}
        self._cpu = 0.0

    async def perform(self) -> Any:
        program = await self._program()
        log = self._contact.step.programs
        self._before = log.of(self._origin.path) if log is not None else {}
        ended = [number for number, record in self._before.items() if record.ended]
        self._order = sorted(ended, key=lambda number: self._before[number].order or 0)
        run = await self._opened(program)
        calls = Calls(
            self._call,
            self._contact,
            self._desk.clock,
            self._origin,
            self._tree,
            frozenset(self._granted),
            run,
            self._failures,
        )
        try:
            turn = await run.begin()
            while True:
                self._take(turn, calls)
                if turn.done:
                    return turn.value
                turn = await run.deliver(await self._next())
        except ProgramError as error:
            if error.log:
                self._call.output("log", error.log)
            if error.trouble in ("thrown", "unhandled"):
                await self._land()  # calls under way take effect all the same: record their ends
            cause = self._failures.get(error.call) if error.call is not None else None
            raise ToolError.of(self._named(failure_of(error, cause), error)) from error
        finally:
            await self._give_up(run)

    def _named(self, failure: Failure, error: ProgramError) -> Failure:
        """Name the tool that is not there for the program, where the line of its error calls one."""
        at = _LINE.search(error.message)
        if error.trouble != "thrown" or at is None or not error.message.startswith("TypeError: "):
            return failure
        from windlass.plan.tool_calls import wrong_calls  # few programs fail so

        tools = self._contact.tools

        def meant(name: str) -> str:
            near = tools.nearest(name)
            return f"did you mean tools.{near}?" if near else ""

        for wrong in wrong_calls(self._source, self._granted, lambda name: tools.get(name) is not None, meant):
            if wrong.place.line == int(at[1]):
                message, advice = f"it {wrong.message}\n{failure.message}", (wrong.hint, *failure.advice)
                return msgspec.structs.replace(failure, message=message, advice=tuple(filter(None, advice)), final=True)
        return failure

    async def _opened(self, program: Program) -> ProgramRun:
        try:
            with off_the_clock(self._tree.wall):  # until there is a place to run in, no time of its own passes
                return await self._desk.sandbox.open(program)
        except ProgramError as error:
            raise ToolError.of(failure_of(error)) from error

    async def _program(self) -> Program:
        digest = hashlib.sha256(self._source.encode()).hexdigest()
        contact, path = self._contact, self._origin.path
        log = contact.step.programs
        known = log.programs.get(path) if log is not None else None
        if known is not None and known.digest == digest:
            began = known.began_at
        else:
            began = self._desk.clock.now()
            event = ev.ProgramBegan(began, contact.step.id, path, digest)
            if known is None:
                contact.tell(event)
            else:
                await contact.record(event)  # the way that the other program took is left with this
        seed = f"{self._call.execution}:{contact.step.id}:{path}"
        return Program(self._source, self._granted, self._data, seed, began, self._tree.left())

    # -- calls that are new ----------------------------------------------------------------------

    def _take(self, turn: ProgramTurn, calls: Calls) -> None:
        if turn.log:
            self._tree.logged(turn.log)
            self._call.output("log", turn.log)
        self._call.meter.add(cpu=turn.cpu - self._cpu, memory=turn.memory)
        self._tree.computed(turn.cpu - self._cpu)
        self._cpu = turn.cpu
        for asked in turn.calls:
            self._tree.called()
            if self._tree.folder:
                from windlass.plan.file_arguments import in_folder  # few programs need it

                asked = asked._replace(arguments=in_folder(asked.tool, asked.arguments, self._tree.folder))
            self._issued[asked.number] = asked
            before = self._known(asked, calls)
            if before is None or not before.ended:
                self._flying[asked.number] = asyncio.ensure_future(self._fly(calls, asked, before))
            elif asked.number not in self._before:
                self._arrived.append(calls.take_over(asked, before))

    def _known(self, asked: GuestCall, calls: Calls) -> CallRecord | None:
        """The record of the call from before, or a reusable one from an abandoned path."""
        before = self._before.get(asked.number)
        if before is None:
            log = self._contact.step.programs
            name = calls.name(asked.number)
            found = log.find_reusable(name, asked.tool, asked.arguments, self._tree.taken) if log is not None else None
            if found is not None:
                self._tree.taken[id(found)] = found
            return found
        if _same(before, asked):
            return before
        told = f"call {asked.number} is now {asked.tool}, but was {before.tool} with other arguments in the earlier run"
        raise ProgramError("diverged", told)

    async def _fly(self, calls: Calls, asked: GuestCall, before: CallRecord | None) -> None:
        try:
            made = await calls.make(asked, before)
            self._arrived.append(made)
        finally:
            self._news.set()

    # -- results, in their order -----------------------------------------------------------------

    async def _next(self) -> list[Delivery]:
        """The next results to deliver: those from before first, then new ones as they come."""
        replayed = self._replayed()
        if replayed:
            return replayed
        while not self._arrived:
            self._news.clear()
            self._raise_what_broke()
            if not self._flying:
                missing = f"call {self._order[0]}, which it made before" if self._order else "any call"
                raise ProgramError("diverged", f"it did not make {missing}")
            await self._news.wait()
        arrived, self._arrived = self._arrived, []
        for delivery in arrived:
            self._flying.pop(delivery.number, None)
        return arrived

    def _replayed(self) -> list[Delivery]:
        """The next results from before for calls already made: not one more, as these may lead to the next call."""
        results: list[Delivery] = []
        while self._order and self._order[0] in self._issued:
            number = self._order.pop(0)
            before = self._before[number]
            if before.failure is not None:
                self._failures[number] = before.failure
            results.append(_from_before(number, before))
        return results

    def _raise_what_broke(self) -> None:
        """Raise the error of a call that broke: a tool's failure is delivered, so this is a fault of the engine."""
        for task in self._flying.values():
            if task.done() and not task.cancelled() and (error := task.exception()) is not None:
                raise error

    # -- the end ---------------------------------------------------------------------------------

    async def _land(self) -> None:
        if self._flying:
            await asyncio.wait(self._flying.values())

    async def _give_up(self, run: ProgramRun) -> None:
        flying = [task for task in self._flying.values() if not task.done()]
        for task in flying:
            task.cancel()
        if flying:
            await asyncio.wait(flying)
        await run.close()


def _same(before: CallRecord, asked: GuestCall) -> bool:
    return before.tool == asked.tool and before.input == asked.arguments


def _from_before(number: int, before: CallRecord) -> Delivery:
    if before.failure is None:
        return Delivery(number, before.ended_at, before.output)
    return Delivery(number, before.ended_at, error=GuestError(before.seen, str(before.failure.category)))
