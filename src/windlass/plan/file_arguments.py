"""Paths of files in the arguments and results of tools, and their meaning in a step that has a `workdir` (B5).

The paths are joined with the folder before the tool gets them. So questions, differences, records of changes and undo
name the same files as ever, and a tool reaches no file that it could not reach before. A program gets the paths in
results back as paths from the folder, so that it can give them to its next call.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

__all__ = ["PATCH", "PATCH_HAS_PATHS", "from_folder", "in_folder", "no_folder"]

PATCH = "files.patch"
PATCH_HAS_PATHS = "`workdir` does not change the paths of a patch: they are in its text"

_PATHS = {
    "shell": ("cwd",),
    "files.read": ("path",),
    "files.list": ("path",),
    "files.search": ("path",),
    "files.write": ("path",),
    "files.edit": ("path",),
    "files.delete": ("path",),
    "files.copy": ("from", "to"),
    "files.move": ("from", "to"),
    "files.apply": ("changes",),
    "http.download": ("path",),
    "message.email": ("attachments",),
    "message.send": ("attachments",),
}
_HERE = frozenset({"shell", "files.list", "files.search"})
"""Tools that work in the folder itself if they are given no path."""
_CHANGED = ("path", "from", "to")
"""Paths of a change in `files.apply`, and paths in results."""


def no_folder(tool: str) -> str:
    """Why a step with this tool has no `workdir`; empty if it may have one."""
    if tool in _PATHS:
        return ""
    if tool == PATCH:
        return PATCH_HAS_PATHS
    return f"`workdir` is for commands, agents, programs and tools that take paths of files; {tool} takes none"


def in_folder(tool: str, arguments: Mapping[str, Any], folder: str) -> Mapping[str, Any]:
    """The arguments with their paths in the folder. Absolute paths stay."""
    names = _PATHS.get(tool, ())
    placed = {name: _placed(arguments[name], folder) for name in names if name in arguments}
    if tool in _HERE:
        placed.setdefault(names[0], folder)
    return {**arguments, **placed} if placed else arguments


def _placed(value: Any, folder: str) -> Any:
    if isinstance(value, str):
        return folder if value == "." else os.path.join(folder, value)
    if isinstance(value, Mapping):
        return {**value, **{name: _placed(value[name], folder) for name in _CHANGED if name in value}}
    return [_placed(one, folder) for one in value] if isinstance(value, list) else value


def from_folder(tool: str, result: Any, folder: str, workdir: str) -> Any:
    """The result with its paths from the folder; absolute where they lead out of it. `workdir` is the execution's."""
    if not tool.startswith(("files.", "http.download")):
        return result
    return _named(result, os.path.normpath(os.path.join(workdir, folder)), workdir)


def _named(value: Any, folder: str, workdir: str) -> Any:
    if isinstance(value, list):
        return [_named(one, folder, workdir) for one in value]
    if not isinstance(value, Mapping):
        return value
    return {
        name: _seen_from(folder, os.path.normpath(os.path.join(workdir, inner)))
        if name in _CHANGED and isinstance(inner, str)
        else _named(inner, folder, workdir)
        for name, inner in value.items()
    }


def _seen_from(folder: str, path: str) -> str:
    return os.path.relpath(path, folder) if path == folder or path.startswith(f"{folder}/") else path
