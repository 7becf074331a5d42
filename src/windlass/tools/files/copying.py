"""`files.copy`: a file, a link or a whole folder once more, elsewhere, at one stroke."""

from __future__ import annotations

import os
from typing import Any

from windlass.errors import Category, ToolError
from windlass.tools.files.ahead import Survey, Target, need_write
from windlass.tools.files.arguments import Copy
from windlass.tools.files.change import make_parents, movable
from windlass.tools.files.failures import Missing, shown, unusable
from windlass.tools.files.place import Place, kind, walk
from windlass.tools.files.place import copy as copy_entry
from windlass.tools.files.safe_path import Root, names_in
from windlass.tools.files.undo import Undo

__all__ = ["copy"]

MOST_ENTRIES = 100_000


def copy(root: Root, undo: Undo, arguments: Copy) -> dict[str, Any]:
    """Copied beside the target first, then renamed into place. A link is copied as a link, wherever it leads."""
    with root.locate(arguments.source, follow=False) as source:
        found = movable(root, source, arguments.source)
        if found is None:
            raise Missing(arguments.source, source.name, names_in(source.fd))
        entries, size = _measure(source, undo)
        Survey(root, undo.floor).all([Target(arguments.to, size)])
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


def _measure(source: Place, undo: Undo) -> tuple[int, int]:
    """How many entries there are, and how many bytes are in the files among them."""
    entries = size = 0
    for place, found in walk(source):
        undo.check()
        entries += 1
        size += found.st_size if kind(found) == "file" else 0
        if kind(found) == "other":
            raise unusable(place.path, "is a device, FIFO or socket: it cannot be copied", "copy the rest by itself")
        if entries > MOST_ENTRIES:
            raise ToolError(
                f"{shown(source.path)} has more than {MOST_ENTRIES:,} entries",
                category=Category.RESOURCE,
                advice=("copy its folders one by one",),
            )
    return entries, size


def _refuse(arguments: Copy, source: Place, there: os.stat_result | None) -> None:
    if there and kind(there) == "directory":
        raise unusable(
            arguments.to,
            "is a directory that exists already",
            f"to copy into it: {arguments.to.rstrip('/')}/{source.name}",
            "to replace it, delete it first",
        )
    if there and not arguments.overwrite:
        raise unusable(arguments.to, "exists already", "use overwrite: true, or another path")
