"""The files that a step gives to its agent: found, read, and cut to the room in a prompt.

An entry is a path or a pattern, relative to the working directory. It stays inside; an absolute path that the user
wrote may lead elsewhere. Links that leave are refused with a note. What is missing is a `Problem`, because the step
was written to have it; what is too long, binary or not UTF-8 is a note, because the agent can go on with the rest.
Images and PDF documents are attached to the prompt, or only named to an agent whose own tool opens them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from windlass.agents.reading import Piece, UnreadableFile, read_ends, read_head, shown_path
from windlass.errors import Problem
from windlass.globs import MAX_MATCHES, is_pattern, match_files, split_pattern
from windlass.homes import is_in_home
from windlass.plan.schema import nearest
from windlass.ports import Media, PromptAttachment

__all__ = ["MAX_ALL", "MAX_FILE", "Context", "ContextFile", "gather"]

MAX_FILE = 256 * 1024
"""Bytes of one file that go into a prompt."""
MAX_ALL = 1024 * 1024
"""Bytes of all files together."""
_LEAST = 1024
"""A piece of a file shorter than this helps nobody."""
_BINARY_PROBE = 8 * 1024
MAX_ATTACHED = 20_000_000
"""Bytes of all attachments: providers take 32 MB in a request, in which four bytes stand for three."""


class _MediaKind(NamedTuple):
    first_bytes: bytes
    name: str
    type: str
    most: int
    """Bytes that models take of one."""


_MEDIA = (
    _MediaKind(b"\x89PNG\r\n\x1a\n", "PNG image", "image/png", 5_000_000),
    _MediaKind(b"\xff\xd8\xff", "JPEG image", "image/jpeg", 5_000_000),
    _MediaKind(b"GIF8", "GIF image", "image/gif", 5_000_000),
    _MediaKind(b"%PDF-", "PDF document", "application/pdf", 32_000_000),
)
_NAMED = 100
"""Files without room that are still named."""
_MOST_NAMES = 2_000


class ContextFile(NamedTuple):
    path: str
    """As the agent can open it: relative to the working directory, where it lies in it."""
    text: str


class Context(NamedTuple):
    files: tuple[ContextFile, ...] = ()
    without_room: tuple[str, ...] = ()
    """Files that are named to the agent and not shown."""
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    attachments: tuple[PromptAttachment, ...] = ()


def gather(
    entries: Iterable[str],
    workdir: Path,
    *,
    allow_absolute: bool = True,
    media: Media = "",
    room: int | None = None,
) -> Context:
    """The contents of these files, each once, in the order of the entries. `room`: bytes that the model's window has
    for all of them, where it is known. `media`: how the model comes to see images and PDF documents."""
    finder = _Finder(workdir, allow_absolute)
    for entry in entries:
        finder.add(entry)
    files: list[ContextFile] = []
    left: list[str] = []
    notes = finder.notes
    pictures = _MediaReader(media, notes)
    most = left_over = MAX_ALL if room is None else min(MAX_ALL, room)
    for shown, real in finder.found:
        limit = min(MAX_FILE, max(left_over, _LEAST))
        try:
            piece = read_ends(real, limit * 3 // 4, limit - limit * 3 // 4)
        except UnreadableFile as error:
            finder.problems.append(Problem(f"the file {shown} cannot be read: {error.why}"))
            continue
        picture = pictures.add(piece, shown, real)
        if not picture and not _is_binary(piece):
            if left_over < _LEAST:
                left.append(shown)
                continue
            left_over -= len(piece.head) + len(piece.tail)
        files.append(ContextFile(shown, picture or _text(piece, shown, notes)))
    if left:
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        shown = ", ".join(left[:3])
        notes.append(f"{shown}{more} left out: all files together may have {most // 1024} KiB")
    problems, attachments = tuple(finder.problems), tuple(pictures.attachments)
    return Context(tuple(files), tuple(_abridged(left)), tuple(notes), problems, attachments)


def _abridged(names: list[str]) -> list[str]:
    return names if len(names) <= _NAMED else [*names[:_NAMED], f"… and {len(names) - _NAMED} more"]


def _is_binary(piece: Piece) -> bool:
    return b"\0" in piece.head[:_BINARY_PROBE]


class _MediaReader:
    """Images and PDF documents among the files, known by their content, whatever their names."""

    def __init__(self, media: Media, notes: list[str]) -> None:
        self._media, self._notes = media, notes
        self.attachments: list[PromptAttachment] = []
        self._room = MAX_ATTACHED

    def add(self, piece: Piece, shown: str, real: str) -> str:
        """The words for the prompt; empty for any other file."""
        kind = next((kind for kind in _MEDIA if piece.head.startswith(kind.first_bytes)), None)
        if kind is None:
            return ""
        what = f"a {kind.name} of {piece.size:,} bytes"
        most = kind.most if self._media == "opens" else min(kind.most, MAX_ATTACHED)
        if not self._media:
            self._notes.append(f"{shown} is {what}: this runtime or model is given none, so it was left out")
        elif piece.size > most:
            self._notes.append(f"{shown} is {what}: at most {most // 1_000_000} MB are taken, so it was left out")
        elif self._media == "opens":
            return f"[{what}: open it with the tool that reads files]"
        elif piece.size > self._room:
            limit = MAX_ATTACHED // 1_000_000
            self._notes.append(f"{shown} is {what}: all attachments may have {limit} MB, so it was left out")
        elif (data := read_head(real, piece.size).head)[: len(kind.first_bytes)] == kind.first_bytes:
            self._room -= len(data)
            self.attachments.append(PromptAttachment(shown, kind.type, data))
            return f"[{what}: attached to this message]"
        return f"[{what}: not shown]"


def _text(piece: Piece, shown: str, notes: list[str]) -> str:
    if _is_binary(piece):
        notes.append(f"{shown} is binary ({piece.size:,} bytes), so its contents were not given to the agent")
        return f"[a binary file of {piece.size:,} bytes: not shown]"
    if not piece.left_out:
        return _decoded((piece.head,), shown, notes)[0]
    # Cut at line ends where there are some near, and never inside a character.
    head = piece.head[: piece.head.rfind(b"\n") + 1] or _whole_end(piece.head)
    tail = piece.tail[piece.tail.find(b"\n") + 1 :] if b"\n" in piece.tail[:-1] else _whole_start(piece.tail)
    left_out = piece.size - len(head) - len(tail)
    notes.append(f"{shown} has {piece.size:,} bytes: {left_out:,} from its middle were not given to the agent")
    mark = f"[… {left_out:,} of {piece.size:,} bytes are left out here …]\n"
    first, last = _decoded((head, tail), shown, notes)
    return first + ("" if first.endswith("\n") else "\n") + mark + last


def _whole_end(data: bytes) -> bytes:
    for back in range(1, min(4, len(data)) + 1):
        if data[-back] >= 0xC0:
            return data[:-back]
    return data


def _whole_start(data: bytes) -> bytes:
    start = next((i for i in range(min(4, len(data))) if data[i] & 0xC0 != 0x80), 0)
    return data[start:]


def _decoded(pieces: tuple[bytes, ...], shown: str, notes: list[str]) -> list[str]:
    try:
        return [data.decode("utf-8-sig") for data in pieces]
    except UnicodeDecodeError:
        notes.append(f"{shown} is not UTF-8 text: what could not be read was replaced by \ufffd")
        return [data.decode("utf-8-sig", "replace") for data in pieces]


class _Finder:
    """Entries to files, each file once."""

    def __init__(self, workdir: Path, allow_absolute: bool) -> None:
        self.workdir = Path(os.path.abspath(workdir))
        self.found: list[tuple[str, str]] = []
        self.notes: list[str] = []
        self.problems: list[Problem] = []
        self._allow_absolute = allow_absolute
        self._real_workdir = os.path.realpath(workdir)
        self._seen: set[str] = set()
        self._real_folders: dict[str, str] = {}
        self._state_folders: dict[str, bool] = {}

    def add(self, entry: str) -> None:
        if not entry.strip() or "\0" in entry:
            self.problems.append(Problem(f"{entry!r} is not a path"))
            return
        absolute = os.path.isabs(entry)
        if absolute and not self._allow_absolute:
            self.problems.append(Problem(f"{entry} is an absolute path that does not stand in the plan itself"))
            return
        path = os.path.normpath(self.workdir / entry)
        if not absolute and not self._within(path, str(self.workdir)):
            hint = f"write {path} if it is meant"
            self.problems.append(Problem(f"{entry} leaves the working directory", hint=hint))
        elif os.path.lexists(path):  # also a name like `[id].tsx`
            self._add_named(entry, path, free=absolute)
        elif is_pattern(entry):
            self._add_matches(entry, absolute)
        else:
            self.problems.append(Problem(f"there is no file {entry}", hint=self._meant(path)))

    def _add_named(self, entry: str, path: str, *, free: bool) -> None:
        if os.path.isdir(path):
            self.problems.append(Problem(f"{entry} is a folder", hint=f"{entry.rstrip('/')}/** means all its files"))
        elif not os.path.exists(path):
            self.problems.append(Problem(f"{entry} is a link that leads nowhere"))
        else:
            self._keep(path, os.path.realpath(path) if free else None)

    def _add_matches(self, entry: str, absolute: bool) -> None:
        fixed, rest = split_pattern(entry)
        start = os.path.normpath(self.workdir / fixed)
        inside = os.path.realpath(start) if absolute else self._real_workdir
        if not self._within(os.path.realpath(start), inside):
            self.notes.append(f"{fixed} is a link that leaves the working directory: {entry} was left out")
            return
        try:
            globbed = match_files(rest, Path(start))
        except ValueError as error:
            self.problems.append(Problem(f"{entry} is not a pattern: {error}"))
            return
        for path in globbed.paths:
            self._keep(path, inside=inside)
        if globbed.stopped:
            self.notes.append(
                f"{entry} matches more than {MAX_MATCHES:,} files or too many folders: the rest is left out"
            )
        elif not globbed.paths:
            hint = "" if os.path.isdir(start) else self._meant(start)
            self.problems.append(Problem(f"no file matches {entry}", hint=hint))

    def _keep(self, path: str, real: str | None = None, *, inside: str | None = None) -> None:
        boundary = inside or self._real_workdir
        if real is None:
            real = self._real(path)
            if not self._within(real, boundary):
                self.notes.append(f"{self._shown(path)} is a link that leaves the working directory: it was left out")
                return
        if self._is_state(os.path.dirname(real)):
            self.notes.append(f"{self._shown(path)} is the engine's own state: it was left out")
            return
        if real not in self._seen:
            self._seen.add(real)
            self.found.append((self._shown(path), real))

    def _is_state(self, folder: str) -> bool:
        if folder not in self._state_folders:
            self._state_folders[folder] = is_in_home(Path(folder))
        return self._state_folders[folder]

    def _real(self, path: str) -> str:
        """As `realpath`, with each folder resolved once."""
        folder, name = os.path.split(path)
        if folder not in self._real_folders:
            self._real_folders[folder] = os.path.realpath(folder)
        plain = os.path.join(self._real_folders[folder], name)
        return os.path.realpath(plain) if os.path.islink(plain) else plain

    def _shown(self, path: str) -> str:
        base = str(self.workdir)
        return shown_path(path[len(base) :].lstrip("/") if self._within(path, base) else path)

    @staticmethod
    def _within(path: str, folder: str) -> bool:
        return path == folder or path.startswith(folder.rstrip("/") + "/")

    def _meant(self, path: str) -> str:
        """The path that was probably meant: its first wrong name put right."""
        parts = Path(path).parts
        so_far = parts[0]
        for number, part in enumerate(parts[1:], 1):
            if os.path.lexists(os.path.join(so_far, part)):
                so_far = os.path.join(so_far, part)
                continue
            near = nearest(part, _names(so_far))
            if near is None:
                return ""
            fixed = os.path.join(so_far, near, *parts[number + 1 :])
            meant = fixed if os.path.lexists(fixed) else os.path.join(so_far, near)
            return f"did you mean {self._shown(meant)}?"
        return ""


def _names(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as listing:
            return sorted(entry.name for entry, _ in zip(listing, range(_MOST_NAMES), strict=False))
    except OSError:
        return []
