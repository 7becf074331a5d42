"""Turn errors of OpenCode into `Failure`s with advice (C3, A7).

Errors of the model reach us as OpenCode's own objects, `{name, data}`: `of_error`. Each failure of the program itself
(it is missing, it dies, it hangs, it says nothing) has a function.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from windlass.errors import Category, Failure
from windlass.runners.endings import UNREADABLE, TurnEnding, failure, of_status, temporary
from windlass.runtimes import OPEN_CODE

if TYPE_CHECKING:
    from windlass.runners.opencode.reading import Reading

__all__ = [
    "bound_elsewhere",
    "cut_off",
    "cut_short",
    "died",
    "hangs",
    "no_copy",
    "nothing_said",
    "of_error",
    "of_finish",
    "of_retries",
    "one_line",
    "refused",
    "session_lost",
    "too_many_turns",
    "untrusted_plugin",
    "untrusted_settings",
]

LOGIN = "opencode auth login"
MOST_OVERFLOWS = 3
"""Times in one turn that a prompt may be too long. OpenCode shortens the conversation and asks again, without end."""
COLOURS = re.compile("\x1b\\[[0-9;]*m")
NO_SUCH_MODEL = re.compile(r"model not found|ProviderModelNotFound|no such (model|provider)|provider not found", re.I)
NO_ACCESS = re.compile(r"unauthori[sz]ed|invalid (x-)?api.?key|no api.?key|\b401\b", re.I)
WORDS = (
    (re.compile(r"rate.?limit|too many requests|\b429\b", re.I), TurnEnding.RATE),
    (re.compile(r"overloaded|server error|\b5\d\d\b", re.I), TurnEnding.OVERLOADED),
    (re.compile(r"connect|socket|ECONN|ETIMEDOUT|EAI_AGAIN|fetch failed|network|timed? ?out", re.I), TurnEnding.CUT),
    (UNREADABLE, TurnEnding.GARBAGE),
)
"""Endings by the words of a message; the first match counts."""


def of_error(error: Mapping[str, Any], now: float) -> Failure:
    """The failure that OpenCode's error object means. One that is not known may be gone the next time."""
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
                runtime=OPEN_CODE.name,
                now=now,
                retry_after=_retry_after(data.get("responseHeaders")),
                advice=(LOGIN,) if status in (401, 403) else (),
            )
        case "ProviderAuthError":
            return of_status(401, message, runtime=OPEN_CODE.name, now=now, advice=(LOGIN,))
        case "ContextOverflowError":
            return failure(TurnEnding.TOO_LONG, f"the prompt is too long: {message}", runtime=OPEN_CODE.name)
        case "ContentFilterError":
            return refused(message)
        case "MessageOutputLengthError":
            return cut_short(message)
    if NO_SUCH_MODEL.search(f"{name} {message}"):
        advice = ("list the models: opencode models; name one as provider/model",)
        return failure(TurnEnding.NO_MODEL, message, runtime=OPEN_CODE.name, advice=advice)
    if NO_ACCESS.search(message):
        return failure(TurnEnding.NO_ACCESS, message, runtime=OPEN_CODE.name, advice=(LOGIN,))
    if name.startswith("Config"):
        advice = ("correct the settings of OpenCode that it names",)
        return Failure(Category.CONFIGURATION, f"{OPEN_CODE.name}: {name}: {message}", advice=advice, elsewhere=True)
    found = _by_words(message)
    return failure(found or TurnEnding.DIED, message if found else f"{name}: {message}", runtime=OPEN_CODE.name)


def of_retries(attempt: int, message: str, next_at: float | None, now: float) -> Failure:
    """Return the failure of a call that OpenCode would retry without end: the engine waits instead, visibly."""
    wait = None if next_at is None else max(next_at - now, 0.0)
    tried = "1 attempt" if attempt == 1 else f"{attempt} attempts"
    said = f"the model API fails after {tried}: {one_line(message)}"
    return temporary(
        _by_words(message) or TurnEnding.OVERLOADED, said, runtime=OPEN_CODE.name, now=now, retry_after=wait
    )


def _by_words(message: str) -> TurnEnding | None:
    """Return the ending that a message describes, for errors without a status."""
    return next((ending for words, ending in WORDS if words.search(message)), None)


def of_finish(reading: Reading, how: str) -> Failure | None:
    """Return the failure of a turn that ended without an error: by the model's reason to stop, or an empty answer."""
    match reading.finish:
        case "content-filter":
            return refused(reading.last_output or "no reason given")
        case "length":
            return cut_short("it is cut off")
    return None if reading.last_output.strip() else nothing_said(how)


def refused(message: str) -> Failure:
    return failure(TurnEnding.REFUSAL, f"the model declined to answer: {message}", runtime=OPEN_CODE.name)


def cut_short(message: str) -> Failure:
    return failure(
        TurnEnding.LENGTH, f"the answer was longer than the model may give: {message}", runtime=OPEN_CODE.name
    )


def nothing_said(how: str) -> Failure:
    advice = ("try it by hand: opencode run 'say hello'",)
    return failure(TurnEnding.EMPTY, f"it ended without an answer ({how})", runtime=OPEN_CODE.name, advice=advice)


def cut_off(what: str) -> Failure:
    return failure(TurnEnding.DIED, what, runtime=OPEN_CODE.name)


def died(what: str, how: str, said: str = "") -> Failure:
    words = f"; its last words: {one_line(said)}" if said else ""
    ending = TurnEnding.KILLED if how.rstrip(")").endswith("signal 9") else TurnEnding.DIED
    advice = ("the conversation is kept: a retry continues it",)
    return failure(ending, f"{what} {how}{words}", runtime=OPEN_CODE.name, advice=advice)


def hangs(what: str, seconds: float) -> Failure:
    said = f"{what} has not answered for {seconds:g} s and was ended"
    return failure(TurnEnding.DIED, said, runtime=OPEN_CODE.name, advice=("try it by hand: opencode run 'say hello'",))


def session_lost(session: str) -> Failure:
    return Failure(
        Category.TRANSIENT,
        f"{OPEN_CODE.name}: the conversation {session} no longer exists",
        advice=("a retry begins a new one", "opencode session list"),
    )


def bound_elsewhere(session: str, folder: str) -> Failure:
    return Failure(
        Category.TRANSIENT,
        f"{OPEN_CODE.name}: the conversation {session} belongs to another folder, {folder}",
        advice=("a retry begins a new one",),
    )


def no_copy(version: str) -> Failure:
    return Failure(
        Category.TRANSIENT, f"{OPEN_CODE.name}: OpenCode {version} cannot copy the conversation of another execution"
    )


def too_many_turns(limit: int) -> Failure:
    return failure(TurnEnding.TURNS, f"not done after {limit} turns, the limit for this step", runtime=OPEN_CODE.name)


def untrusted_settings(found: str, version: str) -> Failure:
    return Failure(
        Category.PERMISSION,
        f"{OPEN_CODE.name}: {found} would take effect, the folder is not trusted, and OpenCode {version} cannot leave"
        " it out",
        advice=(
            "look at it; if you trust this folder: windlass trust DIR",
            f"a newer OpenCode can: {OPEN_CODE.install}",
        ),
        elsewhere=True,
    )


def untrusted_plugin(found: str, version: str) -> Failure:
    return Failure(
        Category.PERMISSION,
        f"{OPEN_CODE.name}: {found} would take effect, the folder is not trusted, and OpenCode {version} cannot leave"
        " plugins and references out",
        advice=("look at it; if you trust this folder: windlass trust DIR",),
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
