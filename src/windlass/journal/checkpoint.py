"""Checkpoint files: an execution's journal as one portable JSON file (D4).

    {"format": "windlass.checkpoint", "version": 1, "execution": …, "created_at": …, "events": [
    {"type": "execution.created", …},
    …
    ],
    "seq": …, "saved_at": …,
    "sha256": "…"}

The sum covers every byte before the last line, so that a cut, a flipped bit or an edit is noticed before
anything is believed. It guards against accidents, not against somebody who recomputes it.

A file that a person asks for is written under another name, fsynced and renamed: a reader sees a whole one or none.
The automatic one of each execution grows in place, by the events of each step: only the lines after the last event are
written anew. A power cut can spoil it; the journal has everything, and the next driver writes the file from it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from threading import get_ident
from typing import Any

import msgspec

from windlass.clock import iso
from windlass.core.events import FORMAT, Event, ExecutionCreated, ExecutionPaused, decode, encode
from windlass.core.state import fold
from windlass.errors import UsageError
from windlass.ids import is_id
from windlass.journal.database import translate
from windlass.regular import read_regular
from windlass.removal import remove_tree

__all__ = ["BadCheckpoint", "CheckpointFolder", "read_checkpoint"]

_NAME = "windlass.checkpoint"
_LAST_LINE = '"sha256": "'
MAX_BYTES = 1024 * 1024 * 1024


class BadCheckpoint(UsageError):
    """A checkpoint file that must not be believed."""


class CheckpointFolder:
    """Automatic checkpoints as `ID.json`, those that a person asked for in `ID/checkpoints/`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._growing: dict[str, _Growing] = {}

    def write(self, execution: str, events: Sequence[Event], now: float) -> Path:
        """Write a new file that stays until the execution is removed."""
        folder = self._folder / execution / "checkpoints"
        stamp = (iso(now) or "").replace(":", "").replace("-", "")
        path = folder / f"{len(events):08d}-{stamp}.json"
        with translate(path):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _Growing.begun(str(path), execution, events, now, sync=True)
        return path

    def saved(self, execution: str) -> int:
        """The sequence up to which this process has written the automatic file."""
        growing = self._growing.get(execution)
        return growing.seq if growing is not None and growing.untouched() else 0

    def extend(self, execution: str, after: int, events: Sequence[Event], now: float) -> None:
        """Add the events that follow sequence `after` to the automatic file; with 0 it is written anew.

        It is fsynced where the execution pauses: that may be for long.
        """
        sync = isinstance(events[-1], ExecutionPaused)
        if after:
            growing = self._growing.pop(execution)  # if this fails, the file is written anew
            growing.extend(events, now, sync=sync)
            self._growing[execution] = growing
        else:
            path = f"{self._folder}/{execution}.json"
            try:
                growing = _Growing.begun(path, execution, events, now, sync=sync)
            except FileNotFoundError:
                self._folder.mkdir(mode=0o700, exist_ok=True)  # a home that is gone is not made anew
                growing = _Growing.begun(path, execution, events, now, sync=sync)
            self._growing[execution] = growing

    def release(self, execution: str) -> None:
        self._growing.pop(execution, None)

    def read(self, path: Path) -> list[Event]:
        return read_checkpoint(path)

    def remove(self, execution: str) -> None:
        self.release(execution)
        (self._folder / f"{execution}.json").unlink(missing_ok=True)
        remove_tree(self._folder / execution, ignore_errors=True)


class _Growing(msgspec.Struct):
    """A checkpoint file as this process left it."""

    path: str
    seq: int
    digest: Any
    """SHA-256 of the bytes up to the last event."""
    end: int
    """The offset after the last event."""
    inode: int = 0
    size: int = 0

    @classmethod
    def begun(cls, path: str, execution: str, events: Sequence[Event], now: float, *, sync: bool) -> _Growing:
        head = f'"format": "{_NAME}", "version": {FORMAT}, "execution": "{execution}", "created_at": "{_stamp(now)}"'
        body = f'{{{head}, "events": [\n'.encode() + _lines(events)
        growing = cls(path, len(events), hashlib.sha256(body), len(body))
        draft = f"{path}.{os.getpid()}-{get_ident()}.tmp"
        descriptor = os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
        try:
            try:
                growing._finish(descriptor, body, now, sync=sync)
            finally:
                os.close(descriptor)
            os.replace(draft, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(draft)
            raise
        if sync:
            _sync_folder(os.path.dirname(path))
        return growing

    def untouched(self) -> bool:
        try:
            found = os.lstat(self.path)
        except FileNotFoundError:
            return False
        return (found.st_ino, found.st_size) == (self.inode, self.size)

    def extend(self, events: Sequence[Event], now: float, *, sync: bool) -> None:
        more = b",\n" + _lines(events)
        self.digest.update(more)
        self.seq += len(events)
        descriptor = os.open(self.path, os.O_WRONLY)
        try:
            os.lseek(descriptor, self.end, os.SEEK_SET)
            self._finish(descriptor, more, now, sync=sync)
        finally:
            os.close(descriptor)
        self.end += len(more)

    def _finish(self, descriptor: int, events: bytes, now: float, *, sync: bool) -> None:
        """Write the events and the lines after them to the end of the file."""
        rest = memoryview(events + self._ending(now))
        while rest:
            rest = rest[os.write(descriptor, rest) :]
        if sync:
            os.fsync(descriptor)
        found = os.fstat(descriptor)
        self.inode, self.size = found.st_ino, found.st_size

    def _ending(self, now: float) -> bytes:
        """The lines after the last event. They never get shorter, so they always cover the ones before."""
        ending = f'\n],\n"seq": {self.seq}, "saved_at": "{_stamp(now)}",\n'.encode()
        digest = self.digest.copy()
        digest.update(ending)
        return ending + f'{_LAST_LINE}{digest.hexdigest()}"}}\n'.encode()


@lru_cache(maxsize=1)
def _stamp(now: float) -> str | None:
    """The time of a file; files that are written together have the same."""
    return iso(now)


def _lines(events: Sequence[Event]) -> bytes:
    return b",\n".join(map(encode, events))


def _sync_folder(folder: str) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class _File(msgspec.Struct):
    execution: str
    seq: int
    events: list[msgspec.Raw]


def read_checkpoint(path: Path) -> list[Event]:
    """The events in the file, or `BadCheckpoint` with what is wrong with it."""
    try:
        content = read_regular(path, MAX_BYTES)
    except OSError as error:
        raise BadCheckpoint(f"{path} cannot be read: {error.strerror}") from error
    _check(path, content)
    try:
        file = msgspec.json.decode(content, type=_File)
        events = [decode(body) for body in file.events]
        created = events[0]
        if not isinstance(created, ExecutionCreated) or created.id != file.execution:
            raise BadCheckpoint(f"{path} does not begin with its own execution")
        if created.format > FORMAT:
            raise _newer(path, created.format)
        if not is_id(created.id):  # it names a folder: nothing else may
            raise ValueError(f"{created.id!r} is not an id")
        if len(events) != file.seq:
            raise BadCheckpoint(f"{path} should have {file.seq} events, but has {len(events)}")
        fold(events)
    except BadCheckpoint:
        raise
    except Exception as error:  # a fold of events that never happened may stumble over anything
        reason = f"{type(error).__name__}: {error}"
        raise BadCheckpoint(f"{path} has contradictory events ({reason})") from error
    return events


def _newer(path: Path, version: object) -> BadCheckpoint:
    return BadCheckpoint(
        f"{path} was written by a newer Windlass (version {version}, this one reads {FORMAT})",
        advice=("upgrade: pip install --upgrade windlass",),
    )


def _check(path: Path, content: bytes) -> None:
    """Refuse a file of another kind or version, and one whose sum is wrong."""
    first, _, _rest = content.partition(b"\n")
    try:
        found = json.loads(first.removesuffix(b', "events": [') + b"}")
    except (ValueError, RecursionError):
        found = None
    head: dict[str, object] = found if isinstance(found, dict) else {}
    if head.get("format") != _NAME:
        raise BadCheckpoint(f"{path} is not a checkpoint file")
    version = head.get("version")
    if not isinstance(version, int) or version > FORMAT:
        raise _newer(path, version)
    body, mark, tail = content.rpartition(_LAST_LINE.encode())
    if not mark or not tail.endswith(b'"}\n'):
        raise BadCheckpoint(f"{path} is cut off: its end is missing")
    if hashlib.sha256(body).hexdigest().encode() != tail.removesuffix(b'"}\n'):
        raise BadCheckpoint(f"{path} is damaged: its contents do not match its checksum")
