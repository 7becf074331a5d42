"""Taking a step's changes back, and saying when that cannot be done without harm.

Changes are taken back last to first, and each is crossed out in the log. Each is judged by what stands at its
path now. As the step left it: put back what was there. As it was before: nothing to do, because the change
had not been made yet, or a rollback that was killed had no time to cross it out. Anything else is somebody's
work: it stays, the backup stays, and the error names both. So a rollback can be killed and repeated at will.

Directories that survive keep the modification time of the rollback itself: their entries did change, and
tools that watch directories (git's untracked cache) must not be told otherwise.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from windlass.errors import Category, ToolError
from windlass.faults import fault_point
from windlass.tools.files.failures import explain, shown
from windlass.tools.files.kept import MOST_KEPT
from windlass.tools.files.kernel import rename_new
from windlass.tools.files.log import DONE, OPEN, Change, Note, cross_out, locked, put_away, read_log, retire
from windlass.tools.files.place import Place, copy, directory, discard, mark
from windlass.tools.files.safe_path import Root

__all__ = ["clear", "dropped", "roll_back", "roll_back_in", "seal"]


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


def roll_back_in(root: Root, home: Place, name: str, keep_as: str = "") -> list[str]:
    """`roll_back` for those who hold the lock already. With `keep_as`, the log stays, under that name."""
    folder = Place(home.fd, name, name)
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
            "not everything could be taken back: " + "; ".join(problems),
            category=Category.CONFIGURATION,
            advice=(
                f"what was there before is kept in {home.path}/{name}",
                "put these paths right by hand and delete that folder, then: windlass resume",
            ),
        )
    if keep_as:
        folder.rename(Place(home.fd, keep_as, keep_as))
        home.sync()
    else:
        retire(home, name)
    return undone


def dropped(size: int) -> ToolError:
    """Nothing can be put back that nobody kept."""
    return ToolError(
        f"it cannot be taken back: it replaced or deleted {size >> 20} MiB, and up to {MOST_KEPT >> 20} MiB are kept",
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
    backup = Place(backups, change.was, "") if change.was is not None else None
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


def _take_away(root: Root, place: Place, change: Change, spare: str) -> None:
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


def _restore(backup: Place, place: Place, change: Change, spare: str) -> None:
    """Put a backup back: the same inode by a rename or, from another device, a faithful copy of it."""
    try:
        _rename(backup, place, change)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        aside = place.beside(spare)
        copy(backup, aside, lambda: None)
        _rename(aside, place, change)


def _rename(old: Place, new: Place, change: Change) -> None:
    if new.stat() is None:
        _rename_new(old, new, change)
    else:
        old.rename(new)


def _rename_new(old: Place, new: Place, change: Change) -> None:
    try:
        rename_new(old.name, new.name, old_fd=old.fd, new_fd=new.fd)
    except FileExistsError:
        raise _conflict(change) from None


def _conflict(change: Change) -> ToolError:
    kept = f" (what was there before is backup {change.was})" if change.was is not None else ""
    return ToolError(
        f"{shown(change.path)} was changed by somebody else since, and is left as it is{kept}",
        category=Category.CONFIGURATION,
    )
