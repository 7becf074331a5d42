"""A tree of git with few changes, made from the tree before: the cost follows from the changes alone.

`git update-index` and `git write-tree` read and write the whole index, which in a large repository takes longer than
to find the changes. Here the changed files are hashed and the trees above them are written anew, in four small
commands; the index stays as it is. Everything out of the ordinary (links, submodules, odd names, many or large files)
is left to these two commands.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from windlass.workspaces.git import GitFailed

__all__ = ["changed_tree"]

MOST_FILES, MOST_BYTES = 200, 8 * 1024 * 1024
_TREE = b"040000"


class _TreeEntry(NamedTuple):
    mode: bytes
    id: bytes


Folders = dict[bytes, dict[bytes, _TreeEntry]]
"""Entries of folders, by the path of each; that of the top is empty."""


def changed_tree(
    git: Callable[..., bytes], root: Path, before: str, names: Iterable[bytes], hash_of: Callable[[bytes, bytes], str]
) -> str:
    """The tree of the files now, if only these paths differ from the tree `before`; empty if that is not simple.

    `hash_of` gives the id of an object by its kind and content. Every id is compared with that of git.
    """
    modes = _modes(root, names)
    if modes is None:
        return ""
    there = [name for name, mode in modes.items() if mode]
    try:
        listed = git("hash-object", "-w", "--no-filters", "--stdin-paths", stdin=b"\n".join([*there, b""])).split()
        folders = _folders(git, before, modes)
    except GitFailed as error:
        if error.code is None:
            raise
        return ""
    ids = dict(zip(there, listed, strict=True))
    for name, mode in modes.items():
        folder, _, base = name.rpartition(b"/")
        if mode:
            folders[folder][base] = _TreeEntry(mode, ids[name])
        else:
            folders[folder].pop(base, None)
    return _written(git, folders, hash_of)


def _modes(root: Path, names: Iterable[bytes]) -> dict[bytes, bytes] | None:
    """The mode of each path, empty where there is nothing; None if one is out of the ordinary."""
    found: dict[bytes, bytes] = {}
    plain: set[bytes] = {b""}
    left = MOST_BYTES
    top = os.fsencode(root)
    for name in names:
        parent = name.rpartition(b"/")[0]
        if len(found) == MOST_FILES or b"\n" in name or name.startswith(b'"') or name.endswith(b"/"):
            return None
        if not _is_plain(top, parent, plain):
            return None
        try:
            facts = os.lstat(os.path.join(top, name))
        except (FileNotFoundError, NotADirectoryError):
            found[name] = b""
            continue
        left -= facts.st_size
        if not stat.S_ISREG(facts.st_mode) or left < 0:
            return None
        found[name] = b"100755" if facts.st_mode & stat.S_IXUSR else b"100644"
    return found


def _is_plain(top: bytes, folder: bytes, plain: set[bytes]) -> bool:
    """True if no link is on the way to a folder. One that is gone, or that is a file now, is no link."""
    if folder in plain:
        return True
    if not _is_plain(top, folder.rpartition(b"/")[0], plain) or os.path.islink(os.path.join(top, folder)):
        return False
    plain.add(folder)
    return True


def _folders(git: Callable[..., bytes], tree: str, names: Iterable[bytes]) -> Folders:
    """The entries of all folders above these paths, as they are in the tree."""
    found: Folders = {b"": {}}
    for name in names:
        parts = name.split(b"/")
        for depth in range(1, len(parts)):
            found[b"/".join(parts[:depth])] = {}
    inner = [b"%s/" % folder for folder in found if folder]
    listed = git("ls-tree", "--full-tree", "-z", tree)
    if inner:
        paths = [os.fsdecode(folder) for folder in inner]
        listed += git("ls-tree", "--full-tree", "-z", "-t", tree, "--", *paths)
    for line in filter(None, listed.split(b"\0")):
        facts, _, path = line.partition(b"\t")
        mode, _kind, id = facts.split()
        folder, _, base = path.rpartition(b"/")
        if folder in found:
            found[folder][base] = _TreeEntry(mode, id)
    return found


def _written(git: Callable[..., bytes], folders: Folders, hash_of: Callable[[bytes, bytes], str]) -> str:
    """Write the trees, the deepest first; gives that of the top."""
    ids: list[bytes] = []
    asked: list[bytes] = []
    for folder in sorted(folders, key=lambda path: path.count(b"/") if path else -1, reverse=True):
        entries = folders[folder]
        above, _, base = folder.rpartition(b"/")
        if not entries:
            if folder and folders[above].get(base, _TreeEntry(b"", b"")).mode == _TREE:
                del folders[above][base]
            continue
        ordered = sorted(entries.items(), key=lambda pair: pair[0] + b"/" * (pair[1].mode == _TREE))
        raw = b"".join(b"%s %s\0%s" % (e.mode.lstrip(b"0"), name, bytes.fromhex(e.id.decode())) for name, e in ordered)
        ids.append(hash_of(b"tree", raw).encode())
        asked += [b"%s %s %s\t%s\0" % (e.mode, _kind(e.mode), e.id, name) for name, e in ordered]
        asked.append(b"\0")
        if folder:
            folders[above][base] = _TreeEntry(_TREE, ids[-1])
    if not folders[b""]:
        return ""
    made = git("mktree", "-z", "--batch", "--missing", stdin=b"".join(asked)).split()
    return ids[-1].decode() if made == ids else ""


def _kind(mode: bytes) -> bytes:
    return {_TREE: b"tree", b"160000": b"commit"}.get(mode, b"blob")
