"""`files.patch`: a unified diff over any number of files, all of it or nothing.

Everything is worked out in memory first: every hunk must fit, every file must be there (or must not), before the
first one is changed. Then the changes are made through the undo log, as those of every other tool.
"""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from typing import Any

from windlass.errors import Category, ToolError
from windlass.tools.files.ahead import Survey, Target
from windlass.tools.files.arguments import Patch
from windlass.tools.files.change import make_parents, replace_content
from windlass.tools.files.diff_text import FileDiff, read_diff
from windlass.tools.files.failures import Missing, shown, unusable
from windlass.tools.files.fitting import Fitted, fit
from windlass.tools.files.look import regular
from windlass.tools.files.place import read_chunks
from windlass.tools.files.safe_path import Root, names_in
from windlass.tools.files.undo import Undo

__all__ = ["patch"]


LARGEST, LARGEST_TOGETHER = 16 << 20, 64 << 20


@dataclass(slots=True)
class _File:
    """A file as the patch has it so far."""

    path: str
    found: os.stat_result | None
    """What was there when it was read."""
    data: bytes | None
    """Its content; None when there is, or will be, no such file."""
    mode: int | None = None
    """Its permissions from here on, when the patch says something about them."""


def patch(root: Root, undo: Undo, arguments: Patch) -> dict[str, Any]:
    files: dict[str, _File] = {}
    results = []
    for diff in read_diff(arguments.patch, arguments.strip):
        undo.check()
        results.append(_work_out(root, undo, diff, arguments.fuzz, files))
    changed = [file for file in files.values() if file.found is not None or file.data is not None]
    survey = Survey(root, undo.floor)
    survey.all([Target(file.path, len(file.data or b""), content=file.data is not None) for file in changed])
    # What goes away goes first: a folder may come where a file was.
    for file in sorted(changed, key=lambda file: file.data is not None):
        _make_it_so(root, undo, file)
    return {"files": results}


def _work_out(root: Root, undo: Undo, diff: FileDiff, fuzz: int, files: dict[str, _File]) -> dict[str, Any]:
    """What a diff makes of its file, and what is to be said of it."""
    old = _read(root, undo, diff.old, files) if diff.old is not None else None
    new = old if diff.new == diff.old else _read(root, undo, diff.new, files) if diff.new is not None else None
    if old is not None and old.data is None:
        with root.locate(old.path) as place:
            raise Missing(diff.old or "", place.name, names_in(place.fd))
    if new is not None and new is not old and new.data is not None:
        raise unusable(diff.path, "is there already, and the patch would make it", "delete it, or correct the patch")
    before = old.data or b"" if old is not None else b""
    fitted = fit(diff, before, fuzz, undo.check)
    if new is None and fitted.data:
        left = fitted.data.count(b"\n") or 1
        raise unusable(diff.path, f"has {left} lines more than the patch deletes", "read it again, or use files.delete")
    if old is not None and old is not new and not diff.copied:
        old.data = None
    if new is not None:
        new.data = fitted.data
        if old is not None and old is not new and old.found is not None:
            new.mode = stat.S_IMODE(old.found.st_mode) & 0o777
        new.mode = _mode(new, diff.executable)
    return _said(diff, old, new, fitted)


def _read(root: Root, undo: Undo, path: str | None, files: dict[str, _File]) -> _File:
    name = "/".join(root.parts(path or ""))
    if name in files:
        return files[name]
    found: os.stat_result | None = None
    data: bytes | None = None
    try:
        with root.locate(path or "") as place:
            name = place.path  # behind a link, its target
            found = regular(place, path or "")
            if found is not None and name not in files:
                _bound(name, found.st_size, files)
                data = b"".join(read_chunks(place, undo.check))
                undo.approved.check_content(name, data)
    except Missing:
        """Not even its folder is there."""
    return files.setdefault(name, _File(name, found, data))


def _bound(name: str, size: int, files: dict[str, _File]) -> None:
    """All of it is held in memory, and that of one file line by line."""
    read = sum(len(file.data or b"") for file in files.values())
    if size > LARGEST or read + size > LARGEST_TOGETHER:
        raise ToolError(
            f"{shown(name)} is too large to patch: {size >> 20} MiB, besides {read >> 20} MiB of other files",
            category=Category.RESOURCE,
            advice=(
                f"files up to {LARGEST >> 20} MiB can be patched, {LARGEST_TOGETHER >> 20} MiB together",
                "for a larger one, use a shell step",
            ),
        )


def _mode(file: _File, executable: bool | None) -> int | None:
    if executable is None or (file.found is None and file.mode is None and not executable):
        return file.mode
    mode = file.mode
    if mode is None:
        mode = stat.S_IMODE(file.found.st_mode) & 0o777 if file.found is not None else 0o644
    return mode | (mode & 0o444) >> 2 if executable else mode & ~0o111


def _said(diff: FileDiff, old: _File | None, new: _File | None, fitted: Fitted) -> dict[str, Any]:
    change = "deleted" if new is None else "created" if old is None else "modified"
    if old is not None and new is not None and old is not new:
        change = "copied" if diff.copied else "renamed"
    return {
        "path": (new or old or _File("", None, None)).path,
        "change": change,
        "from": old.path if old is not None and change in ("copied", "renamed") else None,
        "hunks": len(diff.hunks),
        "offset": fitted.offset,
        "fuzz": fitted.fuzz,
        "bytes": len(fitted.data) if new is not None else 0,
        "sha256": hashlib.sha256(fitted.data).hexdigest() if new is not None else None,
    }


def _make_it_so(root: Root, undo: Undo, file: _File) -> None:
    if file.data is not None:
        make_parents(root, undo, file.path)
    with root.locate(file.path, follow=file.data is not None) as place:
        now = place.stat()
        if _stamp(now) != _stamp(file.found):
            raise ToolError(
                f"{shown(file.path)} was changed while the patch was being worked out",
                category=Category.TRANSIENT,
                advice=("try again",),
            )
        if file.data is None:
            undo.remove(place)
        else:
            replace_content(undo, place, now, [file.data], len(file.data), file.mode)


def _stamp(found: os.stat_result | None) -> tuple[int, int, int] | None:
    return (found.st_ino, found.st_size, found.st_mtime_ns) if found is not None else None
