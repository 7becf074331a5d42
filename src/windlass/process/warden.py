"""The warden: one small process that owns every process tree the engine starts.

    engine ──line──▶ warden ──fork──▶ keeper ──exec──▶ command ──▶ its children …
       └────────────── control ──────────┘

- The **line** is a socket pair between engine and warden. One packet on it carries four descriptors (a control
  socket, and the command's stdin, stdout and stderr) and asks for one keeper: `k`, or `b` for one with bounds, which
  hold the command to its limits (`bounds`).
- A **keeper** owns one command. It reads the command from its control socket, starts it, waits for every process
  beneath it, obeys `stop`, and reports. The end of its control socket means that it is gone.
- Both are child subreapers: a process whose parent dies becomes the child of its keeper, however often it forked or
  called `setsid`. A keeper ends only when `waitpid` says that it has no child left, so nothing can be forgotten.

After a death:
- the command: its keeper kills what it left behind, and reports;
- a keeper: its processes become the warden's, which kills every child that is not a keeper;
- the warden: every keeper gets its parent-death signal, kills its tree and ends;
- the engine: the warden kills its keepers and everything that they leave to it.

The warden holds a copy of each control socket and closes it last, so the engine reads the end of a control socket
exactly when the keeper and all of its processes are gone.

Keepers send, one line each: `started PID`, `failed ERRNO PART`, `ended STATUS KILLED LIMIT CPU MEMORY SCOPE`,
`survivors PID…`, `error TEXT`. They receive the length of the request in eight bytes, the request (marshalled
argv, cwd, env, limits), then any number of `stop GRACE` lines.

This file is run as a script under `python -I -S`: it may import the standard library and nothing else, and little of
that, for the first command waits for it. It loads the rest from the files beside it: `keeper` at once, for
compiled files load faster than this one is read, and `bounds` when first asked for. Nothing imports this file.
"""

from __future__ import annotations

import errno
import os
import select
import sys
import time

if __name__ == "__main__":
    # A Python that runs with -I -S knows no package of these names, until now.
    for package in ("windlass", "windlass.process"):
        sys.modules[package] = type(sys)(package)
        sys.modules[package].__path__ = [os.path.dirname(__file__)]

from windlass.process.keeper import (
    BATCH,
    PATIENCE,
    PR_SET_DUMPABLE,
    ROUND,
    SLOW_ROUND,
    Keeper,
    SignalWakeup,
    children,
    disregard_signals,
    kill,
    own_descendants,
    prctl,
    say,
    signal,
    socket,
)

TYPE_CHECKING = False  # `typing` would take a third of its start
if TYPE_CHECKING:
    from windlass.process.bounds import Bounds

INT = 4
"""Bytes of a descriptor's number in a packet."""


def load_bounds() -> type[Bounds]:
    from windlass.process import bounds

    bounds.Bounds.settle()
    return bounds.Bounds


class Warden:
    """Forks a keeper whenever the engine asks, and kills whatever is left to it without one."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._engine = os.getppid()
        self._serving = True
        self._keepers: dict[int, socket.socket] = {}  # by pid; our copy of the control socket
        self._bereft: list[socket.socket] = []  # the sockets of dead keepers, open until their strays are dead too
        self._strays_since: float | None = None
        self._bounds: type[Bounds] | None = None
        disregard_signals()
        own_descendants()
        self._bell = SignalWakeup()
        self._poll = select.poll()
        self._poll.register(line, select.POLLIN)
        self._poll.register(self._bell, select.POLLIN)

    def run(self) -> None:
        while True:
            if os.getppid() != self._engine:
                self._retire()
            if not self._reap() and not self._serving:
                return
            for fd, _ in self._poll.poll(self._sweep()):
                if fd == self._line.fileno():
                    self._admit()
            self._bell.silence()

    def _admit(self) -> None:
        """Take one request off the line: fork its keeper."""
        packet, given, _, _ = self._line.recvmsg(1, socket.CMSG_SPACE(4 * INT), socket.MSG_CMSG_CLOEXEC)
        data = b"".join(part for _, kind, part in given if kind == socket.SCM_RIGHTS)
        fds = [int.from_bytes(data[at : at + INT], sys.byteorder) for at in range(0, len(data) - INT + 1, INT)]
        if not packet:
            self._retire()
            return
        if len(fds) < 4:  # our limit of open files is reached; the kernel has dropped the rest
            for fd in fds[1:]:
                os.close(fd)
            if fds:
                refused = socket.socket(fileno=fds[0])
                say(refused, "failed", errno.EMFILE, "keeper")
                refused.close()
            return
        control = socket.socket(fileno=fds[0])
        stdio = fds[1:]
        warden = os.getpid()  # asked here, for the keeper could be told another's if we died at once
        try:
            if packet == b"b" and self._bounds is None:
                self._bounds = load_bounds()  # once, here, for all keepers to come
            pid = os.fork()
        except OSError as error:
            say(control, "failed", error.errno, "keeper")
            control.close()
        else:
            if pid == 0:
                self._become_keeper(warden, control, stdio)
            self._keepers[pid] = control
        for fd in stdio:
            os.close(fd)

    def _become_keeper(self, warden: int, control: socket.socket, stdio: list[int]) -> None:
        """Go on as a keeper, in the new process, and never return."""
        try:
            os.setsid()  # a step that signals its parent's group reaches no other keeper
            self._bell.close()
            # The end of a socket must mean the end of those who own it, so no copy may live on here.
            for inherited in (self._line, *self._keepers.values(), *self._bereft):
                inherited.close()
            Keeper(control, warden, self._bounds).run(stdio)
        except BaseException:  # no frame above may go on running as a second warden
            import traceback  # slow to import, and hardly ever needed

            say(control, "error", repr(traceback.format_exc()))
        finally:
            os._exit(0)

    def _retire(self) -> None:
        """The engine is gone or has let go: from now on every child is a stray."""
        if self._serving:
            self._serving = False
            self._poll.unregister(self._line)
            self._bereft += self._keepers.values()
            self._keepers.clear()

    def _reap(self) -> bool:
        """Wait for those that have ended. False when no child is left."""
        try:
            for _ in range(BATCH):
                pid, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED)
                if pid == 0:
                    break
                if os.WIFSTOPPED(status):
                    os.kill(pid, signal.SIGCONT)  # a step may not escape its keeper by freezing it
                elif pid in self._keepers:
                    self._bereft.append(self._keepers.pop(pid))
        except ChildProcessError:
            return False
        return True

    def _sweep(self) -> float | None:
        """Kill strays; when there are none, let the engine see the end of the keepers that left them.

        Returns the milliseconds until there is something to do again.
        """
        strays = [pid for pid in children(os.getpid()) if pid not in self._keepers]
        kill(strays)
        now = time.monotonic()
        if not strays:
            self._strays_since = None
        elif self._strays_since is None:
            self._strays_since = now
        overdue = self._strays_since is not None and now - self._strays_since > PATIENCE
        if overdue or not strays:
            if self._bereft and self._bounds is not None:
                self._bounds.sweep()
            for control in self._bereft:
                if strays:
                    say(control, "survivors", *strays)
                control.close()
            self._bereft.clear()
        if not strays:
            return None
        return (SLOW_ROUND if overdue else ROUND) * 1000


def main() -> None:
    line = socket.socket(fileno=os.dup(0))
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0, inheritable=False)  # so that no descriptor opened later takes the number of a standard stream
    os.close(nowhere)
    os.chdir("/")  # hold no directory busy
    prctl(PR_SET_DUMPABLE, 0)  # no step may look into what keeps it, and keepers inherit this
    Warden(line).run()


if __name__ == "__main__":
    main()
