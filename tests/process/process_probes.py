"""What the process tests look at: the processes of this machine, found by a mark in their environment."""

from __future__ import annotations

import os
from pathlib import Path

from windlass.process import Process

MARK = "WINDLASS_TEST_MARK"


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return b""  # it has ended, or is none of ours


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def bearing(mark: str) -> list[int]:
    """Every living process that was started with this mark, wherever it has gone since. A zombie has no environment."""
    return [pid for pid in _pids() if f"{MARK}={mark}".encode() in _read(f"/proc/{pid}/environ").split(b"\0")]


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat after the name: state, parent, group, session, …; empty if there is none."""
    return _read(f"/proc/{pid}/stat").decode(errors="replace").rpartition(")")[2].split()


def lives(pid: int) -> bool:
    fields = stat(pid)
    return bool(fields) and fields[0] not in "ZX"


def parent(pid: int) -> int:
    return int(stat(pid)[1])


def children(pid: int) -> list[int]:
    return [child for child in _pids() if (fields := stat(child)) and int(fields[1]) == pid]


def command_line(pid: int) -> str:
    return _read(f"/proc/{pid}/cmdline").decode(errors="replace").replace("\0", " ")


OTHERS: set[int] = set()
"""Wardens from before the test: fixtures of a session, such as a warm OpenCode, have theirs."""


def wardens() -> list[int]:
    """The wardens of this process that the test has started."""
    found = [pid for pid in children(os.getpid()) if "warden.py" in command_line(pid)]
    return [pid for pid in found if pid not in OTHERS]


def descriptors() -> list[str]:
    """What this process has open, by name: comparable before and after."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(f"{fd} {os.readlink(f'/proc/self/fd/{fd}')}")
        except FileNotFoundError:
            continue  # the one that listed the directory
    return sorted(found)


def asleep(mark: str, name: str) -> bool:
    """A process of that name with that mark sleeps, in a system call."""
    return any(f"({name}) S ".encode() in _read(f"/proc/{pid}/stat") for pid in bearing(mark))


async def ready(process: Process, times: int = 1) -> None:
    """Wait until the command has said so: each of its lines is one part of it in place."""
    for _ in range(times):
        line = await process.stdout.readline()
        if line != b"ready\n":
            raise AssertionError(f"not ready: {line!r}, {await process.stderr.read()!r}")
