"""Retrying and skipping a step of an execution, whoever drives it, also after its end (D10)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec

from windlass.clock import Clock
from windlass.core import events as ev
from windlass.core.edit import edited, misplaced
from windlass.core.redo import check_retry, check_skip
from windlass.core.state import State, StepState
from windlass.engine.crew import Crew
from windlass.engine.driver import head_of
from windlass.engine.lookup import find_step
from windlass.engine.mail import event_of
from windlass.engine.observer import POLL, Observer
from windlass.errors import Conflict, UsageError
from windlass.ids import new_id
from windlass.plan.model import Step
from windlass.ports import Message, Toolbox

__all__ = ["Redo", "check_edits"]

_REQUESTS = (ev.StepRetried, ev.StepSkipRequested)


class Redo:
    """Puts one request to an execution: to its driver, or into its journal where nobody drives it."""

    def __init__(self, observer: Observer, crew: Crew, clock: Clock) -> None:
        self._observer = observer
        self._journal = observer.journal
        self._crew = crew
        self._clock = clock

    async def ask(self, state: State, step: str, body: dict[str, Any]) -> State:
        """The state once the request is on disk. Raises `Conflict` where it came to nothing: look again, ask again."""
        found = find_step(state, step)
        (check_skip if body["kind"] == "skip" else check_retry)(state, found)
        body, since = {**body, "step": found.id, "request": new_id()}, state.seq
        if state.id in self._crew:
            await self._crew.deliver(state.id, body)
        elif self._observer.driven(state):
            await self._journal.send(state.id, self._clock.now(), body)
            await self._taken(state, body)
        else:
            await self._write(state, body, [])
        after = await self._journal.read(state.id, since)
        if not any(isinstance(entry.event, _REQUESTS) and entry.event.step == found.id for entry in after):
            raise Conflict(f"execution {state.id} moved on before the request for step {found.id} was read")
        return await self._observer.state(state.id)

    async def _taken(self, state: State, body: dict[str, Any]) -> None:
        """Wait until the driver has read the message; if it ended before that, take it back and write it ourselves."""
        while left := await self._unread(state.id, body):
            current = await self._observer.state(state.id)
            if not self._observer.driven(current):
                await self._write(current, body, [message.id for message in left])
                return
            await asyncio.sleep(POLL)

    async def _unread(self, execution: str, body: dict[str, Any]) -> list[Message]:
        mine = [message for message in await self._journal.receive() if message.execution == execution]
        return [message for message in mine if message.body.get("request") == body["request"]]

    async def _write(self, state: State, body: dict[str, Any], consumed: list[int]) -> None:
        now, seq = self._clock.now(), state.seq
        event = event_of(state, Message(0, state.id, now, body), now)
        events: list[ev.Event] = []
        if event is not None:
            reopened = [ev.ExecutionReopened(now, str(body.get("by", "")))] if state.status.finished else []
            events = [*reopened, event]
        for one in events:
            state.apply(one)
        await self._journal.append(state.id, seq, events, head=head_of(state), consumed=consumed)


def check_edits(
    step: StepState, edits: Mapping[str, Any], runtime: str | None, model: str | None, tools: Toolbox
) -> dict[str, Any]:
    """The edits as the journal holds them. Raises `UsageError` where the step cannot have them."""
    spec = step.spec
    if (runtime or model) and not spec.is_agent:
        raise UsageError(f"step {step.id} has no agent, so it has no runtime and no model", advice=_own_keys(spec))
    try:
        plain: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(dict(edits)))
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"the arguments of step {step.id} are not plain data: {error}") from error
    wrong = [f"{name!r} is not an argument of an agent step" for name in misplaced(spec, plain)]
    if plain and not wrong and not spec.is_code and not spec.is_agent and tools.get(spec.tool_name) is not None:
        wrong = tools.misnamed(spec.tool_name, edited(StepState(step.id, spec, edits=plain), dict(spec.arguments)))
    if wrong:
        raise UsageError(f"step {step.id}: {'; '.join(wrong)}", advice=_own_keys(spec))
    return plain


def _own_keys(spec: Step) -> tuple[str, ...]:
    if spec.is_agent:
        return ("it has: prompt, role, skills, files, max_turns; and --runtime, --model",)
    return (f"it has: {', '.join(sorted({*spec.arguments, *(('run',) if spec.run is not None else ())}))}",)
