"""One server for a home: it holds a lock on a file, which says who and where it is.

The kernel lets go of the lock when the process dies. POSIX record locks are used because a forked child does not
inherit them; for that, this process must not open the file a second time.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path

from windlass.errors import UsageError

__all__ = ["ServerLock"]


class ServerLock:
    def __init__(self, home: Path) -> None:
        """Take it, or raise and say who has it."""
        self._file = home / "server.lock"
        self._descriptor = os.open(self._file, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            told = _read(self._descriptor)
            os.close(self._descriptor)
            where = f" at {told['address']}" if told.get("address") else ""
            raise UsageError(
                f"another server (pid {told.get('pid', 'unknown')}) serves the home {home}{where}",
                advice=("use that one, or end it first", "serve another home: windlass --home DIR serve"),
            ) from error

    def announce(self, address: str) -> None:
        """Say where the server is."""
        self._write({"pid": os.getpid(), "address": address})

    def release(self) -> None:
        self._write({})
        os.close(self._descriptor)

    def _write(self, told: dict[str, object]) -> None:
        body = json.dumps(told).encode()
        os.pwrite(self._descriptor, body, 0)
        os.ftruncate(self._descriptor, len(body))


def _read(descriptor: int) -> dict[str, object]:
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
    except ValueError:
        return {}  # it is just starting, and has not said yet
    return found if isinstance(found, dict) else {}
