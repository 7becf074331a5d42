"""Keep the engine's environment from the processes that it starts.

A process can read the environment that another process of the same user began with, in `/proc/PID/environ`: a step
would find in its ancestors what it was not given. So the engine becomes a process that others of its user may not look
into, and overwrites the values in the block that the kernel shows. `os.environ` and getenv(3) keep them. The processes
between the engine and a step are started with `BETWEEN` alone.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Collection
from pathlib import Path

__all__ = ["BETWEEN", "hide_environment", "pick"]

BETWEEN = ("PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "LD_LIBRARY_PATH")
"""Variables of processes between the engine and a step: a Python that starts needs no others."""

PR_SET_DUMPABLE = 4


def pick(names: Collection[str]) -> dict[str, str]:
    """Those of our variables."""
    return {name: os.environ[name] for name in names if name in os.environ}


def hide_environment(visible: Collection[str]) -> None:
    """Hide this process's memory, and the values of all but these variables. For the whole life of the process.

    Other processes of the user can no longer read its memory or trace it, and it leaves no core dump. A process with
    CAP_SYS_PTRACE (root, outside of containers) still can. Only on Linux; elsewhere, nothing is done.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    try:
        # The fields 50 and 51, counted from behind the name, which may have spaces in it.
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        start, end = int(fields[47]), int(fields[48])
    except (OSError, IndexError, ValueError):
        start = end = 0
    libc.prctl(PR_SET_DUMPABLE, *(ctypes.c_ulong(value) for value in (0, 0, 0, 0)))
    if start < end:
        _move_out(libc, start, end)
        _overwrite(start, end, {os.fsencode(name) for name in visible})


def _move_out(libc: ctypes.CDLL, start: int, end: int) -> None:
    """Have getenv(3), and exec(3) in what we start, find copies of what is in the block."""
    libc.strdup.restype = ctypes.c_void_p
    environ = ctypes.POINTER(ctypes.c_void_p).in_dll(libc, "environ")
    index = 0
    while (text := environ[index]) is not None:
        if start <= text < end and (copy := libc.strdup(ctypes.c_void_p(text))):
            environ[index] = copy
        index += 1


def _overwrite(start: int, end: int, visible: set[bytes]) -> None:
    at = start
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, _, value = entry.partition(b"=")
        if value and name not in visible:
            ctypes.memset(at + len(name) + 1, 0, len(value))
        at += len(entry) + 1
