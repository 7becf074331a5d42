"""Classify the end of a turn: a success, an interruption, or a `Failure` with advice (C3, A7).

The result's `is_error` decides, never its subtype or the exit code: an API error says "success", an interrupt exits
with 0. Without a result, the exit of the process decides.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping
from typing import Any, NamedTuple

from windlass.errors import Category, Failure
from windlass.process import Exit, signal_name
from windlass.runners.claude.messages import MessageListener
from windlass.runners.claude.wire import ClaudeWire
from windlass.runners.endings import TurnEnding, failure, of_status
from windlass.runtimes import CLAUDE_CODE

__all__ = ["UNFIT", "Verdict", "cut_off", "of_result", "without_result"]

UNFIT = "error_max_structured_output_retries"
"""Claude Code refused the data of the agent several times. The engine judges it, and sends it back if it is unfit."""

_STATUSES = {
    "authentication_failed": 401,
    "oauth_org_not_allowed": 403,
    "billing_error": 402,
    "rate_limit": 429,
    "overloaded": 529,
    "model_not_found": 404,
    "invalid_request": 400,
}
"""HTTP status for each error word of the runtime, for errors without one."""

LIMIT_WAIT = 60.0
"""Seconds before it is tried again after a rate limit of unknown length."""
_DOCTOR = "look at it with: windlass doctor"


class Verdict(NamedTuple):
    failure: Failure | None
    metadata: Mapping[str, Any] = {}


def cut_off(result: Mapping[str, Any] | None) -> bool:
    """Return True if an answer was cut off by the end of the turn: no figure includes its cost."""
    return result is None or result.get("terminal_reason") == "aborted_streaming"


def of_result(result: Mapping[str, Any], listener: MessageListener, *, now: float) -> Verdict:
    """Classify a result."""
    text = _words(result)
    if result.get("stop_reason") == "refusal":
        return Verdict(_refused(text))
    if not result.get("is_error"):
        return Verdict(None if _answer(result) else _empty(result))
    if result.get("subtype") == UNFIT:
        return Verdict(None)
    if "No conversation found" in text:
        lost = Failure(
            Category.TRANSIENT, f"{CLAUDE_CODE.name}: {text}", advice=("the step starts over, in a new session",)
        )
        return Verdict(lost, {"session_lost": True})
    match result.get("subtype"), result.get("terminal_reason"):
        case "error_max_turns", _:
            return Verdict(failure(TurnEnding.TURNS, text, runtime=CLAUDE_CODE.name))
        case "error_max_budget_usd", _:
            return Verdict(failure(TurnEnding.BUDGET, text, runtime=CLAUDE_CODE.name), {"budget": True})
        case _, "prompt_too_long":
            said = text if "prompt is too long" in text.lower() else f"prompt is too long: {text}"
            return Verdict(failure(TurnEnding.TOO_LONG, said, runtime=CLAUDE_CODE.name))
        case _:
            return Verdict(_of_api(result, text, listener, now))


def _of_api(result: Mapping[str, Any], text: str, listener: MessageListener, now: float) -> Failure:
    if listener.error_kind == "max_output_tokens":
        return failure(
            TurnEnding.LENGTH, text, runtime=CLAUDE_CODE.name, advice=("or set CLAUDE_CODE_MAX_OUTPUT_TOKENS",)
        )
    status = result.get("api_error_status")
    answered = isinstance(status, int)
    if not answered:
        status = _STATUSES.get(listener.error_kind)
    # With a key it does not tell for how long a limit holds, and has itself waited for a short one already.
    wait = LIMIT_WAIT if status == 429 and listener.resets_at is None else None
    resets_at = listener.resets_at
    return of_status(
        status, text, runtime=CLAUDE_CODE.name, now=now, retry_after=wait, resets_at=resets_at, answered=answered
    )


def _refused(text: str) -> Failure:
    return failure(TurnEnding.REFUSAL, f"the model refused this{f': {text}' if text else ''}", runtime=CLAUDE_CODE.name)


def _answer(result: Mapping[str, Any]) -> str:
    text = result.get("result")
    return text.strip() if isinstance(text, str) else ""


def _empty(result: Mapping[str, Any]) -> Failure:
    reason = result.get("stop_reason") or "unknown"
    return failure(TurnEnding.EMPTY, f"it ended without an answer (stop reason {reason})", runtime=CLAUDE_CODE.name)


def _words(result: Mapping[str, Any]) -> str:
    errors = [error for error in result.get("errors") or () if isinstance(error, str)]
    text = result.get("result")
    return "; ".join(errors) or (text if isinstance(text, str) else "") or str(result.get("subtype") or "")


def without_result(wire: ClaudeWire, ended: Exit, listener: MessageListener) -> Failure:
    """Return the failure of a runtime that ended without a result."""
    stderr, garbage = str(wire.stderr), str(wire.garbage)
    said = f"; its stderr: {stderr[-600:]}" if stderr else ""
    if wire.flood:
        text = f"{CLAUDE_CODE.name}: its output is not a conversation: {wire.flood}, such as {garbage[:80]!r}"
        return Failure(Category.RESOURCE, text, advice=(_DOCTOR,), elsewhere=True)
    if ended.limit == "pool":
        beyond = "it grew beyond the memory that all steps of the execution may use together"
        text = f"{CLAUDE_CODE.name}: killed {listener.last}: {beyond}"
        advice = ("raise `limits.memory` of the plan if it needs more", "run fewer steps at a time: `limits.parallel`")
        return Failure(Category.RESOURCE, text, advice=advice)
    if ended.killed:
        text = f"it stopped talking {listener.last}, without a result and without an end{said}"
        return failure(TurnEnding.DIED, text, runtime=CLAUDE_CODE.name)
    if ended.code is None:
        return _killed(ended.signal or 0, listener, said)
    if garbage and not wire.spoke:
        said = f"it ended with exit code {ended.code} and spoke no protocol, but {garbage[:200]!r}{said}"
        text = f"{CLAUDE_CODE.name}: {said}"
        return Failure(Category.CONFIGURATION, text, advice=(_DOCTOR,), elsewhere=True)
    if "unknown option" in stderr or "error: option" in stderr:
        text = f"{CLAUDE_CODE.name}: this version does not take our arguments{said}"
        return Failure(Category.CONFIGURATION, text, advice=("claude update", _DOCTOR), elsewhere=True)
    text = f"it ended with exit code {ended.code} and no result {listener.last}{said}"
    return failure(TurnEnding.DIED, text, runtime=CLAUDE_CODE.name)


def _killed(number: int, listener: MessageListener, said: str) -> Failure:
    text = f"it was ended by {signal_name(number)} {listener.last}{said}"
    return failure(TurnEnding.KILLED if number == signal.SIGKILL else TurnEnding.DIED, text, runtime=CLAUDE_CODE.name)
