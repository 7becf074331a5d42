"""Messages of people to agents: which steps can get one, and the events that are written for it (K1). Pure."""

from __future__ import annotations

import shlex
import unicodedata

from windlass.core import events as ev
from windlass.core.approval import YES
from windlass.core.redo import check_retry, is_over
from windlass.core.state import State
from windlass.core.step import StepState
from windlass.core.transitions import StepStatus
from windlass.errors import UsageError

__all__ = ["LONGEST_MESSAGE", "check_say", "checked_message", "note_event", "say_events"]

LONGEST_MESSAGE = 256 * 1024
"""Bytes of one message: the agent pays for all of it in every later turn."""
_STOPPED = (StepStatus.FAILED, StepStatus.SKIPPED)


def checked_message(text: str) -> str:
    """The text as it is kept: UTF-8, without control characters. Raises `UsageError` if it is empty or too long."""
    plain = text.encode("utf-8", "replace").decode().replace("\r\n", "\n")
    plain = "".join(c for c in plain if c in "\n\t" or unicodedata.category(c) != "Cc").strip()
    if not plain:
        raise UsageError("the message is empty")
    if (size := len(plain.encode())) > LONGEST_MESSAGE:
        raise UsageError(
            f"the message has {size:,} bytes, and an agent takes {LONGEST_MESSAGE:,} at most",
            advice=("write it to a file in the working directory and name the file in the message",),
        )
    return plain


def check_say(state: State, step: StepState) -> None:
    """Raise `UsageError` unless the step has an agent that can get a message in this execution or in a fork of it."""
    if not step.spec.is_agent:
        raise UsageError(
            f"step {step.id} of {state.id} has no agent to speak to: it uses {step.prepared.tool}",
            advice=(f"see which steps have one: windlass status {state.id}",),
        )
    if step.spec.foreach is not None and step.parent is None:
        items = [shlex.quote(item.id) for item in step.children or ()]
        raise UsageError(
            f"step {step.id} of {state.id} has an agent for each item: name one of them",
            advice=(f"its items: {', '.join(items[:5])}{', …' if len(items) > 5 else ''}",) if items else (),
        )
    if not is_over(state, step) and step.status in _STOPPED:
        check_retry(state, step)


def say_events(state: State, step: StepState, told: ev.AgentTold) -> list[ev.Event]:
    """The events of a message: a step that failed or was skipped is retried with it."""
    if step.status not in _STOPPED:
        return [told]
    reopened = [ev.ExecutionReopened(told.at, told.by)] if state.status.finished else []
    return [*reopened, told, ev.StepRetried(told.at, step.id, told.by)]


def note_event(step: StepState, answer: ev.ApprovalAnswered, id: str) -> list[ev.Event]:
    """The note of an approval, as a message to the step's agent. The note of a denial comes with the denial itself."""
    asked = step.approval
    if asked is None or not answer.allow or answer.note.strip() in ("", YES) or not step.spec.is_agent:
        return []
    about = f"on your use of {asked.tool}" if asked.attempt else "on your task"
    return [ev.AgentTold(answer.at, step.id, id, f"Note {about}, which was approved: {answer.note}", answer.by)]
