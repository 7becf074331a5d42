"""`files.patch`: a unified diff over any number of files, all of it or nothing.

Everything is worked out in memory first: every hunk must fit, every file must be there (or must not), before the
first one is changed. Then the changes are made through the undo log, as those of every other tool.

A hunk may stand elsewhere than it says, if its lines do so exactly: the nearest such place is taken, behind the hunk
before it. With `fuzz`, the outermost lines of context may differ. A file with Windows line endings throughout keeps
them, however the patch is written, and one with a byte order mark keeps that, unless the patch has the mark, too.
"""

from __future__ import annotations

import codecs
import hashlib
import os
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from windlass.errors import Category, ToolError
from windlass.tools.files.diff_text import FileDiff, Hunk, read_diff
from windlass.tools.files.failures import Missing, shown, unusable
from windlass.tools.files.look import regular
from windlass.tools.files.models import Patch
from windlass.tools.files.operations import make_parents, replace_content
from windlass.tools.files.place import read_chunks, readable
from windlass.tools.files.preflight import PathTarget, Preflight
from windlass.tools.files.safe_path import Root, names_in
from windlass.tools.files.undo import Undo

__all__ = ["fit", "patch"]

LARGEST, LARGEST_TOGETHER = 16 << 20, 64 << 20


@dataclass(slots=True)
class _PatchedFile:
    """A file as the patch has it so far."""

    path: str
    """Its path, without links."""
    given: str
    """A path in the patch that leads to it."""
    found: os.stat_result | None
    """The file's status when it was read; None when there was no file."""
    data: bytes | None
    """Its content; None when there is, or will be, no such file."""
    mode: int | None = None
    """Its permissions from here on, when the patch says something about them."""


def patch(root: Root, undo: Undo, arguments: Patch) -> dict[str, Any]:
    files: dict[str, _PatchedFile] = {}
    results = []
    for diff in read_diff(arguments.patch, arguments.strip):
        undo.check()
        results.append(_work_out(root, undo, diff, arguments.fuzz, files))
    changed = [file for file in files.values() if file.found is not None or file.data is not None]
    checks = Preflight(root, undo.floor)
    checks.all([PathTarget(file.given, len(file.data or b""), content=file.data is not None) for file in changed])
    # Removals go first: a folder may come where a file was.
    for file in sorted(changed, key=lambda file: file.data is not None):
        _make_it_so(root, undo, file)
    return {"files": results}


def _work_out(root: Root, undo: Undo, diff: FileDiff, fuzz: int, files: dict[str, _PatchedFile]) -> dict[str, Any]:
    """Apply a diff to its file in memory; return what the result says of it."""
    old = _read(root, undo, diff.old, files) if diff.old is not None else None
    new = old if diff.new == diff.old else _read(root, undo, diff.new, files) if diff.new is not None else None
    if old is not None and old.data is None:
        with root.locate(old.given) as place:
            raise Missing(diff.old or "", place.name, names_in(place.fd))
    if new is not None and new is not old and new.data is not None:
        raise unusable(diff.path, "already exists, and the patch would create it", "delete it, or correct the patch")
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


def _read(root: Root, undo: Undo, path: str | None, files: dict[str, _PatchedFile]) -> _PatchedFile:
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
    return files.setdefault(name, _PatchedFile(name, path or "", found, data))


def _bound(name: str, size: int, files: dict[str, _PatchedFile]) -> None:
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


def _mode(file: _PatchedFile, executable: bool | None) -> int | None:
    if executable is None or (file.found is None and file.mode is None and not executable):
        return file.mode
    mode = file.mode
    if mode is None:
        mode = stat.S_IMODE(file.found.st_mode) & 0o777 if file.found is not None else 0o644
    return mode | (mode & 0o444) >> 2 if executable else mode & ~0o111


def _said(diff: FileDiff, old: _PatchedFile | None, new: _PatchedFile | None, fitted: Fitted) -> dict[str, Any]:
    change = "deleted" if new is None else "created" if old is None else "modified"
    if old is not None and new is not None and old is not new:
        change = "copied" if diff.copied else "renamed"
    return {
        "path": readable((new or old or _PatchedFile("", "", None, None)).path),
        "change": change,
        "from": readable(old.path) if old is not None and change in ("copied", "renamed") else None,
        "hunks": len(diff.hunks),
        "offset": fitted.offset,
        "fuzz": fitted.fuzz,
        "bytes": len(fitted.data) if new is not None else 0,
        "sha256": hashlib.sha256(fitted.data).hexdigest() if new is not None else None,
    }


def _make_it_so(root: Root, undo: Undo, file: _PatchedFile) -> None:
    if file.data is not None:
        make_parents(root, undo, file.given)
    with root.locate(file.given) as place:
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


@dataclass(frozen=True, slots=True)
class Fitted:
    data: bytes
    """The new content."""
    offset: int
    """The farthest that a hunk stood from where it said."""
    fuzz: int
    """The most lines of context that a hunk went without."""


def fit(diff: FileDiff, data: bytes, fuzz: int, check: Callable[[], None]) -> Fitted:
    """Put all hunks in place; ToolError names the first that does not fit, and the lines found there."""
    mark = codecs.BOM_UTF8
    if data.startswith(mark) and not any(hunk.old[:1] and hunk.old[0].startswith(mark) for hunk in diff.hunks):
        fitted = fit(diff, data.removeprefix(mark), fuzz, check)
        return replace(fitted, data=mark + fitted.data) if fitted.data else fitted
    lines = data.splitlines(keepends=True) if b"\r" not in data else _split(data)
    windows = b"\r\n" in data and data.count(b"\n") == data.count(b"\r\n")
    result: list[bytes] = []
    done, shift, farthest, loosest = 0, 0, 0, 0
    for number, written in enumerate(diff.hunks, 1):
        check()
        hunk = _with_carriage_returns(written) if windows else written
        # A hunk without old lines says behind which line it goes; any other says at which it begins.
        said = hunk.start - 1 if hunk.old else hunk.start
        for loose in range(fuzz + 1):
            found = _place(lines, hunk, loose, done, said + shift, check)
            if found is not None:
                break
        else:
            raise _misfit(diff, number, hunk, lines, max(done, min(said + shift, len(lines))))
        lead, trail = _loosened(hunk, loose)
        result += lines[done:found]
        result += hunk.new[lead : len(hunk.new) - trail]
        done = found + len(hunk.old) - lead - trail
        shift = found - lead - said
        farthest, loosest = max(farthest, abs(shift)), max(loosest, loose)
    return Fitted(b"".join([*result, *lines[done:]]), farthest, loosest)


def _split(data: bytes) -> list[bytes]:
    """Lines end with \\n alone: a lone \\r is a character like any other."""
    lines = [line + b"\n" for line in data.split(b"\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines


def _with_carriage_returns(hunk: Hunk) -> Hunk:
    def ended(lines: list[bytes]) -> list[bytes]:
        return [line[:-1] + b"\r\n" if line.endswith(b"\n") and not line.endswith(b"\r\n") else line for line in lines]

    return Hunk(hunk.start, ended(hunk.old), ended(hunk.new), hunk.lead, hunk.trail)


def _loosened(hunk: Hunk, loose: int) -> tuple[int, int]:
    """Lines of context that are left out at both ends."""
    return min(loose, hunk.lead), min(loose, hunk.trail)


def _place(lines: list[bytes], hunk: Hunk, loose: int, after: int, near: int, check: Callable[[], None]) -> int | None:
    """The line where the hunk's old lines stand (without those left out): the nearest one, or None."""
    lead, trail = _loosened(hunk, loose)
    wanted = hunk.old[lead : len(hunk.old) - trail]
    near += lead
    last = len(lines) - len(wanted)
    if not wanted:
        return near if loose == 0 and after <= near <= last else None
    if after <= near <= last and lines[near : near + len(wanted)] == wanted:
        return near
    best: int | None = None
    for at in _occurrences(lines, wanted[0], after):
        if best is not None and at - near >= abs(best - near):
            break
        if at % 1000 == 0:
            check()
        if lines[at : at + len(wanted)] == wanted and (best is None or abs(at - near) < abs(best - near)):
            best = at
    return best


def _occurrences(lines: list[bytes], line: bytes, after: int) -> Sequence[int]:
    return [at for at in range(after, len(lines)) if lines[at] == line]


def _misfit(diff: FileDiff, number: int, hunk: Hunk, lines: list[bytes], near: int) -> ToolError:
    path = diff.old or diff.path
    what = f"hunk {number} of {len(diff.hunks)} of {shown(path)} (at line {hunk.start}) does not fit"
    advice = ("read the file again and make the patch from what is there, spaces included",)
    gone = [line for line in hunk.new if line not in hunk.old]
    if gone and any(lines[at : at + len(hunk.new)] == hunk.new for at in _occurrences(lines, hunk.new[0], 0)):
        return ToolError(
            f"{what}: the file already has its result",
            category=Category.CONFIGURATION,
            advice=("leave it out: it seems to have been applied before",),
        )
    if not hunk.old:
        return ToolError(
            f"{what}: it goes behind line {hunk.start}, but the file ends after line {len(lines)}",
            category=Category.CONFIGURATION,
            advice=advice,
        )
    at = _most_alike(lines, hunk.old, near)
    for offset, wanted in enumerate(hunk.old):
        there = lines[at + offset] if at + offset < len(lines) else None
        if there != wanted:
            stands = f"it is {_text(there)}" if there is not None else f"the file ends after line {len(lines)}"
            return ToolError(
                f"{what}: line {at + offset + 1} should be {_text(wanted)}, but {stands}",
                category=Category.CONFIGURATION,
                advice=advice,
            )
    return ToolError(
        f"{what}: it comes before the place of another hunk", category=Category.CONFIGURATION, advice=advice
    )


def _most_alike(lines: list[bytes], wanted: list[bytes], near: int) -> int:
    """The place where the most lines of a hunk match: the most helpful one to show."""

    def alike(at: int) -> int:
        return sum(there == line for there, line in zip(lines[at : at + len(wanted)], wanted, strict=False))

    starts = {near}
    for offset, line in enumerate(wanted[:20]):
        if line.strip():
            starts.update(at - offset for at in _occurrences(lines, line, offset)[:20])
    return max(sorted(starts), key=lambda at: (alike(at), -abs(at - near)))


def _text(line: bytes) -> str:
    """A line for a message; one without a line ending says so."""
    text = line.decode("utf-8", "backslashreplace")
    return shown(text.removesuffix("\n")) + ("" if text.endswith("\n") else " without a line ending")
