"""Checkpoint files: an execution's journal as one portable JSON file (D4).

    {"format": "windlass.checkpoint", "version": 1, "execution": …, "seq": …, "created_at": …, "events": [
    {"type": "execution.created", …},
    …
    ],
    "sha256": "…"}

The sum covers every byte before the last line, so that a cut, a flipped bit or an edit is noticed before
anything is believed. It guards against accidents, not against somebody who recomputes it. Files are written
under another name, fsynced and renamed: a reader sees a whole one or none.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterable, Sequence
from pathlib import Path

from windlass.clock import iso
from windlass.core.events import FORMAT, Event, ExecutionCreated, decode, encode
from windlass.core.state import fold
from windlass.errors import UsageError

__all__ = ["BadCheckpoint", "CheckpointFolder", "read_checkpoint"]

_NAME = "windlass.checkpoint"
_LAST_LINE = '"sha256": "'
MAX_BYTES = 1024 * 1024 * 1024


class BadCheckpoint(UsageError):
    """A checkpoint file that must not be believed."""


class CheckpointFolder:
    """Every execution's checkpoints, in folders of their own below one folder."""

    def __init__(self, folder: Path, keep: int = 5) -> None:
        self._folder = folder
        self._keep = keep

    def write(self, execution: str, events: Sequence[Event], now: float, label: str) -> Path:
        """Write a new checkpoint; of the automatic ones, only the newest are kept."""
        folder = self._folder / execution / "checkpoints"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        stamp = (iso(now) or "").replace(":", "").replace("-", "")
        path = folder / f"{len(events):08d}-{stamp}-{label}.json"
        _write(path, execution, events, now, label)
        for old in sorted(folder.glob("*-auto.json"))[: -self._keep]:
            old.unlink(missing_ok=True)
        return path

    def read(self, path: Path) -> list[Event]:
        return read_checkpoint(path)

    def remove(self, execution: str) -> None:
        shutil.rmtree(self._folder / execution, ignore_errors=True)


def _write(path: Path, execution: str, events: Sequence[Event], now: float, label: str) -> None:
    head = {
        "format": _NAME,
        "version": FORMAT,
        "execution": execution,
        "seq": len(events),
        "created_at": iso(now),
        "label": label,
    }
    draft = path.with_suffix(f".{os.getpid()}.tmp")
    digest = hashlib.sha256()
    descriptor = os.open(draft, os.O_CREAT | os.O_TRUNC | os.O_WRONLY, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for part in _parts(head, events):
                digest.update(part)
                file.write(part)
            file.write(f'{_LAST_LINE}{digest.hexdigest()}"}}\n'.encode())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def _parts(head: dict[str, object], events: Sequence[Event]) -> Iterable[bytes]:
    yield json.dumps(head)[:-1].encode() + b', "events": [\n'
    for index, event in enumerate(events, 1):
        yield encode(event) + (b",\n" if index < len(events) else b"\n")
    yield b"],\n"


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read_checkpoint(path: Path) -> list[Event]:
    """The events in the file, or `BadCheckpoint` with what is wrong with it."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise BadCheckpoint(f"{path} is larger than a checkpoint may be ({MAX_BYTES} bytes)")
        content = path.read_bytes()
    except OSError as error:
        raise BadCheckpoint(f"{path} cannot be read: {error.strerror}") from error
    head = _checked(path, content)
    try:
        events = [decode(body) for body in _event_lines(content)]
        created = events[0]
        if not isinstance(created, ExecutionCreated) or created.id != head["execution"]:
            raise BadCheckpoint(f"{path} does not begin with its own execution")
        if created.format > FORMAT:
            raise _newer(path, created.format)
        if str(uuid.UUID(created.id)) != created.id:  # it names a folder: nothing else may
            raise ValueError(f"{created.id!r} is not an id")
        if len(events) != head["seq"]:
            raise BadCheckpoint(f"{path} says it holds {head['seq']} events, but there are {len(events)}")
        fold(events)
    except BadCheckpoint:
        raise
    except Exception as error:  # a fold of events that never happened may stumble over anything
        reason = f"{type(error).__name__}: {error}"
        raise BadCheckpoint(f"{path} holds events that make no sense ({reason})") from error
    return events


def _newer(path: Path, version: object) -> BadCheckpoint:
    return BadCheckpoint(
        f"{path} was written by a newer Windlass (version {version}, this one reads {FORMAT})",
        advice=("upgrade: pip install --upgrade windlass",),
    )


def _checked(path: Path, content: bytes) -> dict[str, object]:
    """The head of a file whose sum is right."""
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
    return head


def _event_lines(content: bytes) -> Iterable[bytes]:
    lines = content.split(b"\n")
    for line in lines[1:]:
        if line == b"],":
            return
        yield line.removesuffix(b",")
