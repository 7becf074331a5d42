"""The file tools: each a name, a sentence, its arguments, one operation and its result.

How they run is in `running.py`, what they do in `look.py`, `change.py` and `apply.py`. Adding one is adding a
line here.
"""

from __future__ import annotations

from windlass.ports import Tool
from windlass.tools.files.apply import apply
from windlass.tools.files.arguments import Apply, Delete, Edit, List, Move, Read, Write
from windlass.tools.files.change import delete, edit, move, write
from windlass.tools.files.look import list_entries, read
from windlass.tools.files.results import Applied, Deleted, Edited, Listed, Moved, Seen, Written
from windlass.tools.files.running import Changing, Looking

__all__ = ["file_tools"]


def file_tools() -> list[Tool]:
    """One of each."""
    return [
        Looking("files.read", "Read a text file or a part of it; binary files as base64", Read, read, Seen),
        Looking("files.list", "List a directory, all beneath it, or what fits a pattern", List, list_entries, Listed),
        Changing("files.write", "Write a file, append to it, or only create it", Write, write, Written),
        Changing("files.edit", "Replace exact pieces of a text file, all of them or none", Edit, edit, Edited),
        Changing("files.move", "Move or rename a file or a directory", Move, move, Moved),
        Changing("files.delete", "Delete a file or a directory", Delete, delete, Deleted),
        Changing("files.apply", "Write, edit, move and delete as one: all of it, or nothing", Apply, apply, Applied),
    ]
