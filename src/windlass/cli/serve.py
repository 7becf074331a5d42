"""`serve`: the engine of a home behind HTTP, WebSocket and MCP, until Ctrl-C."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import stat
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, TextIO
from urllib.parse import urlsplit

from windlass.cli.command import Group, Option
from windlass.cli.session import AsJson, CommandEnd, Home, print_json, remember_home, say
from windlass.errors import UsageError
from windlass.homes import find_home

if TYPE_CHECKING:
    from windlass.server.service import Service

__all__ = ["open_dashboard", "register"]

PORT = 8642
GRACE = 10
"""Seconds that requests have to end after Ctrl-C."""
QUEUED = 1024
"""Connections that the kernel keeps until they are accepted."""
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


def register(app: Group) -> None:
    app.add(serve)


def serve(
    host: Annotated[str, Option("--host", metavar="ADDRESS", help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, Option("--port", "-p", min=0, max=65535, help="Port (0 = any free port)")] = PORT,
    allow_host: Annotated[
        list[str] | None,
        Option("--allow-host", metavar="NAME", help="Host name that clients may use, besides localhost"),
    ] = None,
    resume_orphans: Annotated[
        bool, Option("--resume-orphans", help="Also resume executions of other processes that died")
    ] = False,
    open_browser: Annotated[
        bool, Option("--open", help="Open the dashboard in the browser, also that of a server that runs already")
    ] = False,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Serve this home over HTTP: the dashboard, the API, the live stream and MCP. Ctrl-C stops it.

    Running executions are interrupted, and continue at the next start.
    """
    if home:
        remember_home(home)
    names = list(allow_host or ())
    if host not in _LOOPBACK and not names:
        raise UsageError(
            f"{host} is open to other machines: the server needs the host names that clients may use",
            advice=(
                f"name them: windlass serve --host {host} --allow-host NAME",
                "for TLS, read: windlass docs server",
            ),
        )
    try:
        import fastapi  # noqa: F401 - to say what is missing before anything is begun
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"the server's parts are not installed: {error.name} is missing",
            advice=("install them: pip install 'windlass[server]'",),
        ) from error
    if open_browser and (login := asyncio.run(_login_at_running(home))):
        _open(find_home(home), login, "/")
        return
    serving = _serve(
        home, host, port, names, resume_orphans=resume_orphans, as_json=as_json, open_at="/" if open_browser else ""
    )
    raise CommandEnd(asyncio.run(serving))


def open_dashboard(home: str | None, path: str) -> int:
    """Serve this home on any free port, with one of its pages in the browser, until Ctrl-C."""
    if login := asyncio.run(_login_at_running(home)):
        _open(find_home(home), login, path)
        return 0
    return asyncio.run(_serve(home, "127.0.0.1", 0, [], open_at=path))


async def _login_at_running(home: str | None) -> str:
    """A login link of the server that runs for this home; empty if none does."""
    from windlass.client import Client, ClientError

    try:
        async with Client.local(home, retry=0.0) as client:
            return await client.login_link()
    except (ClientError, UsageError):
        return ""


def _open(home: Path, login: str, path: str) -> None:
    from windlass.cli.browser import keep_link, open_page

    if open_page(home, login, path):
        say("the dashboard opens in your browser")
    else:
        say(f"no browser with a window was found on this machine: {_link(login, keep_link(home, login))}")


async def _serve(
    home: str | None,
    host: str,
    port: int,
    names: list[str],
    *,
    resume_orphans: bool = False,
    as_json: bool = False,
    open_at: str = "",
) -> int:
    """`open_at` is the path of the page to open in the browser."""
    import uvicorn

    from windlass.assembly import open_engine
    from windlass.cli.browser import forget_links
    from windlass.server.app import create_app
    from windlass.server.connections import ACCEPTED_AT_ONCE, Connections, StreamProtocol, limited
    from windlass.server.logs import log_to
    from windlass.server.service import LABEL, ServerLock, Service

    listening = _listen(host, port)
    engine = open_engine(home, label=LABEL, pipes=False)
    try:
        lock = ServerLock(engine.home)
        service = Service(engine, resume_orphans=resume_orphans)
    except BaseException:
        await engine.close()
        listening.close()
        raise
    log_to(sys.stderr, service.redactor, engine.telemetry)
    if engine.settings.public_url is not None and (public := urlsplit(engine.settings.public_url).hostname):
        names.append(public)  # links in notifications lead there
    app = create_app(service, hosts=names)
    config = uvicorn.Config(
        app,
        http=limited(Connections()),
        backlog=ACCEPTED_AT_ONCE,
        ws=StreamProtocol,
        ws_per_message_deflate=False,
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # `create_app` sees to them, after it has noted who is asking
        timeout_graceful_shutdown=GRACE,
        lifespan="on",
    )
    server = _server_class()(config)
    server.service = service
    address = _address(host, listening)
    lock.announce(address)
    server.tell = partial(_tell, service, address, as_json, open_at)
    try:
        await server.serve([listening])
    finally:
        forget_links(engine.home)
        lock.release()
    if not as_json:
        say("stopped; running executions continue at the next start")
    return 0


def _server_class() -> type:
    import uvicorn

    class Server(uvicorn.Server):
        """uvicorn's server; it announces the first signal to the service, so that waiting requests end."""

        service: Service
        tell: Callable[[], None]

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            for listening in sockets or ():
                listening.listen(QUEUED)  # uvicorn has one number for this and for how many it takes at once
            self.tell()  # whoever reads it may press Ctrl-C at once, which from here on stops the server in order

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if self.should_exit:
                # Asked twice: go at once. The journal is true at any moment, and the warden ends the processes.
                os._exit(130)
            self.service.stop_soon()
            self._captured_signals.clear()
            super().handle_exit(sig, frame)
            self._captured_signals.clear()  # asked to stop, it stops; it is not to be killed by it afterwards

    return Server


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"port {port} of {host} is in use by another program",
                advice=(f"find it: ss -ltnp 'sport = :{port}'", "use a free port: windlass serve --port 0"),
            ) from error
        raise UsageError(f"cannot listen on {host} port {port}: {error.strerror or error}") from error
    listening.listen(QUEUED)
    listening.setblocking(False)
    return listening


def _address(host: str, listening: socket.socket) -> str:
    port = listening.getsockname()[1]
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{shown}]:{port}" if ":" in shown else f"http://{shown}:{port}"


def _tell(service: Service, address: str, as_json: bool, open_at: str) -> None:
    from windlass.cli.browser import keep_link

    login = f"{address}/login?code={service.access.login_code()}"
    login_file = keep_link(service.engine.home, login)
    token_file = str(service.access.file)
    if as_json:
        print_json(
            {
                "address": address,
                "login": None if _others_read(sys.stdout) else login,
                "login_file": str(login_file),
                "token_file": token_file,
                "home": str(service.engine.home),
                "pid": os.getpid(),
            }
        )
    else:
        _tell_in_words(service, address, login, login_file, token_file)
    if open_at:  # some browsers keep those who start them waiting until their window is closed
        link = f"{address}/login?code={service.access.login_code()}"
        threading.Thread(target=_open, args=(service.engine.home, link, open_at), daemon=True).start()


def _tell_in_words(service: Service, address: str, login: str, login_file: Path, token_file: str) -> None:
    say(f"serving {service.engine.home} at {address}")
    say(f"log in with a browser, once, within 10 minutes: {_link(login, login_file)}")
    say(f"programs send the token in {token_file}: Authorization: Bearer TOKEN")
    say("press Ctrl-C to stop; running executions continue at the next start")


def _link(login: str, kept: Path) -> str:
    return f"open the link in {kept}" if _others_read(sys.stderr) else f"open {login}"


def _others_read(stream: TextIO) -> bool:
    """Tell whether what is written there ends up in a file that other users can read, as `> server.json` makes it."""
    try:
        found = os.fstat(stream.fileno())
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(found.st_mode) and found.st_mode & 0o077 != 0
