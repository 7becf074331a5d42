"""The command line in processes that are forked from one that has imported it already: `zygote.py` is that one.

Such a process costs a tenth of one that starts from nothing, and is otherwise the same: its own environment, folder,
files, session and terminal. What tests the start itself (encodings, imports) starts from nothing.
"""

from __future__ import annotations

import json
import os
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
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
    """Starts commands."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="wz-"))
        """Has a `windlass` for shells, which is a fork, too."""
        address = str(self.folder / "socket")
        words = [sys.executable, "-IS", str(Path(__file__).with_name("windlass_shim.py")), PROGRAM, address]
        (self.folder / "windlass").write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
        (self.folder / "windlass").chmod(0o755)
        with socket.socket(socket.AF_UNIX) as shims:
            shims.bind(address)
            shims.listen(128)  # from now on: a shim waits until all is imported
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("zygote.py")), str(shims.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={"PATH": os.environ["PATH"], "HOME": "/nonexistent", "LANG": "C.UTF-8", **_measured()},
                pass_fds=[shims.fileno()],
            )
        self._lock = threading.Lock()

    def close(self) -> None:
        self._process.communicate()
        shutil.rmtree(self.folder)

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
        return Forked(self, int(self._ask(request)["pid"]))

    def reap(self, pid: int) -> int:
        return int(self._ask({"wait": pid})["exit"])

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
            answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


def _measured() -> dict[str, str]:
    """Variables by which `make coverage` reaches into the processes that tests start."""
    return {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}


@cache
def shared_zygote() -> Zygote:
    """The one of this worker, made when it is first needed; `conftest.py` closes it."""
    return Zygote()
