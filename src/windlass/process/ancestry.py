"""Find out whether a process is below an attempt: started, however indirectly, by a command that the engine owns (C6).

Every command runs below a keeper (`warden`), which is a subreaper: a process that forks twice or calls `setsid` stays
below it. The keeper is known by the file that it runs, and no process can change its ancestors' command lines. A
command with a bound of memory also runs in a cgroup named after its keeper. Environment variables are not asked: they
can be taken off. Works where there is /proc; elsewhere nothing is found (`docs/security.md` says so).
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from typing import NamedTuple

import msgspec

__all__ = ["AttemptAbove", "Peer", "attempt_above", "attempt_behind", "peer"]

_WARDEN = b"windlass/process/warden.py"
_CGROUP = re.compile(rb"/windlass-(\d+)(?:/|$)", re.MULTILINE)
_LOOPBACK = ("127.", "::1", "::ffff:127.")
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")


class AttemptAbove(msgspec.Struct, frozen=True):
    """The attempt that a process was started by."""

    execution: str = ""
    """As the command's environment says; empty where that cannot be read. For the record only."""
    step: str = ""

    def __str__(self) -> str:
        return f"step {self.step} of execution {self.execution}" if self.execution else "a step of an execution"


class Peer(NamedTuple):
    """The other end of a TCP connection, and our port."""

    host: str
    port: int
    server_port: int


peer: ContextVar[Peer | None] = ContextVar("peer", default=None)
"""The client of the request that a server is acting on; None when this process acts for itself."""


def attempt_behind() -> AttemptAbove | None:
    """The attempt that asks: this process is below it, or the peer of the request is. None when no attempt does."""
    asking = peer.get()
    return _own() or (_of_connection(asking) if asking is not None else None)


def attempt_above(pid: int | None = None) -> AttemptAbove | None:
    """The attempt that this process, or the one of `pid`, is below; None when there is none."""
    return _own() if pid is None else _above(pid)


@functools.cache
def _own() -> AttemptAbove | None:
    return _above(os.getpid())


def _above(pid: int) -> AttemptAbove | None:
    in_cgroup = _CGROUP.search(_read(pid, "cgroup"))
    below = pid
    while pid > 1:
        if is_keeper(pid):
            return _told_by(below)
        below, pid = pid, _parent(pid)
    return AttemptAbove() if in_cgroup else None


def _of_connection(asking: Peer) -> AttemptAbove | None:
    """The attempt that holds the other end of a connection from this machine; None when none does."""
    if not asking.host.startswith(_LOOPBACK) or not os.path.exists(_TABLES[0]):
        return None
    inodes = set(_inodes(asking.port, asking.server_port))
    if not inodes - {"0"}:
        return AttemptAbove()  # it has closed its end, as one does who does not want to be seen
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for pid in _below_keepers():
        if not wanted.isdisjoint(_descriptors(pid)):
            return _above(pid) or AttemptAbove()
    return None


def is_keeper(pid: int) -> bool:
    """Tell if a process is a warden or a keeper: the file it runs is ours."""
    words = _read(pid, "cmdline").split(b"\0")
    return words[1:3] == [b"-I", b"-S"] and len(words) > 3 and words[3].endswith(_WARDEN)


def _below_keepers() -> Iterator[int]:
    keepers = [int(name) for name in os.listdir("/proc") if name.isdigit() and is_keeper(int(name))]
    seen: set[int] = set()
    todo = list(keepers)
    for pid in todo:  # which grows by what is found below
        if pid not in seen:
            seen.add(pid)
            todo += _children(pid)
            if pid not in keepers:
                yield pid


def _children(pid: int) -> Iterable[int]:
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            yield from map(int, _read(pid, f"task/{task}/children").split())


def _descriptors(pid: int) -> Iterator[str]:
    with suppress(OSError):  # it has ended, or is another user's
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield os.readlink(f"/proc/{pid}/fd/{name}")


def _inodes(port: int, server_port: int) -> Iterator[str]:
    """Of sockets that are bound to the one port and connected to the other."""
    local, remote = f":{port:04X}", f":{server_port:04X}"
    for table in _TABLES:
        with suppress(OSError), open(table) as file:
            for line in file:
                words = line.split()
                if len(words) > 9 and words[1].endswith(local) and words[2].endswith(remote):
                    yield words[9]


def _told_by(pid: int) -> AttemptAbove:
    pairs = (pair.partition(b"=") for pair in _read(pid, "environ").split(b"\0"))
    env = {name: value.decode("utf-8", "replace")[:200] for name, _, value in pairs if name.startswith(b"WINDLASS_")}
    return AttemptAbove(env.get(b"WINDLASS_EXECUTION", ""), env.get(b"WINDLASS_STEP", ""))


def _parent(pid: int) -> int:
    words = _read(pid, "stat").rpartition(b")")[2].split()
    return int(words[1]) if len(words) > 1 else 0


def _read(pid: int, name: str) -> bytes:
    try:
        with open(f"/proc/{pid}/{name}", "rb") as file:
            return file.read()
    except OSError:  # it has ended, or there is no /proc
        return b""
