"""The file tools: one line for each. Adding one is adding a line here, and one operation."""

from __future__ import annotations

from typing import Any

from windlass.ports import Tool
from windlass.tools.built_in import ToolSetup
from windlass.tools.files import look, patch
from windlass.tools.files import models as m
from windlass.tools.files import operations as op
from windlass.tools.files.running import Changing, Looking

__all__ = ["build_tools", "file_tools"]


def build_tools(setup: ToolSetup) -> list[Tool]:
    return file_tools(disk_floor=setup.settings.load.disk_floor)


def file_tools(*, disk_floor: int = 0) -> list[Tool]:
    """One of each. They write nothing that would leave less than `disk_floor` bytes free on its file system."""

    def changing(*about: Any) -> Tool:
        return Changing(*about, floor=disk_floor)

    return [
        Looking(
            "files.read", "Read a text file or a part of it; binary files as base64", m.Read, look.read, m.FileSeen
        ),
        Looking(
            "files.list",
            "List a directory, all beneath it, or what fits a pattern",
            m.List,
            look.list_entries,
            m.FolderListing,
        ),
        Looking("files.search", "Find lines by a regular expression or as plain text", m.Search, look.search, m.Found),
        changing("files.write", "Write a file, append to it, or only create it", m.Write, op.write, m.FileWritten),
        changing("files.edit", "Replace exact pieces of a text file, all of them or none", m.Edit, op.edit, m.Edited),
        changing(
            "files.patch",
            "Apply a unified diff to any number of files, or nothing of it",
            m.Patch,
            patch.patch,
            m.Patched,
        ),
        changing("files.copy", "Copy a file or a directory", m.Copy, op.copy, m.Copied),
        changing("files.move", "Move or rename a file or a directory", m.Move, op.move, m.Moved),
        changing("files.delete", "Delete a file or a directory", m.Delete, op.delete, m.Deleted),
        changing(
            "files.apply", "Write, edit, move and delete as one: all of it, or nothing", m.Apply, op.apply, m.Applied
        ),
    ]
