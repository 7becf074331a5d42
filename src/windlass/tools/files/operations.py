"""Write, edit, move, delete, copy, and several of them as one: every change is made through an `Undo`."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any

from windlass.errors import Category, ToolError
from windlass.faults import fault_point
from windlass.tools.files.failures import Missing, nearest, nested, outside, shown, unusable
from windlass.tools.files.look import encode, need_entry, regular
from windlass.tools.files.models import Apply, Copy, Delete, Edit, Move, Replacement, Write
from windlass.tools.files.place import OpenedPath, dress, kind, read_chunks, walk, write_chunks
from windlass.tools.files.place import copy as copy_entry
from windlass.tools.files.preflight import PathTarget, Preflight, need_room, need_write
from windlass.tools.files.safe_path import Root, names_in
from windlass.tools.files.undo import Undo

__all__ = ["apply", "copy", "delete", "edit", "make_parents", "move", "replace_content", "write"]

MAX_EDIT = 64 << 20


def write(root: Root, undo: Undo, arguments: Write) -> dict[str, Any]:
    data = encode(arguments.content, arguments.encoding, arguments.path)
    if arguments.make_parents:
        make_parents(root, undo, arguments.path)
    with root.locate(arguments.path) as place:
        old = regular(place, arguments.path)
        if old and arguments.mode == "create":
            raise unusable(arguments.path, "exists already", "use mode: overwrite, or another path")
        kept: Iterable[bytes] = ()
        size = 0
        if old and arguments.mode == "append":
            if old.st_size:
                data = data.removeprefix(encode("", arguments.encoding, arguments.path))  # no second byte order mark
            kept, size = undo.approved.hashed(place.path, read_chunks(place, undo.check)), old.st_size
        permissions = int(arguments.permissions, 8) if arguments.permissions else None
        size, digest = replace_content(undo, place, old, chain(kept, [data]), size + len(data), permissions)
    return {"path": place.text, "bytes": size, "sha256": digest, "created": old is None}


def edit(root: Root, undo: Undo, arguments: Edit) -> dict[str, Any]:
    with root.locate(arguments.path) as place:
        old = regular(place, arguments.path)
        if old is None:
            raise Missing(arguments.path, place.name, names_in(place.fd))
        if old.st_size > MAX_EDIT:
            raise ToolError(
                f"{shown(arguments.path)} is too large to edit: {old.st_size >> 20} MiB",
                category=Category.RESOURCE,
                advice=(f"files up to {MAX_EDIT >> 20} MiB can be edited; use a shell step",),
            )
        try:
            content = b"".join(read_chunks(place, undo.check))
            undo.approved.check_content(place.path, content)
            text = content.decode()
        except UnicodeDecodeError as error:
            raise unusable(arguments.path, f"is not utf-8 text: {error}", "rewrite it with files.write") from None
        counts = []
        for number, replacement in enumerate(arguments.edits, 1):
            text, count = _substitute(text, replacement, f"{shown(place.path)}, edit {number}")
            counts.append(count)
        data = encode(text, "utf-8", place.path)
        size, digest = replace_content(undo, place, old, [data], len(data))
    return {"path": place.text, "replacements": counts, "bytes": size, "sha256": digest}


def move(root: Root, undo: Undo, arguments: Move) -> dict[str, Any]:
    with root.locate(arguments.source, follow=False) as source:
        found = movable(root, source, arguments.source)
        if found is None:
            raise Missing(arguments.source, source.name, names_in(source.fd))
        make_parents(root, undo, arguments.to)
        with root.locate(arguments.to, follow=False) as to:
            if f"{to.path}/".startswith(f"{source.path}/"):
                raise unusable(arguments.to, "is inside what is to be moved", "name another target")
            there = movable(root, to, arguments.to)
            if there and kind(there) == "directory":
                raise unusable(
                    arguments.to,
                    "is a directory that exists already",
                    f"to move into it: {arguments.to.rstrip('/')}/{source.name}",
                    "to replace it, delete it first",
                )
            if there and not arguments.overwrite:
                raise unusable(arguments.to, "exists already", "use overwrite: true, or another path")
            if there and os.path.samestat(found, there):
                undo.remove(source)  # two names of one file: rename(2) would leave both
            else:
                if there and kind(found) == "directory":
                    undo.remove(to)  # a directory cannot take a file's place at one stroke
                undo.move(source, to)
    return {"from": source.text, "to": to.text, "type": kind(found), "replaced": there is not None}


def delete(root: Root, undo: Undo, arguments: Delete) -> dict[str, Any]:
    try:
        with root.locate(arguments.path, follow=False) as place:
            found = movable(root, place, arguments.path)
            if found is None:
                raise Missing(arguments.path, place.name, names_in(place.fd))
            if kind(found) == "directory" and not arguments.recursive:
                need_entry(place, arguments.path)
                inside = sum(1 for _ in walk(place, lambda p: p is place)) - 1
                if inside:
                    raise unusable(
                        arguments.path,
                        f"is a directory that is not empty: {inside} inside",
                        "use recursive: true to delete them too",
                    )
            undo.remove(place)
            return {"path": place.text, "deleted": True, "type": kind(found)}
    except Missing:
        if not arguments.missing_ok:
            raise
        return {"path": "/".join(root.parts(arguments.path)), "deleted": False, "type": None}


OPERATIONS: dict[str, Callable[[Root, Undo, Any], dict[str, Any]]] = {
    "write": write,
    "edit": edit,
    "move": move,
    "delete": delete,
}


def make_parents(root: Root, undo: Undo, path: str) -> None:
    """Make the folders on the way to a path that are not there yet."""
    parts = root.parts(path)
    for length in range(1, len(parts)):
        with root.locate("/".join(parts[:length])) as place:
            if place.stat() is None:
                undo.make(place)


def replace_content(
    undo: Undo,
    place: OpenedPath,
    old: os.stat_result | None,
    chunks: Iterable[bytes],
    size: int,
    permissions: int | None = None,
) -> tuple[int, str]:
    """Put new content in place at one stroke: written beside it, made durable, renamed over it.

    The old inode is never written to, so other hard links to it keep the old content.
    """
    if old:
        need_write(place)
    need_room(place, size, undo.floor)
    temporary = undo.temporary(place)
    # Never more open than it will be in the end, not even for a moment; a new file gets the umask besides.
    first = stat.S_IMODE(old.st_mode) & 0o777 if old else 0o666
    if permissions is not None:
        first = permissions
    fd = temporary.open(os.O_WRONLY | os.O_CREAT | os.O_EXCL, first)
    try:
        fault_point("files.temporary")
        written = write_chunks(fd, chunks, undo.check)
        if old:
            dress(fd, old)
        if permissions is not None:
            os.fchmod(fd, permissions)
        os.fsync(fd)
    finally:
        os.close(fd)
    undo.put(temporary, place)
    return written


def _substitute(text: str, edit: Replacement, where: str) -> tuple[str, int]:
    """One edit. A file with Windows line endings throughout keeps them, however the edit is written."""
    old, new = edit.old, edit.new
    if "\r\n" in text and text.count("\n") == text.count("\r\n"):
        old, new = ("\r\n".join(t.replace("\r\n", "\n").split("\n")) for t in (old, new))
    count = _occurrences(text, old)
    if count == 0:
        raise ToolError(
            f"{where}: the text to replace does not occur" + _nearest_line(text, old),
            category=Category.CONFIGURATION,
            advice=("read the file again and copy the text exactly, spaces included",),
        )
    if count > 1 and not edit.all:
        raise ToolError(
            f"{where}: the text to replace occurs {count} times",
            category=Category.CONFIGURATION,
            advice=("add lines around it until it occurs once, or use all: true",),
        )
    return text.replace(old, new), text.count(old)


def _occurrences(text: str, old: str) -> int:
    """Count occurrences, overlapping ones included: `aa` in `aaa` is ambiguous too."""
    count, at = 0, text.find(old)
    while at >= 0:
        count, at = count + 1, text.find(old, at + 1)
    return count


def _nearest_line(text: str, old: str) -> str:
    wanted = next((line.strip() for line in old.splitlines() if line.strip()), "")
    lines = {line.strip(): n for n, line in reversed(list(enumerate(text.splitlines(), 1)))}
    near = nearest(wanted, lines)
    return f"; the nearest is line {lines[near]}: {shown(near)}" if near else ""


def movable(root: Root, place: OpenedPath, path: str) -> os.stat_result | None:
    """Status of an entry that may be moved or deleted; None when nothing is there."""
    if place.name == ".":
        raise outside(path, "that is the working directory itself")
    found = place.stat()
    if found and kind(found) == "other":
        raise unusable(path, "is a device, FIFO or socket", "leave it to what made it")
    for inner, about in walk(place) if found else ():
        if root.is_state(inner, about):
            raise outside(path, f"it has the engine's own state in it, at {shown(inner.path)}")
        if found and kind(about) == "directory" and about.st_dev != found.st_dev:
            raise unusable(path, f"has a file system mounted in it, at {shown(inner.path)}", "unmount it")
    return found


MOST_ENTRIES = 100_000
"""In a folder that is copied, with all beneath it."""


def copy(root: Root, undo: Undo, arguments: Copy) -> dict[str, Any]:
    """Copied beside the target first, then renamed into place. A link is copied as a link, wherever it leads."""
    with root.locate(arguments.source, follow=False) as source:
        found = movable(root, source, arguments.source)
        if found is None:
            raise Missing(arguments.source, source.name, names_in(source.fd))
        entries, size = _measure(source, undo)
        Preflight(root, undo.floor).all([PathTarget(arguments.to, size)])
        make_parents(root, undo, arguments.to)
        with root.locate(arguments.to, follow=False) as to:
            if f"{to.path}/".startswith(f"{source.path}/"):
                raise unusable(arguments.to, "is what is to be copied, or inside it", "name another target")
            there = movable(root, to, arguments.to)
            _refuse(arguments, source, there)
            if there and kind(there) == "file":
                need_write(to)
            temporary = undo.temporary(to)
            copy_entry(source, temporary, undo.check)
            undo.approved.check(source.path, temporary)
            if there and kind(found) == "directory":
                undo.remove(to)  # a directory cannot take a file's place at one stroke
            undo.put(temporary, to)
    return {
        "from": source.text,
        "to": to.text,
        "type": kind(found),
        "entries": entries,
        "bytes": size,
        "replaced": there is not None,
    }


def _measure(source: OpenedPath, undo: Undo) -> tuple[int, int]:
    """Count the entries, and the bytes in the files among them."""
    entries = size = 0
    for place, found in walk(source):
        undo.check()
        entries += 1
        size += found.st_size if kind(found) == "file" else 0
        if kind(found) == "other":
            raise unusable(place.path, "is a device, FIFO or socket: it cannot be copied", "copy the rest by itself")
        if entries > MOST_ENTRIES + 1:  # the folder itself is one
            raise ToolError(
                f"{shown(source.path)} has more than {MOST_ENTRIES:,} entries",
                category=Category.RESOURCE,
                advice=("copy its folders one by one",),
            )
    return entries, size


def _refuse(arguments: Copy, source: OpenedPath, there: os.stat_result | None) -> None:
    if there and kind(there) == "directory":
        raise unusable(
            arguments.to,
            "is a directory that exists already",
            f"to copy into it: {arguments.to.rstrip('/')}/{source.name}",
            "to replace it, delete it first",
        )
    if there and not arguments.overwrite:
        raise unusable(arguments.to, "exists already", "use overwrite: true, or another path")


def apply(root: Root, undo: Undo, arguments: Apply) -> dict[str, Any]:
    results = []
    for number, change in enumerate(arguments.changes, 1):
        with nested(f"change {number} of {len(arguments.changes)} ({change.do})"):
            results.append({"do": change.do, **OPERATIONS[change.do](root, undo, change)})
    return {"changes": results}
