"""Fits the hunks of a diff to a file's lines: exactly, or with `fuzz` without the outermost lines of context.

A hunk may stand elsewhere than it says, if its lines do so exactly: the nearest such place is taken, behind the hunk
before it. A file with Windows line endings throughout keeps them, however the patch is written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from windlass.errors import Category, ToolError
from windlass.tools.files.diff_text import FileDiff, Hunk
from windlass.tools.files.failures import shown

__all__ = ["Fitted", "fit"]


@dataclass(frozen=True, slots=True)
class Fitted:
    data: bytes
    """The new content."""
    offset: int
    """The farthest that a hunk stood from where it said."""
    fuzz: int
    """The most lines of context that a hunk went without."""


def fit(diff: FileDiff, data: bytes, fuzz: int, check: Callable[[], None]) -> Fitted:
    """The content with all hunks in place; ToolError names the first that does not fit, and what stands there."""
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
    """How many lines of context are left out at both ends."""
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
            f"{what}: what it would make of the file stands there already",
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
            stands = f"{_text(there)} stands there" if there is not None else f"the file ends after line {len(lines)}"
            return ToolError(
                f"{what}: line {at + offset + 1} should be {_text(wanted)}, but {stands}",
                category=Category.CONFIGURATION,
                advice=advice,
            )
    return ToolError(
        f"{what}: it comes before the place of another hunk", category=Category.CONFIGURATION, advice=advice
    )


def _most_alike(lines: list[bytes], wanted: list[bytes], near: int) -> int:
    """Where the most lines of a hunk stand as they should: what is said there helps most."""

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
