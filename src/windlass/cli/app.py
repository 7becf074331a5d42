"""The commands, put together. `GROUPS` names them all; a command's module is imported when it is called."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import click

from windlass.cli.command import Group, Option
from windlass.cli.session import CommandEnd, out_lines, remember_home, report_error
from windlass.cli.terminal import OutputLost
from windlass.errors import WindlassError

__all__ = ["COMMANDS", "app", "run_app"]

# Their logs are for servers; a command reports the same as an error or a warning.
for _name in ("windlass.engine", "windlass.notify", "windlass.telemetry"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class _Known(NamedTuple):
    module: str
    """The module of `windlass.cli` that registers the command."""
    help: str
    """The first line of its help."""


GROUPS = {
    "Begin": {
        "init": _Known("init", "Write a plan to begin with, and make the home of its executions."),
        "run": _Known("run", "Run a plan, or a task for agents, and show its progress."),
        "demo": _Known("demo", "Run a small real plan with shell, files, a fan-out, a retry and a scripted agent."),
        "doctor": _Known("doctor", "Check this machine and this home; exit code 1 if something is wrong."),
        "config": _Known("config", "Show and change settings."),
        "docs": _Known("docs", "Show a page of the documentation; without PAGE, list them."),
    },
    "Follow": {
        "resume": _Known("run", "Continue an execution that was paused, interrupted or cut off by a crash."),
        "watch": _Known("run", "Follow an execution from any terminal until it ends or pauses."),
        "status": _Known("status", "Show an execution's status; without ID, list unfinished ones."),
        "list": _Known("look", "List executions, newest first."),
        "logs": _Known("record", "Show an execution's events, with the output of its steps."),
        "history": _Known("history", "Show what past executions took, waited for and cost."),
        "budget": _Known("budget", "Show spending, reservations and limits for today and this month."),
    },
    "Answer and control": {
        "approvals": _Known("record", "List the steps that are waiting for approval."),
        "approve": _Known("control", "Approve or deny a step that is waiting for approval."),
        "pause": _Known("control", "Pause: let running steps finish, start no new ones."),
        "interrupt": _Known("control", "Stop running steps with all their processes, and pause."),
        "cancel": _Known("control", "Stop running steps and end the execution for good."),
        "retry": _Known("redo", "Run a failed step again, in the same execution."),
        "skip": _Known("redo", "Continue without a step, in the same execution."),
        "fork": _Known("keep", "Start a new execution from a step of an earlier one, keeping the results before it."),
    },
    "Agents": {
        "say": _Known("say", "Say something to an agent."),
        "transcript": _Known("transcript", "Show an agent's conversation: prompts, replies, calls and results, whole."),
        "context": _Known("context", "Show the tokens, window and summaries of an execution's agents."),
        "diff": _Known("diff", "Show the files that agents changed."),
        "undo": _Known("redo", "Undo the file changes of a finished step, unless a file was changed since."),
        "verify": _Known("redo", "Run the checks of agents' work again, without the agents."),
        "workspaces": _Known("diff", "List the folders of agents with the state of their work, or clean up."),
        "agents": _Known("agents", "List the roles and skills that agents can be given."),
        "scripted-model": _Known(
            "scripted_model",
            "Serve a script in place of a model, while COMMAND runs; without one, until SIGTERM or Ctrl-C.",
        ),
    },
    "Plans and tools": {
        "plan": _Known("plans", "Check, show, estimate or draft a plan without running it."),
        "tools": _Known("tools", "List, check, try and save tools."),
    },
    "Serve": {
        "serve": _Known("serve", "Serve this home over HTTP: the dashboard, the API, the live stream and MCP."),
        "mcp": _Known("mcp", "Serve an MCP client over stdin and stdout."),
        "worker": _Known("worker", "Run steps of executions that several machines share, until SIGTERM or Ctrl-C."),
        "workers": _Known("worker", "List the workers of the journal's database, and the steps that they run now."),
        "schedule": _Known("schedule", "Start plans by their triggers, and ask why one did not start."),
        "notify": _Known("notify", "Test the notifications of your settings, and list sent ones."),
    },
    "Keep": {
        "checkpoint": _Known("keep", "Write an execution to a portable file and print its path."),
        "restore": _Known("keep", "Restore an execution from a checkpoint file, or a whole home from a backup."),
        "backup": _Known("backup", "Write the whole home to one file, while executions run."),
        "clean": _Known("keep", "Remove old finished executions with their files."),
        "journal": _Known("journal", "Copy a journal to another home or database."),
        "trust": _Known(
            "trust", "Trust a folder: load its Python tools and its settings for Claude Code and OpenCode."
        ),
        "adopt": _Known("adopt", "Take over a home that was not made here, after showing its contents."),
    },
    "": {"_drive": _Known("run", "")},
}
"""Every command in the order of the help, so that neither `--help` nor another command imports it."""
COMMANDS = {name: known for group in GROUPS.values() for name, known in group.items()}


class _Commands(MutableMapping[str, click.Command]):
    """The commands by name, each made when it is first asked for."""

    def __init__(self) -> None:
        self._made: dict[str, click.Command] = {}

    def __getitem__(self, name: str) -> click.Command:
        if name not in self._made:
            group = Group()
            import_module(f"windlass.cli.{COMMANDS[name].module}").register(group)
            self._made |= group.commands
        return self._made[name]

    def __setitem__(self, name: str, command: click.Command) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        del self._made[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Root(Group):
    """The command `windlass`: its help is written from `COMMANDS` alone."""

    def __init__(self, name: str, **given: Any) -> None:
        super().__init__(name, **given)
        self.commands = _Commands()

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, group in GROUPS.items():
            if title:
                with formatter.section(title):
                    formatter.write_dl([(name, known.help) for name, known in group.items()], col_max=14)


app = _Root(
    "windlass",
    help="""Run multi-step plans that survive crashes and resume where they stopped.

    \b
    windlass init              a plan to begin with
    windlass run plan.yaml     run it, and see its progress
    windlass status @last      how the newest execution stands
    windlass resume @last      go on where it stopped
    """,
    epilog="Exit codes: 0 completed, 1 failed or partial, 2 usage or invalid plan, 3 stopped and can be resumed, "
    "4 not permitted, 5 budget, 6 waiting for quota, 130 interrupted.",
)


def options(
    home: Annotated[str | None, Option("--home", metavar="DIR", help="State directory (default: .windlass)")] = None,
    version: Annotated[bool, Option("--version", "-V", help="Show the version")] = False,
    install: Annotated[bool, Option("--install-completion", help="Install completion for your shell")] = False,
    show: Annotated[bool, Option("--show-completion", help="Print the completion script of your shell")] = False,
) -> None:
    """Options of every command."""
    if home:
        os.environ["WINDLASS_HOME"] = home
        remember_home(home)
    if version:
        from windlass.version import __version__

        sys.stdout.write(f"windlass {__version__}\n")
        raise CommandEnd(0)
    if install or show:
        from windlass.cli.completion import completion_script, install_completion

        out_lines(completion_script(app) if show else f"Written to {install_completion(app)}: open a new shell.")
        raise CommandEnd(0)
    if click.get_current_context().invoked_subcommand is None:
        out_lines(app.get_help(click.get_current_context()))
        raise CommandEnd(2)


app.main_function(options)


def run_app() -> None:
    """Run the command; every error that is meant for people ends in words and an exit code."""
    try:
        code = _run_command()
        sys.stdout.flush()
    except OutputLost as lost:
        if not lost.reader_left:  # `windlass list | head` has what it wanted
            sys.stderr.write(f"windlass: {lost}\n")
        code = 1
    sys.exit(code)


def _run_command() -> int:
    try:
        app.main(prog_name="windlass", standalone_mode=False)
    except CommandEnd as stop:
        return stop.code
    except WindlassError as error:
        return report_error(error, "--json" in sys.argv, _command_in(sys.argv[1:]))
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort as abort:
        if isinstance(abort.__cause__, KeyboardInterrupt):
            return 130
        sys.stderr.write("Aborted!\n")
        return 1
    return 0


def _command_in(words: list[str]) -> str:
    """The command among what was typed, like `tools show`."""
    commands: Mapping[str, click.Command] = app.commands
    found: list[str] = []
    for word in words:
        if word in commands:
            commands = getattr(commands[word], "commands", {})
            found.append(word)
        elif found:
            break
    return " ".join(found)
