"""The mechanism for systems without subreapers (macOS, the BSDs, a Linux without /proc): process groups.

Each command leads a session of its own. To stop it, its group is signalled, and those descendants that have left
the group but that `ps` still shows beneath it. That misses what has left the group *and* lost its parent, and nothing
here acts when the engine itself is killed: `containment` says so. A command with limits is looked at a few times a
second, so it can pass one by what it manages in between. Where there are subreapers, `warden_client` and `warden` do
all of this better.
"""

from __future__ import annotations

import asyncio
import errno
import os
import signal
from collections.abc import Iterable, Mapping
from contextlib import suppress

import msgspec

from windlass.process.bounds import NICER
from windlass.process.command import Command, LimitName, ProcessLimits, ResourcesUsed
from windlass.process.pipes import Pipe, Stdio
from windlass.process.process_handle import Ending, Exit, Process

__all__ = ["Grouping", "beneath"]


GLANCE = 0.02
"""Seconds between two looks at whether processes that were asked to end have done so."""
REVIEW = 0.2
"""Seconds between two looks at what a command with limits uses. Each starts a `ps`."""


class GroupedProcess:
    """One command that leads its process group. Its follower waits for its end or for an order to end it."""

    def __init__(self, main: asyncio.subprocess.Process, stdio: Stdio, limits: ProcessLimits | None) -> None:
        self.ended = Ending()
        self._main = main
        self._limits = limits
        self._passed: LimitName | None = None
        self._used: ResourcesUsed | None = None
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
        review = asyncio.create_task(self._review(self._limits, main)) if self._limits else None
        killed = False
        try:
            await asyncio.wait({main, order}, return_when=asyncio.FIRST_COMPLETED)
            if not main.done():
                killed = True
                await self._end()
            returncode = await main
            if review is not None:
                await review
        finally:
            order.cancel()
            if review is not None:
                review.cancel()
            self._signal(signal.SIGKILL, ())  # nothing outlives its step, if its group still has it
            self._stdio.finish()
        limit = self._passed if killed else None  # it may have ended by itself meanwhile
        self.ended.settle(Exit.from_returncode(returncode, killed=killed, limit=limit, used=self._used))

    async def _review(self, limits: ProcessLimits, main: asyncio.Task[int]) -> None:
        """Look at what the tree uses until it ends or passes a limit."""
        cpus: dict[tuple[int, str], float] = {}  # of each process, as it was last seen: the dead are not listed
        peak = 0
        while self._passed is None and not main.done():
            processes = await list_processes()
            family = self._family(processes)
            cpus |= {(pid, listed.born): listed.cpu for pid, listed in family.items()}
            memory = sum(listed.memory for listed in family.values())
            peak = max(peak, memory)
            self._used = ResourcesUsed(sum(cpus.values()), peak, "tree")
            self._passed = _passed(limits, memory, self._used.cpu, len(family))
            if self._passed is None:
                await asyncio.wait({main}, timeout=REVIEW)
            elif self._deadline is None:
                self.stop(0)

    def _family(self, processes: Mapping[int, ListedProcess]) -> dict[int, ListedProcess]:
        group = self._main.pid
        below = beneath(group, processes)
        return {pid: it for pid, it in processes.items() if pid == group or pid in below or it.group == group}

    async def _end(self) -> None:
        """SIGTERM if there is a grace, and SIGKILL after it."""
        listed = await list_processes()
        before = {pid: listed[pid].born for pid in beneath(self._main.pid, listed)}
        if self._grace_left():
            self._signal(signal.SIGTERM, before)
        family = {self._main.pid, *before}
        while self._grace_left() and any(map(_exists, family)):  # noqa: ASYNC110 - no event tells of others' children
            await asyncio.sleep(GLANCE)
        now = await list_processes()
        same = {pid for pid, born in before.items() if pid in now and now[pid].born == born}
        self._signal(signal.SIGKILL, same | beneath(self._main.pid, now))

    def _grace_left(self) -> bool:
        return self._deadline is not None and asyncio.get_running_loop().time() < self._deadline

    def _signal(self, number: signal.Signals, descendants: Iterable[int]) -> None:
        """Signal the group, and then those descendants that have left it: a parent could end well of a child's end."""
        group = self._main.pid
        outside = []
        for pid in descendants:
            with suppress(ProcessLookupError, PermissionError):  # it has ended; it is another user's
                if os.getpgid(pid) != group:
                    outside.append(pid)
        with suppress(ProcessLookupError, PermissionError):  # no one is left in it; macOS says EPERM for zombies
            os.killpg(group, number)
        for pid in outside:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _passed(limits: ProcessLimits, memory: int, cpu: float, processes: int) -> LimitName | None:
    if limits.memory is not None and memory > limits.memory:
        return "memory"
    if limits.cpu is not None and cpu > limits.cpu:
        return "cpu"
    if limits.processes is not None and processes > limits.processes:
        return "processes"
    return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True


class Grouping:
    """The mechanism where there are no subreapers."""

    def __init__(self) -> None:
        self._processes: set[GroupedProcess] = set()
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
        if command.limits is not None and command.limits.cpu_share is not None:
            with suppress(OSError):  # it has ended already; there is nothing else here that would slow it down
                os.setpriority(os.PRIO_PGRP, main.pid, min(os.getpriority(os.PRIO_PROCESS, 0) + NICER, 19))
        grouped = GroupedProcess(main, stdio, command.limits)
        self._processes.add(grouped)
        grouped.follower.add_done_callback(lambda _: self._processes.discard(grouped))
        if self._closed:
            grouped.stop(0)  # `close` came while it was being started
        return Process(main.pid, stdio.stdout, stdio.stderr, grouped, stdio.stdin)

    async def close(self) -> None:
        self._closed = True
        processes = list(self._processes)
        for grouped in processes:
            grouped.stop(0)
        if processes:
            await asyncio.wait([grouped.follower for grouped in processes])


COLUMNS = "pid=,ppid=,pgid=,rss=,time=,lstart="
"""Those that Linux, macOS and the BSDs have in common."""


class ListedProcess(msgspec.Struct, frozen=True):
    parent: int
    group: int
    memory: int
    """Bytes that are resident; those that it shares are counted for each who does."""
    cpu: float
    """Seconds of computing: its own, without its children's."""
    born: str
    """Start time, which distinguishes it from a later process of that pid."""


async def list_processes() -> dict[int, ListedProcess]:
    """By pid; empty where there is no `ps`."""
    try:
        ps = await asyncio.create_subprocess_exec(
            *("ps", "-axo", COLUMNS), stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
        )
    except OSError:
        return {}
    table, _ = await ps.communicate()
    rows = [line.split(maxsplit=5) for line in table.decode(errors="replace").splitlines()]
    return {
        int(pid): ListedProcess(int(parent), int(group), int(memory) * 1024, _seconds(cpu), born)
        for pid, parent, group, memory, cpu, born in rows
    }


def beneath(pid: int, processes: Mapping[int, ListedProcess]) -> set[int]:
    """The descendants of a process that still have their parents."""
    family = [pid]
    for member in family:  # which grows by what is found below
        family += [child for child, listed in processes.items() if listed.parent == member]
    return set(family[1:])


def _seconds(text: str) -> float:
    """From `[[days-]hours:]minutes:seconds`."""
    days, _, clock = text.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + 86400 * int(days or 0)
