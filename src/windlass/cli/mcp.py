"""`mcp`: the engine as tools of an MCP client, over stdin and stdout; `mcp install` tells a client of it.

Nothing but the protocol goes to stdout. What a client starts is left to detached drivers, for a client mostly ends its
servers with a kill. A home is made when something is first started, not because a client was opened in a folder.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from importlib.util import find_spec
from typing import Annotated

import click

from windlass.cli.command import Argument, Group, Option
from windlass.cli.mcp_install import ClientProgram, install
from windlass.cli.session import Home, Yes, say, suggest
from windlass.engine.engine import Engine
from windlass.errors import UsageError
from windlass.redact import Redactor

__all__ = ["register"]


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
    if sys.stdin.isatty():
        say("this speaks MCP with the program that has started it, and waits; to tell a client of it:")
        suggest("  windlass mcp install claude-code   # or opencode")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_RedactedLines("%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(handlers=[handler], level=logging.WARNING)
    # Nothing is driven here and the journal is true at any moment: a stop needs no farewell, and a reader that
    # waits for stdin would hold one up.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(_serve(home, approvals=not no_approve))


class _RedactedLines(logging.Formatter):
    """Clients keep what a server writes to stderr in logs of their own."""

    def __init__(self, form: str) -> None:
        super().__init__(form)
        self._redactor = Redactor()

    def format(self, record: logging.LogRecord) -> str:
        return self._redactor.text(super().format(record))


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
            kept = self._kept or make or (find_home(self._home) / "windlass.db").exists()
            if self._engine is None or kept is not self._kept:
                await self.close()
                self._engine, self._kept = open_engine(self._home, make=make), kept
            return self._engine

    async def close(self) -> None:
        if self._engine is not None:
            await self._engine.close()


def install_command(
    context: click.Context,
    client: Annotated[ClientProgram, Argument(help="Whose settings to write")],
    user: Annotated[
        bool, Option("--user/--project", help="For all your projects, or for this folder (the default)")
    ] = False,
    show: Annotated[bool, Option("--print", help="Print what would stand there; write nothing")] = False,
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
