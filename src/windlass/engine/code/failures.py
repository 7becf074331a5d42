"""Failures for the end of a program or of a call, with advice for people."""

from __future__ import annotations

import asyncio
import math

import msgspec

from windlass.engine.gates import TookTooLong
from windlass.errors import CUT_OFF, Category, Failure, Trouble, classify
from windlass.ports import ProgramError
from windlass.process import ProcessLost

__all__ = ["failure_of", "raised"]

_CATEGORIES: dict[Trouble, Category] = {
    "memory": Category.RESOURCE,
    "stack": Category.RESOURCE,
    "cpu": Category.RESOURCE,
    "wall": Category.RESOURCE,
    "calls": Category.RESOURCE,
    "output": Category.RESOURCE,
    "log": Category.RESOURCE,
    "lost": Category.TRANSIENT,
}
_ADVICE: dict[Trouble, str] = {
    "syntax": "fix the program: it must be the body of an async JavaScript function",
    "thrown": "handle the error with try … catch, or fix the program",
    "unhandled": "await every call, and handle its errors",
    "stalled": "return a value, and await only the results of tools",
    "memory": "use less memory, or raise limits.memory of the step",
    "stack": "use a loop instead of recursion",
    "cpu": "compute less, move the work into a tool, or raise limits.cpu of the step",
    "wall": "call slower tools from steps of their own, or raise limits.wall of the step",
    "calls": "make fewer calls, or raise limits.calls of the step",
    "output": "write large results to a file and return its path, or raise limits.output of the step",
    "log": "log less, or raise limits.log of the step",
    "depth": "nest fewer composed tools",
    "marshal": "return plain data: text, numbers, true, false, null, lists and objects",
    "lost": "check the sandbox: windlass doctor",
    "diverged": "run this step from its start in a new execution: windlass fork ID --from STEP",
}
_NOT_THE_SAME_AGAIN = frozenset({"wall", "lost", "thrown", "unhandled"})
"""Ways to end that a replay from the start may avoid."""


def failure_of(error: ProgramError, cause: Failure | None = None) -> Failure:
    """The failure that a program's end means. `cause` is that of the call which it did not catch."""
    advice = _ADVICE[error.trouble]
    if cause is not None:
        how = "" if error.trouble == "thrown" else f"{error.message}; "
        message = f"{how}call {error.call} ({cause.where}): {cause.message}"
        kind = cause.kind if cause.kind in _ADVICE else error.trouble  # how a program ended that it had called
        return Failure(
            cause.category,
            message,
            advice=(*cause.advice, advice),
            retry_after=cause.retry_after,
            kind=kind,
            final=cause.final,
        )
    category = _CATEGORIES.get(error.trouble, Category.LOGIC)
    final = error.trouble not in _NOT_THE_SAME_AGAIN
    return Failure(category, error.message, advice=(advice,), kind=error.trouble, final=final)


def raised(error: BaseException) -> Failure:
    """The failure of a call for this exception of its tool, as the journal can hold it."""
    if isinstance(error, asyncio.CancelledError):
        return Failure(Category.LOGIC, "the tool cancelled itself")
    failure = classify(error)
    wait = failure.retry_after
    return msgspec.structs.replace(
        failure,
        message=_plain(failure.message),
        where=_plain(failure.where),
        advice=tuple(map(_plain, failure.advice)),
        retry_after=wait if wait is not None and math.isfinite(wait) else None,
        kind=CUT_OFF if isinstance(error, ProcessLost | TookTooLong) else _plain(failure.kind),
    )


def _plain(text: object) -> str:
    """An exception may hold a file's name that is not UTF-8."""
    return str(text).encode("utf-8", "replace").decode()
