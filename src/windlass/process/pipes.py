"""The engine's ends of a command's standard streams.

asyncio's own pipe transports stay open until every writer has closed its end, and belong to an await while they are
made. These are made at once, and their owner closes them when the process tree has ended: a reader can then never hang
on a pipe that a stranger still holds, and no descriptor depends on garbage collection. Input comes in two forms: all of
it beforehand (`PipeWriter`), or bit by bit while the command runs (`InputStream`).
"""

from __future__ import annotations

import asyncio
import os
from enum import Enum
from typing import Final

__all__ = ["PIPE", "InputStream", "Pipe", "Stdio"]


class Pipe(Enum):
    """The type of `PIPE`."""

    PIPE = "pipe"


PIPE: Final = Pipe.PIPE
"""As `stdin`: the caller writes to the command while it runs."""


CHUNK = 65536
"""Bytes read at a time: the capacity of a pipe by default."""
LARGEST_PIPE = 1 << 20
"""Bytes that a pipe can hold at most, unless root has made it larger."""


class PipeReader(asyncio.ReadTransport):
    """Pumps a pipe into `reader`, which pauses it when no one reads."""

    def __init__(self, fd: int, limit: int) -> None:
        super().__init__()
        self._fd: int | None = fd
        self._loop = asyncio.get_running_loop()
        self.reader = asyncio.StreamReader(limit=limit)
        self.reader.set_transport(self)
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._pump)

    def _pump(self) -> bool:
        """Move one chunk. False when the pipe has nothing to give."""
        assert self._fd is not None
        try:
            data = os.read(self._fd, CHUNK)
        except BlockingIOError:
            return False
        if data:
            self.reader.feed_data(data)
        else:
            self.close()
        return bool(data)

    def finish(self) -> None:
        """Take what is still in the pipe, and close it whoever else holds it."""
        for _ in range(LARGEST_PIPE // CHUNK):  # bounded: a stranger could go on writing
            if self._fd is None or not self._pump():
                break
        self.close()

    def pause_reading(self) -> None:
        if self._fd is not None:
            self._loop.remove_reader(self._fd)

    def resume_reading(self) -> None:
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._pump)

    def is_closing(self) -> bool:
        return self._fd is None

    def close(self) -> None:
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = None
            self.reader.feed_eof()


class PipeWriter:
    """Writes `data` into a pipe as fast as it is read, then closes it."""

    def __init__(self, fd: int, data: bytes) -> None:
        self._fd: int | None = fd
        self._rest = memoryview(data)
        self._loop = asyncio.get_running_loop()
        os.set_blocking(fd, False)
        self._loop.add_writer(fd, self._pump)

    def _pump(self) -> None:
        assert self._fd is not None
        try:
            self._rest = self._rest[os.write(self._fd, self._rest) :]
        except BlockingIOError:
            return
        except BrokenPipeError:
            self.close()  # a command need not read its input
            return
        if not self._rest:
            self.close()

    def close(self) -> None:
        if self._fd is not None:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = None


class InputStream:
    """The caller's end of a command's stdin, for a conversation with it."""

    def __init__(self, fd: int) -> None:
        self._fd: int | None = fd
        self._turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._room: asyncio.Future[None] | None = None
        os.set_blocking(fd, False)

    async def write(self, data: bytes) -> None:
        """Give the command all of `data`, as fast as it reads; those who write at once come one after the other.

        BrokenPipeError: it is closed, or the command has closed its end or ended. Cancelled, a part may have gone.
        """
        rest = memoryview(data)
        async with self._turn:
            while True:
                if self._fd is None:
                    raise BrokenPipeError("the command's stdin is closed")
                if not rest:
                    return
                try:
                    rest = rest[os.write(self._fd, rest) :]
                except BlockingIOError:
                    await self._until_there_is_room(self._fd)
                except BrokenPipeError:
                    self.close()
                    raise

    async def _until_there_is_room(self, fd: int) -> None:
        self._room = self._loop.create_future()
        self._loop.add_writer(fd, self._wake)
        try:
            await self._room
        finally:
            self._room = None
            if self._fd is not None:
                self._loop.remove_writer(fd)

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def close(self) -> None:
        """The end of the input. May be called again; one who still writes gets BrokenPipeError."""
        if self._fd is not None:
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._fd = None
            self._wake()


class Stdio:
    """The three standard streams of one command. `theirs` are for the command; hand them over, then let go of them."""

    def __init__(self, stdin: bytes | Pipe | None, limit: int) -> None:
        opened: list[int] = []
        try:
            opened += (os.open(os.devnull, os.O_RDONLY),) if stdin is None else os.pipe()
            opened += os.pipe()
            opened += os.pipe()
        except OSError:
            _close(opened)
            raise
        source, *feed, stdout, stdout_end, stderr, stderr_end = opened
        self.theirs = [source, stdout_end, stderr_end]
        self.stdin = InputStream(feed[0]) if stdin is PIPE else None
        self._inlet = PipeWriter(feed[0], stdin) if isinstance(stdin, bytes) else None
        self._stdout = PipeReader(stdout, limit)
        self._stderr = PipeReader(stderr, limit)

    @property
    def stdout(self) -> asyncio.StreamReader:
        return self._stdout.reader

    @property
    def stderr(self) -> asyncio.StreamReader:
        return self._stderr.reader

    def let_go(self) -> None:
        """Close our copies of `theirs`, or the output would never end."""
        _close(self.theirs)
        self.theirs = []

    def finish(self) -> None:
        """No one is left to write: put the rest of the output into the readers and close everything."""
        self.let_go()
        for inward in (self.stdin, self._inlet):
            if inward is not None:
                inward.close()
        self._stdout.finish()
        self._stderr.finish()


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
