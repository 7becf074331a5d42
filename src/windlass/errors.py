"""Failures and exceptions, with advice.

Two families live here:

- `Failure` is a value: the recorded end of an attempt or a step that did not work. It has a
  category, which alone decides about retries (see `core/retry.py`), and advice for a person.
- `WindlassError` and its children are exceptions of the engine itself. The class says what the caller
  does about it; `exit_code` is what the CLI ends with.

`ToolError` is the bridge: a tool raises it to say exactly which Failure it means.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any, Literal, TypeVar

import msgspec

__all__ = [
    "CUT_OFF",
    "MODEL_API",
    "REFUSED_CONTENT",
    "UNAVAILABLE",
    "Ambiguous",
    "ApprovalOutdated",
    "CannotResume",
    "Category",
    "Conflict",
    "Damaged",
    "Failure",
    "InputInvalid",
    "JournalError",
    "NotFound",
    "NotPermitted",
    "PlanInvalid",
    "Problem",
    "ToolError",
    "Trouble",
    "UsageError",
    "Vanished",
    "WindlassError",
    "classify",
    "ordinary",
]


class Category(StrEnum):
    """Cause of an attempt's failure, as far as it matters for trying again (C3)."""

    TRANSIENT = "transient"
    """A temporary error: the same call may work in a moment."""
    CONFIGURATION = "configuration"
    """Something is set up wrong: a person must correct it."""
    PERMISSION = "permission"
    """Access was refused: worth one retry after credentials are refreshed."""
    RESOURCE = "resource"
    """Something ran out: worth a retry that uses less."""
    LOGIC = "logic"
    """The request makes no sense as it stands: the same call would fail again."""


CUT_OFF = "cut_off"
"""The `kind` of a failure with unknown effect: a step that must not be repeated asks a person."""


MODEL_API = "model_api"
"""The `kind` of a failure of the model API itself, which passes: an agent step waits for it with patience."""

REFUSED_CONTENT = "refused_content"
"""The `kind` of a failure of an agent's conversation: the model does not take it, so that no attempt goes on in it."""

UNAVAILABLE = "unavailable"
"""The `kind` of a failure of a runtime that could not be begun: it is missing, broken or too old."""


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reason why something did not work, and advice."""

    category: Category
    message: str
    where: str = ""
    """The step, file or tool it happened in."""
    advice: tuple[str, ...] = ()
    """Next actions for a person, most useful first."""
    retry_after: float | None = None
    """Seconds the other side asked us to wait before trying again."""
    resets_at: float | None = None
    """Time when the used-up quota comes back, in seconds since the epoch: wait until then."""
    elsewhere: bool = False
    """Another runtime could survive it."""
    kind: str = ""
    """A finer distinction for programs, such as the way in which a program in the sandbox ended."""
    final: bool = False
    """Trying again would end the same, in spite of the category."""

    def located(self, where: str) -> Failure:
        return self if self.where else msgspec.structs.replace(self, where=where)


def _unpickled(kind: type[_Error], args: tuple[Any, ...], fields: dict[str, Any]) -> _Error:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class _Copied(Exception):
    """An exception that is copied and pickled as it is; Python would call its class with the text alone."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.args, self.__dict__)


_Error = TypeVar("_Error", bound=_Copied)


class WindlassError(_Copied):
    """Base of every error the engine itself raises."""

    exit_code = 1

    def __init__(self, message: str, *, advice: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.message = message
        self.advice = tuple(advice)

    @property
    def failure(self) -> Failure:
        return Failure(self.category, self.message, advice=self.advice)

    category = Category.LOGIC


class UsageError(WindlassError):
    """The request itself is wrong: nothing was started."""

    exit_code = 2
    category = Category.CONFIGURATION


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing wrong with a plan, and where it stands."""

    message: str
    file: str = ""
    line: int | None = None
    column: int | None = None
    where: str = ""
    """The path inside the plan, e.g. `steps[2].needs`."""
    hint: str = ""
    """The nearest known word, or the next thing to type."""

    def __str__(self) -> str:
        place = ":".join(str(p) for p in (self.file, self.line, self.column) if p not in ("", None))
        text = f"{place}: {self.message}" if place else self.message
        return f"{text} ({self.hint})" if self.hint else text


MOST_PROBLEMS = 50
"""Problems of a plan that are printed; the exception holds them all."""


def _indented(text: str) -> str:
    """An item of a list: a line break in it cannot begin another item."""
    return text.replace("\n", "\n    | ")


class PlanInvalid(UsageError):
    """A plan has problems; all of them are listed."""

    subject = "the plan"

    def __init__(self, problems: Iterable[Problem], *, advice: Sequence[str] = ()) -> None:
        self.problems = tuple(problems)
        count = len(self.problems)
        head = f"{count} problem{'' if count == 1 else 's'} in {self.subject}"
        lines = [f"  {_indented(str(problem))}" for problem in self.problems[:MOST_PROBLEMS]]
        if count > MOST_PROBLEMS:
            lines.append(f"  … and {count - MOST_PROBLEMS} more")
        super().__init__("\n".join([f"{head}:", *lines]), advice=advice)


class InputInvalid(PlanInvalid):
    """Values that were given for the inputs of a plan do not fit it; all problems are listed."""

    subject = "the given inputs"


class NotFound(UsageError):
    """No execution (or step, or file) of that name."""


class Ambiguous(UsageError):
    """A shortened id fits several executions."""


class CannotResume(UsageError):
    """The execution cannot go on as it is; every reason is listed."""

    def __init__(self, reasons: Sequence[str], *, advice: Sequence[str] = ()) -> None:
        self.reasons = tuple(reasons)
        lines = "\n".join(f"  - {_indented(reason)}" for reason in self.reasons)
        super().__init__(f"this execution cannot be resumed as it is:\n{lines}", advice=advice)


class NotPermitted(WindlassError):
    """A person has not allowed it."""

    exit_code = 4
    category = Category.PERMISSION


class JournalError(WindlassError):
    """The journal cannot be read or written: locked, foreign, full, read-only, newer."""

    category = Category.RESOURCE


class Damaged(JournalError):
    """The record of one execution cannot be read. No other execution is affected."""

    def __init__(self, execution: str, seq: int, reason: str, *, advice: Sequence[str] = ()) -> None:
        self.execution = execution
        self.seq = seq
        """The first event that cannot be read."""
        self.reason = reason
        ways = (
            f"restore it from its checkpoint file, executions/{execution}.json in the home: windlass restore FILE",
            "remove it: windlass clean --damaged",
        )
        message = f"execution {execution} is damaged: event {seq} of it cannot be read: {reason}"
        super().__init__(message, advice=(*advice, *ways))


class Vanished(JournalError):
    """The home or its database was deleted, replaced or cut while it was in use."""


class Conflict(WindlassError):
    """Another driver went on with this execution: our view of it is stale, and nothing was written."""


Trouble = Literal[
    "syntax",
    "thrown",
    "unhandled",
    "stalled",
    "memory",
    "stack",
    "cpu",
    "wall",
    "calls",
    "output",
    "log",
    "depth",
    "marshal",
    "lost",
    "diverged",
]
"""Ways a program can end without a result: it is no program; it threw; a rejected promise was not handled; it waits for
nothing; a limit; its value cannot be passed on; its worker died; its replay took another path."""


class ToolError(_Copied):
    """A tool says how it failed. Raise it from your own tools to choose the category."""

    def __init__(
        self,
        message: str,
        *,
        category: Category | str = Category.LOGIC,
        advice: Sequence[str] = (),
        retry_after: float | None = None,
        output: Any = None,
    ) -> None:
        super().__init__(message)
        self.output = output
        """Output from before the failure: kept with the failed step."""
        self.failure = Failure(Category(category), message, advice=tuple(advice), retry_after=retry_after)

    @classmethod
    def of(cls, failure: Failure, output: Any = None) -> ToolError:
        """The error that means exactly this failure."""
        error = cls(failure.message, category=failure.category, output=output)
        error.failure = failure
        return error


class ApprovalOutdated(ToolError):
    """A person allowed something else than what would be done now: nothing was done, and it is asked anew."""

    def __init__(self, changes: Sequence[str]) -> None:
        super().__init__("; ".join(changes), advice=("see the open question: windlass approvals",))
        self.changes = tuple(changes)


_RESOURCE_ERRNOS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.EFBIG,
}


def classify(error: BaseException) -> Failure:
    """The Failure that an exception out of a tool means, when the tool did not say so itself."""
    match error:
        case ToolError():
            return error.failure
        case WindlassError():
            return error.failure
        case MemoryError():
            return Failure(Category.RESOURCE, "out of memory", advice=("give the step less to do",))
        case PermissionError():
            return Failure(Category.PERMISSION, _text(error))
        case TimeoutError() | ConnectionError():
            return Failure(Category.TRANSIENT, _text(error))
        case FileNotFoundError() | NotADirectoryError() | ImportError():
            return Failure(Category.CONFIGURATION, _text(error))
        case OSError() if error.errno in _RESOURCE_ERRNOS:
            return Failure(Category.RESOURCE, _text(error))
        case _:
            return Failure(Category.LOGIC, _text(error))


def _text(error: BaseException) -> str:
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def ordinary(error: BaseException) -> BaseException:
    """The error of a tool, as one that fails its attempt alone. Some libraries raise others (a panic in Rust)."""
    import asyncio  # here it is loaded already; errors are needed by what runs without it

    if isinstance(error, Exception | SystemExit | asyncio.CancelledError | GeneratorExit) or _is_ctrl_c(error):
        return error
    plain = RuntimeError(f"the tool raised {type(error).__name__}: {error}".removesuffix(": "))
    plain.__cause__ = error
    return plain


def _is_ctrl_c(error: BaseException) -> bool:
    """Tell if the handler of SIGINT raised it, and not the tool: Python's own leaves no trace, asyncio's does."""
    import asyncio  # as above
    import signal
    import threading
    import traceback

    if not isinstance(error, KeyboardInterrupt) or threading.current_thread() is not threading.main_thread():
        return False
    raised = [frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)]
    return signal.getsignal(signal.SIGINT) is signal.default_int_handler or raised[-1:] == [asyncio.runners.__file__]
