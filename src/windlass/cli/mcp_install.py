"""Writes the one entry into a client's settings that lets it start `windlass mcp`.

What else stands in the file stays, in its order. A file that is not plain JSON (with comments, say) is not touched:
what would have to stand in it is said instead. The change is shown before it is made.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import click

from windlass.cli.session import attended, print_json, say, say_lines
from windlass.errors import UsageError
from windlass.visible import one_line

__all__ = ["ClientProgram", "install"]

NAME = "windlass"


class ClientProgram(StrEnum):
    CLAUDE_CODE = "claude-code"
    OPENCODE = "opencode"


@dataclass(frozen=True, slots=True)
class ClientEntry:
    """What is to stand where."""

    file: Path
    table: str
    """The key of the file under which servers stand by their names."""
    value: dict[str, Any]
    new: dict[str, Any]
    """What a new file has besides."""

    @property
    def snippet(self) -> dict[str, Any]:
        return {self.table: {NAME: self.value}}


def install(client: ClientProgram, *, user: bool, show: bool, yes: bool, home: str | None) -> None:
    entry = _entry(client, user, _command(user, home))
    if show:
        print_json(entry.snippet)
        return
    before, data = _read(entry)
    table = data.setdefault(entry.table, {})
    if not isinstance(table, dict):
        raise _refused(entry, f"`{entry.table}` in it is no object")
    if table.get(NAME) == entry.value:
        say(f"{entry.file} has it already")
        return
    table[NAME] = entry.value
    after = json.dumps(data, indent=_indent(before), ensure_ascii=False) + "\n"
    named = str(entry.file)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), named, named, lineterm="")
    say_lines("\n".join(lines))
    if not yes and not (attended() and click.confirm(f"Write {one_line(str(entry.file))}?", err=True)):
        raise UsageError(f"nothing was written to {entry.file}", advice=("to write it unasked, add --yes",))
    _write(entry.file, after)
    say(f"written: {entry.file}")


def _entry(client: ClientProgram, user: bool, command: list[str], env: Mapping[str, str] = os.environ) -> ClientEntry:
    home = Path(env.get("HOME") or Path.home())
    if client is ClientProgram.CLAUDE_CODE:
        own = Path(env.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json"
        value: dict[str, Any] = {"type": "stdio", "command": command[0], "args": command[1:], "env": {}}
        return ClientEntry(own if user else Path.cwd() / ".mcp.json", "mcpServers", value, {})
    own = Path(env.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
    folder = own if user else Path.cwd()
    commented = folder / "opencode.jsonc"
    file = commented if commented.exists() else folder / "opencode.json"
    value = {"type": "local", "command": command, "enabled": True}
    return ClientEntry(file, "mcp", value, {"$schema": "https://opencode.ai/config.json"})


def _command(user: bool, home: str | None) -> list[str]:
    """How this program is started: by its name in a project's file, which others share; else by its whole path."""
    found = shutil.which(NAME)
    by_name = [os.path.abspath(found) if user else NAME] if found is not None else []
    begin = by_name or [sys.executable, "-P", "-m", NAME]
    where = ["--home", os.path.abspath(os.path.expanduser(home))] if home else []
    return [*begin, *where, "mcp"]


def _read(entry: ClientEntry) -> tuple[str, dict[str, Any]]:
    try:
        text = entry.file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return "", dict(entry.new)
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(entry, str(error)) from error
    try:
        data = json.loads(text) if text.strip() else dict(entry.new)
    except ValueError as error:
        raise _refused(entry, f"it is not plain JSON: {error}") from error
    if not isinstance(data, dict):
        raise _refused(entry, "it holds no object")
    return text, data


def _refused(entry: ClientEntry, why: str) -> UsageError:
    snippet = json.dumps(entry.snippet)
    return UsageError(
        f"{entry.file} cannot be changed by this program, and was not touched: {why}",
        advice=(f"write this into it yourself: {snippet}",),
    )


def _indent(text: str) -> int | str:
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found.group(1) if found else 2


def _write(file: Path, text: str) -> None:
    """All of it or nothing, through a link to where the file really is, with the rights that it has."""
    target = file.resolve()
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.write_text(text, encoding="utf-8")
        if target.exists():
            shutil.copymode(target, draft)
        draft.replace(target)
    except OSError as error:
        draft.unlink(missing_ok=True)
        raise UsageError(f"{file} cannot be written: {error.strerror}") from error
