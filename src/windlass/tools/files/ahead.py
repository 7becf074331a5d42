"""Looking ahead: may everything that a step is about to touch be touched, and is there room for it on the disk?

Asked for the whole step before its first change, so that the last of a hundred files does not fail for a reason that
was there to be seen at the beginning. Only what can be known is judged: where an earlier change of the same step
moves or deletes something, the later ones there are left to the work itself, which takes everything back if it fails.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from windlass.errors import Category, ToolError
from windlass.tools.files.arguments import Apply, Delete, Edit, Move, Write
from windlass.tools.files.failures import Missing, nested, shown
from windlass.tools.files.look import encode
from windlass.tools.files.place import Place
from windlass.tools.files.safe_path import Root

__all__ = ["Survey", "Target", "look_ahead", "need_room", "need_write"]


@dataclass(frozen=True, slots=True)
class Target:
    """A path that a step is going to touch."""

    path: str
    size: int = 0
    """Bytes that will be written there."""
    content: bool = False
    """A file's content is replaced: the file itself must be writable, and a link is followed to it."""
    again: bool = False
    """What the file has now is written once more, with the rest."""
    vacated: bool = False
    """What is there goes away: what stands there later in the step is not known yet."""


def look_ahead(root: Root, given: Any, floor: int) -> None:
    """Refuse a step that cannot work, as far as its arguments say what it touches."""
    survey = Survey(root, floor)
    if not isinstance(given, Apply):
        survey.all(_targets(given))
        return
    for number, change in enumerate(given.changes, 1):
        with nested(f"change {number} of {len(given.changes)} ({change.do})"):
            survey.all(_targets(change))


def _targets(given: Any) -> list[Target]:
    match given:
        case Write():
            size = len(encode(given.content, given.encoding, given.path))
            return [Target(given.path, size, content=True, again=given.mode == "append")]
        case Edit():
            return [Target(given.path, content=True, again=True)]
        case Move():
            return [Target(given.source, vacated=True), Target(given.to, vacated=True)]
        case Delete():
            return [Target(given.path, vacated=True)]
        case _:
            return []  # those that must read first look ahead themselves


class Survey:
    """What is known of the paths of one step before it begins."""

    def __init__(self, root: Root, floor: int) -> None:
        self._root, self._floor = root, floor
        self._needs: dict[int, int] = {}
        """Bytes to be written, by file system."""
        self._gone: set[str] = set()
        """Paths that the step vacates, and all above them."""
        self._vacated: set[str] = set()

    def all(self, targets: list[Target]) -> None:
        for target in targets:
            parts = self._root.parts(target.path)
            if not self._uncertain(parts):
                self._look(target, parts)
        for target in targets:
            if target.vacated:
                parts = self._root.parts(target.path)
                self._vacated.add("/".join(parts))
                self._gone.update(_heads(parts))

    def _uncertain(self, parts: list[str]) -> bool:
        return "/".join(parts) in self._gone or not self._vacated.isdisjoint(_heads(parts))

    def _look(self, target: Target, parts: list[str]) -> None:
        """Judge the place of a target, or the nearest folder on the way to it that is there."""
        for length in range(len(parts), 0, -1):
            try:
                with self._root.locate("/".join(parts[:length]), follow=target.content) as place:
                    self._judge(target, place, there=length == len(parts))
                    return
            except Missing:
                continue
            except ToolError as error:
                if error.failure.category is Category.CONFIGURATION:
                    return  # the work comes to it, and knows more to say about it
                raise

    def _judge(self, target: Target, place: Place, *, there: bool) -> None:
        if place.name == ".":
            return
        found = place.stat() if there else None
        size = target.size
        if found is not None and target.content:
            need_write(place)
            size += found.st_size if target.again else 0
        if not os.access(".", os.W_OK | os.X_OK, dir_fd=place.fd, effective_ids=True):
            raise ToolError(
                f"{shown(target.path)}: nothing may be changed in its folder",
                category=Category.PERMISSION,
                advice=("check the owner and the mode of the folder, and whether its file system is read-only",),
            )
        device = os.fstat(place.fd).st_dev
        self._needs[device] = self._needs.get(device, 0) + size
        if size:
            need_room(place, self._needs[device], self._floor)


def _heads(parts: list[str]) -> list[str]:
    """The path and all above it."""
    return ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]


def need_write(place: Place) -> None:
    """Refuse a file that is write-protected.

    A rename would not ask; whoever write-protected the file expects it to hold.
    """
    if not os.access(place.name, os.W_OK, dir_fd=place.fd, effective_ids=True):
        raise ToolError(
            f"{shown(place.path)} is write-protected",
            category=Category.PERMISSION,
            advice=("make it writable first: chmod u+w",),
        )


def need_room(place: Place, size: int, floor: int) -> None:
    """Refuse to write so much if the file system would then have less than `floor` bytes left."""
    about = os.fstatvfs(place.fd)
    free = about.f_bavail * about.f_frsize
    if about.f_blocks and free - size < floor:
        kept = f", and {floor:,} are to stay free" if floor else ""
        raise ToolError(
            f"{shown(place.path)}: the disk is full: {size:,} bytes are to be written, {free:,} are free{kept}",
            category=Category.RESOURCE,
            advice=("free some space, or ask for less", "then: windlass resume"),
        )
