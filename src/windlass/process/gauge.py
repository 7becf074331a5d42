"""The gauge holds a keeper's command to its limits: it looks at the whole tree again and again, while there is one.

The kernel's own limits (`setrlimit`) hold for one process at a time, and count what is reserved rather than what is
used; a tree needs its sum. The gauge looks rarely while there is much room, and the oftener the less there is: the
next look comes before the tree could have filled the room that is left.

It sees memory that is mapped and resident, with pages that processes share counted once when it comes to the
limit; computing time of the living, and of the dead whom their parents or the keeper waited for. It does not see
files in memory that no one maps (/dev/shm), the kernel's buffers, and children whose parent ignores SIGCHLD after
their end.

Loaded by the warden from this file, with `bounds`. Standard library alone, as for `warden`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress

__all__ = ["Gauge", "PooledMemory"]

PAGE = os.sysconf("SC_PAGE_SIZE")
TICK = 1.0 / os.sysconf("SC_CLK_TCK")
CPUS = os.cpu_count() or 1

GROWTH = min(4 * CPUS, 16) * 1024**3
"""Bytes a second that a tree may be able to fill: as many as the kernel can clear, on all processors at once."""
SPARE = 0.04
"""The share of the memory limit that may be passed before it is seen."""
SHORTEST, STEADY, LONGEST = 0.0002, 0.002, 0.02
"""Seconds between two looks: the fewest while memory grows, the fewest while it does not, and the most."""
LONGEST_FOR_CPU = 0.25
"""The same where only computing time is limited, which cannot leap."""

LIVING = frozenset("RSDTtIPK")
"""States of processes that count as such; a zombie (Z, X) is only a number that its parent has not asked for."""


class SeenProcess:
    """One process, as read from /proc/PID/stat."""

    __slots__ = ("born", "cpu", "lives", "parent", "pid", "resident", "threads")

    def __init__(self, pid: int, stat: bytes) -> None:
        fields = stat.rpartition(b")")[2].split()
        self.pid = pid
        self.lives = fields[0].decode() in LIVING
        self.parent = int(fields[1])
        self.cpu = sum(map(int, fields[11:15])) * TICK  # its own, and that of the children it has waited for
        self.threads = int(fields[17])
        self.born = int(fields[19])  # tells it from a later one of that pid
        self.resident = int(fields[21]) * PAGE


class Gauge:
    def __init__(
        self, memory: int | None, cpu: float | None, processes: int | None, pool: PooledMemory | None = None
    ) -> None:
        self._memory, self._cpu, self._processes, self._pool = memory, cpu, processes, pool
        limits = [limit for limit in (memory, pool.limit if pool is not None else None) if limit is not None]
        self._least = min(limits, default=None)
        self._pages = Pages()
        self._next = 0.0
        self._last = 0
        self.peak = 0
        """The most memory of the tree that was seen."""

    def wait(self) -> float:
        """Seconds until the next look."""
        return max(0.0, self._next - time.monotonic())

    def look(self, ended: float) -> str | None:
        """The limit that is passed, if one is. `ended` is the computing time of those whom the keeper waited for."""
        began = time.thread_time()
        tree = list(family(os.getpid()))
        cpu = ended + sum(process.cpu for process in tree)
        memory = self._pages.of(tree, self._least)
        self.peak = max(self.peak, memory)
        # Looking must leave the processors to the command. (Walks are rare by themselves.) It is not to wait longer for
        # having had to wait: only what it computed counts.
        spent = time.thread_time() - began - self._pages.walking
        self._next = time.monotonic() + max(self._pause(memory, cpu), 2 * spent)
        if self._memory is not None and memory > self._memory:
            return "memory"
        if self._pool is not None and self._pool.passed(memory):
            return "pool"
        if self._cpu is not None and cpu > self._cpu:
            return "cpu"
        if self._processes is not None and sum(process.lives for process in tree) > self._processes:
            return "processes"
        return None

    def _pause(self, memory: int, cpu: float) -> float:
        pause = LONGEST if self._processes is not None else LONGEST_FOR_CPU
        rooms = [] if self._memory is None else [self._memory * (1 + SPARE) - memory]
        if self._pool is not None:
            rooms.append(self._pool.room(memory) + SPARE * self._pool.limit)
        if rooms:
            room = min(rooms)
            least = SHORTEST if memory > self._last else STEADY
            pause = min(pause, LONGEST, max(least, room / GROWTH))
            self._last = memory
        if self._cpu is not None:
            pause = min(pause, max(LONGEST / 2, (self._cpu - cpu) / CPUS))
        return pause


class Pages:
    """The memory of a tree, in which pages that processes share count once.

    The simple sum counts them once per process, and decides nothing alone. The true sum needs a walk through all pages,
    which takes milliseconds in which the tree grows on. So a walk is made when the simple sum comes to the limit; from
    then on, growth is added to it: all that a process gains besides files and shared memory is its own.
    """

    def __init__(self) -> None:
        self._walked: dict[tuple[int, int], tuple[int, int]] = {}  # pid and birth: private bytes then, and resident
        self._sum = 0
        self._simple = 0
        self.walking = 0.0
        """Seconds that the last walk computed; 0 if the last look needed none."""

    def of(self, tree: list[SeenProcess], limit: int | None) -> int:
        self.walking = 0.0
        simple = sum(process.resident for process in tree)
        if limit is None or simple <= limit:
            return simple
        least = max(max(process.resident for process in tree), self._surely(tree))
        likely = self._sum + simple - self._simple
        if least > limit or (self._walked and likely <= limit):
            return max(least, min(likely, limit))
        return max(least, self._walk(tree))

    def _surely(self, tree: list[SeenProcess]) -> int:
        """The last walk, with what those who were there have gained and lost since. It is never more than there is."""
        left = dict(self._walked)
        total = self._sum
        for process in tree:
            if then := left.pop((process.pid, process.born), None):
                total += _private(process) - then[0]
        return total - sum(resident for _, resident in left.values())

    def _walk(self, tree: list[SeenProcess]) -> int:
        began = time.thread_time()
        self._simple, self._sum = 0, 0
        self._walked.clear()
        for process in tree:
            self._simple += process.resident
            self._sum += _share(process)
            self._walked[process.pid, process.born] = _private(process), process.resident
        self.walking = time.thread_time() - began
        return self._sum


def family(root: int) -> Iterator[SeenProcess]:
    """All beneath a process, parents first. A pid that has passed to a stranger has another parent, and is left out."""
    known = {root}
    queue = _children(root, 1)
    for pid in queue:  # which grows by what is found below
        with suppress(FileNotFoundError, ProcessLookupError, PermissionError):  # it has ended, or is hidden from us
            seen = SeenProcess(pid, _read(f"/proc/{pid}/stat"))
            if seen.parent in known:
                known.add(pid)
                queue += _children(pid, seen.threads)
                yield seen


def _children(pid: int, threads: int) -> list[int]:
    found: list[int] = []
    with suppress(FileNotFoundError, ProcessLookupError):
        for task in [pid] if threads == 1 else os.listdir(f"/proc/{pid}/task"):
            with suppress(FileNotFoundError, ProcessLookupError):  # this thread has ended
                found += map(int, _read(f"/proc/{pid}/task/{task}/children").split())
    return found


def _private(process: SeenProcess) -> int:
    """Bytes that are no file's and no shared memory."""
    with suppress(FileNotFoundError, ProcessLookupError):
        _, resident, shared, *_ = map(int, _read(f"/proc/{process.pid}/statm").split())
        return (resident - shared) * PAGE
    return 0


def _share(process: SeenProcess) -> int:
    """Its memory, with each shared page divided among those who share it."""
    try:
        rollup = _read(f"/proc/{process.pid}/smaps_rollup")
    except (FileNotFoundError, ProcessLookupError):
        return 0  # it has ended
    except PermissionError:
        return process.resident  # it runs as another user: better too much than nothing
    _, _, after = rollup.partition(b"\nPss:")
    return int(after.split(maxsplit=1)[0]) * 1024 if after else 0


def _read(path: str) -> bytes:
    """All of a file of /proc. `open` would take three times as long."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        data = os.read(fd, 65536)
        while len(data) % 4096 == 0 and (more := os.read(fd, 65536)):
            data += more
        return data
    finally:
        os.close(fd)


WIDTH = 20
"""Digits of a figure: each one takes the place of the one before as a whole."""


class PooledMemory:
    def __init__(self, folder: str, limit: int) -> None:
        """OSError: the folder cannot be used."""
        self.limit = limit
        self._folder = folder
        os.makedirs(folder, mode=0o700, exist_ok=True)
        self._name = _name_of(os.getpid())
        self._file = os.open(f"{folder}/{self._name}", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._last = 0

    def passed(self, mine: int) -> bool:
        """Tell what the tree uses; whether it grew beyond what all of them may use together."""
        grew, self._last = mine > self._last, mine
        self._tell(mine)
        if not grew or mine + self._others() <= self.limit:
            return False
        self._tell(0)  # it is about to end, and the others must not end for it as well
        return True

    def room(self, mine: int) -> int:
        return self.limit - mine - self._others()

    def close(self) -> None:
        os.close(self._file)
        with suppress(OSError):
            os.unlink(f"{self._folder}/{self._name}")
            os.rmdir(self._folder)  # unless others are there

    def _tell(self, memory: int) -> None:
        with suppress(OSError):  # a full disk: the others count what was told last
            os.pwrite(self._file, b"%0*d" % (WIDTH, memory), 0)

    def _others(self) -> int:
        total = 0
        with suppress(OSError):
            for name in os.listdir(self._folder):
                if name != self._name:
                    total += self._told_by(name)
        return total

    def _told_by(self, name: str) -> int:
        path = f"{self._folder}/{name}"
        with suppress(OSError, ValueError):  # it has ended meanwhile, or has told nothing yet
            if _name_of(int(name.partition("-")[0])) != name:
                os.unlink(path)
                return 0
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                return int(os.read(fd, WIDTH) or b"0")
            finally:
                os.close(fd)
        return 0


def _name_of(pid: int) -> str:
    """Name a living process by its pid and start time, which distinguishes it from a later one of that pid."""
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return f"{pid}-{int(os.read(fd, 4096).rpartition(b')')[2].split()[19])}"
    finally:
        os.close(fd)
