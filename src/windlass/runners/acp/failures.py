"""Turn errors of an agent into `Failure`s with advice (C3, A7).

The protocol has one error for all troubles of the model API: a code, a message, and data that each agent fills as it
likes. So a status is looked for in all of it, then words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from windlass.errors import Category, Failure
from windlass.process import Exit
from windlass.runners.acp.wire import RpcError
from windlass.runners.endings import UNREADABLE, TurnEnding, failure, of_status

__all__ = ["AUTH_REQUIRED", "died", "of_error", "of_stop", "session_lost", "words_of"]

AUTH_REQUIRED = -32000
"""The protocol's code for an agent that has no key or login."""
LONGEST = 600
_STATUS = re.compile(r"(?:status|code|http|error)\W{0,4}(?:code\W{0,3})?([45]\d\d)\b|\[([45]\d\d) [A-Z]", re.I)
_STATUS_KEYS = ("http_status_code", "statusCode", "status", "code")
_WORDS = (
    (re.compile(r"max_output_tokens|MAX_TOKENS|output token (limit|maximum)", re.I), TurnEnding.LENGTH),
    (re.compile(r"content_filter|\bSAFETY\b|PROHIBITED_CONTENT|refus", re.I), TurnEnding.REFUSAL),
    (re.compile(r"context (window|length)|prompt is too long|too many tokens", re.I), TurnEnding.TOO_LONG),
    (
        re.compile(r"unauthori[sz]ed|invalid (x-)?api.?key|API key not valid|log ?in|authenticat", re.I),
        TurnEnding.NO_ACCESS,
    ),
    (re.compile(r"rate.?limit|too many requests|quota|RESOURCE_EXHAUSTED", re.I), TurnEnding.RATE),
    (re.compile(r"model.{0,40}not (found|supported)|no such model", re.I), TurnEnding.NO_MODEL),
    (re.compile(r"invalid_request|INVALID_ARGUMENT|bad request", re.I), TurnEnding.REFUSED),
    (re.compile(r"overloaded|server error|unavailable", re.I), TurnEnding.OVERLOADED),
    (re.compile(r"disconnect|connect|socket|ECONN|fetch failed|network|timed? ?out|stream", re.I), TurnEnding.CUT),
    (UNREADABLE, TurnEnding.GARBAGE),
)
"""Endings by the words of an error without a status; the first match counts."""


def of_error(error: RpcError, runtime: str, now: float, advice: tuple[str, ...] = ()) -> Failure:
    """The failure that an agent's error means. `advice` is how one logs in."""
    said = words_of(error)
    if error.code == AUTH_REQUIRED:
        return failure(TurnEnding.NO_ACCESS, said, runtime=runtime, advice=advice)
    status = _status(error)
    if status is not None:
        return of_status(status, said, runtime=runtime, now=now, advice=advice if status in (401, 403) else ())
    ending = next((ending for words, ending in _WORDS if words.search(said)), TurnEnding.DIED)
    return failure(ending, said, runtime=runtime, advice=advice if ending is TurnEnding.NO_ACCESS else ())


def of_stop(reason: str, output: str, runtime: str) -> Failure | None:
    """Return the failure of a turn that ended without an error: by its reason to stop, or an empty answer."""
    match reason:
        case "max_tokens":
            return failure(TurnEnding.LENGTH, "the answer is longer than the model may say", runtime=runtime)
        case "max_turn_requests":
            return failure(TurnEnding.TURNS, "it has used up its turns", runtime=runtime)
        case "refusal":
            return failure(
                TurnEnding.REFUSAL, f"the model declined to answer: {output or 'no reason given'}", runtime=runtime
            )
        case "cancelled":
            return failure(TurnEnding.DIED, "it stopped the turn by itself", runtime=runtime)
    if output.strip():
        return None
    return failure(TurnEnding.EMPTY, f"it ended without an answer (stop reason {reason or 'unknown'})", runtime=runtime)


def died(program: str, end: Exit, last_words: str, runtime: str) -> Failure:
    """Return the failure of an agent whose process ended, or was ended, before it answered."""
    said = f"{program} ended with {end.text} in the middle of the turn" + (
        f": {last_words[-LONGEST:]}" if last_words else ""
    )
    if end.limit == "pool":
        beyond = f"{runtime}: killed: it grew beyond the memory that all steps of the execution may use together"
        return Failure(Category.RESOURCE, beyond, advice=("raise `limits.memory` of the plan if it needs more",))
    return failure(TurnEnding.KILLED if end.signal == 9 else TurnEnding.DIED, said, runtime=runtime)


def session_lost(session: str, why: str, runtime: str) -> Failure:
    text = f"{runtime}: the conversation {session} cannot be continued: {why}"
    return Failure(Category.TRANSIENT, text, advice=("a retry begins a new one",))


def words_of(error: RpcError) -> str:
    """The error in one line: its data say more than its message, which is often `Internal error`."""
    found = [text for text in _texts(error.data) if text]
    told = found[0] if found else ""
    text = (
        f"{error.message}: {told}" if told and error.message not in ("Internal error", told) else told or error.message
    )
    return " ".join(text.split())[:LONGEST]


def _texts(data: Any) -> Iterator[str]:
    if isinstance(data, str):
        yield data
    elif isinstance(data, Mapping):
        for name in ("message", "details", "error"):
            yield from _texts(data.get(name))


def _status(error: RpcError) -> int | None:
    if 400 <= error.code <= 599:
        return error.code
    for value in _numbers(error.data):
        if 400 <= value <= 599:
            return value
    found = _STATUS.search(" ".join((error.message, *_texts(error.data))))
    return int(found[1] or found[2]) if found else None


def _numbers(data: Any) -> Iterator[int]:
    if isinstance(data, str) and data.lstrip().startswith("{"):
        try:
            data = json.loads(data)
        except (ValueError, RecursionError):
            return
    if isinstance(data, Mapping):
        for name, value in data.items():
            if name in _STATUS_KEYS and isinstance(value, int):
                yield value
            yield from _numbers(value)
