"""Which ending an answer of a model API is, whichever runtime received it (C3, A7)."""

from __future__ import annotations

import re

from windlass.errors import Failure
from windlass.runners.endings import Ending, failure

__all__ = ["QUOTA_AFTER", "UNREADABLE", "of_status", "temporary"]

QUOTA_AFTER = 60.0
"""A wait longer than this is a quota to wait for, not a hiccup to retry."""

UNREADABLE = re.compile(r"JSON|parse error|type validation|unexpected (token|end)|invalid response", re.I)
"""Words of the clients for a reply that is none."""

_STATUSES = {
    401: Ending.NO_ACCESS,
    402: Ending.NO_MONEY,
    403: Ending.FORBIDDEN,
    404: Ending.NO_MODEL,
    408: Ending.OVERLOADED,
    409: Ending.OVERLOADED,
    413: Ending.TOO_LONG,
    425: Ending.OVERLOADED,
    429: Ending.RATE,
}


def of_status(
    status: int | None,
    message: str,
    *,
    runtime: str,
    now: float,
    retry_after: float | None = None,
    resets_at: float | None = None,
    advice: tuple[str, ...] = (),
    answered: bool = True,
) -> Failure:
    """The failure that an HTTP status of the model API means. `status` None: the connection itself failed.

    Not `answered`: the runtime itself means what this status means, and the API was perhaps never asked.
    """
    ending = _ending(status, message)
    said = f"the model API answered {status}: {message}" if status and answered else message
    if status and ending is Ending.GARBAGE:
        said = f"the model API answered {status} with something that cannot be read: {message}"
    if ending in (Ending.CUT, Ending.GARBAGE, Ending.OVERLOADED, Ending.RATE):
        return temporary(
            ending, said, runtime=runtime, now=now, retry_after=retry_after, resets_at=resets_at, advice=advice
        )
    return failure(ending, said, runtime=runtime, advice=advice, retry_after=retry_after)


def temporary(
    ending: Ending,
    said: str,
    *,
    runtime: str,
    now: float,
    retry_after: float | None = None,
    resets_at: float | None = None,
    advice: tuple[str, ...] = (),
) -> Failure:
    """The failure of something that passes; with a long wait, or a time at which it comes back, it is a quota."""
    if resets_at is None and retry_after is not None and retry_after > QUOTA_AFTER:
        resets_at = now + retry_after
    if resets_at is not None:
        ending = Ending.QUOTA
    return failure(ending, said, runtime=runtime, advice=advice, retry_after=retry_after, resets_at=resets_at)


def _ending(status: int | None, message: str) -> Ending:
    text = message.lower()
    if status is None:
        return Ending.GARBAGE if UNREADABLE.search(message) else Ending.CUT
    if status < 400:
        return Ending.GARBAGE  # it called itself a success, and the runtime could make nothing of it
    if status >= 500:
        return Ending.OVERLOADED
    if status == 400 and ("credit balance" in text or "billing" in text):
        return Ending.NO_MONEY
    if status in (400, 422) and ("prompt is too long" in text or "context" in text):
        return Ending.TOO_LONG
    return _STATUSES.get(status, Ending.REFUSED)
