"""What went wrong with OpenCode, as a `Failure` that says what to do about it (C3, A7).

Errors of the model reach us as OpenCode's own objects, `{name, data}`: `of_error`. What happens to the program itself
(it is missing, it dies, it hangs, it says nothing) has a function each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from windlass.errors import Category, Failure
from windlass.runners.failures import of_status

__all__ = [
    "NAME",
    "cut_off",
    "died",
    "hangs",
    "nothing_said",
    "of_error",
    "of_retries",
    "one_line",
    "refused",
    "session_lost",
    "too_many_turns",
    "untrusted_settings",
]

NAME = "open-code"
INSTALL = "npm i -g opencode-ai"
COLOURS = re.compile("\x1b\\[[0-9;]*m")
NO_SUCH_MODEL = re.compile(r"model not found|ProviderModelNotFound|no such (model|provider)|provider not found", re.I)
NETWORK = re.compile(
    r"unable to connect|socket|ECONN|ETIMEDOUT|EAI_AGAIN|fetch failed|network|timed? ?out|overloaded", re.I
)


def of_error(error: Mapping[str, Any], now: float) -> Failure:
    """The failure that OpenCode's error object means."""
    name = str(error.get("name") or "UnknownError")
    data = error.get("data")
    data = data if isinstance(data, Mapping) else {}
    message = one_line(data.get("message") or error.get("message") or name)
    match name:
        case "APIError":
            status = data.get("statusCode")
            return of_status(
                status if isinstance(status, int) else None,
                message,
                runtime=NAME,
                now=now,
                retry_after=_retry_after(data.get("responseHeaders")),
                advice=("opencode auth login",) if status in (401, 403) else (),
            )
        case "ProviderAuthError":
            return of_status(401, message, runtime=NAME, now=now, advice=("opencode auth login",))
        case "ContextOverflowError":
            return of_status(413, message, runtime=NAME, now=now)
        case "ContentFilterError":
            return refused(message)
        case "MessageOutputLengthError":
            return Failure(
                Category.LOGIC,
                f"{NAME}: the answer was longer than the model may give: {message}",
                advice=("ask for less at a time",),
            )
    if NO_SUCH_MODEL.search(f"{name} {message}"):
        return Failure(
            Category.CONFIGURATION,
            f"{NAME}: {message}",
            advice=("opencode models lists what there is; name one as provider/model",),
            elsewhere=True,
        )
    if NETWORK.search(message):
        return of_status(None, message, runtime=NAME, now=now)
    return Failure(Category.LOGIC, f"{NAME}: {name}: {message}", elsewhere=True)


def of_retries(attempt: int, message: str, next_at: float | None, now: float) -> Failure:
    """OpenCode would go on retrying by itself, without end: we wait instead, and are seen to."""
    wait = None if next_at is None else max(next_at - now, 0.0)
    tried = "1 attempt" if attempt == 1 else f"{attempt} attempts"
    return of_status(
        None, f"the model API fails after {tried}: {one_line(message)}", runtime=NAME, now=now, retry_after=wait
    )


def refused(message: str) -> Failure:
    return Failure(
        Category.LOGIC,
        f"{NAME}: the model declined to answer: {message}",
        advice=("word the task differently, or give it to another model: model: in the plan or --model",),
    )


def nothing_said(how: str) -> Failure:
    return Failure(
        Category.TRANSIENT,
        f"{NAME}: it ended without an answer ({how})",
        advice=("try it by hand: opencode run 'say hello'",),
        elsewhere=True,
    )


def cut_off(what: str) -> Failure:
    return Failure(Category.TRANSIENT, f"{NAME}: {what}", elsewhere=True)


def died(what: str, how: str, said: str = "") -> Failure:
    words = f"; its last words: {one_line(said)}" if said else ""
    return Failure(
        Category.TRANSIENT,
        f"{NAME}: {what} {how}{words}",
        advice=("the conversation is kept: a retry goes on with it",),
        elsewhere=True,
    )


def hangs(what: str, seconds: float) -> Failure:
    return Failure(
        Category.TRANSIENT,
        f"{NAME}: {what} has not answered for {seconds:g} s and was ended",
        advice=("try it by hand: opencode run 'say hello'",),
        elsewhere=True,
    )


def session_lost(session: str) -> Failure:
    return Failure(
        Category.TRANSIENT,
        f"{NAME}: there is no conversation {session} any more",
        advice=("a retry begins a new one", "opencode session list"),
    )


def too_many_turns(limit: int) -> Failure:
    return Failure(
        Category.LOGIC, f"{NAME}: not done after {limit} turns, the limit for this step", advice=("raise max_turns",)
    )


def untrusted_settings(found: str, version: str) -> Failure:
    return Failure(
        Category.PERMISSION,
        f"{NAME}: {found} would take effect, the folder is not trusted, and OpenCode {version} cannot leave it out",
        advice=("look at it; if you trust this folder: windlass trust DIR", f"a newer OpenCode can: {INSTALL}"),
        elsewhere=True,
    )


def _retry_after(headers: Any) -> float | None:
    if not isinstance(headers, Mapping):
        return None
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            return float(headers[name]) / unit
        except (KeyError, TypeError, ValueError):
            continue
    return None


def one_line(text: Any, limit: int = 500) -> str:
    """Fit for a list: one line, nothing that a terminal would act on, not too long."""
    plain = COLOURS.sub("", str(text))
    line = " ".join("".join(char if char.isprintable() else " " for char in plain).split())
    return line if len(line) <= limit else f"{line[: limit - 1]}…"
