"""Changes that can all be taken back: made through `Undo`, which writes each down first, and undone by `roll_back`.

`Undo` knows three changes: put a finished temporary entry in place, move an entry, remove one (plus making folders).
Each is a single rename, so other readers see the old or the new state and nothing between. `log.py` describes the
log.

An overwrite takes six fsyncs, and each serves a promise that holds through a power cut:

1. the new content, before it is renamed into place: nobody ever finds half a file;
2. the log, 3. the names in its folder (log and backup), 4. the folder's own name, all before the rename: a change
   can be taken back. Notes and backups from before the first change wait for these three;
5. the directory, after the rename: a step that the journal calls completed has changed its file;
6. the log again, with the result: a step that ended and is not in the journal yet is not done twice.

The rename of `undo` to `undo.done` is not waited for: an attempt that finds `undo` with a result takes it back and
does it again, and undoing a step takes it for finished. Only where backups are dropped is it made durable first.

`roll_back` takes changes back last to first, and crosses each out in the log. Each is judged by what stands at its
path now. As the step left it: put back what was there. As it was before: nothing to do, because the change
had not been made yet, or a rollback that was killed had no time to cross it out. Anything else is somebody's
work: it stays, the backup stays, and the error names both. So a rollback can be killed and repeated at will.
Directories that survive keep the modification time of the rollback itself: their entries did change, and
tools that watch directories (git's untracked cache) must see that.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from secrets import token_hex
from typing import Any

from windlass.errors import ApprovalOutdated, Category, ToolError
from windlass.faults import fault_point
from windlass.tools.files.failures import explain, shown
from windlass.tools.files.kernel import rename_exchange, rename_new
from windlass.tools.files.log import (
    DONE,
    MOST_KEPT,
    OPEN,
    Change,
    Note,
    cross_out,
    locked,
    mark_at,
    number_change,
    put_away,
    read_log,
    retire,
)
from windlass.tools.files.place import OpenedPath, copy, directory, discard, mark, size_of
from windlass.tools.files.preflight import Approved
from windlass.tools.files.safe_path import Root

__all__ = ["Undo", "begin", "clear", "dropped", "roll_back", "roll_back_in", "seal"]


@contextmanager
def begin(
    root: Root, home: OpenedPath, *, request: str, attempt: int, check: Callable[[], None], floor: int = 0
) -> Iterator[Undo]:
    """Start a log. `check` raises when the step shall stop; see `Undo.check`. `floor`: bytes to be left free."""
    os.mkdir(OPEN, 0o700, dir_fd=home.fd)
    with directory(OpenedPath(home.fd, OPEN, OPEN)) as fd:
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC
        log = os.open("log", flags, 0o600, dir_fd=fd)
        try:
            undo = Undo(root, home, fd, log, check, floor)
            undo.write({"token": token_hex(8), "request": request, "attempt": attempt}, durable=False)
            yield undo
        finally:
            os.close(log)


class Undo:
    """Changes beneath a root that can all be taken back."""

    def __init__(
        self, root: Root, home: OpenedPath, fd: int, log: int, check: Callable[[], None], floor: int = 0
    ) -> None:
        self.check = check
        """Asked before every change and every chunk of a copy: raises when the step shall stop."""
        self.floor = floor
        """Bytes of each file system that are not to be written to."""
        self._root, self._home, self._fd, self._log = root, home, fd, log
        self.approved = Approved()
        """The files that a person was shown, which are to be the ones that are changed."""
        self._backups = 0
        self._new_folder = self._new_names = True
        """The folder of the log has a name, or has names in it, that a power cut would still lose."""
        self._touched: dict[str, None] = {}

    def temporary(self, near: OpenedPath) -> OpenedPath:
        """A free, unpredictable name beside a place, noted so that nothing of it stays behind."""
        place = near.beside(f".windlass-{token_hex(8)}")
        # Not fsynced: SIGKILL does not lose it, and after a power cut the worst is a stray temporary file.
        self.write({"temp": place.path}, durable=False)
        return place

    def make(self, place: OpenedPath) -> None:
        """Make a folder; one that others make at the same moment is as good."""
        self.check()
        self.write({"made": place.path})
        try:
            os.mkdir(place.name, dir_fd=place.fd)
        except FileExistsError:
            self.write({"void": "made"})
        fault_point("files.made")
        place.sync()

    def put(self, temporary: OpenedPath, place: OpenedPath) -> None:
        """Put a finished temporary entry in place of whatever is there."""
        was = self._back_up(place)
        self._change(temporary, place, Change(place.path, was, mark(temporary)))

    def move(self, source: OpenedPath, to: OpenedPath) -> None:
        """Move an entry, in place of whatever is there."""
        if self.approved.knows(to.path) and to.stat() is not None:
            self.remove(to)  # so that it is seen what it was; an exchange would leave it at the source for a moment
        was = self._back_up(to)
        try:
            self._change(source, to, Change(to.path, was, mark(source), source.path))
            if source.path.rpartition("/")[0] != to.path.rpartition("/")[0]:
                source.sync()
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            temporary = self.temporary(to)
            copy(source, temporary, self.check)
            self.put(temporary, to)
            self.remove(source)

    def remove(self, place: OpenedPath) -> None:
        """Take an entry away, a whole tree at once; the log keeps it."""
        backup = self._next()
        try:
            self._change(place, backup, Change(place.path, backup.name, None))
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            copy(place, backup, self.check)
            self._new_names = True
            temporary = self.temporary(place)
            self._change(place, temporary, Change(place.path, backup.name, None))
            discard(temporary)
        place.sync()

    def seal(self, result: Any) -> None:
        """The step ended well: from here on its changes are for good, and will not be made again."""
        self.check()
        left = {path: mark_at(self._root, path) for path in self._touched}
        size = sum(size_of(backup) for backup in self._all_backups())
        order, fits = number_change(Path(self._home.path), size)
        end = {"result": result, "left": left, "order": order}
        self.write(end if fits else {**end, "dropped": size})
        fault_point("files.ended")
        os.rename(OPEN, DONE, src_dir_fd=self._home.fd, dst_dir_fd=self._home.fd)
        fault_point("files.sealed")
        if not fits:
            self._home.sync()
            for backup in self._all_backups():
                with suppress(PermissionError):  # as in `retire`
                    discard(backup)

    def _all_backups(self) -> list[OpenedPath]:
        return [OpenedPath(self._fd, str(number), f"{OPEN}/{number}") for number in range(self._backups)]

    def _change(self, old: OpenedPath, new: OpenedPath, change: Change) -> None:
        self.check()
        self.write(asdict(change))
        fault_point("files.logged")
        self._touched |= dict.fromkeys(p for p in (change.path, change.source) if p)
        try:
            self._rename(old, new, change)
        except (OSError, ApprovalOutdated):
            # It did not happen: a rollback must not take what stands there for a change of ours.
            self.write({"void": "change"})
            raise
        self.approved.done(change.path, change.source)
        fault_point("files.changed")
        new.sync()

    def _rename(self, old: OpenedPath, new: OpenedPath, change: Change) -> None:
        """Rename; then, when nobody can swap it any more, compare an approved entry, and put it back if it differs."""
        approved = self.approved
        if change.was is None or change.now is None:
            try:
                rename_new(old.name, new.name, old_fd=old.fd, new_fd=new.fd)
            except FileExistsError:
                if change.was is None and approved.knows(change.path):
                    approved.created(change.path)
                raise
            taken = change.path if change.now is None else change.source
            try:
                approved.check(taken or "", new)
            except ApprovalOutdated:
                rename_new(new.name, old.name, old_fd=new.fd, new_fd=old.fd)
                raise
        elif approved.knows(change.path) and rename_exchange(old.name, new.name, old_fd=old.fd, new_fd=new.fd):
            try:
                approved.check(change.path, old)
            except ApprovalOutdated:
                rename_exchange(old.name, new.name, old_fd=old.fd, new_fd=new.fd)
                raise
            discard(old)
        else:
            approved.check(change.path, new)  # without an exchange, this is as near as it gets
            old.rename(new)

    def _back_up(self, place: OpenedPath) -> str | None:
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
        self._new_names = True
        fault_point("files.saved")
        return backup.name

    def _next(self) -> OpenedPath:
        self._backups += 1
        return OpenedPath(self._fd, str(self._backups - 1), f"{OPEN}/{self._backups - 1}")

    def write(self, line: Mapping[str, Any], *, durable: bool = True) -> None:
        """Append a line to the log. A durable one makes everything durable that was written for it."""
        data = memoryview(json.dumps(line).encode() + b"\n")
        while data:
            data = data[os.write(self._log, data) :]
        if not durable:
            return
        os.fsync(self._log)
        if self._new_names:
            os.fsync(self._fd)
        if self._new_folder:
            self._home.sync()
        self._new_folder = self._new_names = False


def roll_back(scratch: Path, workdir: Path, *, sealed: bool = False) -> list[str]:
    """Take back what a step left unfinished (or, with `sealed`, what it finished): the paths put back.

    Does nothing when there is nothing to take back. Raises ToolError, after taking back all it can, when
    somebody else has changed a path since.
    """
    if not scratch.is_dir():
        return []
    with Root(workdir) as root, locked(scratch) as home:
        return roll_back_in(root, home, DONE if sealed else OPEN)


def seal(scratch: Path) -> None:
    """Keep what a step left as it is: its log becomes a finished one, and no later attempt takes it back."""
    if not (scratch / OPEN).is_dir():
        return
    with locked(scratch) as home:
        put_away(home)
        os.rename(OPEN, DONE, src_dir_fd=home.fd, dst_dir_fd=home.fd)
        home.sync()


def roll_back_in(root: Root, home: OpenedPath, name: str, keep_as: str = "") -> list[str]:
    """`roll_back` for those who hold the lock already. With `keep_as`, the log stays, under that name."""
    folder = OpenedPath(home.fd, name, name)
    if folder.stat() is None:
        return []
    undone: list[str] = []
    problems: list[str] = []
    with directory(folder) as fd:
        log = read_log(fd)
        if name != OPEN and log.end is not None and "dropped" in log.end:
            raise dropped(log.end["dropped"])
        for offset, line in reversed(log.lines):
            try:
                if isinstance(line, Change):
                    if _take_back(root, fd, line, spare=f".windlass-{log.token}-{offset}"):
                        undone.append(line.path)
                else:
                    clear(root, line)
                fault_point("files.undone")
                cross_out(fd, offset)
            except ToolError as error:
                problems.append(error.failure.message)
            except OSError as error:
                problems.append(explain(error, f"putting back {_path(line)}").failure.message)
            fault_point("files.crossed")
    if problems:
        raise ToolError(
            "not everything could be undone: " + "; ".join(problems),
            category=Category.CONFIGURATION,
            advice=(
                f"what was there before is kept in {home.path}/{name}",
                "fix these paths by hand and delete that folder, then: windlass resume",
            ),
        )
    if keep_as:
        folder.rename(OpenedPath(home.fd, keep_as, keep_as))
        home.sync()
    else:
        retire(home, name)
    return undone


def dropped(size: int) -> ToolError:
    """Nothing can be put back that nobody kept."""
    return ToolError(
        f"it cannot be undone: it replaced or deleted {size >> 20} MiB, and up to {MOST_KEPT >> 20} MiB are kept",
        category=Category.RESOURCE,
        advice=("take the files from a backup or from version control",),
    )


def _path(line: Change | Note) -> str:
    return shown(line.path if isinstance(line, Change) else next(iter(line.values())))


def clear(root: Root, note: Note) -> None:
    """Remove a temporary entry, or a folder that was made and that nobody else has come to use."""
    with root.known(note.get("temp") or note["made"]) as place:
        if place is None:
            return
        if "temp" in note:
            discard(place)
            return
        try:
            os.rmdir(place.name, dir_fd=place.fd)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTEMPTY, errno.EEXIST):
                raise


def _take_back(root: Root, backups: int, change: Change, spare: str) -> bool:
    """Undo one change: True when something was put back, False when there was nothing to do."""
    backup = OpenedPath(backups, change.was, "") if change.was is not None else None
    before = mark(backup) if backup else None
    if backup and before is None:
        return False  # it never left its place, or is back there already
    with root.known(change.path) as place:
        if place is None:
            if backup is None:
                return False  # its whole folder is gone, and it with it
            raise _conflict(change)
        discard(place.beside(spare))
        now = mark(place)
        if now == change.now:
            _take_away(root, place, change, spare)
        elif now is None and change.source and backup:
            pass  # moved back by a rollback that was killed before it came to the backup
        elif now == before:
            return False
        else:
            raise _conflict(change)
        if backup:
            _restore(backup, place, change, spare)
        place.sync()
        return True


def _take_away(root: Root, place: OpenedPath, change: Change, spare: str) -> None:
    """Remove what the step put there, unless a backup is to take its place at one stroke."""
    if change.source:
        with root.known(change.source) as origin:
            if origin is None:
                raise _conflict(change)
            _rename_new(place, origin, change)
            origin.sync()
    elif change.now is not None and change.was is None:
        aside = place.beside(spare)
        # A tree must vanish at once: after a crash, a second rollback would not know half of it again.
        place.rename(aside)
        discard(aside)
    fault_point("files.taken")


def _restore(backup: OpenedPath, place: OpenedPath, change: Change, spare: str) -> None:
    """Put a backup back: the same inode by a rename or, from another device, a faithful copy of it."""
    try:
        _rename(backup, place, change)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        aside = place.beside(spare)
        copy(backup, aside, lambda: None)
        _rename(aside, place, change)


def _rename(old: OpenedPath, new: OpenedPath, change: Change) -> None:
    if new.stat() is None:
        _rename_new(old, new, change)
    else:
        old.rename(new)


def _rename_new(old: OpenedPath, new: OpenedPath, change: Change) -> None:
    try:
        rename_new(old.name, new.name, old_fd=old.fd, new_fd=new.fd)
    except FileExistsError:
        raise _conflict(change) from None


def _conflict(change: Change) -> ToolError:
    kept = f" (what was there before is backup {change.was})" if change.was is not None else ""
    return ToolError(
        f"{shown(change.path)} was changed by another program since, and is left as it is{kept}",
        category=Category.CONFIGURATION,
    )
