"""The command line in processes that are forked from one that has imported it already: `zygote.py` is that one.

Such a process costs a tenth of one that starts from nothing, and is otherwise the same: its own environment, folder,
files, session and terminal. What tests the start itself (encodings, imports) starts from nothing.
"""

from __future__ import annotations

import fcntl
import marshal
import os
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["PROGRAM", "Forked", "Zygote", "shared_zygote"]

PROGRAM = str(Path(sys.executable).with_name("windlass"))


class Forked:
    """A command that was started, with the methods of `subprocess.Popen` that tests use."""

    def __init__(self, zygote: Zygote, pid: int) -> None:
        self._zygote, self.pid = zygote, pid
        self._handle = os.pidfd_open(pid)
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, negative for a signal, if it has ended."""
        if self.returncode is None and select.select([self._handle], [], [], 0)[0]:
            self.returncode = self._zygote.reap(self.pid)
            os.close(self._handle)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            select.select([self._handle], [], [], timeout)
        if (code := self.poll()) is None:
            raise subprocess.TimeoutExpired("windlass", timeout or 0)
        return code

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class Zygote:
    """Starts commands. All workers of a session have the same process for that; the first that needs it starts it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        """Has a `windlass` for shells, which is a fork, too, and a `forked-python` for scripts."""
        self._process: subprocess.Popen[bytes] | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._lock = threading.Lock()
        with _locked(folder):
            try:
                self._connection.connect(self._address)
            except (FileNotFoundError, ConnectionRefusedError):  # there is none, or it was killed
                self._process = self._begin()
            self._say({"worker": True})

    @property
    def _address(self) -> str:
        return str(self.folder / "socket")

    def _begin(self) -> subprocess.Popen[bytes]:
        for name, program in (("windlass", PROGRAM), ("forked-python", sys.executable)):
            shim = str(Path(__file__).with_name("windlass_shim.py"))
            words = [sys.executable, "-IS", shim, program, self._address]
            (self.folder / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            (self.folder / name).chmod(0o755)
        with suppress(FileNotFoundError):
            os.unlink(self._address)
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(self._address)
            listening.listen(128)  # from now on: clients wait until all is imported
            self._connection.connect(self._address)
            words = [sys.executable, str(Path(__file__).with_name("zygote.py"))]
            return subprocess.Popen(
                [*words, str(self.folder), str(listening.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8", **_measured()},
                pass_fds=[listening.fileno()],
                start_new_session=True,  # a signal to this worker's group is not meant for the others' commands
            )

    def close(self) -> None:
        """Leave it to the others, or see it end if there are none. What was started and not waited for is killed."""
        self._connection.shutdown(socket.SHUT_WR)
        while self._connection.recv(4096):
            pass
        self._connection.close()
        if self._process is not None and not self.folder.exists():
            self._process.wait()

    def start(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str],
        cwd: Path,
        output: Path,
        *,
        stdin: Path = Path(os.devnull),
        stderr: Path | None = None,
        session: bool = False,
        largest_file: int = 0,
    ) -> Forked:
        """Start `windlass ARGUMENTS`; it writes to `OUTPUT.out` and, unless told otherwise, `OUTPUT.err`."""
        request = {
            "argv": [PROGRAM, *arguments],
            "env": dict(env),
            "cwd": str(cwd),
            "in": str(stdin),
            "out": f"{output}.out",
            "err": str(stderr or f"{output}.err"),
            "session": session,
            "largest_file": largest_file,
        }
        for name in ("out", "err"):
            Path(request[name]).touch()
        return Forked(self, self._ask(request))

    def reap(self, pid: int) -> int:
        return self._ask({"wait": pid})

    def end_drivers(self, folder: Path) -> int:
        """Kill the detached drivers of that folder. Gives their number."""
        return self._ask({"end_drivers": f"{folder}/"})

    def _ask(self, request: dict[str, Any]) -> int:
        with self._lock:
            self._say(request)
            answer = self._connection.recv(4, socket.MSG_WAITALL)
        assert len(answer) == 4, "the zygote has ended"
        return int.from_bytes(answer, "little", signed=True)

    def _say(self, request: dict[str, Any]) -> None:
        told = marshal.dumps(request)
        self._connection.sendall(len(told).to_bytes(4, "little") + told)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a zygote's folder, which is made if need be: a zygote that ends removes it under that lock."""
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        try:
            lock = (folder / "lock").open("w")
        except FileNotFoundError:
            continue
        with lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock.fileno()).st_nlink:  # it is still there
                yield
                return


def _measured() -> dict[str, str]:
    """Variables by which `make coverage` reaches into the processes that tests start."""
    return {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}


@cache
def shared_zygote() -> Zygote:
    """Return the one of this session, which starts when it is first needed; `conftest.py` closes it."""
    if session := os.environ.get("PYTEST_XDIST_TESTRUNUID"):
        # The parent is the same for all workers; another one's is a session that a test of this one has started.
        return Zygote(
            Path(tempfile.gettempdir()) / f"wz-{os.getppid()}-{session[:8]}"
        )  # the path of a socket has a limit
    return Zygote(Path(tempfile.mkdtemp(prefix="wz-")))
