"""Services of one execution: commands that stay for the steps that need them, in the process that drives it (B5, A8).

A service's step is completed when it is ready. Its process lives as long as one of the steps that need it is not
settled, and never longer than the driver: a pause, a cancel or the death of the engine ends it. Before an attempt of a
step that needs it, a service that does not run is started again: after a resume, or after its own end. That repeats
nothing that the journal does not know: the step's start is on disk, and the attempt for which it is started, too.
Its command is the one that the plan has now. A service starts after the services that it needs, and ends before them.
"""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec

from windlass.core import events as ev
from windlass.core.approval import answer_for
from windlass.core.edit import edited
from windlass.core.scope import scope_of
from windlass.core.state import State, StepState
from windlass.core.transitions import StepStatus
from windlass.engine.perform import Outcome
from windlass.errors import Category, Failure
from windlass.faults import fault_point
from windlass.plan.marking import unmarked
from windlass.plan.prepare import PreparedStep
from windlass.plan.template import TemplateProblem
from windlass.ports import Meter
from windlass.ports.service import KeptService

__all__ = ["KeptServices"]


class _WatchedService:
    """A service that runs, and the task that waits for its end."""

    def __init__(self, service: KeptService, watch: asyncio.Task[str]) -> None:
        self.service, self.watch = service, watch


class KeptServices:
    """Implements `ports.service.ServiceHost`."""

    def __init__(
        self,
        state: State,
        perform: Callable[[ev.AttemptStarted, StepState, Meter], Coroutine[Any, Any, Outcome]],
        note: Callable[[StepState, str], None],
        grace: float,
        asks: Callable[[PreparedStep], bool],
    ) -> None:
        """`perform` starts a service again; `note` writes a line to the output of its step; `asks` tells whether a
        person has to allow it."""
        self._state, self._perform, self._note, self._grace, self._asks = state, perform, note, grace, asks
        self._running: dict[str, _WatchedService] = {}
        self._starting: dict[str, asyncio.Task[Failure | None]] = {}
        self._stopping: dict[str, asyncio.Task[None]] = {}

    def __contains__(self, step: str) -> bool:
        """True for a step whose service runs, or is being started again: its output is written down."""
        return step in self._running or step in self._starting

    def keep(self, step: str, service: KeptService) -> None:
        watch = asyncio.ensure_future(service.ended())
        self._running[step] = _WatchedService(service, watch)
        watch.add_done_callback(lambda _watch: self._ended(step, service))
        fault_point("service.ready")

    def _ended(self, step: str, service: KeptService) -> None:
        """Note the end of a service that was still needed."""
        running = self._running.get(step)
        if running is None or running.service is not service or running.watch.cancelled():
            return
        del self._running[step]
        self._note(self._state.steps[step], f"the service ended while it was needed: {running.watch.result()}\n")
        self._end(step, running)

    def release(self) -> list[StepState]:
        """End the services whose steps are all settled; gives the steps that they are of."""
        ended: list[StepState] = []
        while done := [name for name in self._running if self._is_done(name)]:  # the end of one may be that of another
            for name in done:
                self._end(name, self._running.pop(name))
            ended += [self._state.steps[name] for name in done]
        return ended

    def _is_done(self, name: str) -> bool:
        """True if no step needs it any more: neither one that is not settled, nor a service that still runs."""
        own, needing = self._state.steps[name], self._state.prepared.graph.dependents[name]
        return own.settled and all(self._state.steps[step].settled and step not in self for step in needing)

    def _end(self, name: str, running: _WatchedService) -> None:
        async def stop() -> None:
            needing = self._state.prepared.graph.dependents[name]
            if before := [self._stopping[step] for step in needing if step in self._stopping]:
                await asyncio.wait(before)
            await running.service.stop(self._grace)
            await asyncio.wait({running.watch})

        self._stopping[name] = task = asyncio.ensure_future(stop())
        task.add_done_callback(lambda _task: self._stopping.pop(name, None))

    async def around(self, step: StepState, attempt: Coroutine[Any, Any, Outcome]) -> Outcome:
        """Perform an attempt while the services that its step needs run; the end of one is the end of the attempt."""
        needed = self._needed(step)
        if not needed:
            return await attempt
        try:
            failure = await self._start_all(needed)
        except BaseException:
            attempt.close()
            raise
        if failure is not None:
            attempt.close()
            return Outcome.failed(self._with_retry(failure, step.id))
        running = {name: self._running[name].watch for name in needed}
        work = asyncio.ensure_future(attempt)
        try:
            await asyncio.wait({work, *running.values()}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            work.cancel()
            await asyncio.wait({work})
            if not work.cancelled():  # it came to its own end first
                return work.result()
        finally:
            if not work.done():  # this attempt was stopped
                work.cancel()
                await asyncio.wait({work})
        name, told = next((name, watch.result()) for name, watch in running.items() if watch.done())
        failure = self._failure(name, f"ended while this step needed it: {told}")
        return Outcome(failure=self._with_retry(failure, step.id), cut_off=True)

    def _needed(self, step: StepState) -> list[str]:
        """The services that a step needs; one that was skipped, or did not become ready, is none."""
        state = self._state
        needs = state.prepared.graph.needs[step.spec.id]
        services = state.prepared.services
        return [name for name in needs if name in services and state.steps[name].status is StepStatus.COMPLETED]

    async def _start_all(self, names: list[str]) -> Failure | None:
        """Have services run; none of them may have ended when the last one is ready."""
        for name in names:
            if (failure := await self._start(name)) is not None:
                return failure
        gone = next((name for name in names if name not in self._running), None)
        return self._failure(gone, "ended before the step that needs it began") if gone is not None else None

    async def _start(self, name: str) -> Failure | None:
        """Have a service run that may not run. Steps that need it at once share the start."""
        if name not in self._starting:
            self._starting[name] = task = asyncio.ensure_future(self._started(name))
            task.add_done_callback(lambda _task: self._starting.pop(name, None))
        return await asyncio.shield(self._starting[name])

    async def _started(self, name: str) -> Failure | None:
        """Start a service again that does not run, after those that it needs, and after its own earlier process."""
        step = self._state.steps[name]
        if (stopping := self._stopping.get(name)) is not None:
            await asyncio.wait({stopping})
        if (failure := await self._start_all(self._needed(step))) is not None or name in self._running:
            return failure
        tool = step.prepared.tool
        try:
            arguments = edited(step, step.prepared.arguments.render(scope_of(self._state, step)))
        except TemplateProblem as problem:
            return self._failure(name, f"could not be started again: {unmarked(str(problem))}")
        if self._asks(step.prepared) and ((answer := answer_for(step, tool, arguments)) is None or not answer.allow):
            return self._unapproved(name, "its present command was not approved in this execution")
        self._note(step, "starting the service again\n")
        started = ev.AttemptStarted(0.0, name, step.attempts, tool, arguments, step.effect)
        outcome = await self._perform(started, step, Meter())
        if outcome.outdated:
            return self._unapproved(name, f"since it was approved, {'; '.join(outcome.outdated)}")
        reason = outcome.failure.message if outcome.failure is not None else outcome.held and outcome.held.question
        return self._failure(name, f"could not be started again: {reason}") if reason is not None else None

    def _failure(self, name: str, message: str) -> Failure:
        look = f"see its output: windlass logs {self._state.id} --step {name}"
        return Failure(Category.LOGIC, f"the service {name} {message}", advice=(look,))

    def _unapproved(self, name: str, reason: str) -> Failure:
        """The failure of a step whose service a person has to allow first; a fork asks, a completed step does not."""
        again = f"have it asked about in a new execution, which keeps what is done: windlass fork {self._state.id}"
        message = f"the service {name} could not be started again: {reason}"
        return Failure(Category.PERMISSION, message, advice=(again,), final=True)

    def _with_retry(self, failure: Failure, asking: str) -> Failure:
        """The failure with the command that tries the step again which needs the service."""
        if failure.final:
            return failure
        again = f"windlass retry {self._state.id} {shlex.quote(asking)}"
        advice = (*failure.advice, f"mend it, then retry this step, which starts it again: {again}")
        return msgspec.structs.replace(failure, advice=advice)

    async def close(self) -> None:
        """End all services, and wait for their ends."""
        for task in (starting := list(self._starting.values())):
            task.cancel()
        if starting:
            await asyncio.wait(starting)
        for name in list(self._running):
            self._end(name, self._running.pop(name))
        if self._stopping:
            await asyncio.wait(list(self._stopping.values()))
