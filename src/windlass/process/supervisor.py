"""Own process trees: start commands, and leave nothing of them behind.

The rest of Windlass uses `Supervisor`; `containment` describes for `doctor` and the docs how far its ownership reaches
on this machine. Two mechanisms stand behind it, with one and the same behaviour as far as each can:
`warden_client.WardenSupervision` (Linux: a warden process, a keeper for each command) and `group.Grouping` (elsewhere).
This package knows nothing of steps, runners or tools, and has no time limits: callers use `stop`. Limits of
memory, computing and processes (`limits`) are held where the tree is owned, for only there it is known whole.
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import os
import sys
from collections.abc import Collection, Mapping, Sequence
from typing import Literal, Protocol, Self

import msgspec

from windlass.process.command import Command, ProcessLimits
from windlass.process.group import Grouping
from windlass.process.pipes import Pipe
from windlass.process.process_handle import Process
from windlass.process.secrecy import hide_environment
from windlass.process.warden_client import WardenSupervision

__all__ = ["Containment", "Mechanism", "Supervisor", "containment"]

Mechanism = Literal["subreaper", "process group"]

PR_GET_CHILD_SUBREAPER = 37

STARTING = 16
"""Commands being started at a time: the kernel limits how many descriptors may be on their way to the warden."""

LINE_LIMIT = 1 << 20
"""Bytes that a line of output may have for `readline`. asyncio's 64 KiB are too few for an agent's JSON events."""


class Containment(msgspec.Struct, frozen=True):
    mechanism: Mechanism
    limits: str
    """One sentence on the processes that it does not catch."""


CONTAINMENTS: Mapping[Mechanism, Containment] = {
    "subreaper": Containment(
        "subreaper",
        "It does not catch processes that run as another user (sudo, setuid programs), processes that a service "
        "outside the step starts on its behalf (systemd-run, docker, at), and a step that sets out to kill or freeze "
        "both its keeper and the warden.",
    ),
    "process group": Containment(
        "process group",
        "It does not catch processes that have left their group (setsid, daemons) once their parent has ended, nor "
        "anything at all when the engine itself is killed with SIGKILL.",
    ),
}


@functools.cache
def containment() -> Containment:
    """The mechanism in force on this machine, and its limits."""
    return CONTAINMENTS["subreaper" if _has_subreapers() else "process group"]


def _has_subreapers() -> bool:
    if sys.platform != "linux" or not sys.executable:
        return False
    try:
        # /proc must show our own pid namespace, and list children (CONFIG_PROC_CHILDREN).
        if os.readlink("/proc/self") != str(os.getpid()) or not os.path.exists("/proc/thread-self/children"):
            return False
        answer = ctypes.c_int()
        return bool(ctypes.CDLL(None).prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(answer), 0, 0, 0) == 0)
    except OSError:
        return False


class _Owner(Protocol):
    """A mechanism: starts commands and ends all of them."""

    async def spawn(self, command: Command, stdin: bytes | Pipe | None, limit: int) -> Process: ...
    async def close(self) -> None: ...


class Supervisor:
    """Starts commands and owns everything that they start. Belongs to one event loop; close it, or use `async with`.

    Should the engine die before it can, everything is killed all the same where `containment()` is "subreaper".
    """

    def __init__(
        self, mechanism: Mechanism | None = None, *, cgroups: bool = True, visible: Collection[str] | None = None
    ) -> None:
        """`mechanism` overrules what `containment` finds, as tests of the other one do.

        Without `cgroups`, memory is watched alone, and not bounded by the kernel. With `visible`, commands cannot
        read any but these variables of this process, from the first command on (`secrecy`).
        """
        self._visible = visible
        kept = (mechanism or containment().mechanism) == "subreaper"
        self._owner: _Owner = WardenSupervision(cgroups=cgroups) if kept else Grouping()
        self._starting = asyncio.Semaphore(STARTING)
        self._closed = False

    async def spawn(
        self,
        argv: Sequence[str],
        *,
        cwd: str,
        env: Mapping[str, str],
        stdin: bytes | Pipe | None = None,
        limit: int = LINE_LIMIT,
        limits: ProcessLimits | None = None,
    ) -> Process:
        """Start a command with exactly this environment, no descriptors but its standard streams, default signals.

        Returns once it runs; raises SpawnError if it cannot be started. Without `stdin` it reads /dev/null;
        with `PIPE`, what is written to `Process.stdin`. `limit` is the longest line that the readers take. `limits`
        is what the whole tree may use: it is killed when it passes one, and `Exit.limit` says which. Cancelling this
        leaves nothing running.
        """
        command = Command.checked(argv, cwd, env, limits)
        async with self._starting:
            if self._closed:
                raise RuntimeError("this Supervisor is closed: it starts nothing any more")
            if self._visible is not None:
                hide_environment(self._visible)
                self._visible = None
            return await self._owner.spawn(command, stdin, limit)

    async def close(self) -> None:
        """Kill everything that was started and is still running, and wait for its end. May be called again."""
        self._closed = True
        await self._owner.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
