"""Decide if and when a failed attempt is tried again (C3). Pure: the jitter comes from the attempt's own name.

| category | retries |
|---|---|
| transient | `retry.max` (3), exponential backoff with jitter, never before a plausible Retry-After |
| permission | 1, after the refresh hook |
| resource | 2, each with reduced usage |
| configuration, logic | none, unless the step's `retry.on` names them: then as transient |

After these, an agent waits for a model API that fails until its patience ends (`outlast`).
A failure that is `final` would be the same again: it is not retried in any category.
"""

from __future__ import annotations

import hashlib

from windlass.errors import Category, Failure
from windlass.plan.model import Retry

__all__ = ["LONGEST_WAIT", "allowed", "backoff", "outlast", "patience_of", "retry_at"]

LONGEST_WAIT = 366 * 86400.0
"""Longest plausible time until somebody else is ready again, in seconds; a longer one is taken for a mistake."""

RESOURCE_RETRIES = 2
PERMISSION_RETRIES = 1
LONGEST_API_WAIT = 60.0
"""Seconds between two tries of a model API that fails."""


def retry_at(failure: Failure, failures: dict[Category, int], policy: Retry, now: float, seed: str) -> float | None:
    """The time of the next try, or None for no retry. `failures` counts this one already."""
    count = failures.get(failure.category, 0)
    if failure.final or count > allowed(failure.category, policy):
        return None
    delay = backoff(policy, count, seed)
    return now + max(delay, _asked_for(failure))


def patience_of(policy: Retry, usual: float) -> float:
    """Seconds that an agent waits for a model API that fails, from the first failure in a row."""
    if Category.TRANSIENT not in policy.on:
        return 0.0
    return policy.patience if policy.patience is not None else usual if policy.max else 0.0


def outlast(failure: Failure, count: int, policy: Retry, now: float, gives_up_at: float, seed: str) -> float | None:
    """The time of the next try of a model API that failed `count` times in a row; the last try is at the end."""
    if now >= gives_up_at:
        return None
    delay = min(backoff(policy, count, seed), LONGEST_API_WAIT)
    return min(now + max(delay, _asked_for(failure)), gives_up_at)


def _asked_for(failure: Failure) -> float:
    """Seconds that the other side asked to wait."""
    wait = failure.retry_after or 0.0
    return wait if wait < LONGEST_WAIT else 0.0


def allowed(category: Category, policy: Retry) -> int:
    if category not in policy.on:
        return 0
    match category:
        case Category.PERMISSION:
            return min(PERMISSION_RETRIES, policy.max)
        case Category.RESOURCE:
            return min(RESOURCE_RETRIES, policy.max)
        case _:
            return policy.max


def backoff(policy: Retry, count: int, seed: str) -> float:
    """The wait before retry number `count`: exponential, capped, spread over its upper half.

    The jitter is drawn from the attempt's name, so that replaying a journal gives the same time, and many
    executions that failed together do not come back together.
    """
    longest = min(policy.max_delay, policy.delay * policy.backoff ** min(count - 1, 64))
    spread = int.from_bytes(hashlib.blake2s(f"{seed}:{count}".encode(), digest_size=4).digest())
    return longest * (0.5 + 0.5 * spread / 0xFFFFFFFF)
