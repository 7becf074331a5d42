"""What a model API's answer means as a `Failure`, whichever runtime received it (C3, A7).

`elsewhere` says that another runtime could survive it: it has credentials, models and a program of its own. A refusal,
a prompt that is too long and an exhausted budget would be the same there.
"""

from __future__ import annotations

from windlass.errors import Category, Failure

__all__ = ["of_status"]

QUOTA_AFTER = 60.0
"""A wait longer than this is a quota to wait for, not a hiccup to retry."""


def of_status(
    status: int | None,
    message: str,
    *,
    runtime: str,
    now: float,
    retry_after: float | None = None,
    resets_at: float | None = None,
    advice: tuple[str, ...] = (),
) -> Failure:
    """The failure that an HTTP status of the model API means. `status` None: the connection itself failed."""
    category, elsewhere, remedy = _meaning(status, message, runtime)
    if category is Category.TRANSIENT and resets_at is None and retry_after is not None and retry_after > QUOTA_AFTER:
        resets_at = now + retry_after
    said = f"{runtime}: the model API answered {status}: {message}" if status else f"{runtime}: {message}"
    return Failure(
        category,
        said,
        advice=(*advice, *remedy),
        retry_after=retry_after,
        resets_at=resets_at if category is Category.TRANSIENT else None,
        elsewhere=elsewhere,
    )


def _meaning(status: int | None, message: str, runtime: str) -> tuple[Category, bool, tuple[str, ...]]:
    text = message.lower()
    match status:
        case 401:
            return Category.PERMISSION, True, (f"the key or login of {runtime} is missing or expired: windlass doctor",)
        case 402:
            return Category.PERMISSION, True, (f"the account that {runtime} uses cannot pay for this",)
        case 403:
            return Category.PERMISSION, True, (f"the account that {runtime} uses may not do this: windlass doctor",)
        case 404:
            return Category.CONFIGURATION, True, ("name a model that this account has: model: in the plan or --model",)
        case 400 if "credit balance" in text or "billing" in text:
            return Category.PERMISSION, True, (f"the account that {runtime} uses cannot pay for this",)
        case 400 | 413 | 422:
            if "prompt is too long" in text or "context" in text or status == 413:
                return Category.LOGIC, False, ("give the step fewer or smaller files, or split it",)
            return Category.LOGIC, False, ("the request itself was refused: look at it with windlass logs ID --prompt",)
        case 408 | 409 | 425 | 429:
            return Category.TRANSIENT, True, ()
        case None:
            return Category.TRANSIENT, True, ()
        case code if code >= 500:
            return Category.TRANSIENT, True, ()
        case _:
            return Category.LOGIC, False, ()
