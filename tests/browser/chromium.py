"""A real browser for tests: Chromium without a window, told what to do over its own debugging protocol.

No driver in between: the protocol is JSON over a WebSocket, and the tests need four of its commands.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import ProxyHandler, build_opener

from waiting import PATIENCE, wait_until
from websockets.asyncio.client import ClientConnection, connect

from windlass.tools.browser.chromium import NAMES

__all__ = ["Page", "browser", "find_chromium"]


def find_chromium() -> str | None:
    """Where it is, as `make dev` or the machine's owner has put it."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """A tab."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection
        self._numbers = itertools.count(1)
        self._happened: list[str] = []

    async def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        await self._connection.send(json.dumps({"id": number, "method": method, "params": parameters}))
        async with asyncio.timeout(PATIENCE):
            while True:
                answer = json.loads(await self._connection.recv())
                if "method" in answer:
                    self._happened.append(answer["method"])
                elif answer.get("id") == number:
                    assert "error" not in answer, answer
                    found: dict[str, Any] = answer["result"]
                    return found

    async def open(self, url: str) -> None:
        """Go there, and wait until the page is complete."""
        await self.ask("Page.enable")
        # The page is only there to be of the right origin: what its own policy would let it do is not the question.
        await self.ask("Page.setBypassCSP", enabled=True)
        self._happened.clear()
        await self.ask("Page.navigate", url=url)
        async with asyncio.timeout(PATIENCE):
            while "Page.loadEventFired" not in self._happened:
                self._happened.append(json.loads(await self._connection.recv()).get("method", ""))

    async def run(self, script: str) -> Any:
        """The value of an expression in the page; promises are waited for."""
        answer = await self.ask("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")


def _start(program: str, folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            program,
            "--headless=new",
            "--no-sandbox",  # tests may run as root, where it has none
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--no-proxy-server",
            "--remote-debugging-port=0",
            f"--user-data-dir={folder / 'profile'}",
            "about:blank",
        ],
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    """Debian's program is a script that starts the browser: the signal is for all of the session."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


@asynccontextmanager
async def browser(program: str) -> AsyncIterator[Page]:
    """A browser of its own with one empty tab, gone at the end."""
    # Not in a test's own folder: the path of the browser's socket may have 100 characters.
    folder = Path(tempfile.mkdtemp(prefix="browser-"))
    process = _start(program, folder)
    try:
        port = await asyncio.to_thread(_port, folder / "profile" / "DevToolsActivePort", process)
        tab = await asyncio.to_thread(wait_until, lambda: _tab(port), "the browser has a tab")
        address = tab["webSocketDebuggerUrl"]
        async with connect(address, max_size=None, proxy=None, open_timeout=PATIENCE, ping_interval=None) as connection:
            yield Page(connection)
    finally:
        _signal(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            await asyncio.to_thread(process.wait, 10)
        _signal(process, signal.SIGKILL)
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _tab(port: int) -> dict[str, Any] | None:
    with build_opener(ProxyHandler({})).open(f"http://127.0.0.1:{port}/json/list", timeout=PATIENCE) as answer:
        return next((target for target in json.load(answer) if target["type"] == "page"), None)


def _port(file: Path, process: subprocess.Popen[bytes]) -> int:
    """Where it listens: it writes that into its profile when it does."""

    def written() -> str:
        assert process.poll() is None, "the browser ended"
        return file.read_text() if file.exists() else ""

    return int(wait_until(lambda: "\n" in written() and written(), "the browser says where it listens").split()[0])
