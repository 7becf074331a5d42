"""What a step has changed so far, written down before it changes, so that all of it can be taken back.

A step's scratch folder holds at most one of each:

- `undo/`: the log of a step under way, or of one whose engine died. `log` has one JSON line per change,
  fsynced before the change it covers; `0`, `1`, … are what was there before, as hard links where the file
  system allows it, else as copies.
- `undo.done/`: the same of a step that ended well, with its result as the last line.

`Undo` makes the changes, and knows three: put a finished temporary entry in place, move an entry, remove one
(plus making folders). All are a single rename, so other readers see the old or the new state and nothing
between. `rollback.py` reads the log and takes the changes back.

A sealed log also closes the gap between a step's end and the journal's word for it: should the engine die
there, the next attempt finds its own work done, and returns the recorded result instead of doing it twice.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

from windlass.errors import Category, ToolError
from windlass.faults import fault_point
from windlass.tools.files.kernel import rename_new
from windlass.tools.files.place import Place, copy, directory, discard, mark
from windlass.tools.files.safe_path import Root

__all__ = [
    "DONE",
    "OPEN",
    "Change",
    "Log",
    "Undo",
    "begin",
    "cross_out",
    "locked",
    "read_log",
    "recorded",
    "retire",
]

OPEN, DONE = "undo", "undo.done"
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
    """Where it comes from, when it has to go back there."""


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
    """What is to be taken back, in the order it was written, each with its offset in the file."""
    end: Mapping[str, Any] | None
    """`{"result": …, "left": {path: mark}}` of a sealed log."""


@contextmanager
def locked(scratch: Path) -> Iterator[Place]:
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
        yield Place(fd, ".", str(scratch))
    finally:
        os.close(fd)


@contextmanager
def begin(root: Root, home: Place, *, request: str, attempt: int, check: Callable[[], None]) -> Iterator[Undo]:
    """Start a log. `check` raises when the step shall stop; see `Undo.check`."""
    os.mkdir(OPEN, 0o700, dir_fd=home.fd)
    with directory(Place(home.fd, OPEN, OPEN)) as fd:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        log = os.open("log", flags, 0o600, dir_fd=fd)
        try:
            undo = Undo(root, home, fd, log, check)
            undo.write({"token": token_hex(8), "request": request, "attempt": attempt})
            os.fsync(fd)
            home.sync()
            yield undo
        finally:
            os.close(log)


class Undo:
    """Changes beneath a root that can all be taken back."""

    def __init__(self, root: Root, home: Place, fd: int, log: int, check: Callable[[], None]) -> None:
        self.check = check
        """Asked before every change and every chunk of a copy: raises when the step shall stop."""
        self._root, self._home, self._fd, self._log = root, home, fd, log
        self._backups = 0
        self._touched: dict[str, None] = {}

    def temporary(self, near: Place) -> Place:
        """A free, unpredictable name beside a place, noted so that nothing of it stays behind."""
        place = near.beside(f".windlass-{token_hex(8)}")
        # Not fsynced: SIGKILL does not lose it, and after a power cut the worst is a stray temporary file.
        self.write({"temp": place.path}, durable=False)
        return place

    def make(self, place: Place) -> None:
        """Make a folder; one that others make at the same moment is as good."""
        self.check()
        self.write({"made": place.path})
        try:
            os.mkdir(place.name, dir_fd=place.fd)
        except FileExistsError:
            self.write({"void": "made"})
        fault_point("files.made")
        place.sync()

    def put(self, temporary: Place, place: Place) -> None:
        """Put a finished temporary entry in place of whatever is there."""
        was = self._back_up(place)
        self._change(temporary, place, Change(place.path, was, mark(temporary)))

    def move(self, source: Place, to: Place) -> None:
        """Move an entry, in place of whatever is there."""
        was = self._back_up(to)
        try:
            self._change(source, to, Change(to.path, was, mark(source), source.path))
            source.sync()
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            temporary = self.temporary(to)
            copy(source, temporary, self.check)
            self.put(temporary, to)
            self.remove(source)

    def remove(self, place: Place) -> None:
        """Take an entry away, a whole tree at once; the log keeps it."""
        backup = self._next()
        try:
            self._change(place, backup, Change(place.path, backup.name, None))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            copy(place, backup, self.check)
            backup.sync()
            temporary = self.temporary(place)
            self._change(place, temporary, Change(place.path, backup.name, None))
            discard(temporary)
        place.sync()

    def seal(self, result: Any) -> None:
        """The step ended well: from here on its changes are for good, and will not be made again."""
        self.check()
        left = {path: _mark_at(self._root, path) for path in self._touched}
        self.write({"result": result, "left": left})
        fault_point("files.ended")
        os.rename(OPEN, DONE, src_dir_fd=self._home.fd, dst_dir_fd=self._home.fd)
        self._home.sync()
        fault_point("files.sealed")

    def _change(self, old: Place, new: Place, change: Change) -> None:
        self.check()
        self.write(asdict(change))
        fault_point("files.logged")
        self._touched |= dict.fromkeys(p for p in (change.path, change.source) if p)
        try:
            if change.was is None or change.now is None:
                rename_new(old.name, new.name, old_fd=old.fd, new_fd=new.fd)
            else:
                old.rename(new)
        except OSError:
            # It did not happen: a rollback must not take what stands there for a change of ours.
            self.write({"void": "change"})
            raise
        fault_point("files.changed")
        new.sync()

    def _back_up(self, place: Place) -> str | None:
        """A second name for what is there, or a copy where there can be none."""
        if place.stat() is None:
            return None
        backup = self._next()
        try:
            os.link(
                place.name,
                backup.name,
                src_dir_fd=place.fd,
                dst_dir_fd=backup.fd,
                follow_symlinks=False,
            )
        except OSError:
            # Another device, a file system without hard links, a file of somebody else's: copying tells.
            copy(place, backup, self.check)
        backup.sync()
        fault_point("files.saved")
        return backup.name

    def _next(self) -> Place:
        self._backups += 1
        return Place(self._fd, str(self._backups - 1), f"{OPEN}/{self._backups - 1}")

    def write(self, line: Mapping[str, Any], *, durable: bool = True) -> None:
        """Append a line to the log."""
        data = memoryview(json.dumps(line).encode() + b"\n")
        while data:
            data = data[os.write(self._log, data) :]
        if durable:
            os.fsync(self._log)


def read_log(fd: int) -> Log:
    """The log in an open undo folder. A torn last line covers a change that had not begun."""
    try:
        log = os.open("log", os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=fd)
    except FileNotFoundError:
        return Log("", "", 0, [], None)
    with os.fdopen(log, "rb") as file:
        whole = [line for line in file if line.endswith(b"\n")]
    offset, lines = 0, list[tuple[int, Change | Note]]()
    head: dict[str, Any] = {"token": "", "request": "", "attempt": 0}
    end: dict[str, Any] | None = None
    for text in whole:
        line: dict[str, Any] = {} if text.startswith(_UNDONE) else _parse(text)
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
        "the undo log of this step is damaged: what it changed cannot be taken back",
        category=Category.CONFIGURATION,
        advice=("put the files right by hand and delete the step's scratch folder, then: windlass resume",),
    )


def cross_out(fd: int, offset: int) -> None:
    """Note that a line is taken back. One byte in place: it needs no space on a full disk."""
    log = os.open("log", os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=fd)
    try:
        os.pwrite(log, _UNDONE, offset)
        os.fsync(log)
    finally:
        os.close(log)


def recorded(root: Root, home: Place, request: str, attempt: int) -> Any:
    """The result of an earlier attempt that did exactly this, if all is still as it left it; else None."""
    done = Place(home.fd, DONE, DONE)
    if done.stat() is None:
        return None
    with directory(done) as fd:
        log = read_log(fd)
    if log.end is None or log.request != request or log.attempt >= attempt:
        return None
    untouched = all(_mark_at(root, path) == left for path, left in log.end["left"].items())
    return log.end["result"] if untouched else None


def retire(home: Place, name: str) -> None:
    """Drop a log: out of the way first, so that a crash cannot leave half of one to be read."""
    log = Place(home.fd, name, name)
    if log.stat() is None:
        return
    gone = log.beside(f"undo.gone-{token_hex(8)}")
    log.rename(gone)
    home.sync()
    with suppress(PermissionError):
        # Another user's files in a deleted tree are not ours to delete; who cleans the scratch will see.
        discard(gone)


def _mark_at(root: Root, path: str) -> str | None:
    with root.known(path) as place:
        return mark(place) if place else None
