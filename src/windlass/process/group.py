"""The mechanism for systems without subreapers (macOS, the BSDs, a Linux without /proc): process groups.

Each command leads a session of its own. To stop it, its group is signalled, and those descendants that have left
the group but that `ps` still shows beneath it. That misses what has left the group *and* lost its parent, and nothing
here acts when the engine itself is killed: `containment` says so. Where there are subreapers, `line` and `warden` do
all of this better.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Iterable
from contextlib import suppress

from windlass.process.command import Command
from windlass.process.pipes import Pipe, Stdio
from windlass.process.ward import Ending, Exit, Process

__all__ = ["Grouping"]

GLANCE = 0.02
"""Seconds between two looks at whether processes that were asked to end have done so."""


class GroupWard:
    """One command that leads its process group. Its follower waits for its end or for an order to end it."""

    def __init__(self, main: asyncio.subprocess.Process, stdio: Stdio) -> None:
        self.ended = Ending()
        self._main = main
        self._stdio = stdio
        self._deadline: float | None = None
        self._ordered = asyncio.Event()
        self.follower = asyncio.create_task(self._follow())

    def stop(self, grace: float) -> None:
        deadline = asyncio.get_running_loop().time() + grace
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)
        self._ordered.set()

    async def _follow(self) -> None:
        main = asyncio.create_task(self._main.wait())
        order = asyncio.create_task(self._ordered.wait())
        killed = False
        try:
            await asyncio.wait({main, order}, return_when=asyncio.FIRST_COMPLETED)
            if not main.done():
                killed = True
                await self._end()
            returncode = await main
        finally:
            order.cancel()
            self._signal(signal.SIGKILL, ())  # nothing outlives its step, if its group still has it
            self._stdio.finish()
        self.ended.settle(Exit.from_returncode(returncode, killed=killed))

    async def _end(self) -> None:
        """SIGTERM if there is a grace, and SIGKILL after it."""
        before = await _descendants(self._main.pid)
        if self._grace_left():
            self._signal(signal.SIGTERM, before)
        family = {self._main.pid, *before}
        while self._grace_left() and any(map(_exists, family)):  # noqa: ASYNC110 - no event tells of others' children
            await asyncio.sleep(GLANCE)
        now = await _processes()
        same = {pid for pid, born in before.items() if pid in now and now[pid][1] == born}
        self._signal(signal.SIGKILL, same | _beneath(self._main.pid, now))

    def _grace_left(self) -> bool:
        return self._deadline is not None and asyncio.get_running_loop().time() < self._deadline

    def _signal(self, number: signal.Signals, descendants: Iterable[int]) -> None:
        """Signal the group, and those descendants that have left it."""
        group = self._main.pid
        for pid in descendants:
            with suppress(ProcessLookupError, PermissionError):  # it has ended; it is another user's
                if os.getpgid(pid) != group:
                    os.kill(pid, number)
        with suppress(ProcessLookupError, PermissionError):  # no one is left in it; macOS says EPERM for zombies
            os.killpg(group, number)


async def _descendants(pid: int) -> dict[int, str]:
    """The descendants of a process that still have their parents, and when each was born."""
    processes = await _processes()
    return {found: processes[found][1] for found in _beneath(pid, processes)}


def _beneath(pid: int, processes: dict[int, tuple[int, str]]) -> set[int]:
    family = [pid]
    for member in family:  # which grows by what is found below
        family += [child for child, (parent, _) in processes.items() if parent == member]
    return set(family[1:])


async def _processes() -> dict[int, tuple[int, str]]:
    """All processes of the system: the parent of each, and its birth, which tells it from a later one of that pid."""
    try:
        ps = await asyncio.create_subprocess_exec(
            *("ps", "-axo", "pid=,ppid=,lstart="),
            stdout=asyncio.subprocess.PIPE,
            stdin=asyncio.subprocess.DEVNULL,
        )
    except OSError:
        return {}  # there is no `ps`: the process group is all that we can find
    table, _ = await ps.communicate()
    rows = [line.split(maxsplit=2) for line in table.decode(errors="replace").splitlines()]
    return {int(pid): (int(parent), born) for pid, parent, born in rows}


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True


class Grouping:
    """The mechanism where there are no subreapers."""

    def __init__(self) -> None:
        self._wards: set[GroupWard] = set()
        self._closed = False

    async def spawn(self, command: Command, stdin: bytes | Pipe | None, limit: int) -> Process:
        try:
            stdio = Stdio(stdin, limit)
        except OSError as error:
            raise command.refused(error.errno or errno.EIO, "pipes") from error
        source, stdout, stderr = stdio.theirs
        try:
            main = await asyncio.create_subprocess_exec(
                *command.argv,
                stdin=source,
                stdout=stdout,
                stderr=stderr,
                cwd=command.cwd,
                env=command.env,
                start_new_session=True,
            )
        except OSError as error:
            stdio.finish()
            part = "cwd" if error.filename == command.cwd else "program"
            raise command.refused(error.errno or errno.EIO, part) from error
        except asyncio.CancelledError:
            stdio.finish()  # asyncio itself has killed the process, if there was one
            raise
        stdio.let_go()
        ward = GroupWard(main, stdio)
        self._wards.add(ward)
        ward.follower.add_done_callback(lambda _: self._wards.discard(ward))
        if self._closed:
            ward.stop(0)  # `close` came while it was being started
        return Process(main.pid, stdio.stdout, stdio.stderr, ward, stdio.stdin)

    async def close(self) -> None:
        self._closed = True
        wards = list(self._wards)
        for ward in wards:
            ward.stop(0)
        if wards:
            await asyncio.wait([ward.follower for ward in wards])
