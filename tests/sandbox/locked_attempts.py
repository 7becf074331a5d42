"""A process that locks itself in, tries one thing, and goes on computing: `locked_attempts.py LOCK ATTEMPT PLACE PORT`.

PLACE is a folder with a file `old` and a Unix `socket` in it; somebody listens on the port. The process prints the
layers that it reported, what became of the attempt, and a result that needs it alive and well. An attempt is made of
what was there before the lock: modules, descriptors, a thread.
"""

from __future__ import annotations

import ctypes
import errno
import json
import mmap
import os
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from windlass.sandbox import lockdown, seccomp

PLACE = Path(sys.argv[3])
LIBC = ctypes.CDLL(None, use_errno=True)
UNIX, TCP, UDP = (
    socket.socket(family, kind)
    for family, kind in (
        (socket.AF_UNIX, socket.SOCK_STREAM),
        (socket.AF_INET, socket.SOCK_STREAM),
        (socket.AF_INET, socket.SOCK_DGRAM),
    )
)


def native(name: str, *arguments: object) -> None:
    """A function of the C library, with its errors as exceptions."""
    if getattr(LIBC, name)(*arguments) == -1:
        raise OSError(ctypes.get_errno(), name)


def in_a_thread(attempt: Callable[[], object]) -> Callable[[], None]:
    """In a thread that was there before the lock."""
    go, failed = threading.Event(), []

    def wait_and_try() -> None:
        go.wait()
        try:
            attempt()
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=wait_and_try, daemon=True)
    thread.start()

    def let_go() -> None:
        go.set()
        thread.join()
        for error in failed:
            raise error

    return let_go


def raise_a_limit() -> None:
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except ValueError as error:  # what Python makes of EPERM here
        raise PermissionError(errno.EPERM, str(error)) from error


def write_into_memory_and_run_it() -> None:
    mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)


def make_memory_executable() -> None:
    page = mmap.mmap(-1, 4096)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    native("mprotect", ctypes.c_void_p(address), ctypes.c_size_t(4096), 5)


def start_a_thread() -> None:
    threading.Thread(target=print).start()


ATTEMPTS: dict[str, Callable[[], object]] = {
    "read a file": lambda: Path("/etc/hosts").read_bytes(),
    "write a file": lambda: (PLACE / "new").touch(),
    "list a directory": lambda: os.listdir("/"),
    "look at a file": lambda: os.stat("/etc/hosts"),
    "remove a file": lambda: (PLACE / "old").unlink(),
    "read its environment": lambda: Path("/proc/self/environ").read_bytes(),
    "raise a limit": raise_a_limit,
    "make a descriptor": lambda: os.dup(0),
    "write into memory and run it": write_into_memory_and_run_it,
    "make memory executable": make_memory_executable,
    "become dumpable": lambda: native("prctl", 4, 1, 0, 0, 0),
    "execute a program": lambda: os.execv("/bin/sh", ["sh", "-c", "true"]),
    "fork": lambda: os._exit(0) if os.fork() == 0 else None,
    "start a thread": start_a_thread,
    "make a socket": lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM),
    "connect to a Unix socket": lambda: UNIX.connect(str(PLACE / "socket")),
    "connect to a port": lambda: TCP.connect(("127.0.0.1", int(sys.argv[4]))),
    "bind a port": lambda: UDP.bind(("127.0.0.1", 0)),
    "signal its parent": lambda: os.kill(os.getppid(), 0),
    "signal a thread of its parent": lambda: native("tgkill", os.getppid(), os.getppid(), 0),
    "be traced": lambda: native("ptrace", 0, 0, None, None),
    "use x32": lambda: native("syscall", ctypes.c_long(0x40000000 | 39)),
    "abort": lambda: signal.raise_signal(signal.SIGABRT),
    "read a file in a thread": in_a_thread(lambda: Path("/etc/hosts").read_bytes()),
    "make a socket in a thread": in_a_thread(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)),
    "nothing": lambda: sys.stdin.readline(),
}

LOCKS: dict[str, Callable[[], tuple[str, ...]]] = {
    "everything": lockdown.lock_down,
    "landlock": lambda: ("landlock",) if lockdown._prctl(38, 1) and lockdown.restrict_by_landlock() else (),
    "seccomp": lambda: ("seccomp",) if lockdown._prctl(38, 1) and seccomp.restrict() else (),
    "none": lambda: (),
}


def main() -> None:
    print(json.dumps(LOCKS[sys.argv[1]]()), flush=True)
    try:
        ATTEMPTS[sys.argv[2]]()
    except OSError as error:
        print("refused", error.errno, flush=True)
    else:
        print("done", flush=True)
    print(sum(range(1000)), flush=True)


if __name__ == "__main__":
    main()
