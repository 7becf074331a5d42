"""Turn exceptions of the model clients into `Failure`s.

`runners/endings.py` knows the statuses, which are the same for every runtime; this module adds the details that only a
direct caller of the API sees: connections, headers about quotas, error bodies. `elsewhere` is never set: the cli
runtime has no fallback (A7).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from windlass.errors import Category, Failure
from windlass.runners.endings import QUOTA_AFTER, TurnEnding, ending_of, failure, of_status
from windlass.runners.model_api.target import ModelTarget
from windlass.runtimes import CLI

__all__ = ["of_exception", "too_long"]

_LONGEST = 2000
_DURATION = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)s)?(?:(\d+)ms)?")


def of_exception(error: Exception, target: ModelTarget, now: float) -> Failure:
    """Return the failure of a request, for any exception: an unreadable reply is the server's fault."""
    from pydantic_ai import exceptions as said

    match error:
        case said.ModelHTTPError():
            found = _of_http(error, target, now)
        case said.ModelContextWindowExceededError():
            found = of_status(413, _message(error), runtime=CLI.name, now=now)
        case said.ModelTimeoutError(phase="read") | said.ModelRequestTimeout():
            found = _broken(TurnEnding.CUT, f"{target.host} has been silent for too long, so the request was given up")
        case said.ModelConnectionError():
            found = _unreachable(error, target)
        case said.ModelAPIError():
            found = _broken(TurnEnding.GARBAGE, f"{target.host} broke off: {_message(error)}")
        case said.UserError():
            found = Failure(Category.CONFIGURATION, f"{CLI.name}: {error}", advice=("windlass doctor",))
        case _:
            why = ": ".join(filter(None, (type(error).__name__, str(error))))
            form = f"not in the form of the {target.provider} API"
            found = _broken(TurnEnding.GARBAGE, f"the reply of {target.host} is {form} ({why})")
    return replace(found, message=_without_secrets(found.message, target)[:_LONGEST])


def too_long(error: Exception) -> bool:
    """True if the provider refused the request because it does not fit into the model's window."""
    from pydantic_ai.exceptions import ModelContextWindowExceededError, ModelHTTPError

    if isinstance(error, ModelHTTPError):
        return ending_of(error.status_code, _message(error)) is TurnEnding.TOO_LONG
    return isinstance(error, ModelContextWindowExceededError)


def _broken(ending: TurnEnding, message: str, *advice: str) -> Failure:
    return failure(ending, message, runtime=CLI.name, advice=advice)


def _of_http(error: Any, target: ModelTarget, now: float) -> Failure:
    from pydantic_ai.exceptions import ModelQuotaExceededError

    headers = error.headers or {}
    retry_after, resets_at = error.retry_after, _resets_at(headers, now)
    if resets_at is not None and resets_at - now <= QUOTA_AFTER:
        # A quota that is back in seconds is a hiccup: wait that long, then try again.
        retry_after, resets_at = retry_after if retry_after is not None else max(0.0, resets_at - now), None
    found = of_status(
        error.status_code,
        _message(error),
        runtime=CLI.name,
        now=now,
        retry_after=retry_after,
        resets_at=resets_at,
        advice=_hints(error, target),
    )
    if isinstance(error, ModelQuotaExceededError) and found.category is not Category.PERMISSION:
        # OpenAI says 429 for an empty account too, where no waiting helps.
        paid = f"the account at {target.host} cannot pay for this"
        return replace(found, category=Category.PERMISSION, advice=(paid,), retry_after=None, resets_at=None)
    return found


def _hints(error: Any, target: ModelTarget) -> tuple[str, ...]:
    if error.status_code != 404:
        return ()
    if error.suggested_model_id:
        return (f"did you mean {error.suggested_model_id}?",)
    return (f"{target.host} has no model {target.model!r}, or {target.address} is not where its API begins",)


def _unreachable(error: Any, target: ModelTarget) -> Failure:
    reason = _root(error)
    if error.phase in ("connect", "pool"):
        if target.local:
            advice = [f"start the model server at {target.address}", f"or correct {target.named_by}"]
        else:
            advice = [f"check the network: is {target.host} reachable from here?"]
        return _broken(TurnEnding.CUT, f"cannot connect to {target.host}: {reason}", *advice)
    return _broken(TurnEnding.CUT, f"the connection to {target.host} broke off: {reason}")


def _root(error: BaseException) -> str:
    """The innermost reason: `Connection refused` says more than `Connection error.`"""
    while (inner := error.__cause__ or error.__context__) is not None:
        error = inner
    if isinstance(error, OSError) and error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def _message(error: Any) -> str:
    """Return the API's own message, without the client's wrapping."""
    found = error.body
    while isinstance(found, Mapping):
        inner = found.get("error", found.get("message"))
        found = found.get("message") if inner is None else inner
    return found if isinstance(found, str) and found else str(error)


def _without_secrets(text: str, target: ModelTarget) -> str:
    for secret in (target.key, target.token):
        if secret and len(secret) >= 8:
            text = text.replace(secret, "***")
    return text


def _resets_at(headers: Mapping[str, str], now: float) -> float | None:
    """Return the time at which the used-up quotas are back, the latest of them; without any, of all quotas.

    Anthropic gives times (`anthropic-ratelimit-tokens-reset: 2026-01-31T10:00:00Z`, or epoch seconds for a
    subscription's `unified`), OpenAI durations (`x-ratelimit-reset-tokens: 6m0s`).
    """
    resets: list[tuple[bool, float]] = []
    for name, value in headers.items():
        if name.startswith("anthropic-ratelimit-") and name.endswith("-reset"):
            remaining = headers.get(f"{name.removesuffix('-reset')}-remaining")
            when = _time(value)
        elif name.startswith("x-ratelimit-reset-"):
            remaining = headers.get(name.replace("-reset-", "-remaining-"))
            span = _seconds(value)
            when = None if span is None else now + span
        else:
            continue
        if when is not None:
            resets.append((remaining == "0", when))
    used_up = [when for empty, when in resets if empty]
    return max(used_up or [when for _, when in resets], default=None)


def _time(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def _seconds(text: str) -> float | None:
    parts = _DURATION.fullmatch(text.strip())
    if parts is None or not any(parts.groups()):
        return None
    days, hours, minutes, seconds, milliseconds = (float(part or 0) for part in parts.groups())
    return days * 86400 + hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
