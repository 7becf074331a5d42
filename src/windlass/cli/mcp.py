"""`mcp`: the engine as tools of an MCP client, over stdin and stdout; `mcp install` tells a client of it.

Nothing but the protocol goes to stdout. What a client starts is left to detached drivers, for a client mostly ends its
servers with a kill. A home is made when something is first started, not because a client was opened in a folder.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import logging
import os
import re
import shutil
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import click

from windlass.cli.command import Argument, Group, Option
from windlass.cli.session import Home, Yes, attended, print_json, say, say_lines, stores_of, suggest
from windlass.engine.engine import Engine
from windlass.errors import UsageError
from windlass.redact import Redactor
from windlass.regular import read_regular
from windlass.visible import one_line

__all__ = ["ClientProgram", "install", "register"]


def register(app: Group) -> None:
    group = Group("mcp", help="Serve an MCP client over stdin and stdout.")
    group.main_function(serve)
    group.add(install_command, "install")
    app.add_command(group)


def serve(
    context: click.Context,
    no_approve: Annotated[
        bool, Option("--no-approve", help="Do not let the client answer requests for approval")
    ] = False,
    home: Home = None,
) -> None:
    """Serve an MCP client over stdin and stdout: engine_execute, engine_status and others."""
    if context.invoked_subcommand is not None:
        return
    if find_spec("mcp") is None:
        raise UsageError("the MCP library is not installed", advice=("pip install 'windlass[server]'",))
    # Nothing is driven here and the journal is true at any moment: a stop needs no farewell, and a reader that
    # waits for stdin would hold one up.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    if sys.stdin.isatty():
        say("an MCP client starts this command and talks to it over stdin and stdout; register it with a client:")
        suggest("  windlass mcp install claude-code   # or opencode")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_RedactedLines("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    asyncio.run(_serve(home, approvals=not no_approve))


class _RedactedLines(logging.Formatter):
    """Clients keep what a server writes to stderr in logs of their own."""

    def __init__(self, form: str) -> None:
        super().__init__(form)
        self._redactor = Redactor()

    def format(self, record: logging.LogRecord) -> str:
        from windlass.server.logs import log_ids

        ids = log_ids(getattr(record, "fields", {}), None)
        told = "".join(f" {name}={value}" for name, value in ids.items())
        return self._redactor.text(super().format(record) + told)


async def _serve(home: str | None, *, approvals: bool) -> None:
    from windlass.cli.detach import start_driver
    from windlass.server.mcp.driving import Detached
    from windlass.server.mcp.serve import mcp_server

    engines = _Engines(home)
    try:
        await mcp_server(engines, Detached(start_driver), approvals=approvals).run_stdio_async()
    finally:
        await engines.close()


class _Engines:
    """The engine of the home: an empty one for looking, until there is something in it to look at."""

    def __init__(self, home: str | None) -> None:
        self._home = home
        self._engine: Engine | None = None
        self._kept = False
        self._one_at_a_time = asyncio.Lock()

    async def __call__(self, make: bool) -> Engine:
        from windlass.assembly import open_engine
        from windlass.homes import find_home

        async with self._one_at_a_time:
            kept = self._kept or make or stores_of(find_home(self._home)).exist
            if self._engine is None or kept is not self._kept:
                await self.close()
                self._engine, self._kept = open_engine(self._home, make=make, pipes=False), kept
            return self._engine

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()


def install_command(
    context: click.Context,
    client: Annotated[ClientProgram, Argument(help="Client to configure")],
    user: Annotated[
        bool, Option("--user/--project", help="For all your projects, or for this folder (the default)")
    ] = False,
    show: Annotated[bool, Option("--print", help="Print the entry without writing it")] = False,
    yes: Yes = False,
    home: Home = None,
) -> None:
    """Tell a client of this server, in its own settings. What else stands there stays."""
    named = home or _named_before(context)
    install(client, user=user, show=show, yes=yes, home=named)


def _named_before(context: click.Context) -> str | None:
    """A `--home` may also stand before the command's own words."""
    outer = context.parent
    while outer is not None:
        if outer.params.get("home"):
            return str(outer.params["home"])
        outer = outer.parent
    return None


NAME = "windlass"


class ClientProgram(StrEnum):
    CLAUDE_CODE = "claude-code"
    OPENCODE = "opencode"


@dataclass(frozen=True, slots=True)
class ClientEntry:
    """The entry for a client's settings, and the file and key it goes to."""

    file: Path
    table: str
    """The key of the file under which servers stand by their names."""
    value: dict[str, Any]
    new: dict[str, Any]
    """Fields of a new file besides."""

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
        raise _refused(entry, f"`{entry.table}` in it is not an object")
    if table.get(NAME) == entry.value:
        say(f"{entry.file} already has this entry")
        return
    table[NAME] = entry.value
    after = json.dumps(data, indent=_indent(before), ensure_ascii=False) + "\n"
    named = str(entry.file)
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), named, named, lineterm="")
    say_lines("\n".join(lines))
    if not yes and not (attended() and click.confirm(f"Write {one_line(str(entry.file))}?", err=True)):
        raise UsageError(f"nothing was written to {entry.file}", advice=("to write it without a question, add --yes",))
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
    """The command that starts this program: by its name in a project's file, which others share; else by its path."""
    found = shutil.which(NAME)
    by_name = [os.path.abspath(found) if user else NAME] if found is not None else []
    begin = by_name or [sys.executable, "-P", "-m", NAME]
    where = ["--home", os.path.abspath(os.path.expanduser(home))] if home else []
    return [*begin, *where, "mcp"]


def _read(entry: ClientEntry) -> tuple[str, dict[str, Any]]:
    try:
        text = read_regular(entry.file, 256 << 20).decode()
    except FileNotFoundError:
        return "", dict(entry.new)
    except (OSError, UnicodeDecodeError) as error:
        raise _refused(entry, str(error)) from error
    try:
        data = json.loads(text) if text.strip() else dict(entry.new)
    except ValueError as error:
        raise _refused(entry, f"it is not plain JSON: {error}") from error
    if not isinstance(data, dict):
        raise _refused(entry, "it is not a JSON object")
    return text, data


def _refused(entry: ClientEntry, why: str) -> UsageError:
    snippet = json.dumps(entry.snippet)
    return UsageError(
        f"cannot edit {entry.file}, left unchanged: {why}",
        advice=(f"add this to it by hand: {snippet}",),
    )


def _indent(text: str) -> int | str:
    found = re.search(r"^([ \t]+)\S", text, re.MULTILINE)
    return found.group(1) if found else 2


def _write(file: Path, text: str) -> None:
    """All of it or nothing, through a link to where the file really is, with the rights that it has."""
    target = file.resolve()
    draft = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        draft.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(text, encoding="utf-8")
        if target.exists():
            shutil.copymode(target, draft)
        draft.replace(target)
    except OSError as error:
        with suppress(OSError):  # there may not even be a folder
            draft.unlink()
        raise UsageError(f"{file} cannot be written: {error.strerror}") from error
