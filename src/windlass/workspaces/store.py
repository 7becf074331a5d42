"""Records of a folder's files, by content: `record` makes one, `changes` compares two, `content` gives a file's bytes.

In a git repository git does the work (`git_store`), elsewhere the files are hashed and copied (`file_store`). Both keep
everything in the home: the user's index, objects, refs, stash and configuration are neither changed nor needed. What
git ignores is not recorded, nor are other repositories inside (submodules) beyond the commit that is checked out.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

from windlass.errors import Category, ToolError
from windlass.visible import one_line
from windlass.workspaces.git import find_repository, run_git

__all__ = [
    "ChangedFile",
    "FileEntry",
    "Recorded",
    "ShownChange",
    "Store",
    "TooLarge",
    "find_store",
    "shown",
    "store_of",
    "store_with",
    "stores_of",
]

GIT, FILES = "git", "files"

ChangeKind: TypeAlias = Literal["added", "deleted", "changed"]


class TooLarge(ToolError):
    """There is too much to record."""

    def __init__(self, message: str) -> None:
        super().__init__(message, category=Category.RESOURCE)


@dataclass(frozen=True, slots=True)
class Recorded:
    """One record."""

    root: str
    """The folder."""
    tree: str
    """Names the content of all files: `git:HASH` or `files:HASH`."""
    note: str = ""
    """Files that could not be read."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """A file as it was recorded."""

    mode: int
    """0o100644, 0o100755 (executable), 0o120000 (a link), 0o160000 (a commit of a repository inside)."""
    blob: str
    """The hash of its content; of a link, of its target."""


@dataclass(frozen=True, slots=True)
class ChangedFile:
    """A path whose content or mode differs between two records."""

    path: str
    """From the root; bytes that are not UTF-8 are surrogates."""
    old: FileEntry | None
    new: FileEntry | None

    @property
    def kind(self) -> ChangeKind:
        return "added" if self.old is None else "deleted" if self.new is None else "changed"

    @property
    def is_other_kind(self) -> bool:
        """True if it is a file before and a link after, or the like."""
        return (
            self.old is not None and self.new is not None and stat.S_IFMT(self.old.mode) != stat.S_IFMT(self.new.mode)
        )


@dataclass(frozen=True, slots=True)
class ShownChange:
    """A changed file for people."""

    path: str
    change: ChangeKind
    added: int | None
    """Lines; None for a binary file."""
    removed: int | None
    patch: str
    """As `git diff` writes it."""


class Store(Protocol):
    """Records of one folder."""

    @property
    def root(self) -> Path: ...

    def record(self, execution: str = "") -> Recorded:
        """Record the files as they are now. Raises `ToolError` if that is not possible. The record is kept as long as
        the execution is; without one, until records are next removed."""
        ...

    def changes(self, before: str, after: str) -> list[ChangedFile]:
        """The paths that differ, in order."""
        ...

    def links(self, tree: str) -> dict[str, str]:
        """Paths of the links in a record, each with the hash of its target."""
        ...

    def content(self, blob: str) -> bytes: ...

    def blob_of(self, content: bytes) -> str:
        """The name that content would have here."""
        ...

    def diffs(self, before: str, after: str) -> Iterator[ShownChange]:
        """The same as `changes`, for people."""
        ...


def find_store(workdir: Path, home: Path) -> Store:
    """The store for the files around a working directory: of its whole repository, or of the folder."""
    repository = find_repository(workdir)
    if repository is not None and not _is_ignored(workdir, repository.top):
        return store_of(repository.top, GIT, home)
    return store_of(workdir, FILES, home)


def store_with(tree: str, root: str, home: Path) -> Store:
    """The store that has this record of a folder."""
    return store_of(Path(root), tree.partition(":")[0], home)


def store_of(root: Path, kind: str, home: Path) -> Store:
    """The store of a folder that was recorded before."""
    key = hashlib.sha256(os.fsencode(root)).hexdigest()[:16]
    if kind == GIT:
        from windlass.workspaces.git_store import GitStore

        return GitStore(root, _place(root, home, f"{key}.git"), home)
    from windlass.workspaces.file_store import FileStore

    return FileStore(root, _place(root, home, key), home)


def stores_of(execution: str, home: Path) -> Path:
    """The place for the stores of the folders that agents of an execution have for themselves."""
    return home / "snapshots" / execution


def _place(root: Path, home: Path, name: str) -> Path:
    """The folder of a store: of an agent's own folder it is the execution's, and goes with it."""
    from windlass.workspaces.worktrees import place_of

    usual, folders = home / "snapshots" / name, place_of("x", "x").parent.parent
    if not root.is_relative_to(folders) or usual.exists():  # where earlier versions had all of them
        return usual
    return stores_of(root.relative_to(folders).parts[0], home) / name


def shown(path: str) -> str:
    """A path for people, and for JSON: bytes that are not UTF-8 and marks that a terminal obeys are written out."""
    return one_line(os.fsencode(path).decode("utf-8", "backslashreplace"))


def _is_ignored(workdir: Path, top: Path) -> bool:
    """True for a folder that its repository ignores: git would not see what an agent does there."""
    if workdir == top:
        return False
    try:
        run_git("check-ignore", "--quiet", "--", str(workdir), cwd=top)
    except ToolError:
        return False
    return True
