"""One call of a program, through the gates that a step passes: arguments, approval, journal, act, journal (G2).

A call that changes something is on disk as begun before it begins, together with every earlier result; a result is sent
to the journal before the program sees it. Calls that only read are not waited for: lost with a crash, they are made
again. So the journal knows of every effect, and a program can be made again from it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.approval import Basis
from windlass.core.program import CallRecord
from windlass.core.resources import Resources
from windlass.engine.code.caller import ProgramOrigin, Tree
from windlass.engine.code.failures import raised
from windlass.engine.contact import off_the_clock
from windlass.engine.perform import storable
from windlass.errors import ApprovalOutdated, Category, Failure
from windlass.plan.model import Effect
from windlass.ports import Call, Contact, Delivery, GuestCall, GuestError, Meter, ProgramRun, Tool

__all__ = ["Calls"]

UNKNOWN = (
    "it was cut off before, and may or may not have taken effect; it is marked `once`: do it again? "
    "(a no counts as failed)"
)


class _CallRefused(Exception):
    """The call is not made, or its result is refused. `seen` is the message for the program, if it has its own."""

    def __init__(self, failure: Failure, seen: str = "") -> None:
        self.failure, self.seen = failure, seen


class Calls(msgspec.Struct, frozen=True):
    """The calls of one program."""

    call: Call
    contact: Contact
    clock: Clock
    origin: ProgramOrigin
    tree: Tree
    granted: frozenset[str]
    run: ProgramRun
    failures: dict[int, Failure]
    """Failures of calls, by their numbers."""
    promises: dict[str, Callable[[Any], list[str]]] = msgspec.field(default_factory=dict)

    def name(self, number: int) -> str:
        return f"{self.origin.path}.{number}" if self.origin.path else str(number)

    async def make(self, asked: GuestCall, before: CallRecord | None) -> Delivery:
        """Make the call. `before` is its record from before a stop, if it had begun and not ended."""
        meter = self.call.meter.inner()
        try:
            value, effect = await self._through_the_gates(asked, before, meter)
        except _CallRefused as refused:
            return self._failed(asked, refused.failure, refused.seen, meter.used)
        except (Exception, SystemExit, asyncio.CancelledError) as error:  # it must end as a recorded failure
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from error
            return self._failed(asked, raised(error), used=meter.used)
        if self.tree.folder:
            from windlass.plan.file_arguments import from_folder  # few programs need it

            value = from_folder(asked.tool, value, self.tree.folder, str(self.call.workdir))
        at, step, name = self.clock.now(), self.contact.step.id, self.name(asked.number)
        # A read can be made again; the result of a change must be on disk soon.
        done = effect is not Effect.NONE
        self.contact.tell(ev.CallFinished(at, step, self.call.attempt, name, value, meter.used), soon=done)
        return Delivery(asked.number, at, value)

    def take_over(self, asked: GuestCall, before: CallRecord) -> Delivery:
        """It worked on a way that was left: its result stands, and is written down where it belongs now."""
        at, step, name = self.clock.now(), self.contact.step.id, self.name(asked.number)
        self.contact.tell(self._started(asked, Effect(before.effect)))
        self.contact.tell(ev.CallFinished(at, step, self.call.attempt, name, before.output), soon=True)
        return Delivery(asked.number, at, before.output)

    def _failed(self, asked: GuestCall, failure: Failure, seen: str = "", used: Resources | None = None) -> Delivery:
        """Record a failure. The program sees only its category: the host's message may hold paths or secrets."""
        at, located = self.clock.now(), failure.located(asked.tool)
        seen = seen or f"{asked.tool} failed ({failure.category})"
        self.failures[asked.number] = located
        step, name = self.contact.step.id, self.name(asked.number)
        self.contact.tell(ev.CallFailed(at, step, self.call.attempt, name, located, seen, used), soon=True)
        return Delivery(asked.number, at, error=GuestError(seen, str(failure.category)))

    async def _through_the_gates(self, asked: GuestCall, before: CallRecord | None, meter: Meter) -> tuple[Any, Effect]:
        outdated: Basis | None = None
        while True:
            tool = self._tool(asked)
            effect = self.origin.caller.effect(asked.tool, asked.arguments)
            basis = await self._approved(asked, effect, before)
            try:
                if tool.is_program:
                    return await self._act(tool, asked, effect, meter, basis), effect  # its calls pass by here, too
                async with self.tree.working():
                    return await self._act(tool, asked, effect, meter, basis), effect
            except ApprovalOutdated:
                if outdated == basis:
                    raise  # it changes and changes back: no question would help
                outdated = basis  # the basis changed since the answer, and nothing was done: ask anew

    def _tool(self, asked: GuestCall) -> Tool:
        tool = self.origin.caller.tool(asked.tool) if asked.tool in self.granted else None
        if tool is None:
            self.contact.tell(self._started(asked, Effect.NONE))
            raise _refused(Category.PERMISSION, f"{asked.tool} is not granted to this program")
        if problem := self._problem(tool, asked):
            self.contact.tell(self._started(asked, Effect.NONE))
            raise _refused(Category.LOGIC, problem)
        return tool

    def _problem(self, tool: Tool, asked: GuestCall) -> str:
        """Why the call cannot be made with these arguments; empty if it can."""
        if self.tree.folder:
            from windlass.plan.file_arguments import PATCH, PATCH_HAS_PATHS

            if asked.tool == PATCH:
                return PATCH_HAS_PATHS
        problems = tool.validate(asked.arguments)
        return f"{asked.tool} cannot take these arguments: {'; '.join(problems)}" if problems else ""

    async def _approved(self, asked: GuestCall, effect: Effect, before: CallRecord | None) -> Basis | None:
        """Ask for permission; returns the basis of a person's answer, if one was asked."""
        caller = self.origin.caller
        doubtful = before if before is not None and before.effect == Effect.ONCE else None
        if doubtful is None and not caller.asks(asked.tool, asked.arguments):
            permit = await caller.allow(asked.tool, asked.arguments, self.name(asked.number))
        else:
            async with self.tree.asking():
                self.run.park()
                with off_the_clock(self.tree.wall):
                    use, question = self.name(asked.number), ""
                    if doubtful is not None:
                        # Each cut-off is a new question: the earlier answer does not allow a repetition.
                        use, question = f"{use} again {doubtful.attempt}", UNKNOWN
                    permit = await caller.allow(asked.tool, asked.arguments, use, question)
        if permit.denied is not None:
            self.contact.tell(self._started(asked, effect))
            raise _refused(Category.PERMISSION, f"{asked.tool} was not allowed: {permit.denied}", "it was not allowed")
        return permit.basis

    async def _act(self, tool: Tool, asked: GuestCall, effect: Effect, meter: Meter, approved: Basis | None) -> Any:
        name = self.name(asked.number)
        started = self._started(asked, effect)
        if effect is Effect.NONE:
            self.contact.tell(started)
        else:
            await self.contact.record(started)
        origin = ProgramOrigin(self.origin.caller, name, self.tree, self.origin.chain, self.granted)
        inside = self.call.within(name.replace(".", "_"), origin, line=tool.is_program, meter=meter, approved=approved)
        outcome = storable(await self.contact.use(tool, asked.arguments, inside), tool.name)
        if outcome.failure is not None:
            raise _CallRefused(outcome.failure)
        if wrong := self._promised(tool)(outcome.value):
            raise _refused(Category.LOGIC, f"{asked.tool} returned a result that does not match its schema: {wrong[0]}")
        return outcome.value

    def _promised(self, tool: Tool) -> Callable[[Any], list[str]]:
        """The checker of results against the tool's schema."""
        if tool.name not in self.promises:
            returns = tool.returns
            from windlass.schemas import checker  # takes a while to import

            self.promises[tool.name] = checker(returns) if returns else lambda value: []
        return self.promises[tool.name]

    def _started(self, asked: GuestCall, effect: Effect) -> ev.CallStarted:
        return ev.CallStarted(
            self.clock.now(),
            self.contact.step.id,
            self.call.attempt,
            self.name(asked.number),
            asked.tool,
            asked.arguments,
            effect,
        )


def _refused(category: Category, message: str, seen: str = "") -> _CallRefused:
    return _CallRefused(Failure(category, message), seen or message)
