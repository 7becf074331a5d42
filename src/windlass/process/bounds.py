"""Bounds: all that holds one command to its limits, in the hands of its keeper.

- the **gauge** looks at the tree, and says which limit is passed: everywhere, for every limit;
- a **cgroup** has the kernel bound memory and share out processors, where one can be made;
- **resource limits** of the kernel, for each process: no core dump, and computing time a little beyond its limit, which
  still hold should keeper and warden both be killed.

There is none of memory among the latter (RLIMIT_DATA, RLIMIT_AS): they count what a process reserves. Eight threads
that use 10 MB reserve more than 64 MB, a JVM more than 256 MB, and a program under AddressSanitizer terabytes.

Loaded by the warden from this file when the first command with a limit comes. Standard library alone, as for `warden`.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import subprocess
from contextlib import suppress

from windlass.process import cgroups
from windlass.process.gauge import Gauge, PooledMemory

__all__ = ["Bounds"]

LIBC = ctypes.CDLL(None, use_errno=True)
PR_SET_TIMERSLACK = 29

NICER = 10
"""Niceness of a command with a share where no cgroup can be made: a lower priority alone."""
LATER = 5
"""Seconds of computing beyond the limit after which the kernel ends a process that no one watches any more."""


class Bounds:
    place: cgroups.CgroupRoot | None = None
    """Parent of new cgroups: found once, by the warden, for all keepers to come."""

    cpu_place: cgroups.CgroupRoot | None = None
    """Parent of new cgroups that share out processors; under version 2 the same."""

    def __init__(
        self,
        memory: int | None,
        cpu: float | None,
        processes: int | None,
        use_cgroups: bool,
        cpu_share: float | None = None,
        pool: tuple[str, int, str] | None = None,
    ) -> None:
        self._pool: PooledMemory | None = None
        if pool is not None:
            with suppress(OSError):  # a full disk, or the home is gone: the kernel holds it alone, where it can
                self._pool = PooledMemory(pool[2], pool[1])
        self._gauge = Gauge(memory, cpu, processes, self._pool)
        self._cpu = cpu
        self._struck = False
        self._cgroup: cgroups.Cgroup | None = None
        self._throttle: cgroups.Cgroup | None = None
        place, cpu_place = (self.place, self.cpu_place) if use_cgroups else (None, None)
        one = cpu_share if cpu_place is not None and place is cpu_place else None
        if place is not None and (memory is not None or one is not None or pool is not None):
            with suppress(OSError):  # as many as there may be are there, or our own is gone: it is watched alone
                within = place if pool is None else cgroups.shared_place(place, pool[0], pool[1])
                self._cgroup = cgroups.Cgroup(within, memory, one)
        if cpu_share is not None and one is None and cpu_place is not None:
            with suppress(OSError):
                self._throttle = cgroups.Cgroup(cpu_place, None, cpu_share)
        held = self._throttle if one is None else self._cgroup
        self._nice = cpu_share is not None and held is None

    @classmethod
    def settle(cls) -> None:
        """Find out what there is on this machine."""
        with suppress(cgroups.NoCgroup, OSError):  # `layers` tells the reason
            cls.place = cgroups.find()
        with suppress(cgroups.NoCgroup, OSError):
            cls.cpu_place = cgroups.find_for_cpu(cls.place)

    @classmethod
    def sweep(cls) -> None:
        """Remove what killed keepers have left."""
        for place in {cls.place, cls.cpu_place}:
            if place is not None:
                cgroups.sweep(place)

    def spawn(self, argv: list[bytes], env: dict[bytes, bytes], stdio: list[int]) -> int:
        """Start a command in a session of its own, within these bounds. Gives its process."""
        stdin, stdout, stderr = stdio
        self._command = subprocess.Popen(
            argv, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True, preexec_fn=self.enter
        )
        return self._command.pid

    def enter(self) -> None:
        """In the new process, before it becomes the command. It must not raise: the command is started all the same."""
        with suppress(OSError, ValueError):  # not for us to lower
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if self._cpu is not None:
                _, hardest = resource.getrlimit(resource.RLIMIT_CPU)
                seconds = math.ceil(self._cpu) + LATER
                if hardest == resource.RLIM_INFINITY or seconds < hardest:
                    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        for cgroup in filter(None, (self._cgroup, self._throttle)):
            with suppress(OSError):  # it was removed under us: the gauge goes on alone
                cgroup.enter()
        if self._nice:
            os.nice(NICER)

    def come_first(self) -> None:
        """In the keeper: run as soon as there is a reason to. Memory is filled faster than a turn comes round.

        Only root may ask for that. For others it is as with every process that sleeps most of the time: soon.
        """
        LIBC.prctl(PR_SET_TIMERSLACK, *map(ctypes.c_ulong, (1, 0, 0, 0)))
        with suppress(PermissionError):
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))

    def wait(self) -> float:
        """Seconds until the next look."""
        return self._gauge.wait()

    def look(self, ended: float) -> str | None:
        """The limit that is passed, if one is. `ended` is the computing time of those whom the keeper waited for."""
        return self.limit_struck if self.struck() else self._gauge.look(ended)

    @property
    def limit_struck(self) -> str:
        """The bound at which the kernel killed: the command's own, or that which it shares with others."""
        return "pool" if self._cgroup is not None and self._cgroup.by_pool else "memory"

    def struck(self) -> bool:
        """Tell if the kernel has killed some of the tree at the bound of its memory."""
        if self._cgroup is not None and not self._struck:
            with suppress(OSError):  # it was removed under us
                self._struck = self._cgroup.struck()
        return self._struck

    @property
    def peak(self) -> int:
        """The most memory that is known of. A bound at which the kernel had to kill was used in full.

        The kernel's own mark of the most (memory.peak, memory.max_usage_in_bytes) is no measure of it: a command that
        has read a large file has filled its cgroup with cache.
        """
        return max(self._gauge.peak, self._cgroup.bound) if self._struck and self._cgroup else self._gauge.peak

    def close(self) -> None:
        """No process is left."""
        for cgroup in filter(None, (self._cgroup, self._throttle)):
            cgroup.close()
        if self._pool is not None:
            self._pool.close()
