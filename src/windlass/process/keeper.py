"""The keeper of one command, and the ways of watching and ending processes that it shares with the warden.

`warden` describes what a keeper promises and how it speaks with the engine. Loaded by the warden from this file.
Standard library alone, as for `warden`.
"""

from __future__ import annotations

import ctypes
import errno
import marshal
import os
import resource  # noqa: F401 - os.wait4 would import it, in every keeper anew
import select
import time
from itertools import islice

TYPE_CHECKING = False  # `typing` would take a third of its start
if TYPE_CHECKING:
    import signal
    import socket
    from collections.abc import Collection, Iterator

    from windlass.process.bounds import Bounds
else:  # `signal`, `socket` and `contextlib` would take half of it, for enumerations and helpers that are not used here
    import _signal as signal
    import _socket as socket

__all__ = [
    "BATCH",
    "PATIENCE",
    "PR_SET_DUMPABLE",
    "ROUND",
    "SLOW_ROUND",
    "Keeper",
    "SignalWakeup",
    "children",
    "disregard_signals",
    "kill",
    "own_descendants",
    "prctl",
    "say",
    "signal",
    "socket",
]

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_CHILD_SUBREAPER = 36

ROUND = 0.02
"""Seconds between two rounds of killing, when no death of a child calls for one earlier."""
PATIENCE = 3.0
"""Seconds of killing after which survivors are reported to the engine: SIGKILL needs no longer, where it works."""
SLOW_ROUND = 0.5
"""Seconds between rounds once survivors are reported."""
COARSE = 3.0
"""Milliseconds below which a poll is not exact enough."""
BATCH = 10_000
"""Children waited for in a row: a fork bomb breeds zombies without end, and between batches its living are killed."""

MOST_NAMED = 5
"""Processes that outlived their command, and are named."""

FAULTS = {
    signal.SIGSEGV,
    signal.SIGBUS,
    signal.SIGFPE,
    signal.SIGILL,
    signal.SIGABRT,
    signal.SIGTRAP,
    signal.SIGSYS,
}


class suppress:
    """Pass over these exceptions, as `contextlib.suppress` does."""

    def __init__(self, *kinds: type[Exception]) -> None:
        self._kinds = kinds

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, *_about: object) -> bool:
        return kind is not None and issubclass(kind, self._kinds)


def prctl(option: int, value: int) -> None:
    """Call prctl(2), which the standard library does not offer."""
    if LIBC.prctl(option, *(ctypes.c_ulong(argument) for argument in (value, 0, 0, 0))) != 0:
        raise OSError(ctypes.get_errno(), f"prctl({option}, {value}) failed")


def own_descendants() -> None:
    """Adopt orphaned descendants, and be woken when the parent dies.

    The parent-death signal also comes when only the parent's *thread* that forked us ends; so it is no more than a
    reason to look at `getppid()`, which every turn of the loops does.
    """
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    prctl(PR_SET_PDEATHSIG, signal.SIGHUP)


def disregard_signals() -> None:
    """Let no signal end or stop this process, and have every signal at its default in what it starts.

    Warden and keepers end when their work does, not when a service manager or a step signals everyone in sight. A
    handler that does nothing serves both ends: exec resets it to the default, where SIG_IGN would be passed on.
    """
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL if number in FAULTS else lambda number, frame: None)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


class SignalWakeup:
    """Wakes a `poll` when any signal arrives, the death of a child above all."""

    def __init__(self) -> None:
        self._ear, self._clapper = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(self._clapper, warn_on_full_buffer=False)

    def fileno(self) -> int:
        return self._ear

    def silence(self) -> None:
        with suppress(BlockingIOError):  # it had not rung
            os.read(self._ear, 65536)

    def close(self) -> None:
        os.close(self._ear)
        os.close(self._clapper)


def say(control: socket.socket, *words: object) -> None:
    """Report to the engine."""
    with suppress(ConnectionError):  # the engine has died, and no one is left to be told
        control.sendall(" ".join(map(str, words)).encode() + b"\n")


def children(pid: int) -> list[int]:
    """The children of a process, in all of its threads; for a subreaper, those that it adopted too."""
    found: list[int] = []
    with suppress(FileNotFoundError):  # it has ended
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(FileNotFoundError, ProcessLookupError):  # this thread has
                with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                    found += map(int, file.read().split())
    return found


def parent(pid: int) -> int | None:
    with suppress(FileNotFoundError, ProcessLookupError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split(maxsplit=2)[1])
    return None


def living(pid: int) -> str:
    """The name of a process, as one word; empty if it has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        with open(f"/proc/{pid}/stat", "rb") as file:
            before, _, rest = file.read().rpartition(b")")
        if rest.split(maxsplit=1)[0] not in (b"Z", b"X"):
            name = before.partition(b"(")[2].decode("ascii", "replace")
            return "".join(letter if letter.isalnum() or letter in "._-" else "?" for letter in name) or "?"
    return ""


def descend(roots: list[int], passing_over: Collection[int] = ()) -> Iterator[tuple[int, int]]:
    """Walk these children of ours and all beneath them, parents first: pid and process group of each.

    Each is given out when its parent has just been seen to be of the family, and so cannot be a stranger to whom the
    pid has passed. Groups in `passing_over`, which may grow meanwhile, are left out.
    """
    family = {os.getpid()}
    queue = list(roots)
    for pid in queue:  # which grows by what is found below
        with suppress(ProcessLookupError):
            group = os.getpgid(pid)
            if group not in passing_over:
                below = children(pid)
                if parent(pid) in family:
                    family.add(pid)
                    queue += below
                    yield pid, group


def terminate(until: float) -> None:
    """Ask all descendants politely to end: SIGTERM to each of them, once."""
    for pid, _ in descend(children(os.getpid())):
        if time.monotonic() > until:
            return  # a fork bomb would keep us walking
        # It may have ended by now; or be another user's, and will be reported as a survivor.
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGTERM)
            os.kill(pid, signal.SIGCONT)  # a stopped process could not act on the first


def kill(pids: list[int]) -> None:
    """SIGKILL these children of ours and their descendants, a whole process group at one stroke.

    The kernel signals a group under the lock that fork takes, so none of it can get away by forking. A process that
    leaves its group during the walk becomes our child when its parent dies, and is killed in the next round. The rounds
    end because a walk reaches every depth, and the dead do not fork.
    """
    ours = os.getpgrp()
    struck: set[int] = set()
    for pid, group in descend(pids, passing_over=struck):
        # It may have ended by now; or be another user's (sudo), and will be reported as a survivor.
        with suppress(ProcessLookupError, PermissionError):
            if group == ours:
                os.kill(pid, signal.SIGKILL)
            else:
                struck.add(group)
                os.killpg(group, signal.SIGKILL)


def spawn(argv: list[bytes], env: dict[bytes, bytes], stdio: list[int]) -> int:
    """Start a command in a session of its own, found by its own PATH. Gives its process."""
    streams = [(os.POSIX_SPAWN_DUP2, stream, number) for number, stream in enumerate(stdio)]
    name = argv[0]
    folders = [b""] if b"/" in name else env.get(b"PATH", os.fsencode(os.defpath)).split(b":")
    reason: OSError = FileNotFoundError(errno.ENOENT, "no such program")
    for folder in folders:
        try:
            return os.posix_spawn(os.path.join(folder, name), argv, env, file_actions=streams, setsid=True)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:  # one that may not be run is told of, unless another is found
            reason = error
    raise reason


class Keeper:
    """Owns one command, from its start until no process beneath it is left."""

    def __init__(self, control: socket.socket, warden: int, bounds: type[Bounds] | None) -> None:
        self._control = control
        self._warden = warden
        self._orders = b""
        self._status: int | None = None
        self._killed = False
        self._deadline: float | None = None  # from then on everything is killed; None as long as the command may run
        self._told = False
        self._named: list[str] = []  # processes that outlived the command, or that there were when they were too many
        self._bounds_type = bounds
        self._bounds: Bounds | None = None
        self._limit: str | None = None  # the one that was passed
        self._cpu = 0.0
        self._largest = 0
        own_descendants()
        self._bell = SignalWakeup()
        self._poll = select.poll()
        self._poll.register(control, select.POLLIN)
        self._poll.register(self._bell, select.POLLIN)

    def run(self, stdio: list[int]) -> None:
        if not self._start(stdio):
            return
        while self._reap():
            if os.getppid() != self._warden:
                self._end_by(time.monotonic())
            for fd, _ in self._wait(self._press_on()):
                if fd == self._control.fileno():
                    self._obey()
            self._bell.silence()
        used = self._use()
        if os.getppid() == self._warden:  # an orphaned keeper's silence tells the engine that the warden was lost
            say(self._control, "ended", self._status, int(self._killed), *used, *self._named)

    def _wait(self, milliseconds: float | None) -> list[tuple[int, int]]:
        """Wait for input. A poll counts in whole milliseconds, which is too coarse near a limit."""
        if milliseconds is not None and 0 < milliseconds < COARSE:
            time.sleep(milliseconds / 1000)
            milliseconds = 0
        return self._poll.poll(milliseconds)

    def _start(self, stdio: list[int]) -> bool:
        request = self._receive(int.from_bytes(self._receive(8), "big"))
        if not request:
            return False  # the engine let go before it had said what to run
        argv, cwd, env, limits = marshal.loads(request)
        part = "cwd"
        try:
            os.chdir(cwd)
            part = "program"
            if limits is not None and self._bounds_type is not None:
                self._bounds = self._bounds_type(*limits)
            start = spawn if self._bounds is None else self._bounds.spawn
            self._command = start(argv, env, stdio)
        except OSError as error:
            if self._bounds is not None:
                self._bounds.close()
            say(self._control, "failed", error.errno, part)
            return False
        for fd in stdio:
            os.close(fd)  # or the engine would not see the end of the output
        say(self._control, "started", self._command)
        if self._bounds is not None:
            self._bounds.come_first()
        return True

    def _receive(self, size: int) -> bytes:
        """Exactly `size` bytes, or none at all where the engine stopped short of that."""
        received = bytearray()
        while len(received) < size:
            if not (piece := self._control.recv(size - len(received))):
                return b""
            received += piece
        return bytes(received)

    def _reap(self) -> bool:
        """Wait for those that have ended. False when no process is left."""
        try:
            for _ in range(BATCH):
                pid, status, usage = os.wait4(-1, os.WNOHANG)
                if pid == 0:
                    break
                self._cpu += usage.ru_utime + usage.ru_stime
                self._largest = max(self._largest, usage.ru_maxrss * 1024)
                if pid == self._command:
                    self._status = status
                    if self._deadline is None:
                        self._end_by(time.monotonic())  # nothing outlives its step
        except ChildProcessError:
            return False
        return True

    def _obey(self) -> None:
        try:
            received = self._control.recv(4096)
        except ConnectionResetError:
            received = b""
        if not received:  # the engine has let go
            self._poll.unregister(self._control)
            self._stop(0)
            return
        *orders, self._orders = (self._orders + received).split(b"\n")
        for order in orders:
            self._stop(float(order.removeprefix(b"stop ")))

    def _stop(self, grace: float) -> None:
        deadline = time.monotonic() + grace
        first = self._deadline is None
        self._killed |= first
        self._end_by(deadline)
        if first and grace > 0:
            terminate(deadline)

    def _end_by(self, deadline: float) -> None:
        self._deadline = deadline if self._deadline is None else min(self._deadline, deadline)

    def _use(self) -> tuple[str, float, int, str]:
        """The limit that was passed, and the resources used. Called once, when no process is left."""
        if self._bounds is None:
            return "none", self._cpu, self._largest, "largest"
        if self._bounds.struck():
            # The kernel was faster than we, and the rest of the tree may have ended of that: it is all one death.
            self._limit, self._killed, self._status = (
                self._limit or self._bounds.limit_struck,
                True,
                int(signal.SIGKILL),
            )
        self._bounds.close()
        return self._limit or "none", self._cpu, max(self._bounds.peak, self._largest), "tree"

    def _measure(self) -> None:
        """See to it that a command with limits keeps to them."""
        if self._bounds is not None and self._bounds.wait() == 0:
            self._limit = self._bounds.look(self._cpu)
            if self._limit == "processes":
                below = (living(pid) for pid, _ in descend(children(os.getpid())))
                self._named = list(islice(filter(None, below), MOST_NAMED))
            if self._limit is not None:
                self._killed = True
                self._end_by(time.monotonic())

    def _press_on(self) -> float | None:
        """Kill if it is time to. Returns the milliseconds until there is something to do again."""
        if self._deadline is None:
            self._measure()
        if self._deadline is None:
            return None if self._bounds is None else self._bounds.wait() * 1000
        overdue = time.monotonic() - self._deadline
        if overdue < 0:
            return min(-overdue, 3600.0) * 1000  # poll takes no more than a month
        left = children(os.getpid())
        if self._status is not None and not self._killed and not self._named:
            self._named = [name for pid in left[:MOST_NAMED] if (name := living(pid))]
        kill(left)
        if overdue > PATIENCE and not self._told:
            self._told = True
            say(self._control, "survivors", *left)
        return (SLOW_ROUND if self._told else ROUND) * 1000
