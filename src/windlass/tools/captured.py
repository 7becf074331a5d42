"""One output stream of a command: shown live, kept up to a limit, and read to its end always.

Of an output that is longer than the limit, the beginning and the end are kept, for the error stands at the end. The
whole of it then goes to a log file in the execution's folder, up to `MOST_LOGGED`.
"""

from __future__ import annotations

import asyncio
import codecs
import os
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

from windlass.ports import Call

__all__ = ["MOST_LOGGED", "CapturedStream"]

MOST_LOGGED = 64 * 1024 * 1024
"""Bytes of one stream that its log file holds."""
_CHUNK = 64 * 1024


class CapturedStream:
    def __init__(self, name: str, limit: int, call: Call) -> None:
        self._name, self._limit, self._call = name, limit, call
        self._head = bytearray()
        """The first `limit` bytes."""
        self._tail = bytearray()
        """The last bytes: at least half the limit of what came after the head."""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._log: BinaryIO | None = None
        self._path: Path | None = None
        self._problem = ""
        self.bytes = 0

    async def drain(self, stream: asyncio.StreamReader) -> None:
        """Read the stream to its end."""
        try:
            while chunk := await stream.read(_CHUNK):
                self._take(chunk)
        finally:
            if self._log is not None:
                self._log.close()
        if self.truncated:
            self._call.output(self._name, f"\n[… cut here; {self._whereabouts()}; the end:]\n{self._end()}")

    @property
    def truncated(self) -> bool:
        return self.bytes > self._limit

    @property
    def text(self) -> str:
        if not self.truncated:
            return self._head.decode("utf-8", errors="replace")
        beginning = codecs.getincrementaldecoder("utf-8")(errors="replace").decode(self._head[: self._half_up()])
        left_out = f"{self.bytes - self._limit} of {self.bytes} bytes are left out here; {self._whereabouts()}"
        return f"{beginning}\n[… {left_out}]\n{self._end()}"

    def _take(self, chunk: bytes) -> None:
        room = self._limit - self.bytes
        self.bytes += len(chunk)
        if room > 0:
            self._head += chunk[:room]
            self._call.output(self._name, self._decoder.decode(chunk[:room]))
        if room < len(chunk):
            self._overflow(chunk[max(room, 0) :])

    def _overflow(self, rest: bytes) -> None:
        self._tail += rest
        half = self._limit // 2
        if len(self._tail) > 2 * half + _CHUNK:
            del self._tail[: len(self._tail) - half]
        self._write_log(rest)

    def _write_log(self, rest: bytes) -> None:
        if self._problem:
            return
        try:
            if self._log is None:
                self._log = self._open_log()
                self._log.write(self._head)
            self._log.write(rest[: max(0, MOST_LOGGED - (self.bytes - len(rest)))])
        except OSError as error:  # the command's result does not depend on its log file
            self._problem = error.strerror or str(error)

    def _open_log(self) -> BinaryIO:
        folder = self._call.folder / "logs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / f"{quote(self._call.step, safe='')}.{self._call.attempt}.{self._name}.log"
        descriptor = os.open(self._path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        return os.fdopen(descriptor, "wb", buffering=0)

    def _half_up(self) -> int:
        return self._limit - self._limit // 2

    def _end(self) -> str:
        """The last bytes as text, without the rest of a character whose beginning is left out."""
        kept = bytes(self._head[self._half_up() :] + self._tail)[-(self._limit // 2) :] if self._limit > 1 else b""
        start = next((place for place in range(min(4, len(kept))) if kept[place] & 0xC0 != 0x80), 0)
        return kept[start:].decode("utf-8", errors="replace")

    def _whereabouts(self) -> str:
        if self._problem:
            return f"no log file could be written: {self._problem}"
        if self.bytes > MOST_LOGGED:
            return f"the first {MOST_LOGGED >> 20} MiB are in {self._path}"
        return f"the whole is in {self._path}"
