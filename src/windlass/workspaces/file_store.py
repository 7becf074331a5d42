"""Records of a folder that is in no git repository: each file hashed, each content copied once into the home.

Files whose size, times and inode are those of the last record are not read again. Folders of programs and caches are
left out, as a repository would ignore them. There are limits: a folder with more is not recorded, and it says so.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import stat
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from windlass.errors import ToolError
from windlass.workspaces.git import locked
from windlass.workspaces.notes import NOTES, note_tree
from windlass.workspaces.store import ChangedFile, FileEntry, Recorded, ShownChange, TooLarge

__all__ = ["FileStore", "prune_files"]

MOST_FILES = 5_000
MOST_BYTES = 64 * 1024 * 1024
LONGEST_TEXT = 20_000
"""Lines of a file whose difference is shown."""
LEFT_OUT = frozenset({".git", ".hg", ".svn", "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".tox"})
SETTLED = 2 * 10**9
"""Nanoseconds: a file changed so shortly before a record is read again, for clocks of file systems are coarse."""


class _Kept(msgspec.Struct, array_like=True, frozen=True):
    """A file of a record, with the marks by which it is known to be unchanged."""

    mode: int
    blob: str
    size: int
    changed: int
    inode: int


class _Record(msgspec.Struct, frozen=True):
    taken: int
    """Nanoseconds since 1970."""
    files: dict[str, _Kept]


_decode = msgspec.json.Decoder(_Record).decode


class FileStore:
    """Implements `Store`."""

    def __init__(self, root: Path, folder: Path, home: Path) -> None:
        self.root = root
        self._folder = folder
        self._home = os.fspath(home)

    def record(self, execution: str = "") -> Recorded:
        with locked(self._folder.with_suffix(".lock")):
            if not self._folder.exists():
                (self._folder / NOTES).mkdir(mode=0o700, parents=True)
            before = self._read("latest")
            taken = time.time_ns()
            files: dict[str, _Kept] = {}
            unread: list[str] = []
            for name, found in self._walk(unread):
                try:
                    files[name] = self._kept(name, found, before)
                except OSError as error:
                    unread.append(f"{_path(name)}: {error.strerror}")
            record = msgspec.json.encode(_Record(taken, files))
            names = msgspec.json.encode([(path, file.mode, file.blob) for path, file in sorted(files.items())])
            tree = hashlib.sha256(names).hexdigest()
            for name in (tree, "latest"):
                self._write(f"trees/{name}", record)
            note_tree(self._folder, execution, tree)
        more = f", and {len(unread) - 1} more" if len(unread) > 1 else ""
        return Recorded(str(self.root), f"files:{tree}", f"not recorded: {unread[0]}{more}" if unread else "")

    def changes(self, before: str, after: str) -> list[ChangedFile]:
        old, new = self._files(before), self._files(after)
        found = (
            ChangedFile(_path(name), _entry(old.get(name)), _entry(new.get(name))) for name in sorted({*old, *new})
        )
        return [change for change in found if change.old != change.new]

    def links(self, tree: str) -> dict[str, str]:
        return {_path(name): file.blob for name, file in self._files(tree).items() if file.mode == 0o120000}

    def content(self, blob: str) -> bytes:
        try:
            return (self._folder / "blobs" / blob).read_bytes()
        except OSError as error:
            raise ToolError(f"the content {blob[:12]} is not kept here: {error.strerror}") from error

    def blob_of(self, content: bytes) -> str:
        return hashlib.sha256(content).hexdigest()

    def diffs(self, before: str, after: str) -> Iterator[ShownChange]:
        for change in self.changes(before, after):
            old, new = self._lines(change.old), self._lines(change.new)
            names = [
                f"a/{change.path}" if change.old else "/dev/null",
                f"b/{change.path}" if change.new else "/dev/null",
            ]
            head = f"diff --git a/{change.path} b/{change.path}\n"
            if change.old is not None and change.new is not None and change.old.mode != change.new.mode:
                head += f"old mode {change.old.mode:o}\nnew mode {change.new.mode:o}\n"
            if old is None or new is None:
                yield ShownChange(
                    change.path, change.kind, None, None, f"{head}Binary files {names[0]} and {names[1]} differ\n"
                )
                continue
            body = [
                line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
                for line in difflib.unified_diff(old, new, names[0], names[1])
            ]
            added = sum(line.startswith("+") for line in body[2:])
            removed = sum(line.startswith("-") for line in body[2:])
            yield ShownChange(change.path, change.kind, added, removed, head + "".join(body))

    # -- files -----------------------------------------------------------------------------------

    def _walk(self, unread: list[str]) -> Iterator[tuple[str, os.stat_result]]:
        count = size = 0
        waiting = [(os.fspath(self.root), "")]
        while waiting:
            place, before = waiting.pop()
            try:
                entries = list(os.scandir(place))
            except OSError as error:
                unread.append(f"{before}: {error.strerror}")
                continue
            for entry in entries:
                path = f"{before}{entry.name}"
                if entry.is_dir(follow_symlinks=False):
                    if entry.name not in LEFT_OUT and entry.path != self._home:
                        waiting.append((entry.path, f"{path}/"))
                elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
                    try:
                        found = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # gone since
                    count, size = count + 1, size + found.st_size
                    if count > MOST_FILES or size > MOST_BYTES:
                        raise TooLarge(
                            f"{self.root} has more than {MOST_FILES:,} files or {MOST_BYTES >> 20} MiB, "
                            "and is not a git repository"
                        )
                    yield _name(path), found

    def _kept(self, name: str, now: os.stat_result, before: _Record | None) -> _Kept:
        known = before.files.get(name) if before is not None else None
        changed = max(now.st_mtime_ns, now.st_ctime_ns)
        mode = _mode(now.st_mode)
        settled = before is not None and changed < before.taken - SETTLED
        if known is not None and settled and known == _Kept(mode, known.blob, now.st_size, changed, now.st_ino):
            return known
        path = self.root / _path(name)
        content = os.fsencode(os.readlink(path)) if mode == 0o120000 else path.read_bytes()
        blob = self.blob_of(content)
        if not (self._folder / "blobs" / blob).exists():
            self._write(f"blobs/{blob}", content)
        return _Kept(mode, blob, now.st_size, changed, now.st_ino)

    def _write(self, name: str, content: bytes) -> None:
        file = self._folder / name
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = file.with_name(f"{file.name}.new")  # the lock is ours
        new.write_bytes(content)
        new.replace(file)

    def _read(self, name: str) -> _Record | None:
        try:
            return _decode((self._folder / "trees" / name).read_bytes())
        except FileNotFoundError:
            return None
        except msgspec.DecodeError:
            return None  # of a machine that lost power: it is only there to save time

    def _files(self, tree: str) -> dict[str, _Kept]:
        record = self._read(tree.partition(":")[2])
        if record is None:
            raise ToolError(f"the record {tree} of {self.root} is not kept here")
        return record.files

    def _lines(self, entry: FileEntry | None) -> list[str] | None:
        """The lines of a text; None for anything else."""
        if entry is None:
            return []
        content = self.content(entry.blob)
        if b"\0" in content[:8000] or content.count(b"\n") > LONGEST_TEXT:
            return None
        return re.findall(r"[^\n]*\n|[^\n]+", content.decode("utf-8", "replace"))


def prune_files(folder: Path, kept: Iterable[str]) -> None:
    """Remove the records of a store that are none of these nor the last one, and contents that no record has. The lock
    is held."""
    trees, blobs = folder / "trees", folder / "blobs"
    stay = {*kept, "latest"}
    used: set[str] = set()
    for tree in (tree for tree in trees.iterdir() if tree.name in stay):
        try:
            used |= {file.blob for file in _decode(tree.read_bytes()).files.values()}
        except msgspec.DecodeError as error:
            if tree.name != "latest":  # that one is only there to save time
                raise ToolError(f"{tree} cannot be read: {error}") from error
    unused = [tree for tree in trees.iterdir() if tree.name not in stay]
    for file in (*unused, *(blob for blob in blobs.glob("*") if blob.name not in used)):
        file.unlink()


def _mode(mode: int) -> int:
    if stat.S_ISLNK(mode):
        return 0o120000
    return 0o100755 if mode & 0o100 else 0o100644


def _entry(kept: _Kept | None) -> FileEntry | None:
    return None if kept is None else FileEntry(kept.mode, kept.blob)


def _name(path: str) -> str:
    """A path as JSON can hold it: bytes that are not UTF-8 are escaped."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return f"~{os.fsencode(path).decode('latin-1')}"
    return f"={path}"


def _path(name: str) -> str:
    return name[1:] if name.startswith("=") else os.fsdecode(name[1:].encode("latin-1"))
