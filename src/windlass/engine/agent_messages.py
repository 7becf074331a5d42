"""`AgentMessages`: a person's message to the agent of a step, from any process (K1).

The message is on disk before `say` returns. A running agent gets it within its turn or after it, a stopped one with the
prompt of its next attempt; a failed step is retried with it. A completed step never runs again, so a fork from it goes
on in its conversation.
"""

from __future__ import annotations

import asyncio
import shlex
from typing import Any, Literal

import msgspec

from windlass.core import events as ev
from windlass.core.redo import is_over
from windlass.core.say import check_say, checked_message
from windlass.core.state import State, StepState
from windlass.core.transitions import StepStatus
from windlass.engine.drivers import LocalDrivers
from windlass.engine.lookup import find_step
from windlass.engine.observer import POLL, Observer
from windlass.engine.requests import Requests, persist
from windlass.engine.resuming import Resumer
from windlass.engine.starting import Starter
from windlass.errors import CannotResume, UsageError
from windlass.ids import new_id

__all__ = ["AgentMessages", "SayReceipt"]

_ENDS = (ev.AttemptFinished, ev.AttemptFailed, ev.AttemptStopped)


class SayReceipt(msgspec.Struct, frozen=True):
    """A message that is on disk, and its delivery as far as it is known."""

    state: State
    """The execution that has the message: of a completed step, a fork that is not started yet."""
    step: str
    id: str
    how: Literal["", "steer", "follow-up", "prompt"] = ""
    """The way the agent got it: within its turn, after it, or with the prompt of an attempt; empty while it waits."""
    forked: bool = False
    over: str = ""
    """The reason for the fork: its step is completed, or failed in an execution that is."""

    def as_dict(self) -> dict[str, Any]:
        """The receipt as JSON has it."""
        facts = {"id": self.id, "execution": self.state.id, "step": self.step, "how": self.how or None}
        return {**facts, "forked": self.forked, "detail": self.text}

    @property
    def text(self) -> str:
        """One line about the delivery, for people."""
        step = self.state.steps[self.step]
        match self.how:
            case "steer":
                return f"{self.step} has the message, in its running turn"
            case "follow-up":
                return f"{self.step} had finished its turn and goes on with the message"
            case "prompt":
                return f"{self.step} has the message, with the prompt of attempt {step.attempts}"
        if self.forked:
            over = f" {self.over}: it" if self.over else ""
            return f"{self.step}{over} goes on with the message in a fork, {self.state.id}"
        if step.status is StepStatus.WAITING and step.waiting_for == "approval":
            return f"{self.step} is waiting for approval: it will be given the message after the answer"
        if step.status is StepStatus.RUNNING:
            return f"{self.step} will be given the message at its next turn"
        return f"{self.step} will be given the message with the prompt of its next attempt"


class AgentMessages:
    """Puts people's messages to agents."""

    def __init__(
        self, drivers: LocalDrivers, observer: Observer, requests: Requests, starter: Starter, resumer: Resumer
    ) -> None:
        self._journal, self._clock = drivers.journal, drivers.clock
        self._observer, self._requests, self._starter, self._resumer = observer, requests, starter, resumer

    async def say(
        self,
        execution: str,
        step: str,
        text: str,
        *,
        by: str = "",
        within: float = 0.0,
        id: str | None = None,
        to_resume: bool = False,
        keep_plan: bool = False,
    ) -> SayReceipt:
        """Say something to the agent of a step; returns when it is on disk, or after up to `within` seconds more when
        the agent has it.

        One that ended failed or partial is reopened, and paused until `resume`; the fork of a completed step waits for
        it, too. With an `id`, the same message is said only once. With `to_resume`, nothing is written where `resume`
        could not go on with a stopped one, with `keep_plan` or without, or could not start the fork.
        """
        message, name = checked_message(text), id or new_id()

        async def ask() -> tuple[SayReceipt, int]:
            state = await self._observer.state(execution)
            await self._requests.refuse_attempts(state, "say", step)
            found = find_step(state, step)
            if id is not None and (before := await self._said_before(state, found.id, id)) is not None:
                return before
            check_say(state, found)
            if is_over(state, found):
                return await self._fork(state, found.id, message, by, name, to_start=to_resume), 0
            told = ev.AgentTold(self._clock.now(), found.id, name, message, by)
            if to_resume:
                await self._resumer.check_say(state.id, told, keep_plan=keep_plan)
            since = state.seq
            return SayReceipt(await self._requests.say(state, told), found.id, name), since

        receipt, since = await persist(ask)
        running = receipt.step in receipt.state.active
        return await self._delivered(receipt, since, within if running else 0.0)

    async def _said_before(self, state: State, step: str, id: str) -> tuple[SayReceipt, int] | None:
        """The receipt of the same message, if it is on disk, and the sequence from which to look for its delivery."""
        for entry in await self._journal.read(state.id):
            if isinstance(entry.event, ev.AgentTold) and entry.event.id == id:
                return SayReceipt(state, step, id), entry.seq
        if await self._journal.heads(prefix=id):
            return SayReceipt(await self._observer.state(id), step, id, forked=True), 0
        return None

    async def _fork(self, state: State, step: str, message: str, by: str, name: str, *, to_start: bool) -> SayReceipt:
        """Make a fork of a step that never runs again, which goes on in its conversation with the message."""
        found = state.steps[step]
        if found.agent is None or found.agent.session is None:
            raise UsageError(
                f"step {step} of {state.id} never runs again in its execution, and it has no conversation to go on in",
                advice=(
                    f"run it again in a new execution: windlass fork {state.id} --from {shlex.quote(found.spec.id)}",
                ),
            )
        told = ev.AgentTold(self._clock.now(), step, name, message, by)
        try:
            made = await self._starter.fork(state.id, from_step=found.spec.id, message=told, id=name, to_start=to_start)
        except CannotResume as error:
            again = f"windlass say {state.id} {shlex.quote(step)} TEXT"
            raise CannotResume(error.reasons, advice=(f"when that is corrected: {again}",)) from error
        return SayReceipt(await self._observer.state(made), step, name, forked=True, over=_over(state, found))

    async def _delivered(self, receipt: SayReceipt, since: int, within: float) -> SayReceipt:
        """The receipt once the agent has the message, or as it is after that time."""
        execution, loop = receipt.state.id, asyncio.get_running_loop()
        until = loop.time() + within
        while True:
            events = [entry.event for entry in await self._journal.read(execution, since)]
            heard = [event.how for event in events if isinstance(event, ev.AgentHeard) and receipt.id in event.ids]
            if heard or any(isinstance(event, _ENDS) and event.step == receipt.step for event in events):
                state = await self._observer.state(execution)
                return msgspec.structs.replace(receipt, state=state, how=heard[0] if heard else "")
            if loop.time() >= until:
                return receipt
            since += len(events)
            await asyncio.sleep(POLL)


def _over(state: State, step: StepState) -> str:
    """Tell why a step never runs again in its execution."""
    if step.status is StepStatus.COMPLETED:
        return "is completed"
    ended = f"its execution is {state.status}" if state.status.finished else f"step {step.spec.id} is completed"
    return f"{'failed' if step.status is StepStatus.FAILED else f'is {step.status}'}, and {ended}"
