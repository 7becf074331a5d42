"""Apply the events of programs to a state. Called by `State.apply` only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from windlass.core import events as ev
from windlass.core.call_summary import call_summary
from windlass.core.program import CallRecord, ProgramLog, ProgramRecord
from windlass.core.state_data import StateData

__all__ = ["PROGRAM_EVENTS"]


def _log(state: StateData, step: str) -> ProgramLog:
    found = state.steps[step]
    if found.programs is None:
        found.programs = ProgramLog()
    return found.programs


def _began(state: StateData, event: ev.ProgramBegan) -> None:
    log = _log(state, event.step)
    before = log.programs.get(event.program)
    if before is not None and before.digest != event.digest:
        log.abandon_path(event.program)
    log.programs[event.program] = ProgramRecord(event.at, event.digest)


def _started(state: StateData, event: ev.CallStarted) -> None:
    _log(state, event.step).begin(event.call, CallRecord(event.tool, event.input, event.effect, event.attempt))
    state.steps[event.step].last_output = f"{event.tool} {call_summary(event.input)}".rstrip()


def _finished(state: StateData, event: ev.CallFinished) -> None:
    call = _ended(state, event)
    call.output, call.failure = event.output, None


def _failed(state: StateData, event: ev.CallFailed) -> None:
    call = _ended(state, event)
    call.output, call.failure, call.seen = None, event.failure, event.seen


def _ended(state: StateData, event: ev.CallFinished | ev.CallFailed) -> CallRecord:
    log = _log(state, event.step)
    call = log.calls[event.call]
    log.ends += 1
    call.order, call.ended_at = log.ends, event.at
    return call


PROGRAM_EVENTS: dict[type, Callable[[StateData, Any], None]] = {
    ev.ProgramBegan: _began,
    ev.CallStarted: _started,
    ev.CallFinished: _finished,
    ev.CallFailed: _failed,
}
