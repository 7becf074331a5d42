"""Put files back as they were recorded before an agent's work.

Nothing is touched unless every file is as it was after that work, or is back already: so the same may be asked again
after a crash or an error in the middle. Nothing here follows a link on its way to a file.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager, suppress
from itertools import accumulate
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple

from windlass.errors import Category, ToolError, classify
from windlass.faults import fault_point
from windlass.workspaces.store import ChangedFile, FileEntry, Store, shown

__all__ = ["RecordedPeriod", "put_all_back", "put_back"]

COMMIT = 0o160000
LINK = 0o120000
MOST_NAMED = 10


class RecordedPeriod(NamedTuple):
    """Two records, before and after a stretch of work."""

    before: str
    after: str
    after_check: bool = False
    """True if only a check changed files since the pair before: its changes of the same files are undone, too."""


class _FoundFile(NamedTuple):
    """A change to put back, and its file as it was found."""

    root: Path
    change: ChangedFile
    content: bytes | None
    """From before the work; None if there was no file."""
    is_back: bool
    """True if it is as it was before the work already."""


def put_back(
    store: Store, pairs: Iterable[RecordedPeriod], only: Callable[[str], bool] = lambda path: True
) -> list[dict[str, str]]:
    """Undo the changes between each two records, the newest first; gives each path with what was done."""
    return [change for _, change in _write(_look(store, pairs, only))]


def put_all_back(works: Sequence[tuple[Store, Iterable[RecordedPeriod]]]) -> list[tuple[str, dict[str, str]]]:
    """Undo changes in several folders, each given with its folder: all are looked at before the first is written."""
    several = len(works) > 1
    return _write([file for store, pairs in works for file in _look(store, pairs, full_names=several)])


def _look(
    store: Store,
    pairs: Iterable[RecordedPeriod],
    only: Callable[[str], bool] = lambda path: True,
    *,
    full_names: bool = False,
) -> list[_FoundFile]:
    """The files of one folder that are to be put back. Raises `ToolError` if one of them cannot be; `full_names`: then
    it is named with its folder."""
    folder = f"{store.root}/" if full_names else ""
    todo = _together(
        (
            (change, pair.after_check)
            for pair in pairs
            for change in store.changes(pair.before, pair.after)
            if only(change.path)
        ),
        folder,
    )
    if todo and not store.root.is_dir():
        raise ToolError(
            f"nothing was touched: the folder {shown(str(store.root))} is gone:"
            " `windlass workspaces --clean` removes those whose work is merged",
            category=Category.CONFIGURATION,
            advice=("take back work that was merged with `git revert`: `git log` has its commits",),
        )
    if inside := [change.path for change in todo if _is_commit(change)]:
        raise _refused(inside, "a repository inside this one, which has an undo of its own", folder)
    states = _states(store, todo)
    if changed := [path for path, state in states.items() if state == "other"]:
        raise _refused(changed, "changed since", folder)
    waiting = [change for change in todo if states[change.path] == "new"]
    removed = {change.path for change in waiting if change.old is None}
    missing = [change.path for change in waiting if change.old is not None]
    if blocked := dict.fromkeys(place for path in missing if (place := _blocked(store.root, path, removed))):
        raise _refused(list(blocked), "in the place of recorded files, with content that was not recorded", folder)
    return [
        _FoundFile(
            store.root,
            change,
            store.content(change.old.blob) if change.old is not None else None,
            states[change.path] == "old",
        )
        for change in todo
    ]


def _write(files: Sequence[_FoundFile]) -> list[tuple[str, dict[str, str]]]:
    back = [file for file in files if file.is_back]
    left = sorted((file for file in files if not file.is_back), key=lambda one: one.content is not None)
    while left:  # what is new comes first, and makes room
        try:
            _restore(left[0].root, left[0].change, left[0].content)
        except OSError as error:
            raise _stopped(error, back, left) from error
        fault_point("workspace.put_back")
        back.append(left.pop(0))
    return [
        (str(file.root), {"path": shown(file.change.path), "undone": "removed" if file.content is None else "restored"})
        for file in files
    ]


def _together(changes: Iterable[tuple[ChangedFile, bool]], folder: str) -> list[ChangedFile]:
    """The changes of several stretches of work as one: from a file's oldest content to its newest. Each comes with
    whether only a check lies between it and the stretch before."""
    found: dict[str, ChangedFile] = {}
    gaps: list[str] = []
    for change, after_check in changes:
        before = found.get(change.path)
        if before is not None and change.old not in (before.new, before.old) and not after_check:
            gaps.append(change.path)
        found[change.path] = change if before is None else ChangedFile(change.path, before.old, change.new)
    if gaps:
        raise _refused(gaps, "changed by somebody else between its attempts", folder)
    return sorted((change for change in found.values() if change.old != change.new), key=lambda change: change.path)


def _refused(paths: Sequence[str], why: str, folder: str) -> ToolError:
    return ToolError(
        f"nothing was touched: {why}: {_named([folder + path for path in paths])}",
        category=Category.PERMISSION,
        advice=("put these files aside or back by hand, and try again",),
    )


def _stopped(error: OSError, back: Sequence[_FoundFile], left: Sequence[_FoundFile]) -> ToolError:
    several = len({file.root for file in (*back, *left)}) > 1
    not_yet, done = (
        _named([str(file.root / file.change.path) if several else file.change.path for file in files]) or "none"
        for files in (left, back)
    )
    return ToolError(
        f"not all files could be put back: {error.strerror}: {not_yet}; put back already: {done}",
        category=classify(error).category,
        advice=("mend what is wrong with the first of them, and repeat the command: it goes on there",),
    )


def _named(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - MOST_NAMED} more" if len(paths) > MOST_NAMED else ""
    return ", ".join(shown(path) for path in paths[:MOST_NAMED]) + more


def _is_commit(change: ChangedFile) -> bool:
    return any(entry is not None and entry.mode == COMMIT for entry in (change.old, change.new))


def _states(store: Store, todo: Sequence[ChangedFile]) -> dict[str, str]:
    """For each path: `old` if the file is back already, `new` if it is as the agent left it, else `other`."""
    states: dict[str, str] = {}
    links: set[str] = set()
    """Links as they were recorded: no file was recorded behind them."""
    for change in todo:  # in order: a link comes before the paths through it
        found = None if not links.isdisjoint(_folders(change.path)) else _entry(store, change.path)
        states[change.path] = "old" if found == change.old else "new" if found == change.new else "other"
        if found is not None and found.mode == LINK and states[change.path] != "other":
            links.add(change.path)
    return states


def _folders(path: str) -> list[str]:
    """The folders on the way to a file, from the root downwards."""
    return list(accumulate(path.split("/"), "{}/{}".format))[:-1]


def _entry(store: Store, path: str) -> FileEntry | None:
    """The file as it is now. A path through a link is like nothing that was recorded."""
    try:
        with _parent(store.root, path, make=False) as (parent, name):
            mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            if stat.S_ISLNK(mode):
                return FileEntry(LINK, store.blob_of(os.fsencode(os.readlink(name, dir_fd=parent))))
            if stat.S_ISDIR(mode):
                return None
            if not stat.S_ISREG(mode):
                return FileEntry(mode, "")
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
            with open(file, "rb") as stream:
                return FileEntry(0o100755 if mode & 0o100 else 0o100644, store.blob_of(stream.read()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return FileEntry(0, str(error))


def _blocked(root: Path, path: str, removed: Set[str]) -> str:
    """The path of what would stay in the place of a file, or of a folder on the way to it; empty if nothing would."""
    for folder in _folders(path):
        place = root / folder
        if folder in removed or not os.path.lexists(place):
            return ""
        if place.is_symlink() or not place.is_dir():
            return folder
    place = root / path
    if place.is_symlink() or not place.is_dir():
        return ""
    inside = (one for one in place.rglob("*") if one.is_symlink() or not one.is_dir())
    return path if any(one.relative_to(root).as_posix() not in removed for one in inside) else ""


@contextmanager
def _parent(root: Path, path: str, *, make: bool) -> Iterator[tuple[int, str]]:
    """The folder of a path, opened from the root downwards without following links, and the file's name in it."""
    *folders, name = path.split("/")
    if ".." in folders or name in ("", ".", "..") or ".git" in (*folders, name):
        raise ToolError(f"{shown(path)} is not the path of a recorded file")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    here = os.open(root, flags)
    try:
        for folder in folders:
            if make:
                with suppress(FileExistsError):
                    os.mkdir(folder, dir_fd=here)
            if stat.S_ISLNK(os.stat(folder, dir_fd=here, follow_symlinks=False).st_mode):
                raise OSError(errno.ELOOP, "a link is on the way to it")
            inner = os.open(folder, flags | os.O_NOFOLLOW, dir_fd=here)
            os.close(here)
            here = inner
        yield here, name
    finally:
        os.close(here)


def _restore(root: Path, change: ChangedFile, content: bytes | None) -> None:
    if change.old is None or content is None:
        with _parent(root, change.path, make=False) as (parent, name):
            os.unlink(name, dir_fd=parent)
        _remove_empty(root, change.path)
        return
    with _parent(root, change.path, make=True) as (parent, name):
        new = f".windlass-{token_hex(6)}"
        try:
            if change.old.mode == LINK:
                os.symlink(os.fsdecode(content), new, dir_fd=parent)
            else:
                executable = bool(change.old.mode & 0o100)
                kept = _kept_permissions(parent, name, executable=executable)
                mode = kept if kept is not None else 0o777 if executable else 0o666
                file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode, dir_fd=parent)
                with open(file, "wb") as stream:
                    if kept is not None:
                        os.fchmod(file, kept)
                    stream.write(content)
                    stream.flush()
                    os.fsync(stream.fileno())
            _remove_empty_folder(parent, name)
            os.replace(new, name, src_dir_fd=parent, dst_dir_fd=parent)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(new, dir_fd=parent)
            raise


def _kept_permissions(parent: int, name: str, *, executable: bool) -> int | None:
    """The permissions of the file that is there, executable as it was recorded; None if there is no file."""
    try:
        mode = os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(mode):
        return None
    mode &= 0o777
    if bool(mode & 0o100) == executable:
        return mode
    return mode | 0o100 | (mode & 0o044) >> 2 if executable else mode & ~0o111


def _remove_empty_folder(parent: int, name: str) -> None:
    """Remove a folder with nothing but folders in it, if one has the place of a file."""
    with suppress(FileNotFoundError):
        if stat.S_ISDIR(os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode):
            for _, folders, _, inside in os.fwalk(name, topdown=False, dir_fd=parent):
                for folder in folders:
                    os.rmdir(folder, dir_fd=inside)
            os.rmdir(name, dir_fd=parent)


def _remove_empty(root: Path, path: str) -> None:
    """Remove the folders of a file that the agent made, as far as nothing else is in them."""
    folder = (root / path).parent
    while folder != root:
        try:
            folder.rmdir()
        except OSError:
            return
        folder = folder.parent
