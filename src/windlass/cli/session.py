"""Shared by every command: opening the engine or only its records, asking people, reporting errors, exit codes.

Every command imports this module, so it imports nothing that only some of them use.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import click

from windlass.cli.command import Option
from windlass.cli.terminal import as_message
from windlass.errors import CannotResume, Conflict, InputInvalid, PlanInvalid, UsageError, WindlassError
from windlass.visible import one_line

if TYPE_CHECKING:
    from windlass.core.state import State
    from windlass.engine.engine import Engine
    from windlass.engine.observer import Observer
    from windlass.journal.stores import HomeStores
    from windlass.ports import Journal

__all__ = [
    "STDIN",
    "AsJson",
    "AsJsonLines",
    "CommandEnd",
    "Home",
    "Yes",
    "as_typed",
    "ask_trust",
    "exit_code",
    "leave_stderr_to_events",
    "out",
    "out_lines",
    "print_json",
    "refuse_postgres",
    "remember_home",
    "report_error",
    "say",
    "say_lines",
    "stores_of",
    "suggest",
    "who",
    "with_engine",
    "with_observer",
]

STDIN = Path("-")
"""Takes the place of a file: standard input is read (`cli/stdin.py`)."""

T = TypeVar("T")
AsJson = Annotated[bool, Option("--json", help="Print one JSON object on stdout")]
AsJsonLines = Annotated[bool, Option("--json", help="Print one JSON object a line on stdout")]
Home = Annotated[str | None, Option("--home", metavar="DIR", help="State directory")]


def _said_by_a_person(yes: bool) -> bool:
    """Ignore `--yes` from a step that started this process: only a person can answer."""
    if not yes:
        return False
    from windlass.process import attempt_above

    if (source := attempt_above()) is not None:
        say(f"--yes has no effect here: this command runs inside {source}")
        return False
    return True


Yes = Annotated[
    bool, Option("--yes", "-y", help="Answer yes to every question", callback=lambda yes: _said_by_a_person(yes))
]


class CommandEnd(Exception):
    """End the command with this exit code; everything has been said."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


_home_flag = ""


def remember_home(home: str) -> None:
    """Add this home to the commands that we print, so that they find the same executions."""
    global _home_flag
    _home_flag = os.path.abspath(os.path.expanduser(home))


def as_typed(text: str) -> str:
    """Our own commands in a text with the `--home` that they need."""
    if not _home_flag:
        return text
    return re.sub(r"\bwindlass (?=[a-z]+\b)", lambda _: f"windlass --home {shlex.quote(_home_flag)} ", text)


_only_events = False


def leave_stderr_to_events() -> None:
    """Silence remarks for people: a program reads stderr line by line (`--progress=rawjson`). Errors still go there."""
    global _only_events
    _only_events = True


def say(text: str) -> None:
    """Print progress and remarks to stderr, so that stdout holds data only."""
    if not _only_events:
        _write(text)


def say_lines(text: str) -> None:
    """Say each line of a text that we laid out ourselves: JSON, a difference, a list."""
    for line in text.split("\n"):
        say(line)


def _write(text: str) -> None:
    sys.stdout.flush()  # both may go to one place: what was printed first stands first
    sys.stderr.write(as_message(text) + "\n")
    sys.stderr.flush()


def out(text: str) -> None:
    """One line of data on stdout."""
    sys.stdout.write(as_message(text) + "\n")


def out_lines(text: str) -> None:
    """Data of several lines on stdout, laid out by us, or one text that stands alone."""
    sys.stdout.write(text + "\n")


def suggest(text: str) -> None:
    """Say something that names a command to type next."""
    say(as_typed(text))


def print_json(value: Any) -> None:
    ascii_only = sys.stdout.encoding.lower() not in ("utf-8", "utf8")  # `\xfc` would be no JSON
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=ascii_only) + "\n")
    sys.stdout.flush()


def who() -> str:
    """The user's name, as far as the system knows it."""
    import getpass

    try:
        return getpass.getuser().encode(errors="replace").decode()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def attended() -> bool:
    """Tell whether a person can be asked; a terminal that a step has made has nobody at it."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return False
    from windlass.process import attempt_above

    return attempt_above() is None


def ask_trust(yes: bool) -> Callable[[Path, list[Path]], bool] | None:
    """Give a function that asks if a folder's code may run; None when nobody is there to be asked."""
    if yes:
        return lambda _folder, _files: True
    if not attended():
        return None

    def ask(folder: Path, files: list[Path]) -> bool:
        names = ", ".join(one_line(file.name) for file in files)
        return click.confirm(
            f"The plan loads Python code ({names}) from {one_line(str(folder))}.\n"
            "It runs with all your permissions. Trust this folder?",
            err=True,
        )

    return ask


def with_engine(
    work: Callable[[Engine], Awaitable[T]],
    home: str | None = None,
    *,
    yes: bool = False,
    make: bool = False,
    **flags: Any,
) -> T:
    """Open the engine, do the work, close it. Only what starts something may `make` a home. `flags` are settings."""
    import asyncio

    from windlass.assembly import open_engine

    if home:
        remember_home(home)

    async def main() -> T:
        async with open_engine(home, ask=ask_trust(yes), make=make, **flags) as engine:
            result = await work(engine)
        for execution, reason in engine.checkpoint_failures.items():
            say(f"warning: could not write a checkpoint file of {execution}: {reason}")
        if engine.telemetry is not None and (trouble := engine.telemetry.trouble):
            say(f"warning: {trouble}")
        for trouble in engine.notifier.troubles if engine.notifier is not None else ():
            say(f"warning: notification {trouble}")
        return result

    return asyncio.run(main())


def with_observer(work: Callable[[Observer, Path], Awaitable[T]], home: str | None = None) -> T:
    """Open only the journal of a home, for reading; `work` is given the home, too.

    Looking needs no engine, no settings and no tools, and importing those takes longer than looking.
    """
    from windlass.engine.observer import Drivers, Observer
    from windlass.homes import find_home

    return with_journal(lambda journal: work(Observer(Drivers(journal)), find_home(home)), home)


def with_journal(work: Callable[[Journal], Awaitable[T]], home: str | None = None) -> T:
    """Open only the journal of a home."""
    import asyncio

    from windlass.homes import find_home

    if home:
        remember_home(home)

    async def main() -> T:
        journal = _journal_in(find_home(home))
        try:
            return await work(journal)
        finally:
            await journal.close()

    return asyncio.run(main())


def _journal_in(folder: Path) -> Journal:
    stores = stores_of(folder)
    if not stores.exist:  # it looks empty, and nothing is made
        from windlass.journal.memory import MemoryJournal

        return MemoryJournal()
    return stores.journal()


def stores_of(folder: Path) -> HomeStores:
    """The stores of a home, without the settings that only an engine needs."""
    from windlass.homes.journal_url import find_journal
    from windlass.journal.stores import HomeStores

    return HomeStores(folder, find_journal())


def refuse_postgres(command: str, instead: str) -> None:
    """Refuse what works on the files of a home alone, where its journal is in PostgreSQL."""
    from windlass.homes.journal_url import find_journal

    if (url := find_journal()) is not None:
        raise UsageError(f"{command} is for journals in SQLite, and this one is in {url}", advice=(instead,))


_STANDING = {"interrupt": 130, "budget": 5, "quota": 6}
"""Exit codes for a paused execution, by the reason; else 3."""


def exit_code(state: State) -> int:
    from windlass.core.transitions import ExecutionStatus

    match state.status:
        case ExecutionStatus.COMPLETED:
            return 0
        case ExecutionStatus.PAUSED:
            return _STANDING.get(state.paused_for, 3)
        case ExecutionStatus.PENDING | ExecutionStatus.RUNNING:
            return 3
        case _:
            return 1


def report_error(error: WindlassError, as_json: bool, command: str = "") -> int:
    """Print an error with advice. `command` is the one that was typed, like `tools show`."""
    from windlass.cli.install_advice import fitting_install

    failure = error.failure
    advice = [fitting_install(as_typed(line)) for line in failure.advice or _usual_advice(error, command)]
    if as_json:
        told: dict[str, Any] = {
            "category": str(failure.category),
            "message": failure.message,
            "where": failure.where,
            "advice": advice,
        }
        if isinstance(error, PlanInvalid):
            import msgspec

            told["problems"] = [msgspec.to_builtins(problem) for problem in error.problems]
        print_json({"error": told})
    listed = isinstance(error, PlanInvalid | CannotResume)  # their lines are ours, an item each
    for line in f"windlass: {error.message}".split("\n") if listed else [f"windlass: {error.message}"]:
        _write(fitting_install(line) if isinstance(error, PlanInvalid) else line)
    for line in advice:
        _write(f"  → {line}")
    return error.exit_code


def _usual_advice(error: WindlassError, command: str) -> tuple[str, ...]:
    """A command that helps with an error that brings no advice of its own."""
    match error:
        case InputInvalid():
            return (f"correct what is given with -i KEY=VALUE; see its options: windlass {command} --help",)
        case PlanInvalid() if file := next((problem.file for problem in error.problems if problem.file), ""):
            if file in ("stdin.yaml", "stdin.json") and not os.path.exists(file):
                file = "-"
            return (f"fix it, then check again: windlass plan check {shlex.quote(file)}",)
        case UsageError():
            return (f"see its options: windlass {command} --help".replace("  ", " "),)
        case Conflict():
            return ("check the status, then repeat the command: windlass list",)
        case _:
            return ("check this machine and this home: windlass doctor",)
