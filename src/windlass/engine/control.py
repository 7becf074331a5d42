"""What people and programs ask of executions, from any process: stand still, end, and answers to questions.

A request goes to the driver: directly if it is here, through the journal's inbox if it is elsewhere; and where nobody
drives, the execution is taken up just long enough to write the request down and obey it.
"""

from __future__ import annotations

import asyncio
import shlex
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.advice import no_outcome, ways_after
from windlass.core.budget import ScopeName
from windlass.core.questions import changes_of, open_questions
from windlass.core.state import State, StepState
from windlass.core.transitions import ExecutionStatus
from windlass.engine.crew import Crew
from windlass.engine.driver import Driver
from windlass.engine.lookup import find_step
from windlass.engine.mail import checked_limit, event_of
from windlass.engine.observer import Observer
from windlass.engine.redo import Redo
from windlass.errors import Conflict, NotPermitted, UsageError
from windlass.ports import Journal, Message, Tool
from windlass.process import AttemptAbove, attempt_behind, peer

__all__ = ["Control", "refusal_of"]

MOST_REFUSED = 20
"""Refused answers that are written down for one execution: a step could try for ever."""


def refusal_of(source: AttemptAbove) -> NotPermitted:
    return NotPermitted(
        f"only a person can answer that, and this comes from inside {source}",
        advice=("answer in a terminal or a browser of your own: windlass approvals",),
    )


T = TypeVar("T")
TRIES = 24
"""Of a request that others are quicker at: each time one of them has come through, so this many may race."""
LONGER = 0.01
"""Seconds by which each wait before another try is longer than the last."""


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

    @abstractmethod
    def _check_edits(
        self, state: State, step: StepState, edits: Mapping[str, Any], runtime: str | None, model: str | None
    ) -> dict[str, Any]: ...

    async def pause(
        self, execution: str, *, now: bool = False, by: str = "", within: float | None = None, reason: str = ""
    ) -> State:
        """Let running attempts finish (or with `now` stop them), then stand still. `reason` is kept, if it is given.

        Returns when it stands still, or after `within` seconds with where it stands by then.
        """
        return await self._control(execution, "pause", now=now, by=by, within=within, reason=reason)

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
        await self._persist(lambda: self._approve(execution, step, allow, by, note, digest))

    async def _approve(self, execution: str, step: str, allow: bool, by: str, note: str, digest: str | None) -> None:
        state = await self.state(execution)
        await self._from_a_person(state, "approve", step)
        waiting = find_step(state, step)
        asked = waiting.approval
        if asked is None or asked.allow is not None or waiting.id not in state.questions:
            raise UsageError(
                f"step {step} of {state.id} does not wait for approval",
                advice=(f"see what it waits for: windlass status {state.id}", "see what is asked: windlass approvals"),
            )
        if self.clock.now() >= asked.expires_at:
            raise UsageError(
                f"the time to answer step {step} of {state.id} is over: it counts as denied",
                advice=(f"to be asked again: windlass retry {state.id} {shlex.quote(step)}",),
            )
        if digest is not None and digest != asked.digest:
            raise UsageError(
                f"step {step} of {state.id} now asks for something else: look again",
                advice=("see what is asked now: windlass approvals",),
            )
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
        body = {"kind": "decide", "step": step, "choice": choice, "by": by, "output": output}

        async def ask() -> None:
            state = await self.state(execution)
            await self._from_a_person(state, "decide", step)
            if find_step(state, step).waiting_for != "outcome":
                raise no_outcome(state, step)
            await self._answer(state, body)

        await self._persist(ask)

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
        if scope not in get_args(ScopeName):
            raise UsageError(f"there is no budget of a {scope!r}: it is of a step, an execution, a day or a month")
        limit = checked_limit(usd, tokens)
        body = {"kind": "budget", "allow": allow, "usd": limit.usd, "tokens": limit.tokens, "by": by}

        async def ask() -> None:
            state = await self.state(execution)
            await self._from_a_person(state, "budget", step)
            if state.status.finished:
                raise UsageError(f"execution {state.id} is already {state.status}", advice=ways_after(state))
            if scope == "step":
                find_step(state, step)
            await self._answer(state, {**body, "scope": scope, "step": step})

        await self._persist(ask)

    async def retry(
        self,
        execution: str,
        step: str,
        *,
        edits: Mapping[str, Any] | None = None,
        runtime: str | None = None,
        model: str | None = None,
        by: str = "",
    ) -> State:
        """Have a failed step, or the failed items of a foreach, tried again: with other arguments, on another runtime.

        Returns when the request is on disk. One that ended failed or partial is reopened, and paused until `resume`.
        """

        async def ask() -> State:
            state = await self.state(execution)
            await self._from_a_person(state, "retry", step)
            changes = self._check_edits(state, find_step(state, step), edits or {}, runtime, model)
            body = {"kind": "retry", "edits": changes, "runtime": runtime, "model": model, "by": by}
            return await Redo(self, self._crew, self.clock).ask(state, step, body)

        return await self._persist(ask)

    async def skip(self, execution: str, step: str, *, by: str = "") -> State:
        """Do without a step: it is stopped if it runs, and dependents run with a null output.

        Returns when the request is on disk. One that ended failed or partial is reopened, and paused until `resume`.
        """

        async def ask() -> State:
            state = await self.state(execution)
            await self._from_a_person(state, "skip", step)
            return await Redo(self, self._crew, self.clock).ask(state, step, {"kind": "skip", "by": by})

        return await self._persist(ask)

    async def _persist(self, ask: Callable[[], Awaitable[T]]) -> T:
        """Ask again when another process was quicker: each time, `ask` looks anew at how things stand."""
        for tried in range(1, TRIES):
            try:
                return await ask()
            except Conflict:
                await asyncio.sleep(LONGER * tried)
        return await ask()

    async def _control(
        self,
        execution: str,
        kind: Literal["pause", "interrupt", "cancel"],
        *,
        now: bool,
        by: str,
        within: float | None,
        reason: str = "",
    ) -> State:
        body = {"kind": kind, "now": now, "by": by, "reason": reason}

        async def ask() -> State:
            state = await self.state(execution)
            if state.status.finished:
                raise UsageError(f"execution {state.id} is already {state.status}", advice=ways_after(state))
            if state.status is ExecutionStatus.PAUSED and kind != "cancel":
                return state
            if state.id in self._crew:
                await self._crew.deliver(state.id, body)
            elif self.driven(state):
                await self.journal.send(state.id, self.clock.now(), body)
            else:
                return await self._obey_here(state, ev.ControlRequested(self.clock.now(), kind, by, now, reason))
            state = await self._obeyed(state.id, within)
            if kind == "cancel" and state.status is ExecutionStatus.PAUSED:
                raise Conflict(f"execution {state.id} paused before it read the request")
            return state

        return await self._persist(ask)

    async def _obey_here(self, state: State, request: ev.ControlRequested) -> State:
        """Nobody drives it: take it up just long enough to write the request down and obey it."""
        driver = self._driver(state, (), hold=False)
        for message in await self.journal.receive():
            if message.execution == state.id and message.body.get("kind") == request.kind:
                driver.answered(message)
        return await (await self._crew.drive(driver, [self._opening(state), request]))

    async def _obeyed(self, execution: str, within: float | None) -> State:
        """The request is made; now wait for what comes of it, but no longer than that."""
        try:
            async with asyncio.timeout(within):
                return await self.wait(execution)
        except TimeoutError:
            return await self.state(execution)

    async def _from_a_person(self, state: State, what: str, step: str = "") -> None:
        """Refuse an answer that comes from inside an attempt, of whatever execution, and write that down."""
        source = await asyncio.to_thread(attempt_behind) if peer.get() is not None else attempt_behind()
        if source is None:
            return
        if not state.status.finished and len(state.refused) < MOST_REFUSED:
            await self._answer(state, {"kind": "refused", "what": what, "step": step, "by": str(source)})
        raise refusal_of(source)

    async def _answer(self, state: State, body: dict[str, Any]) -> None:
        """Returns when the answer is on disk."""
        if state.id in self._crew:
            if not await self._crew.deliver(state.id, body):
                raise Conflict(f"execution {state.id} paused before your answer was saved: send it again")
        elif self.driven(state):
            await self.journal.send(state.id, self.clock.now(), body)
        else:
            now = self.clock.now()
            event = event_of(state, Message(0, state.id, now, body), now)
            if event is None:
                raise UsageError(
                    f"execution {state.id} is not waiting for that answer any more",
                    advice=(f"see what it waits for: windlass status {state.id}",),
                )
            after, before = state.seq, open_questions(state)
            state.apply(event)
            changed = changes_of(before, open_questions(state))
            await self.journal.append(state.id, after, [event], questions=changed)
