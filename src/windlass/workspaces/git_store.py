"""Records of a git repository's files, by git itself, with an index, objects and settings of our own.

The git folder is ours and lies in the home; its working tree is the user's. It borrows the repository's objects, and
new ones are written to it. So no filter, hook or setting of the repository takes part (an agent could have changed
them), files are recorded byte for byte, and nothing of the user's is locked or written. The index is kept: it knows
which files have not changed since it was written, so that recording costs about as much as `git status`.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path

from windlass.errors import ToolError
from windlass.workspaces.git import (
    TIMEOUT,
    GitFailed,
    Repository,
    escaped,
    find_repository,
    locked,
    run_git,
    user_ignores,
)
from windlass.workspaces.notes import NOTES, note_tree
from windlass.workspaces.small_changes import changed_tree
from windlass.workspaces.store import ChangedFile, FileEntry, Recorded, ShownChange, TooLarge

__all__ = ["GitStore", "prune_objects"]

LONGEST = 60.0
"""Seconds that recording may take: after that, the repository is too large, and is not tried again for a day."""
MOST_PATCH = 16 * 1024 * 1024
"""Bytes of a difference that are shown."""

_RAW = re.compile(rb":(\d+) (\d+) ([0-9a-f]+) ([0-9a-f]+) [A-Z]\d*\Z")
_EXACT = "* -text !eol -filter -ident !working-tree-encoding\n"
"""Attributes stronger than those of the repository: content goes in as it is."""


class GitStore:
    """Implements `Store`."""

    def __init__(self, root: Path, folder: Path, home: Path) -> None:
        self.root = root
        self._folder = folder
        self._home = home

    def record(self, execution: str = "") -> Recorded:
        with locked(self._folder.with_suffix(".lock")) as lock:
            self._prepare()
            (self._folder / "index.lock").unlink(missing_ok=True)  # of a command that was killed: the lock is ours
            self._refuse_slow()
            names = self._changed(lock)
            if names is not None and (known := self._known_tree()):
                git = partial(self._git, holding=lock, timeout=LONGEST)
                tree = changed_tree(git, self.root, known, names, self._hash_of) if names else known
                if tree:
                    note_tree(self._folder, execution, tree)
                    return Recorded(str(self.root), f"git:{tree}")
            note = "" if names is not None and self._update(names, lock) else self._add(lock)
            tree = self._git("write-tree", holding=lock).decode().strip()
            (self._folder / "tree").write_text(f"{tree} {self._index_mark()}")
            note_tree(self._folder, execution, tree)
        return Recorded(str(self.root), f"git:{tree}", note)

    def _changed(self, lock: int) -> list[bytes] | None:
        """Paths that differ from the index, by two commands at once; None if there is no index yet."""
        if not (self._folder / "index").exists():
            return None
        with ThreadPoolExecutor(1) as beside:
            new = beside.submit(self._git, "ls-files", "--others", "--exclude-standard", "-z", holding=lock)
            changed = self._git("diff-files", "--name-only", "-z", holding=lock)
            names = {*changed.split(b"\0"), *new.result().split(b"\0")}
        return sorted(names - {b""})

    def _known_tree(self) -> str:
        """The tree of the index, if it is the one that was written last."""
        try:
            tree, mark = (self._folder / "tree").read_text().split(" ", 1)
        except (OSError, ValueError):
            return ""
        return tree if mark == self._index_mark() else ""

    def _index_mark(self) -> str:
        found = (self._folder / "index").stat()
        return f"{found.st_mtime_ns} {found.st_size} {found.st_ino}"

    def _update(self, names: list[bytes], lock: int) -> bool:
        """Bring these paths of the index up to date; False if one of them cannot be read."""
        inside = [name for name in names if name.endswith(b"/")]  # repositories: those without a commit cannot be added
        paths = b"\0".join(name for name in names if not name.endswith(b"/"))
        try:
            for name in inside:
                self._git(
                    "add", "--ignore-errors", "--", f":(top,literal){os.fsdecode(name)}", holding=lock, good=(0, 1, 128)
                )
            arguments = ("update-index", "--add", "--remove", "--replace", "-z", "--stdin")
            self._git(*arguments, holding=lock, timeout=LONGEST, stdin=paths + b"\0" if paths else b"")
        except GitFailed as error:
            if error.code is None:
                raise
            (self._folder / "index.lock").unlink(missing_ok=True)
            return False
        return True

    def changes(self, before: str, after: str) -> list[ChangedFile]:
        listed = self._git("diff-tree", "-r", "-z", "--no-renames", "--raw", _hash(before), _hash(after)).split(b"\0")
        found: list[ChangedFile] = []
        for told, path in zip(listed[::2], listed[1::2], strict=False):
            if (raw := _RAW.match(told)) is not None:
                old, new = _entry(raw[1], raw[3]), _entry(raw[2], raw[4])
                found.append(ChangedFile(os.fsdecode(path), old, new))
        return found

    def links(self, tree: str) -> dict[str, str]:
        listed = self._git("ls-tree", "-r", "-z", _hash(tree)).split(b"\0")
        links = (line.partition(b"\t") for line in listed if line.startswith(b"120000 "))
        return {os.fsdecode(path): told.split()[2].decode() for told, _, path in links}

    def content(self, blob: str) -> bytes:
        return self._git("cat-file", "blob", blob)

    def blob_of(self, content: bytes) -> str:
        return self._hash_of(b"blob", content)

    def _hash_of(self, kind: bytes, content: bytes) -> str:
        digest = hashlib.sha256 if self._format == "sha256" else hashlib.sha1
        return digest(b"%s %d\0" % (kind, len(content)) + content).hexdigest()

    def diffs(self, before: str, after: str) -> Iterator[ShownChange]:
        changes = self.changes(before, after)
        if not changes:
            return
        trees = ("--no-renames", _hash(before), _hash(after))
        counts = self._git("diff-tree", "-r", "-z", "--numstat", *trees).split(b"\0")
        plain = ("--no-ext-diff", "--no-textconv", "--no-color", "--src-prefix=a/", "--dst-prefix=b/")
        text = self._git("diff-tree", "-r", "-p", *plain, *trees)[:MOST_PATCH].decode("utf-8", "replace")
        patches = iter(re.split(r"^(?=diff --git )", text, flags=re.MULTILINE)[1:])
        for change, count in zip(changes, counts, strict=False):
            added, removed, _ = count.split(b"\t", 2)
            patch = next(patches, "")
            if change.is_other_kind:  # a file that became a link is told as two
                patch += next(patches, "")
            yield ShownChange(change.path, change.kind, _number(added), _number(removed), patch)

    # -- the git folder --------------------------------------------------------------------------

    @cached_property
    def _repository(self) -> Repository | None:
        return find_repository(self.root)

    @cached_property
    def _format(self) -> str:
        """The repository's hash. Borrowed objects must be of the same."""
        if self._folder.exists():
            text = (self._folder / "config").read_text(encoding="utf-8", errors="replace")
        elif self._repository is not None:
            text = (self._repository.common / "config").read_text(encoding="utf-8", errors="replace")
        else:
            text = ""
        return "sha256" if re.search(r"objectformat\s*=\s*sha256", text, re.IGNORECASE) else "sha1"

    def _prepare(self) -> None:
        """Make the git folder, unless it is there and whole."""
        repository = self._repository
        if repository is None:
            raise ToolError(f"{self.root} is not a git repository any more")
        if not (self._folder / "windlass").exists():
            where = {"GIT_DIR": str(self._folder)}
            run_git("init", "--quiet", "--template=", f"--object-format={self._format}", cwd=self.root, variables=where)
            (self._folder / "info").mkdir(exist_ok=True)
            (self._folder / NOTES).mkdir(exist_ok=True)
            (self._folder / "info" / "attributes").write_text(_EXACT)
            if theirs := user_ignores(self.root):
                self._git("config", "core.excludesFile", theirs)
            (self._folder / "windlass").write_text(f"records of {self.root}\n", errors="surrogateescape")
        self._write("info/exclude", self._excluded(repository))
        self._write("objects/info/alternates", os.fsencode(repository.common / "objects") + b"\n")

    def _write(self, name: str, content: bytes) -> None:
        file = self._folder / name
        if not file.exists() or file.read_bytes() != content:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)

    def _excluded(self, repository: Repository) -> bytes:
        """Patterns besides those of the files `.gitignore`: the repository's own, and the home."""
        theirs = repository.common / "info" / "exclude"
        lines = theirs.read_bytes() if theirs.exists() else b""
        if self._home.is_relative_to(self.root) and self._home != self.root:
            lines += b"\n" + os.fsencode(f"/{escaped(self._home.relative_to(self.root).as_posix())}/") + b"\n"
        return lines

    def _add(self, lock: int) -> str:
        """Bring the index up to date; gives a note about what could not be read."""
        try:
            self._git("add", "--all", "--ignore-errors", "--", ".", holding=lock, timeout=LONGEST)
        except GitFailed as error:
            if error.code is None:
                (self._folder / "slow").touch()
            unread = [line for line in error.stderr.splitlines() if line.startswith("error:")]
            if error.code != 1 and not unread:
                raise
            return f"not recorded: {unread[0].removeprefix('error:').strip()}" + (
                f", and {len(unread) - 1} more" if len(unread) > 1 else ""
            )
        return ""

    def _refuse_slow(self) -> None:
        slow = self._folder / "slow"
        if slow.exists() and time.time() - slow.stat().st_mtime < 86400:
            raise TooLarge(f"recording {self.root} took longer than {LONGEST:g} s; remove {slow} to try again")

    def _git(
        self,
        *arguments: str,
        holding: int | None = None,
        timeout: float = TIMEOUT,
        stdin: bytes | None = None,
        good: Sequence[int] = (0,),
    ) -> bytes:
        where = {"GIT_DIR": str(self._folder), "GIT_WORK_TREE": str(self.root)}
        here = self.root if self.root.is_dir() else self._folder  # a worktree may be gone, and its records are not
        return run_git(*arguments, cwd=here, variables=where, holding=holding, timeout=timeout, stdin=stdin, good=good)


def prune_objects(folder: Path, kept: Iterable[str]) -> None:
    """Remove the objects of a store that neither these trees nor its index has. The lock is held.

    `git prune` would stop at a folder of a kept tree that only the user's repository had, and has dropped since.
    """
    known = folder / "tree"
    trees = {*kept, *(known.read_text().split()[:1] if known.exists() else ())}
    git = partial(run_git, cwd=folder, variables={"GIT_DIR": str(folder)}, timeout=LONGEST)
    listed = git("cat-file", "--batch-check", stdin=_lines(trees)).decode().splitlines()
    there = [line.split()[0] for line in listed if not line.endswith("missing")]
    reached = ("rev-list", "--objects", "--indexed-objects", "--missing=allow-any", "--stdin")
    used = {line.split(b" ", 1)[0].decode() for line in git(*reached, stdin=_lines(there)).splitlines()}
    for file in (folder / "objects").glob("??/*"):
        if file.parent.name + file.name not in used:
            file.unlink()


def _lines(trees: Iterable[str]) -> bytes:
    return "".join(f"{tree}\n" for tree in sorted(trees)).encode()


def _hash(tree: str) -> str:
    return tree.partition(":")[2]


def _entry(mode: bytes, blob: bytes) -> FileEntry | None:
    return None if mode == b"000000" else FileEntry(int(mode, 8), blob.decode())


def _number(text: bytes) -> int | None:
    return None if text == b"-" else int(text)
