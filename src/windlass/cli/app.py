"""The commands, put together. Each group lives in a module of its own and imports what it needs when it runs."""

from __future__ import annotations

import logging
import os
import sys
from typing import Annotated

import typer
from typer.core import TyperGroup

from windlass.cli import (
    adopt,
    agents,
    backup,
    budget,
    control,
    demo,
    doctor,
    keep,
    look,
    mcp,
    plans,
    redo,
    run,
    serve,
    tools,
    trust,
    undo,
)
from windlass.cli.session import Stop, remember_home, report_error
from windlass.errors import WindlassError

__all__ = ["app", "run_app"]

# What the engine logs is for servers; a command raises the same to whoever typed it.
logging.getLogger("windlass.engine").addHandler(logging.NullHandler())

app = typer.Typer(
    name="windlass",
    help="Run plans of steps durably: what it says is done, is done.",
    epilog="Exit codes: 0 completed, 1 failed or partial, 2 usage or invalid plan, 3 stopped and can be resumed, "
    "4 not permitted, 5 budget, 6 waiting for quota, 130 interrupted.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def options(
    home: Annotated[
        str | None, typer.Option("--home", metavar="DIR", help="Folder of state (default: .windlass)")
    ] = None,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version")] = False,
) -> None:
    """What holds for every command."""
    if home:
        os.environ["WINDLASS_HOME"] = home
        remember_home(home)
    if version:
        from windlass.version import __version__

        sys.stdout.write(f"windlass {__version__}\n")
        raise typer.Exit


for group in (
    run,
    look,
    control,
    redo,
    budget,
    agents,
    tools,
    keep,
    backup,
    plans,
    trust,
    adopt,
    doctor,
    mcp,
    demo,
    serve,
    undo,
):
    group.register(app)


def run_app() -> None:
    """Run the command; every error that is meant for people ends in words and an exit code."""
    try:
        app()
    except Stop as stop:
        sys.exit(stop.code)
    except WindlassError as error:
        sys.exit(report_error(error, "--json" in sys.argv, _command_in(sys.argv[1:])))
    except BrokenPipeError:
        # The reader of our output went away (`windlass list | head`): nothing to say, nowhere to say it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _command_in(words: list[str]) -> str:
    """The command among what was typed, like `tools show`."""
    group, found = typer.main.get_command(app), list[str]()
    for word in words:
        if isinstance(group, TyperGroup) and word in group.commands:
            group = group.commands[word]
            found.append(word)
        elif found:
            break
    return " ".join(found)
