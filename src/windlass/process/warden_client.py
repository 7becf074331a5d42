"""The engine's end of the warden: how commands are handed over, followed and stopped where there are subreapers.

`WardenClient` is one warden process and the socket to it. `KeptProcess` follows one command over its control socket, on
which its keeper reports. `WardenSupervision` is the mechanism that `Supervisor` uses: it starts a warden when the first
command comes, and a new one when it finds the last one dead. The protocol is described in `warden`, which runs in the
other process.
"""

from __future__ import annotations

import ast
import asyncio
import errno
import logging
import marshal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import cast

from windlass.process.command import Command, LimitName, ResourcesUsed, SpawnError
from windlass.process.pipes import Pipe, Stdio
from windlass.process.process_handle import Ending, Exit, Process, ProcessLost, signal_name
from windlass.process.secrecy import BETWEEN, pick

__all__ = ["WardenSupervision"]

log = logging.getLogger("windlass.process")

WARDEN = Path(__file__).with_name("warden.py")

FAREWELL = 5.0
"""Seconds that the warden gets to kill everything and end before it is killed itself."""


class WardenClient:
    """One warden process, and the socket to it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        with theirs:
            try:
                # A session of its own, so that Ctrl-C in the terminal reaches the engine alone. Its stderr is ours:
                # what it could not tell anyone else is seen there.
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-S", str(WARDEN)],
                    env=pick(BETWEEN),
                    stdin=theirs.fileno(),
                    stdout=subprocess.DEVNULL,
                    start_new_session=True,
                )
            except OSError:
                self._socket.close()
                raise

    def hand_over(self, control: socket.socket, stdio: list[int], *, bounded: bool = False) -> None:
        """Ask for a keeper, with bounds if there are limits. ConnectionError: the warden is dead."""
        socket.send_fds(self._socket, [b"b" if bounded else b"k"], [control.fileno(), *stdio])

    def autopsy(self) -> str:
        """Say how the warden died; empty while it lives."""
        status = self._process.poll()
        if status is None:
            return ""
        cause = f"was killed by {signal_name(-status)}" if status < 0 else f"ended with exit code {status}"
        return f"the warden (pid {self._process.pid}) {cause}"

    def bury(self) -> None:
        """Take leave of a warden that is dead or must die now. Its keepers end what they own."""
        self._socket.close()
        self._process.kill()
        self._process.wait()  # returns at once: nothing delays the death of so small a process

    async def close(self) -> None:
        """Have the warden kill everything, and wait for its end."""
        with suppress(OSError):  # it is dead already, or it hangs (TimeoutError): `bury` settles both
            self._socket.shutdown(socket.SHUT_WR)
            await asyncio.wait_for(asyncio.get_running_loop().sock_recv(self._socket, 1), FAREWELL)
        self.bury()


class KeptProcess:
    """One command under a keeper. Its follower reads the keeper's reports until the control socket ends."""

    def __init__(
        self, warden: WardenClient, control: socket.socket, stdio: Stdio, command: Command, cgroups: bool
    ) -> None:
        self.ended = Ending()
        self._warden = warden
        self._control = control
        self._stdio = stdio
        self._command = command
        self._cgroups = cgroups
        self._pid = 0
        self._started = asyncio.Event()  # or it never will be
        self._refusal: SpawnError | None = None
        self._abandoned = False
        self.follower = asyncio.create_task(self._follow())

    async def start(self) -> Process:
        """Tell the keeper what to run, and wait until it runs. Cancelled, it leaves nothing running."""
        command = self._command
        limits = command.limits
        bounds = (
            None
            if limits is None
            else (
                limits.memory,
                limits.cpu,
                limits.processes,
                self._cgroups,
                limits.cpu_share,
                None if limits.pool is None else (limits.pool.name, limits.pool.memory, limits.pool.folder),
            )
        )
        request = marshal.dumps((command.argv, command.cwd, command.env, bounds))
        try:
            with suppress(ConnectionError):  # the keeper could not be made, or was killed: the follower reads which
                await asyncio.get_running_loop().sock_sendall(self._control, len(request).to_bytes(8, "big") + request)
            await self._started.wait()
        except asyncio.CancelledError:
            self.abandon()
            raise
        if self._refusal is not None:
            raise self._refusal
        if not self._pid:
            await self.ended.wait()  # raises ProcessLost
        return Process(self._pid, self._stdio.stdout, self._stdio.stderr, self, self._stdio.stdin)

    def stop(self, grace: float) -> None:
        with suppress(ConnectionError):  # the keeper has ended, and the follower is about to read so
            self._control.send(b"stop %f\n" % grace)

    def abandon(self) -> None:
        """Have the keeper kill what it has started, and start nothing if it has not yet."""
        self._abandoned = True
        with suppress(OSError):  # the keeper has ended
            self._control.shutdown(socket.SHUT_WR)

    async def _follow(self) -> None:
        mishap = ""
        outcome: Exit | None = None
        try:
            async for report, text in self._reports():
                match report:
                    case "started":
                        self._pid = int(text)
                        self._started.set()
                    case "failed":
                        number, part = text.split()
                        self._refusal = self._command.refused(int(number), part)
                    case "ended":
                        outcome = _ended(*text.split())
                    case "survivors":
                        self._settle(self._lost(f"SIGKILL did not end these processes; inspect them: ps -fp {text!r}"))
                    case _:
                        mishap = f"its keeper failed:\n{ast.literal_eval(text)}"
        except asyncio.CancelledError:
            mishap = "the event loop ended before it did; it is being killed"
            raise
        finally:
            self._control.close()
            mishap = mishap or self._warden.autopsy() or "its keeper was killed, with all its processes"
            self._settle(outcome or self._lost(mishap))

    async def _reports(self) -> AsyncIterator[tuple[str, str]]:
        loop = asyncio.get_running_loop()
        pending = b""
        while True:
            try:
                data = await loop.sock_recv(self._control, 65536)
            except ConnectionError:
                return  # the same end, with an order of ours left unread
            if not data:
                return
            *lines, pending = (pending + data).split(b"\n")
            for line in lines:
                report, _, text = line.decode().partition(" ")
                yield report, text

    def _settle(self, outcome: Exit | ProcessLost) -> None:
        self._stdio.finish()
        if isinstance(outcome, ProcessLost) and not (self._refusal or self._abandoned or self.ended.settled):
            log.error("%s", outcome)  # to be seen even if no one waits for this process
        self.ended.settle(outcome)
        self._started.set()

    def _lost(self, mishap: str) -> ProcessLost:
        program = self._command.argv[0].decode(errors="replace")
        return ProcessLost(f"lost {program!r} (pid {self._pid or 'not known yet'}): {mishap}")


def _ended(status: str, killed: str, limit: str, cpu: str, memory: str, scope: str, *named: str) -> Exit:
    """A keeper's last report."""
    passed: LimitName | None = cast(LimitName, limit) if limit != "none" else None
    used = ResourcesUsed(float(cpu), int(memory), "tree" if scope == "tree" else "largest")
    ended = Exit.from_wait_status(int(status), killed=killed == "1", limit=passed, used=used)
    if not named:
        return ended
    return replace(ended, processes=named) if passed == "processes" else replace(ended, left=named)


class WardenSupervision:
    """The mechanism where there are subreapers."""

    def __init__(self, *, cgroups: bool = True) -> None:
        self._warden: WardenClient | None = None
        self._cgroups = cgroups
        self._processes: set[KeptProcess] = set()

    async def spawn(self, command: Command, stdin: bytes | Pipe | None, limit: int) -> Process:
        try:
            kept = self._engage(command, stdin, limit)
        except OSError as error:
            raise command.refused(error.errno or errno.EIO, "keeper") from error
        return await kept.start()

    async def close(self) -> None:
        processes = list(self._processes)
        for kept in processes:
            kept.abandon()
        if processes:
            await asyncio.wait([kept.follower for kept in processes], timeout=FAREWELL)
        if self._warden is not None:
            await self._warden.close()
            self._warden = None
        for kept in processes:
            kept.follower.cancel()  # of processes that cannot be killed: no one else waits for them any more

    def _engage(self, command: Command, stdin: bytes | Pipe | None, limit: int) -> KeptProcess:
        """Hand a command over to a keeper, without a pause in which a cancellation could fall."""
        stdio = Stdio(stdin, limit)
        try:
            ours, theirs = socket.socketpair()
            with theirs:
                try:
                    warden = self._ask_for_keeper(theirs, stdio.theirs, bounded=command.limits is not None)
                except OSError:
                    ours.close()
                    raise
        except OSError:
            stdio.finish()
            raise
        stdio.let_go()
        ours.setblocking(False)
        kept = KeptProcess(warden, ours, stdio, command, self._cgroups)
        self._processes.add(kept)
        kept.follower.add_done_callback(lambda _: self._processes.discard(kept))
        return kept

    def _ask_for_keeper(self, control: socket.socket, stdio: list[int], *, bounded: bool) -> WardenClient:
        if self._warden is None:
            self._warden = WardenClient()
        try:
            self._warden.hand_over(control, stdio, bounded=bounded)
        except ConnectionError:  # this warden is dead, and its keepers see to what it had: the next one takes over
            self._warden.bury()
            self._warden = WardenClient()
            self._warden.hand_over(control, stdio, bounded=bounded)
        return self._warden
