"""The file tools: each a name, a sentence, its arguments, one operation and its result.

How they run is in `running.py`; what each does is in the module that its operation comes from. Adding one is adding
a line here.
"""

from __future__ import annotations

from typing import Any

from windlass.ports import Tool
from windlass.tools.files.apply import apply
from windlass.tools.files.arguments import Apply, Copy, Delete, Edit, List, Move, Patch, Read, Search, Write
from windlass.tools.files.change import delete, edit, move, write
from windlass.tools.files.copying import copy
from windlass.tools.files.look import list_entries, read
from windlass.tools.files.patch import patch
from windlass.tools.files.results import (
    Applied,
    Copied,
    Deleted,
    Edited,
    Found,
    Listed,
    Moved,
    Patched,
    Seen,
    Written,
)
from windlass.tools.files.running import Changing, Looking
from windlass.tools.files.search import search

__all__ = ["file_tools"]


def file_tools(*, disk_floor: int = 0) -> list[Tool]:
    """One of each. They write nothing that would leave less than `disk_floor` bytes free on its file system."""

    def changing(*about: Any) -> Tool:
        return Changing(*about, floor=disk_floor)

    return [
        Looking("files.read", "Read a text file or a part of it; binary files as base64", Read, read, Seen),
        Looking("files.list", "List a directory, all beneath it, or what fits a pattern", List, list_entries, Listed),
        Looking("files.search", "Find lines by a regular expression or as plain text", Search, search, Found),
        changing("files.write", "Write a file, append to it, or only create it", Write, write, Written),
        changing("files.edit", "Replace exact pieces of a text file, all of them or none", Edit, edit, Edited),
        changing("files.patch", "Apply a unified diff to any number of files, or nothing of it", Patch, patch, Patched),
        changing("files.copy", "Copy a file or a directory", Copy, copy, Copied),
        changing("files.move", "Move or rename a file or a directory", Move, move, Moved),
        changing("files.delete", "Delete a file or a directory", Delete, delete, Deleted),
        changing("files.apply", "Write, edit, move and delete as one: all of it, or nothing", Apply, apply, Applied),
    ]
