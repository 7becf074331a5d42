"""The ways an agent's turn can end without success, and the failure that each is: one table for every runtime.

A runner says which `TurnEnding` it saw and in which words; category, fallback and advice come from `ENDINGS`, so that
one ending is the same failure on every runtime (C3, A7). `of_status` says which ending an HTTP status is.
docs/runtimes.md shows the table to users; the tests compare the two, and run every row on every runtime that can end
that way.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import NamedTuple

from windlass.core.agent import next_in_family
from windlass.errors import MODEL_API, REFUSED_CONTENT, Category, Failure

__all__ = ["ENDINGS", "QUOTA_AFTER", "UNREADABLE", "TurnEnding", "failure", "of_status", "temporary"]


class TurnEnding(StrEnum):
    """The names of the rows in docs/runtimes.md."""

    LENGTH = "answer cut off at its longest"
    REFUSAL = "refusal, content filter"
    EMPTY = "empty answer"
    TURNS = "`max_turns` reached"
    BUDGET = "the runtime's own budget limit"
    GARBAGE = "reply that cannot be read"
    CUT = "connection lost"
    OVERLOADED = "overloaded, 5xx"
    RATE = "rate limit, 429"
    QUOTA = "quota used up"
    NO_ACCESS = "no key or login, 401"
    NO_MONEY = "no money, 402"
    FORBIDDEN = "not allowed, 403"
    NO_MODEL = "model not found, 404"
    TOO_LONG = "prompt too long"
    REFUSED = "request not accepted, 400"
    DIED = "program died or hung"
    KILLED = "program killed (SIGKILL)"


class Meaning(NamedTuple):
    category: Category
    elsewhere: bool
    """Another runtime could survive it: it has credentials, models and a program of its own."""
    advice: str
    """`{runtime}` stands for the runtime's name."""


ENDINGS: Mapping[TurnEnding, Meaning] = {
    TurnEnding.LENGTH: Meaning(
        Category.LOGIC, False, "ask for less in one answer: split the step, or have it write to files piece by piece"
    ),
    TurnEnding.REFUSAL: Meaning(
        Category.LOGIC, False, "word the task differently, or name another model: `model` in the plan, or of the run"
    ),
    TurnEnding.EMPTY: Meaning(Category.TRANSIENT, True, "ask in the prompt for a final answer, or name another model"),
    TurnEnding.TURNS: Meaning(Category.LOGIC, False, "give the step less to do, or more turns: max_turns: in the plan"),
    TurnEnding.BUDGET: Meaning(Category.RESOURCE, False, "give the step more budget, or a smaller task"),
    TurnEnding.GARBAGE: Meaning(Category.TRANSIENT, True, "check the address of the model API that {runtime} uses"),
    TurnEnding.CUT: Meaning(Category.TRANSIENT, True, "check the network between this machine and the model API"),
    TurnEnding.OVERLOADED: Meaning(Category.TRANSIENT, True, "the model API is overloaded or down: try again later"),
    TurnEnding.RATE: Meaning(
        Category.TRANSIENT, True, "run fewer agents at a time: limits: {{parallel: N}} in the plan"
    ),
    TurnEnding.QUOTA: Meaning(
        Category.TRANSIENT, False, "wait until it comes back, or name a model of another provider"
    ),
    TurnEnding.NO_ACCESS: Meaning(
        Category.PERMISSION, True, "the key or login of {runtime} is missing or expired: windlass doctor"
    ),
    TurnEnding.NO_MONEY: Meaning(Category.PERMISSION, True, "the account that {runtime} uses cannot pay for this"),
    TurnEnding.FORBIDDEN: Meaning(
        Category.PERMISSION, True, "the account that {runtime} uses may not do this: windlass doctor"
    ),
    TurnEnding.NO_MODEL: Meaning(
        Category.CONFIGURATION, True, "name a model that this account has: `model` in the plan, or of the run"
    ),
    TurnEnding.TOO_LONG: Meaning(Category.LOGIC, False, "give the step fewer or smaller files, or split it"),
    TurnEnding.REFUSED: Meaning(
        Category.LOGIC, False, "the request itself was refused: look at it with windlass logs ID --prompt"
    ),
    TurnEnding.DIED: Meaning(Category.TRANSIENT, True, "look at it with: windlass doctor"),
    TurnEnding.KILLED: Meaning(
        Category.RESOURCE, True, "the system may have run out of memory: run fewer steps at a time"
    ),
}


_KINDS = {
    TurnEnding.GARBAGE: MODEL_API,
    TurnEnding.CUT: MODEL_API,
    TurnEnding.OVERLOADED: MODEL_API,
    TurnEnding.RATE: MODEL_API,
    TurnEnding.REFUSAL: REFUSED_CONTENT,
    TurnEnding.TOO_LONG: REFUSED_CONTENT,
    TurnEnding.REFUSED: REFUSED_CONTENT,
}


def failure(
    ending: TurnEnding,
    said: str,
    *,
    runtime: str,
    advice: tuple[str, ...] = (),
    retry_after: float | None = None,
    resets_at: float | None = None,
) -> Failure:
    """Return the failure for an ending. `advice` is the runtime's own and comes first."""
    meaning = ENDINGS[ending]
    return Failure(
        meaning.category,
        f"{runtime}: {said}",
        advice=(*advice, meaning.advice.format(runtime=runtime)),
        retry_after=retry_after,
        resets_at=resets_at,
        elsewhere=meaning.elsewhere and next_in_family(runtime, ()) is not None,
        kind=_KINDS.get(ending, ""),
    )


QUOTA_AFTER = 60.0
"""A wait longer than this is a quota to wait for, not a hiccup to retry."""

UNREADABLE = re.compile(r"JSON|parse error|type validation|unexpected (token|end)|invalid response", re.I)
"""Words of the clients for a reply that is none."""

_STATUSES = {
    401: TurnEnding.NO_ACCESS,
    402: TurnEnding.NO_MONEY,
    403: TurnEnding.FORBIDDEN,
    404: TurnEnding.NO_MODEL,
    408: TurnEnding.OVERLOADED,
    409: TurnEnding.OVERLOADED,
    413: TurnEnding.TOO_LONG,
    425: TurnEnding.OVERLOADED,
    429: TurnEnding.RATE,
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
    ending = ending_of(status, message)
    said = f"the model API answered {status}: {message}" if status and answered else message
    if status and ending is TurnEnding.GARBAGE:
        said = f"the model API answered {status} with something that cannot be read: {message}"
    if ending in (TurnEnding.CUT, TurnEnding.GARBAGE, TurnEnding.OVERLOADED, TurnEnding.RATE):
        return temporary(
            ending, said, runtime=runtime, now=now, retry_after=retry_after, resets_at=resets_at, advice=advice
        )
    return failure(ending, said, runtime=runtime, advice=advice, retry_after=retry_after)


def temporary(
    ending: TurnEnding,
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
        ending = TurnEnding.QUOTA
    return failure(ending, said, runtime=runtime, advice=advice, retry_after=retry_after, resets_at=resets_at)


def ending_of(status: int | None, message: str) -> TurnEnding:
    """The ending that an HTTP status of the model API means."""
    text = message.lower()
    if status is None:
        return TurnEnding.GARBAGE if UNREADABLE.search(message) else TurnEnding.CUT
    if status < 400:
        return TurnEnding.GARBAGE  # it called itself a success, and the runtime could make nothing of it
    if status >= 500:
        return TurnEnding.OVERLOADED
    if status == 400 and ("credit balance" in text or "billing" in text):
        return TurnEnding.NO_MONEY
    if status in (400, 422) and ("prompt is too long" in text or "context" in text):
        return TurnEnding.TOO_LONG
    return _STATUSES.get(status, TurnEnding.REFUSED)
