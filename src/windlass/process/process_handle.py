"""A process tree as its caller sees it: `Process`, and `Exit`, how it ended.

Both mechanisms (`warden_client`: a keeper under the warden; `group`: a process group) make `Process` objects; `Ending`
is where they leave the outcome. `ProcessLost` is the outcome when the tree slipped out of our hands.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import dataclass, field
from typing import Protocol, Self

from windlass.errors import Category, WindlassError
from windlass.process.command import LimitName, ResourcesUsed
from windlass.process.pipes import InputStream

__all__ = ["Ending", "Exit", "Process", "ProcessLost", "signal_name"]


def signal_name(number: int) -> str:
    """The name of a signal; its number where Python has no name, as for most real-time signals."""
    return signal.Signals(number).name if number in signal.Signals.__members__.values() else f"signal {number}"


class ProcessLost(WindlassError):
    """The command ran, and how it ended is unknown, or some of it could not be ended. The text says which.

    The attempt is like one that a crash cut off: its effects may have happened.
    """

    category = Category.TRANSIENT


@dataclass(frozen=True, slots=True)
class Exit:
    """The end of a command's main process: by itself with a code, or by a signal."""

    code: int | None
    """0 and above; None if a signal ended it."""
    signal: int | None
    """The signal's number; None if it ended by itself."""
    killed: bool
    """It was running when we ordered it to stop, or when it passed a limit."""
    limit: LimitName | None = None
    """The limit that it passed, and for which it was killed."""
    used: ResourcesUsed | None = field(default=None, compare=False)
    """Resources that its tree used; None where that is not known (process groups, without a limit)."""

    left: tuple[str, ...] = field(default=(), compare=False)
    """Names of processes that it left behind, and that were killed at its end; at most five, where that is known."""
    processes: tuple[str, ...] = field(default=(), compare=False)
    """Names of the processes that there were when they were too many; at most five, where that is known."""

    @property
    def text(self) -> str:
        return f"exit code {self.code}" if self.signal is None else f"killed by signal {self.signal}"

    @classmethod
    def from_wait_status(
        cls, status: int, *, killed: bool, limit: LimitName | None = None, used: ResourcesUsed | None = None
    ) -> Self:
        return cls.from_returncode(os.waitstatus_to_exitcode(status), killed=killed, limit=limit, used=used)

    @classmethod
    def from_returncode(
        cls, returncode: int, *, killed: bool, limit: LimitName | None = None, used: ResourcesUsed | None = None
    ) -> Self:
        """From Python's convention, in which a negative number is a signal."""
        if returncode < 0:
            return cls(None, -returncode, killed, limit, used)
        return cls(returncode, None, killed, limit, used)


class Ending:
    """Settled once, awaited by any number; cancelling one who waits touches no one else."""

    def __init__(self) -> None:
        self._settled = asyncio.Event()
        self._outcome: Exit | ProcessLost | None = None

    def settle(self, outcome: Exit | ProcessLost) -> None:
        """The first outcome stands."""
        if self._outcome is None:
            self._outcome = outcome
            self._settled.set()

    async def wait(self) -> Exit:
        await self._settled.wait()
        assert self._outcome is not None
        if isinstance(self._outcome, ProcessLost):
            raise self._outcome
        return self._outcome

    @property
    def settled(self) -> bool:
        return self._outcome is not None


class ProcessOwner(Protocol):
    """The part of a mechanism that owns one process tree."""

    ended: Ending

    def stop(self, grace: float) -> None:
        """Order the whole tree to end; later orders can only shorten the grace."""


class Process:
    """One command and everything that it started."""

    def __init__(
        self,
        pid: int,
        stdout: asyncio.StreamReader,
        stderr: asyncio.StreamReader,
        owner: ProcessOwner,
        stdin: InputStream | None = None,
    ) -> None:
        self.pid = pid
        self.stdin = stdin
        """To write to it while it runs; None unless it was started with `PIPE`."""
        self.stdout = stdout
        self.stderr = stderr
        self._owner = owner

    async def wait(self) -> Exit:
        """Wait until the main process has ended and its tree is gone; the rest of its output is then in the readers.

        Does not need the output to be read, but a command whose output no one reads stops at a full pipe. Cancelling
        this leaves the command running, still owned: `stop` it, or close its Supervisor.
        """
        return await self._owner.ended.wait()

    async def stop(self, grace: float) -> Exit:
        """SIGTERM to the whole tree; after `grace` seconds SIGKILL to all that is left. With 0, SIGKILL at once.

        May be called again, and at any time: the earliest deadline holds. Cancelling this does not take the order back.
        """
        if not self._owner.ended.settled:
            self._owner.stop(max(grace, 0.0))
        return await self.wait()
