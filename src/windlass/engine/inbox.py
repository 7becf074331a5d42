"""Turns messages to an execution into the events that are written for them."""

from __future__ import annotations

from typing import Any

from windlass.core import events as ev
from windlass.core.questions import is_answer_on_budget
from windlass.core.redo import check_retry, check_skip, is_over
from windlass.core.say import check_say, note_event, say_events
from windlass.core.state import State
from windlass.errors import UsageError
from windlass.ids import new_id
from windlass.plan.model import Budget
from windlass.ports import Message
from windlass.values import ValidationError

__all__ = ["checked_limit", "to_events"]


def to_events(state: State, message: Message, now: float) -> list[ev.Event]:
    """Turn a message into events; none when it no longer fits the state."""
    match message.body.get("kind"):
        case "say":
            return _say(state, now, message.body)
        case "approve":
            answer = _approval(state, now, message.body)
            return [answer, *note_event(state.steps[answer.step], answer, new_id())] if answer is not None else []
        case _:
            event = _to_event(state, message, now)
            return [event] if event is not None else []


def _to_event(state: State, message: Message, now: float) -> ev.Event | None:
    body = message.body
    by, request = str(body.get("by", "")), str(body.get("request") or "")
    match body.get("kind"):
        case "pause" | "interrupt" | "cancel" as kind:
            reason = str(body.get("reason", ""))
            if reason and state.wanted is not None:
                # It was asked for before: that stays the reason for the pause.
                reason = state.wanted.reason or state.wanted.kind
            return ev.ControlRequested(now, kind, by, bool(body.get("now")), reason)
        case "decide":
            step = state.questions.get(str(body["step"]))
            if step is None or step.waiting_for != "outcome":
                return None
            return ev.DecisionMade(now, step.id, body["choice"], by, body.get("output"), request)
        case "refused":
            return ev.AnswerRefused(now, str(body["what"]), by, str(body.get("step", "")), request)
        case "budget":
            return _budget_answer(state, now, by, request, body)
        case "summarise":
            step = state.steps.get(str(body["step"]))
            if step is None or not step.spec.is_agent or step.settled:
                return None
            return ev.AgentSummaryRequested(now, step.id, by, request)
        case "retry" | "skip":
            return _redo(state, now, by, request, body)
        case _:
            return None


def _approval(state: State, now: float, body: dict[str, Any]) -> ev.ApprovalAnswered | None:
    step = state.steps.get(str(body["step"]))
    asked = step.approval if step is not None else None
    if step is None or asked is None or asked.digest != body["digest"] or asked.allow is not None:
        return None
    if now >= asked.expires_at:
        return None  # too late: unanswered in time, it fails closed
    by, note, request = str(body.get("by", "")), str(body.get("note", "")), str(body.get("request") or "")
    return ev.ApprovalAnswered(now, step.id, asked.digest, bool(body["allow"]), by, note, request)


def _say(state: State, now: float, body: dict[str, Any]) -> list[ev.Event]:
    """Make the events of a message to an agent, unless the step has moved on since."""
    step = state.steps.get(str(body["step"]))
    try:
        if step is None or is_over(state, step):
            return []
        check_say(state, step)
    except UsageError:
        return []
    told = ev.AgentTold(now, step.id, str(body["id"]), str(body["text"]), str(body.get("by", "")))
    return say_events(state, step, told)


def _redo(state: State, now: float, by: str, request: str, body: dict[str, Any]) -> ev.Event | None:
    """Make a retry or a skip, unless the step has moved on since it was asked for."""
    step = state.steps.get(str(body["step"]))
    try:
        if step is None:
            return None
        if body["kind"] == "skip":
            check_skip(state, step)
            return ev.StepSkipRequested(now, step.id, by or "somebody", request)
        check_retry(state, step)
    except UsageError:
        return None
    edits, runtime, model = body.get("edits") or {}, str(body.get("runtime") or ""), str(body.get("model") or "")
    return ev.StepRetried(now, step.id, by, edits, runtime, model, bool(body.get("fresh")), request)


def _budget_answer(state: State, now: float, by: str, request: str, body: dict[str, Any]) -> ev.BudgetAnswered | None:
    step, scope, note = str(body.get("step", "")), str(body.get("scope", "execution")), str(body.get("note", ""))
    try:
        limit = checked_limit(body.get("usd"), body.get("tokens"))
    except UsageError:
        return None  # an invalid limit could not be read back from the journal
    allow = bool(body["allow"])
    if not is_answer_on_budget(state, allow, limit.usd, limit.tokens):
        return None
    return ev.BudgetAnswered(now, allow, by, step, scope, limit.usd, limit.tokens, note, request)


def checked_limit(usd: Any, tokens: Any) -> Budget:
    """Check a limit that a person set. Raises `UsageError`."""
    try:
        return Budget(usd=usd, tokens=tokens)
    except ValidationError as error:
        problem = error.errors()[0]
        raise UsageError(f"a budget of {problem['input']!r} {problem['loc'][-1]}: {problem['msg']}") from error
