"""`opencode serve`: servers that are kept warm, shared by all runs with the same environment (A3, A8).

`OpenCodeServer` is one process and the way to talk to it: requests (`call`, `answered`) and its stream of `events`.
`ServerPool` starts it when the first run comes, hands it to all that want the same, replaces it when it has died or was
retired, and ends it. It listens on loopback, on a port that it finds itself, behind a password only we and it know.

`left_beneath` finds processes that a turn leaves behind beneath a server that lives on (A8): an agent's shell commands
lead sessions of their own, unlike the server's own helpers (MCP servers, language servers). So a process that runs in
another session than the server's when no turn is running was left by a turn. The search needs /proc; without it
nothing is found here, and leftovers end with the server.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from windlass.errors import Category, Failure
from windlass.process import Process, ProcessLost, SpawnError, Supervisor
from windlass.runners.opencode import failures
from windlass.runners.opencode.environment import PROBE_MARK, marked_folder
from windlass.runners.program_output import LastWords, lines
from windlass.runtimes import OPEN_CODE

if TYPE_CHECKING:
    import httpx2

__all__ = ["OpenCodeServer", "ServerError", "ServerPool", "Stopped", "answered", "events", "refusal"]

log = logging.getLogger("windlass.runners.opencode")

STARTING = 300.0
"""Seconds in which a server must be up. It takes four; a busy machine takes much longer."""
FIRST_ANSWER = 2.0
"""A request that comes while the server still starts may never be answered: it is given up soon and put again."""
ANSWER = 30.0
"""Seconds in which a server that is up must answer."""
STOPPING = 1.0
SETTLING = 0.5
"""Seconds that processes of a turn get to end after it."""
LISTENING = re.compile(r"listening on (http://127\.0\.0\.1:\d+)")


class ServerError(Exception):
    """There is no server to work with."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class OpenCodeServer:
    """One server process."""

    def __init__(self, process: Process, password: str, version: str) -> None:
        self.process = process
        self.version = version
        self.folders: list[str] = []
        """Working directories of its runs, one entry for each."""
        self.offered: set[tuple[str, str]] = set()
        """Servers with the engine's tools that it is connected to, by working directory and name."""
        self.retired = False
        """It gets no new runs, and is ended with its last one."""
        self.leaves_project_settings_out = True
        self._password = password
        self._words = LastWords()
        self._address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._readers = [asyncio.create_task(self._read(reader)) for reader in (process.stdout, process.stderr)]
        self.ended = asyncio.create_task(self._end())
        self._client: httpx2.AsyncClient | None = None

    @property
    def users(self) -> int:
        return len(self.folders)

    @property
    def alive(self) -> bool:
        return not self.ended.done()

    @property
    def last_words(self) -> str:
        return str(self._words)

    @property
    def client(self) -> httpx2.AsyncClient:
        assert self._client is not None, "the server is not up yet"
        return self._client

    async def up(self) -> None:
        """Wait until it answers. ServerError: it does not."""
        import httpx2

        try:
            async with asyncio.timeout(STARTING):
                await asyncio.wait({self._address, self.ended}, return_when=asyncio.FIRST_COMPLETED)
                if not self._address.done():
                    raise ServerError(
                        failures.died("the server", f"did not start: {await self.ended}", self.last_words)
                    )
                self._client = httpx2.AsyncClient(
                    base_url=self._address.result(),
                    auth=("opencode", self._password),
                    trust_env=False,  # a proxy is not asked for loopback
                    timeout=ANSWER,
                    verify=False,  # there is no TLS on loopback, and loading certificates takes longer than a turn
                    limits=httpx2.Limits(max_connections=None),
                )
                while not await self.healthy(FIRST_ANSWER):
                    if not self.alive:
                        raise ServerError(failures.died("the server", f"did not start: {await self.ended}"))
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise ServerError(failures.hangs("the server that was started", STARTING)) from None

    async def healthy(self, within: float = ANSWER) -> bool:
        import httpx2

        try:
            return (await self.client.get("/global/health", timeout=within)).status_code == 200
        except httpx2.HTTPError:
            return False

    async def call(
        self, method: str, path: str, *, directory: str, body: Any = None, timeout: float = ANSWER
    ) -> httpx2.Response:
        """One request about a folder. httpx2.HTTPError: it was not answered."""
        import httpx2

        if self.client.is_closed:  # by `stop`, which another task of the turn may have called meanwhile
            raise httpx2.ConnectError("the server was ended")
        return await self.client.request(method, path, params={"directory": directory}, json=body, timeout=timeout)

    async def clear(self, folder: str) -> None:
        """Remove the processes that a run in this folder left behind.

        After the last run, any process left ends with the server. While others work, a process left in this run's
        folder, and in no other's, retires the server: it gets no new runs, and ends with its last one.
        """
        deadline = asyncio.get_running_loop().time() + SETTLING
        while (left := left_beneath(self.process.pid) if self.alive else {}) and self.users <= 1:
            if asyncio.get_running_loop().time() > deadline:
                break
            await asyncio.sleep(0.01)  # what was aborted just now is on its way out
        if left and self.users <= 1:
            await self.stop(0)
        elif self.folders.count(folder) <= 1 and any(f"{place}/".startswith(f"{folder}/") for place in left.values()):
            self.retired = True

    async def stop(self, grace: float = STOPPING) -> None:
        """End it and everything that it started."""
        self.retired = True
        try:
            await self.process.stop(grace)
        except ProcessLost as lost:
            log.warning("opencode serve: %s", lost)
        await self.ended
        if self._client is not None:
            await self._client.aclose()

    async def _end(self) -> str:
        try:
            end = await self.process.wait()
        except ProcessLost as lost:
            return lost.message
        await asyncio.gather(*self._readers)
        return end.text

    async def _read(self, reader: asyncio.StreamReader) -> None:
        """Read all that it writes, so that a full pipe never stops it; keep the last words."""
        async for line in lines(reader):
            text = line.decode(errors="replace")
            if (found := LISTENING.search(text)) and not self._address.done():
                self._address.set_result(found[1])
            else:
                self._words.add(text.replace(self._password, "…").encode())


class ServerPool:
    """The servers of one engine process, one for each environment that runs ask for."""

    def __init__(self, supervisor: Supervisor, home: Path) -> None:
        self._supervisor, self._home = supervisor, home
        self._starting: dict[tuple[Any, ...], asyncio.Task[OpenCodeServer]] = {}
        self._ending: set[asyncio.Task[None]] = set()

    async def borrow(self, path: str, version: str, env: Mapping[str, str], folder: str) -> OpenCodeServer:
        """A server that is up, for this environment and a run in this folder. Give it back."""
        key = (path, version, *sorted(env.items()))
        while True:
            task = self._starting.get(key)
            if task is None or (task.done() and not _usable(task)):
                task = self._starting[key] = asyncio.create_task(self._start(path, version, env))
            # Shared: a run that is cancelled while it waits does not take the server from the others.
            server = await asyncio.shield(task)
            if server.alive and not server.retired:
                server.folders.append(folder)
                return server

    def give_back(self, server: OpenCodeServer, folder: str) -> None:
        server.folders.remove(folder)
        if server.retired and not server.folders and server.alive:
            task = asyncio.create_task(server.stop())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)

    async def close(self) -> None:
        starting, self._starting = list(self._starting.values()), {}
        for task in starting:
            if not task.done():
                task.cancel()
        found = await asyncio.gather(*starting, return_exceptions=True)
        await asyncio.gather(*(server.stop() for server in found if isinstance(server, OpenCodeServer)), *self._ending)

    async def _start(self, path: str, version: str, env: Mapping[str, str]) -> OpenCodeServer:
        password = secrets.token_urlsafe(24)
        self._home.mkdir(parents=True, exist_ok=True)
        try:
            process = await self._supervisor.spawn(
                [path, "serve", "--hostname", "127.0.0.1", "--port", "0"],
                cwd=str(self._home),
                env={**env, "OPENCODE_SERVER_PASSWORD": password},
            )
        except SpawnError as error:
            raise ServerError(Failure(error.category, error.message, advice=error.advice, elsewhere=True)) from error
        server = OpenCodeServer(process, password, version)
        try:
            await server.up()
            if "OPENCODE_DISABLE_PROJECT_CONFIG" in env:
                server.leaves_project_settings_out = await self._leaves_project_settings_out(server)
        except BaseException:
            await asyncio.shield(server.stop(0))
            raise
        return server

    async def _leaves_project_settings_out(self, server: OpenCodeServer) -> bool:
        """Return True if this version can ignore a folder's settings: those of a folder of ours must not show."""
        import httpx2

        try:
            answer = await server.call("GET", "/config", directory=str(marked_folder(self._home)))
        except httpx2.HTTPError:
            return False
        return answer.status_code == 200 and PROBE_MARK not in answer.text


def _usable(task: asyncio.Task[OpenCodeServer]) -> bool:
    if task.cancelled() or task.exception() is not None:
        return False
    server = task.result()
    return server.alive and not server.retired


class Stopped(Exception):
    """The turn cannot go on; the failure says why."""

    def __init__(self, failure: Failure, *, session_lost: bool = False) -> None:
        super().__init__(failure.message)
        self.failure, self.session_lost = failure, session_lost


def answered(answer: Any) -> dict[str, Any]:
    """The JSON object of an answer, or the failure that it means."""
    if answer.status_code >= 400:
        raise Stopped(refusal(answer.status_code, answer.text))
    try:
        found = answer.json()
    except ValueError:
        raise Stopped(
            failures.cut_off(f"its server answered with something else than JSON: {answer.text[:200]!r}")
        ) from None
    return found if isinstance(found, dict) else {}


def refusal(status: int, text: str) -> Failure:
    said = f"its server answered {status}: {' '.join(text.split())[:300]}"
    if status >= 500:
        return failures.cut_off(said)
    return Failure(Category.LOGIC, f"{OPEN_CODE.name}: {said}", elsewhere=True)


SILENCE = 45.0
"""Seconds without any event, though a server sends a sign of life every ten, after which it is asked how it is."""


async def events(server: OpenCodeServer, directory: str) -> AsyncIterator[Mapping[str, Any]]:
    """Events as they come; the first is `server.connected`. httpx2.HTTPError: it broke, or fell silent."""
    import httpx2

    stream = server.client.stream(
        "GET", "/event", params={"directory": directory}, timeout=httpx2.Timeout(SILENCE, read=SILENCE)
    )
    async with stream as response:
        async for line in response.aiter_lines():
            if not line.startswith("data:"):
                continue
            try:
                event = json.loads(line[5:])
            except ValueError:
                continue  # no event of ours: each is one line of JSON
            if isinstance(event, Mapping):
                yield event


class _Stat(NamedTuple):
    parent: int
    session: int
    state: str


def left_beneath(server: int) -> dict[int, str]:
    """Living processes that turns have started beneath this server, and the folder that each stands in.

    Those that have lost their parents are found too.
    """
    table = _table()
    if server not in table:
        return {}
    ours = table[server]
    # Orphans are given to the keeper, which is the server's parent and has no other child of its own.
    family = [ours.parent]
    for member in family:  # which grows by what is found below
        family += [pid for pid, stat in table.items() if stat.parent == member]
    strangers = (pid for pid in family[1:] if pid != server and table[pid].session != ours.session)
    return {pid: _folder(pid) for pid in strangers if table[pid].state not in "ZX"}


def _folder(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""  # it has ended, or is another user's


def _table() -> dict[int, _Stat]:
    table: dict[int, _Stat] = {}
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return table
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it has ended
        table[pid] = _Stat(int(fields[1]), int(fields[3]), fields[0].decode())
    return table
