"""Print the man page windlass(1), made from the commands themselves: `python scripts/man_page.py > dist/windlass.1`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from datetime import UTC, datetime

import click

from windlass.cli.app import GROUPS, app
from windlass.version import __version__

FILES = (
    (".windlass/", "the home of a project: its journal, its checkpoints and its settings"),
    ("~/.config/windlass/config.toml", "your own settings"),
)


def commands(command: click.Command, called: str) -> Iterator[tuple[str, click.Command]]:
    """Every command that a user sees, with its whole name; a group that does nothing by itself is left out."""
    if command.callback and not command.hidden:
        yield called, command
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            yield from commands(command.commands[name], f"{called} {name}")


def records(command: click.Command, called: str) -> tuple[str, list[tuple[str, str]]]:
    """The usage of a command, and its arguments and options with their help."""
    context = click.Context(command, info_name=called, **command.context_settings)
    usage = " ".join(command.collect_usage_pieces(context))
    shown = (param.get_help_record(context) for param in command.get_params(context))
    return usage, [record for record in shown if record is not None]


def texts(command: click.Command) -> Iterator[tuple[bool, str]]:
    """The paragraphs of its help; true with one whose lines stay as they are."""
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        as_is = paragraph.startswith("\b")
        yield as_is, paragraph.lstrip("\b\n") if as_is else " ".join(paragraph.split())


def page(made: datetime) -> str:
    lines = [
        f'.TH WINDLASS 1 "{made:%Y-%m-%d}" "windlass {__version__}" "User Commands"',
        ".SH NAME",
        "windlass \\- run plans that survive crashes and resume where they stopped",
        ".SH SYNOPSIS",
        ".B windlass",
        "[\\fIOPTIONS\\fR] \\fICOMMAND\\fR [\\fIARGS\\fR]...",
        ".SH DESCRIPTION",
    ]
    for as_is, text in texts(app):
        lines += [".PP", *([".nf", _escaped(text), ".fi"] if as_is else [_escaped(text)])]
    lines += [".SH OPTIONS", *_records(records(app, "windlass")[1])]
    for title, group in GROUPS.items():
        if title:
            lines.append(f'.SH "{title.upper()}"')
        for name in group if title else ():
            for called, command in commands(app.commands[name], f"windlass {name}"):
                lines += _command(called, command)
    lines += [".SH FILES"]
    for file, meaning in FILES:
        lines += [".TP", f".I {_escaped(file)}", _escaped(meaning)]
    lines += [".SH EXIT STATUS", _escaped((app.epilog or "").partition(": ")[2])]
    return "\n".join(lines) + "\n"


def _command(called: str, command: click.Command) -> Iterator[str]:
    usage, shown = records(command, called)
    yield from (f'.SS "{called}"', f".B {called}", _escaped(usage))
    for as_is, text in texts(command):
        yield ".PP"
        yield from (".nf", _escaped(text), ".fi") if as_is else (_escaped(text),)
    yield from _records(shown)


def _records(shown: list[tuple[str, str]]) -> Iterator[str]:
    for names, meaning in shown:
        yield from (".TP", f".B {_escaped(names)}", _escaped(meaning))


def _escaped(text: str) -> str:
    """Text that roff shows as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return re.sub(r"^([.'])", r"\\&\1", text, flags=re.MULTILINE)


if __name__ == "__main__":
    sys.stdout.write(page(datetime.now(UTC)))
