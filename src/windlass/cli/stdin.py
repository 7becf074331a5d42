"""Text from standard input, where `-` takes the place of a file or a text."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from windlass.cli.session import say
from windlass.errors import UsageError
from windlass.regular import read_stdin

if TYPE_CHECKING:
    from windlass.engine.engine import Engine
    from windlass.engine.plans import LoadedPlan

__all__ = ["load_plan", "stdin_text"]


def stdin_text() -> str:
    """All of it. A person at a terminal is told how to end it."""
    if sys.stdin is not None and sys.stdin.isatty():
        say("reading standard input: end it with Ctrl-D")
    try:
        return read_stdin().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"standard input is not UTF-8 text: {error.reason} at byte {error.start}") from None
    except OSError as error:
        raise UsageError(f"standard input cannot be read: {error.strerror}") from None


def load_plan(engine: Engine) -> LoadedPlan:
    """The plan on standard input."""
    from windlass.engine.run_request import RunRequest

    return RunRequest(plan_text=stdin_text(), plan_name="stdin").load(engine)
