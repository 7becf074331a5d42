"""Reads a unified diff, as `diff -u` and `git diff` write it, into the changes of each file.

Lines are bytes with their line ending, as they stand in files. Text around a diff (a letter, a commit message) is
passed over; a broken diff is an error that names the line.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from windlass.errors import Category, ToolError
from windlass.tools.files.failures import shown

__all__ = ["FileDiff", "Hunk", "read_diff"]

MOST_FILES = 1000
_HUNK = re.compile(r"@@ -(\d{1,9})(?:,(\d{1,9}))? \+(\d{1,9})(?:,(\d{1,9}))? @@")
_BINARY = ("GIT binary patch", "Binary files ")


@dataclass(frozen=True, slots=True)
class Hunk:
    start: int
    """The line of the old file it says it begins at, from 1; 0 is before the first."""
    old: list[bytes]
    """Lines that must be there."""
    new: list[bytes]
    """Lines that replace them."""
    lead: int
    """Lines at the beginning that are the same in both."""
    trail: int

    @property
    def added(self) -> int:
        return len(self.new) - self.lead - self.trail


@dataclass(slots=True)
class FileDiff:
    old: str | None = None
    """Its path before; None when it is made."""
    new: str | None = None
    """Its path after; None when it is deleted."""
    hunks: list[Hunk] = field(default_factory=list)
    executable: bool | None = None
    """True makes it executable, False not; None leaves that as it is."""
    copied: bool = False
    """The old one stays."""

    @property
    def path(self) -> str:
        return self.new if self.new is not None else self.old or ""


def broken(number: int, why: str) -> ToolError:
    return ToolError(
        f"the patch is broken at its line {number}: {why}",
        category=Category.CONFIGURATION,
        advice=("create it again with diff -u or git diff; its lines must not be wrapped or indented",),
    )


class _Lines:
    """The lines of the patch, with the number of the next one."""

    def __init__(self, text: str) -> None:
        lines = text.split("\n")
        if lines and lines[-1] == "":
            lines.pop()
        if lines and all(line.endswith("\r") for line in lines):
            lines = [line[:-1] for line in lines]  # the patch came by way of Windows; what it says of files did not
        self.lines, self.at = lines, 0

    @property
    def number(self) -> int:
        return self.at + 1

    def peek(self) -> str | None:
        return self.lines[self.at] if self.at < len(self.lines) else None

    def take(self) -> str:
        self.at += 1
        return self.lines[self.at - 1]


def read_diff(text: str, strip: int | None) -> list[FileDiff]:
    """All files of a diff. `strip` folders are taken off every name; None is one where git's `a/` and `b/` stand."""
    lines = _Lines(text)
    found = list(_files(lines, strip))
    if not found:
        raise ToolError(
            "there is no change in the patch: it has no line that begins with ---",
            category=Category.CONFIGURATION,
            advice=("a patch has --- OLD, +++ NEW and @@ -1,3 +1,4 @@ before the lines",),
        )
    if len(found) > MOST_FILES:
        raise ToolError(f"the patch changes {len(found)} files; the limit is {MOST_FILES}", category=Category.RESOURCE)
    return found


def _files(lines: _Lines, strip: int | None) -> Iterator[FileDiff]:
    while (line := lines.peek()) is not None:
        if line.startswith("diff --git "):
            yield _git(lines, strip)
        elif line.startswith(_BINARY):
            raise _binary(line)
        elif line.startswith("@@ -"):
            raise broken(lines.number, "a hunk without --- and +++ before it")
        elif line.startswith("--- ") and lines.at + 1 < len(lines.lines) and lines.lines[lines.at + 1][:4] == "+++ ":
            diff = FileDiff()
            _names(lines, strip, diff)
            _hunks(lines, diff)
            yield diff
        else:
            lines.take()


def _binary(line: str) -> ToolError:
    return ToolError(
        f"the patch has a binary file in it ({shown(line)})",
        category=Category.CONFIGURATION,
        advice=("leave it out of the patch, and write that file with files.write and encoding: base64",),
    )


def _git(lines: _Lines, strip: int | None) -> FileDiff:
    number = lines.number
    diff = FileDiff(*names_of_git(lines.take().removeprefix("diff --git ").rstrip("\r"), strip))
    while (line := lines.peek()) is not None and not line.startswith(("diff --git ", "@@ -")):
        word, value = _header(line.rstrip("\r"))
        if word == "--- ":
            _names(lines, strip, diff)
            break
        if line.startswith(_BINARY):
            raise _binary(line)
        if not word:
            break
        lines.take()
        match word:
            case "new file mode " | "new mode ":
                diff.executable = _executable(value, number)
                diff.old = None if word == "new file mode " else diff.old
            case "deleted file mode ":
                _executable(value, number)
                diff.new = None
            case "rename from " | "copy from ":
                diff.old, diff.copied = name_in(value, 0), word.startswith("copy")
            case "rename to " | "copy to ":
                diff.new = name_in(value, 0)
    _hunks(lines, diff)
    if not diff.path:
        raise broken(number, "its two file names cannot be separated")
    return diff


_HEADERS = (
    "--- ", "index ", "old mode ", "new mode ", "new file mode ", "deleted file mode ", "similarity index ",
    "dissimilarity index ", "rename from ", "rename to ", "copy from ", "copy to ",
)  # fmt: skip


def _header(line: str) -> tuple[str, str]:
    word = next((word for word in _HEADERS if line.startswith(word)), "")
    return word, line.removeprefix(word)


def _executable(mode: str, number: int) -> bool:
    if mode not in ("100644", "100755", "100664"):
        raise broken(number, f"mode {shown(mode)} is of a link or a submodule, which are not patched here")
    return mode == "100755"


def _names(lines: _Lines, strip: int | None, diff: FileDiff) -> None:
    """`--- OLD` and `+++ NEW`."""
    number = lines.number
    old, new = lines.take()[4:].rstrip("\r"), (lines.peek() or "").rstrip("\r")
    if not new.startswith("+++ "):
        raise broken(lines.number, "+++ is missing after ---")
    lines.take()
    new = new[4:]
    if is_nothing(old) and is_nothing(new):
        raise broken(number, "it is of no file: /dev/null on both sides")
    if strip is None:
        git = (is_nothing(old) or old.lstrip('"').startswith("a/")) and (
            is_nothing(new) or new.lstrip('"').startswith("b/")
        )
        strip = 1 if git else 0
    diff.old = None if is_nothing(old) else name_in(old, strip)
    diff.new = None if is_nothing(new) else name_in(new, strip)
    if diff.old is not None and diff.new is not None and diff.old != diff.new and diff.old == f"{diff.new}.orig":
        diff.old = diff.new  # diff -u FILE.orig FILE


def _hunks(lines: _Lines, diff: FileDiff) -> None:
    end = 0
    while (line := lines.peek()) is not None and line.startswith("@@"):
        number = lines.number
        head = _HUNK.match(line)
        if head is None:
            raise broken(number, f"{shown(line)} is not the head of a hunk")
        lines.take()
        start, old, new = int(head[1]), int(head[2] or 1), int(head[4] or 1)
        if start < end:
            raise broken(number, "hunks must stand in the order of the file, and not overlap")
        end = start + old
        diff.hunks.append(_hunk(lines, number, start, old, new))


def _hunk(lines: _Lines, number: int, start: int, old: int, new: int) -> Hunk:
    kinds, olds, news = "", list[bytes](), list[bytes]()
    while len(olds) < old or len(news) < new or (lines.peek() or "").startswith("\\ "):
        line = lines.peek()
        if line is None or (line[:1] not in " +-\\" and line not in ("", "\r")):
            said = f"{old} old and {new} new lines, but {len(olds)} and {len(news)} follow"
            raise broken(lines.number, f"the hunk at line {number} says {said}")
        lines.take()
        kind, data = line[:1] or " ", (line[1:] + "\n").encode()
        if line == "\r":
            kind, data = " ", b"\r\n"  # an empty line whose space an editor took away
        if kind == "\\":
            _no_newline(kinds, olds, news)
            continue
        kinds += kind
        if kind != "+":
            olds.append(data)
        if kind != "-":
            news.append(data)
    if len(olds) != old or len(news) != new:
        raise broken(number, f"the hunk says {old} old and {new} new lines, but has {len(olds)} and {len(news)}")
    lead = len(kinds) - len(kinds.lstrip(" "))
    trail = 0 if lead == len(kinds) else len(kinds) - len(kinds.rstrip(" "))
    return Hunk(start, olds, news, lead, trail)


def _no_newline(kinds: str, olds: list[bytes], news: list[bytes]) -> None:
    """`\\ No newline at end of file`: the line before has none."""
    if olds and kinds[-1:] in (" ", "-"):
        olds[-1] = olds[-1].removesuffix(b"\n")
    if news and kinds[-1:] in (" ", "+"):
        news[-1] = news[-1].removesuffix(b"\n")


_ESCAPE = re.compile(rb"\\([0-7]{3}|.)", re.DOTALL)
_PLAIN = {b"a": b"\a", b"b": b"\b", b"t": b"\t", b"n": b"\n", b"v": b"\v", b"f": b"\f", b"r": b"\r"}


def is_nothing(text: str) -> bool:
    """Tell if it stands for a file that is not there."""
    return _bare(text) == "/dev/null"


def name_in(text: str, strip: int) -> str:
    """The name, without so many folders at its beginning; as it is when it has no more than these."""
    name = _bare(text)
    for _ in range(strip):
        name = name.partition("/")[2] or name
    return name


def names_of_git(text: str, strip: int | None) -> tuple[str | None, str | None]:
    """The two names in `diff --git a/x b/x`. They are the same, or the lines below say what they are."""
    strip = 1 if strip is None else strip
    if text.startswith('"'):
        first, _, second = text[1:].partition('" ')
        return name_in(f'"{first}"', strip), name_in(second, strip)
    middle = len(text) // 2
    if text[middle : middle + 1] == " " and name_in(text[:middle], 1) == name_in(text[middle + 1 :], 1):
        return name_in(text[:middle], strip), name_in(text[middle + 1 :], strip)
    first, _, second = text.partition(" ")
    return name_in(first, strip), name_in(second, strip)


def _bare(text: str) -> str:
    """Without the time that `diff -u` puts behind a tab, and without git's quotes."""
    if not text.startswith('"'):
        return text.partition("\t")[0].rstrip()
    quoted = text[1:].rpartition('"')[0].encode("utf-8", "surrogatepass")
    return _ESCAPE.sub(_unescaped, quoted).decode("utf-8", "backslashreplace")


def _unescaped(found: re.Match[bytes]) -> bytes:
    code = found[1]
    if len(code) == 3:
        return bytes([int(code, 8) & 0xFF])
    return _PLAIN.get(code, code)
