"""The undo log of a step's scratch folder: its place, its lines, and its end.

A scratch folder holds at most one of each:

- `undo/`: the log of a step under way, or of one whose engine died. `log` has one JSON line per change,
  fsynced before the change it covers; `0`, `1`, … are backups, as hard links where the file
  system allows it, else as copies.
- `undo.done/`: the same of a step that ended well, with its result as the last line.

and any number of

- `undo.past-…/`: finished ones that a later attempt or call put aside,
- `undo.back-…/`, `undo.undone-…/`: those that a person wants taken back, and those that are (`undo_step.py`).

A finished log closes the gap between a step's end and the journal's word for it: should the engine die there,
the next attempt finds its own work done, and returns the recorded result instead of doing it twice. It stays until
the execution is cleaned, with at most `MOST_KEPT` bytes for one step: the rest is dropped when the step
ends, and the log says so.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from windlass.errors import Category, ToolError
from windlass.tools.files.place import OpenedPath, directory, discard, mark
from windlass.tools.files.safe_path import Root

__all__ = [
    "DONE",
    "MOST_KEPT",
    "OPEN",
    "PAST",
    "Change",
    "Log",
    "Note",
    "cross_out",
    "locked",
    "mark_at",
    "number_change",
    "owner_of",
    "put_away",
    "read_log",
    "recorded",
    "retire",
]

OPEN, DONE, PAST = "undo", "undo.done", "undo.past-"
_UNDONE = b"-"
"""Stands for the first byte of a line that has been taken back."""


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the log: an entry is about to become another."""

    path: str
    was: str | None
    """The backup of what is there before; None when nothing is."""
    now: str | None
    """The mark of what will be there; None when nothing will."""
    source: str | None = None
    """The path it is moved from, when a rollback has to move it back."""


Note = Mapping[str, str]
"""A smaller line: `{"made": folder}`, `{"temp": path}`, `{"void": …}` when the line before did not happen."""


@dataclass(frozen=True, slots=True)
class Log:
    """A log as it is read back."""

    token: str
    """Names the temporary entries of this log's rollback."""
    request: str
    attempt: int
    lines: list[tuple[int, Change | Note]]
    """Lines to undo, in the order of writing, each with its offset in the file."""
    end: Mapping[str, Any] | None
    """`{"result": …, "left": {path: mark}, "order": number}` of a sealed log; with `dropped`, the backups are gone."""


@contextmanager
def locked(scratch: Path) -> Iterator[OpenedPath]:
    """The scratch folder, ours alone: an attempt that is frozen or slow to die still holds it."""
    scratch.mkdir(parents=True, exist_ok=True, mode=0o700)
    fd = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ToolError(
                "another attempt of this step is still working on its files",
                category=Category.TRANSIENT,
                advice=("wait for it to end, or end its process",),
            ) from None
        yield OpenedPath(fd, ".", str(scratch))
    finally:
        os.close(fd)


def read_log(fd: int, *, whole: bool = False) -> Log:
    """The log in an open undo folder, with `whole` also what is taken back already.

    A torn last line covers a change that had not begun.
    """
    try:
        log = os.open("log", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=fd)
    except FileNotFoundError:
        return Log("", "", 0, [], None)
    with os.fdopen(log, "rb") as file:
        texts = [line for line in file if line.endswith(b"\n")]
    offset, lines = 0, list[tuple[int, Change | Note]]()
    head: dict[str, Any] = {"token": "", "request": "", "attempt": 0}
    end: dict[str, Any] | None = None
    for text in texts:
        crossed = text.startswith(_UNDONE)
        line: dict[str, Any] = {} if crossed and not whole else _parse(b"{" + text[1:] if crossed else text)
        if "token" in line:
            head = line
        elif "result" in line:
            end = line
        elif "void" in line:
            lines.pop()
        elif line:
            lines.append((offset, Change(**line) if "path" in line else line))
        offset += len(text)
    return Log(**head, lines=lines, end=end)


def _parse(text: bytes) -> dict[str, Any]:
    try:
        line = json.loads(text)
    except ValueError:
        line = None
    if isinstance(line, dict):
        return line
    raise ToolError(
        "the undo log of this step is damaged: its changes cannot be undone",
        category=Category.CONFIGURATION,
        advice=("fix the files by hand and delete the step's scratch folder, then: windlass resume",),
    )


def cross_out(fd: int, offset: int) -> None:
    """Note that a line is taken back. One byte in place: it needs no space on a full disk."""
    log = os.open("log", os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=fd)
    try:
        os.pwrite(log, _UNDONE, offset)
        os.fsync(log)
    finally:
        os.close(log)


def recorded(root: Root, home: OpenedPath, request: str, attempt: int) -> Any:
    """The result of an earlier attempt that did exactly this, if all is still as it left it; else None."""
    done = OpenedPath(home.fd, DONE, DONE)
    if done.stat() is None:
        return None
    with directory(done) as fd:
        log = read_log(fd)
    if log.end is None or log.request != request or log.attempt >= attempt:
        return None
    untouched = all(mark_at(root, path) == left for path, left in log.end["left"].items())
    return log.end["result"] if untouched else None


def put_away(home: OpenedPath) -> None:
    """Make room for the next log, which makes it durable. A person may want a finished one taken back later."""
    done = OpenedPath(home.fd, DONE, DONE)
    if done.stat() is not None:
        done.rename(done.beside(f"{PAST}{token_hex(8)}"))


def retire(home: OpenedPath, name: str) -> None:
    """Drop a log: out of the way first, so that a crash cannot leave half of one to be read."""
    log = OpenedPath(home.fd, name, name)
    if log.stat() is None:
        return
    gone = log.beside(f"undo.gone-{token_hex(8)}")
    log.rename(gone)
    home.sync()
    with suppress(PermissionError):
        # Another user's files in a deleted tree are not ours to delete; who cleans the scratch will see.
        discard(gone)


def mark_at(root: Root, path: str) -> str | None:
    """The mark of what stands at a path of a log now."""
    with root.known(path) as place:
        return mark(place) if place else None


# In which order an execution's steps changed files, and how much is kept of what was there before, stand in one small
# file beside the scratch folders: undoing a step needs both. Losing it loses no safety: the order then falls back on
# the times of the logs, and the bound starts anew.
MOST_KEPT = 64 << 20
"""Bytes kept for one step, with all that its agent or its programs did."""
_TALLY = ".kept"


def owner_of(scratch: str) -> str:
    """The step that a scratch folder belongs to: `build` of `build.call_3`. No step has a dot in its name."""
    return scratch.partition(".")[0]


def number_change(scratch: Path, size: int) -> tuple[int, bool]:
    """The number of one more finished change, and whether so many bytes of what it replaced can be kept."""
    fd = os.open(scratch.parent / _TALLY, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        count, kept = _read(fd)
        step = owner_of(scratch.name)
        fits = kept.get(step, 0) + size <= MOST_KEPT
        if fits and size:
            kept[step] = kept.get(step, 0) + size
        text = json.dumps({"count": count + 1, "kept": kept}).encode()
        os.pwrite(fd, text, 0)
        os.ftruncate(fd, len(text))
        return count + 1, fits
    finally:
        os.close(fd)


def _read(fd: int) -> tuple[int, dict[str, int]]:
    try:
        found: Any = json.loads(os.pread(fd, os.fstat(fd).st_size, 0) or b"{}")
        return int(found.get("count", 0)), {str(step): int(size) for step, size in found.get("kept", {}).items()}
    except (ValueError, AttributeError, TypeError):
        return 0, {}
