"""What people and programs ask of executions, from any process: stand still, end, and answers to questions.

A request goes to the driver: directly if it is here, through the journal's inbox if it is elsewhere; and where nobody
drives, the execution is taken up just long enough to write the request down and obey it.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal, get_args

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.budget import ScopeName
from windlass.core.state import State
from windlass.core.transitions import ExecutionStatus
from windlass.engine.crew import Crew
from windlass.engine.driver import Driver
from windlass.engine.lookup import find_step
from windlass.engine.mail import checked_limit, event_of
from windlass.engine.observer import Observer
from windlass.errors import UsageError, WindlassError
from windlass.ports import Journal, Message, Tool

__all__ = ["Control"]


class Control(Observer):
    """The part of the engine that others steer executions by."""

    _crew: Crew

    def __init__(self, journal: Journal, clock: Clock) -> None:
        super().__init__(journal)
        self.clock = clock

    @property
    def driving(self) -> int:
        """How many executions go on in this process."""
        return len(self._crew)

    @abstractmethod
    async def wait(self, execution: str) -> State: ...

    @abstractmethod
    def _driver(self, state: State, tools: Sequence[Tool], *, hold: bool) -> Driver: ...

    @abstractmethod
    def _opening(self, state: State) -> ev.Event: ...

    async def pause(self, execution: str, *, now: bool = False, by: str = "", within: float | None = None) -> State:
        """Let running attempts finish (or with `now` stop them), then stand still.

        Returns when it stands still, or after `within` seconds with where it stands by then.
        """
        return await self._control(execution, "pause", now=now, by=by, within=within)

    async def interrupt(self, execution: str, *, by: str = "", within: float | None = None) -> State:
        """Stop running attempts and stand still."""
        return await self._control(execution, "interrupt", now=True, by=by, within=within)

    async def cancel(self, execution: str, *, by: str = "", within: float | None = None) -> State:
        """Stop running attempts and end it for good."""
        return await self._control(execution, "cancel", now=True, by=by, within=within)

    async def approve(
        self,
        execution: str,
        step: str,
        *,
        allow: bool = True,
        by: str = "",
        note: str = "",
        digest: str | None = None,
    ) -> None:
        """Answer a request for approval. `digest` binds the answer to what the person has seen."""
        state = await self.state(execution)
        waiting = find_step(state, step)
        asked = waiting.approval
        if asked is None or asked.allow is not None or waiting.id not in state.questions:
            raise UsageError(f"step {step} of {state.id} does not wait for approval")
        if self.clock.now() >= asked.expires_at:
            raise UsageError(
                f"the time to answer step {step} of {state.id} is over: it counts as denied",
                advice=(f"to be asked again: windlass fork {state.id} --from {step}",),
            )
        if digest is not None and digest != asked.digest:
            raise UsageError(f"step {step} of {state.id} now asks for something else: look again")
        body = {"kind": "approve", "step": step, "digest": asked.digest, "allow": allow}
        await self._answer(state, {**body, "by": by, "note": note})

    async def settle(
        self,
        execution: str,
        step: str,
        choice: Literal["again", "done", "fail"],
        *,
        by: str = "",
        output: Any = None,
    ) -> None:
        """Say what became of an attempt whose outcome nobody saw."""
        state = await self.state(execution)
        if find_step(state, step).waiting_for != "outcome":
            raise UsageError(f"step {step} of {state.id} has no unknown outcome to decide on")
        body = {"kind": "decide", "step": step, "choice": choice, "by": by, "output": output}
        await self._answer(state, body)

    async def allow_budget(
        self,
        execution: str,
        *,
        allow: bool = True,
        usd: float | None = None,
        tokens: int | None = None,
        scope: str = "execution",
        step: str = "",
        by: str = "",
    ) -> None:
        """Say whether more may be spent: `usd` and `tokens` are the limits of the scope from here on (E3)."""
        state = await self.state(execution)
        if state.status.finished:
            raise UsageError(f"execution {state.id} is already {state.status}")
        if scope not in get_args(ScopeName):
            raise UsageError(f"there is no budget of a {scope!r}: it is of a step, an execution, a day or a month")
        if scope == "step":
            find_step(state, step)
        limit = checked_limit(usd, tokens)
        body = {"kind": "budget", "allow": allow, "usd": limit.usd, "tokens": limit.tokens, "by": by}
        await self._answer(state, {**body, "scope": scope, "step": step})

    async def _control(
        self,
        execution: str,
        kind: Literal["pause", "interrupt", "cancel"],
        *,
        now: bool,
        by: str,
        within: float | None,
    ) -> State:
        state = await self.state(execution)
        if state.status.finished:
            raise UsageError(f"execution {state.id} is already {state.status}")
        if state.status is ExecutionStatus.PAUSED and kind != "cancel":
            return state
        body = {"kind": kind, "now": now, "by": by}
        if state.id in self._crew:
            await self._crew.deliver(state.id, body)
            return await self._obeyed(state.id, within)
        if self.driven(state):
            await self.journal.send(state.id, self.clock.now(), body)
            return await self._obeyed(state.id, within)
        # Nobody drives it: take it up just long enough to write the request down and obey it.
        request = ev.ControlRequested(self.clock.now(), kind, by, now)
        driver = self._driver(state, (), hold=False)
        return await (await self._crew.drive(driver, [self._opening(state), request]))

    async def _obeyed(self, execution: str, within: float | None) -> State:
        """The request is made; now wait for what comes of it, but no longer than that."""
        try:
            async with asyncio.timeout(within):
                return await self.wait(execution)
        except TimeoutError:
            return await self.state(execution)

    async def _answer(self, state: State, body: dict[str, Any]) -> None:
        """Returns when the answer is on disk."""
        if state.id in self._crew:
            if not await self._crew.deliver(state.id, body):
                raise WindlassError(f"execution {state.id} stood still before the answer came: give it again")
        elif self.driven(state):
            await self.journal.send(state.id, self.clock.now(), body)
        else:
            now = self.clock.now()
            event = event_of(state, Message(0, state.id, now, body), now)
            if event is None:
                raise WindlassError(f"execution {state.id} no longer waits for that answer")
            await self.journal.append(state.id, state.seq, [event])
