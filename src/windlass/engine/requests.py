"""Sends requests to executions: to the driver in this process, to another process's inbox, or into the journal itself.

The request is written into the journal of an execution that no process drives (D10 for retry and skip).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from windlass.core import events as ev
from windlass.core.edit import edited, misplaced
from windlass.core.history import has_stopped, record_of
from windlass.core.questions import changes_of, open_questions
from windlass.core.redo import check_retry, check_skip
from windlass.core.state import State, StepState
from windlass.engine.commit_writer import head_of
from windlass.engine.drivers import LocalDrivers
from windlass.engine.inbox import to_events
from windlass.engine.lookup import find_step
from windlass.engine.observer import POLL, Observer
from windlass.engine.perform import read_back
from windlass.errors import Conflict, NotPermitted, UsageError
from windlass.ids import new_id
from windlass.plan.model import Step
from windlass.ports import Message, Toolbox
from windlass.process import AttemptAbove, attempt_behind, peer

__all__ = ["Requests", "check_edits", "keepable", "persist", "refusal_of"]

T = TypeVar("T")
MOST_REFUSED = 20
"""Refused answers that are written down for one execution: a step could try for ever."""
TRIES = 24
"""Tries of a request while other processes are quicker: with each try one of them has succeeded."""
LONGER = 0.01
"""Seconds by which each wait before another try is longer than the last."""
READ_WITHIN = 60.0
"""Seconds in which a driver reads a message, unless its process hangs."""
_TEXTS = ("by", "note", "reason", "text")
"""Keys of a request that hold text."""
_REOPENING = ("retry", "skip", "say")
"""Requests that are also for an execution that has ended."""


async def persist(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again when another process was quicker (`Conflict`); `ask` reads the state anew each time."""
    for tried in range(1, TRIES):
        try:
            return await ask()
        except Conflict:
            await asyncio.sleep(LONGER * tried)
    return await ask()


def refusal_of(source: AttemptAbove) -> NotPermitted:
    """The error for an answer that a step tried to give."""
    return NotPermitted(
        f"only a person can answer that, and this request comes from inside {source}",
        advice=("answer in a terminal or a browser of your own: windlass approvals",),
    )


class Requests:
    """Puts a request to an execution, whichever process drives it, if any."""

    def __init__(self, observer: Observer, drivers: LocalDrivers) -> None:
        self._observer = observer
        self._drivers = drivers
        self._journal = drivers.journal
        self._clock = drivers.clock

    async def answer(self, state: State, body: dict[str, Any]) -> None:
        """Give an answer; returns when it is in the journal. Raises `Conflict` where another answer was first."""
        await self._put(state, body)

    async def refuse_attempts(self, state: State, what: str, step: str = "") -> None:
        """Refuse an answer that comes from inside an attempt of any execution, and write that down."""
        source = await asyncio.to_thread(attempt_behind) if peer.get() is not None else attempt_behind()
        if source is None:
            return
        if not state.status.finished and len(state.refused) < MOST_REFUSED:
            # The attempt may be the last thing that keeps its execution running: it is on record before that ends.
            await self.answer(state, {"kind": "refused", "what": what, "step": step, "by": str(source)})
        raise refusal_of(source)

    async def redo(self, state: State, step: str, body: dict[str, Any]) -> State:
        """Have a step retried or skipped, also after the end of its execution; returns the state with that on disk.

        Raises `Conflict` where the request came to nothing: read the state again, ask again (`persist`).
        """
        found = self._checked_redo(state, step, body)
        await self._put(state, {**body, "step": found.id})
        return await self._observer.state(state.id)

    async def say(self, state: State, told: ev.AgentTold) -> State:
        """Have a message to an agent written down; returns the state with that on disk. `Conflict` as for `redo`."""
        await self._put(state, _say_body(told))
        return await self._observer.state(state.id)

    def expect_redo(self, state: State, step: str, body: dict[str, Any]) -> None:
        """Apply a retry or a skip to the state, and write nothing. Raises `UsageError` where it does not fit."""
        self._apply(state, {**body, "step": self._checked_redo(state, step, body).id})

    def _checked_redo(self, state: State, step: str, body: dict[str, Any]) -> StepState:
        found = find_step(state, step)
        if body["kind"] == "skip":
            check_skip(state, found)
        else:
            check_retry(state, found, driven=self._drivers.driven(state))
        return found

    def expect_say(self, state: State, told: ev.AgentTold) -> None:
        """Apply a message to an agent to the state, and write nothing."""
        self._apply(state, _say_body(told))

    async def _put(self, state: State, body: dict[str, Any]) -> None:
        """Put a request to the execution; returns when the journal has its event, and raises `Conflict` if none came.

        Whoever reads the message drops it when the state has moved on, as after the opposite answer of somebody else.
        """
        body, since = keepable({**body, "request": body.get("request") or new_id()}), state.seq
        if state.id in self._drivers:
            await self._drivers.deliver(state.id, body)
        elif self._drivers.driven(state):
            await self._journal.send(state.id, self._clock.now(), body)
            await self._taken(state, body)
        else:
            await self._write(state, body, [])
        written = (entry.event for entry in await self._journal.read(state.id, since))
        if not any(_request_of(event) == body["request"] for event in written):
            raise Conflict(f"execution {state.id} moved on before your request was read: send it again")

    async def _taken(self, state: State, body: dict[str, Any]) -> None:
        """Wait until the driver has read the message; if it ended before that, take it back and write it ourselves."""
        loop = asyncio.get_running_loop()
        until = loop.time() + READ_WITHIN
        while left := await self._unread(state.id, body):
            current = await self._observer.state(state.id)
            if not self._drivers.driven(current):
                await self._write(current, body, [message.id for message in left])
                return
            if loop.time() >= until:
                raise UsageError(
                    f"the process that drives execution {state.id} has not read your request for {READ_WITHIN:.0f} s: "
                    "it is kept until that process reads it",
                    advice=(
                        f"see its status: windlass status {state.id}",
                        f"if that process hangs: windlass resume {state.id} --take-over",
                    ),
                )
            await asyncio.sleep(POLL)

    async def _unread(self, execution: str, body: dict[str, Any]) -> list[Message]:
        mine = [message for message in await self._journal.receive() if message.execution == execution]
        return [message for message in mine if message.body.get("request") == body["request"]]

    async def _write(self, state: State, body: dict[str, Any], consumed: list[int]) -> None:
        seq, before = state.seq, open_questions(state)
        events = self._apply(state, body)
        changed = changes_of(before, open_questions(state))
        record = record_of(state) if has_stopped(state) else None
        await self._journal.append(
            state.id, seq, events, head=head_of(state), consumed=consumed, questions=changed, record=record
        )

    def _apply(self, state: State, body: dict[str, Any]) -> list[ev.Event]:
        """Apply a request to the state of an execution that no process drives; returns its events."""
        now = self._clock.now()
        if state.status.finished and body["kind"] not in _REOPENING:
            return []
        events = to_events(state, Message(0, state.id, now, body), now)
        if events and state.status.finished and not isinstance(events[0], ev.ExecutionReopened):
            events.insert(0, ev.ExecutionReopened(now, str(body.get("by", ""))))
        for one in events:
            state.apply(one)
        return events


def keepable(body: dict[str, Any]) -> dict[str, Any]:
    """The request as the journal holds it. Raises `UsageError` for values with which it could not be read again."""
    for name in _TEXTS:
        if not isinstance(body.get(name, ""), str):
            raise UsageError(f"`{name}` is text; given is {body[name]!r}")
    return _plain(body, "the request is")


def _plain(given: dict[str, Any], subject: str) -> dict[str, Any]:
    try:
        plain: dict[str, Any] = read_back(msgspec.json.encode(given))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"{subject} not plain data: {error}") from error
    return plain


def _request_of(event: ev.Event) -> str:
    """The id of the request that the event was written for; empty where there was none."""
    return event.id if isinstance(event, ev.AgentTold) else str(getattr(event, "request", ""))


def _say_body(told: ev.AgentTold) -> dict[str, Any]:
    said = {"step": told.step, "id": told.id, "text": told.text, "by": told.by}
    return {"kind": "say", **said, "request": told.id}


def check_edits(step: StepState, body: Mapping[str, Any], tools: Toolbox) -> dict[str, Any]:
    """The edits of a retry as the journal holds them. Raises `UsageError` where the step cannot have what it asks."""
    spec = step.spec
    if body.get("fresh") and not spec.is_agent:
        raise UsageError(f"step {step.id} has no agent, so it has no conversation to begin anew: leave out `fresh`")
    if (body.get("runtime") or body.get("model")) and not spec.is_agent:
        raise UsageError(f"step {step.id} has no agent, so it has no runtime and no model", advice=_own_keys(spec))
    plain = _plain(dict(body.get("edits") or {}), f"the arguments of step {step.id} are")
    wrong = [f"{name!r} is not an argument of an agent step" for name in misplaced(spec, plain)]
    if plain and not wrong and not spec.is_code and not spec.is_agent and tools.get(spec.tool_name) is not None:
        wrong = tools.misnamed(
            spec.tool_name, edited(StepState(step.id, step.prepared, edits=plain), dict(spec.arguments))
        )
    if wrong:
        raise UsageError(f"step {step.id}: {'; '.join(wrong)}", advice=_own_keys(spec))
    return plain


def _own_keys(spec: Step) -> tuple[str, ...]:
    if spec.is_agent:
        return ("it has: prompt, role, skills, files, max_turns; and `runtime`, `model` of the request",)
    return (f"it has: {', '.join(sorted({*spec.arguments, *(('run',) if spec.run is not None else ())}))}",)
