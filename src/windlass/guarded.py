"""Files that git, Windlass and the runtimes obey by themselves: their hooks and settings run programs or grant rights.

Permission to change files is no permission to change these: an agent with `Write` alone would write a hook of git, and
have it run. Only a rule that names one of them allows it: `Write(.git/info/*)`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["GUARDED", "changes_guarded_file", "names_guarded_file"]

GUARDED = (
    *(".git", ".windlass", ".claude", ".opencode", ".codex", ".gemini"),
    *(".mcp.json", "opencode.json", "opencode.jsonc"),
)
"""Names of the folders and files."""

_CHANGES = frozenset(
    {
        *("write", "edit", "multiedit", "notebookedit", "patch", "apply_patch"),
        *(f"files.{name}" for name in ("write", "edit", "patch", "copy", "move", "delete", "apply")),
    }
)
"""Tools that change files, in small letters: Claude Code's, OpenCode's, ours."""
_PATHS = frozenset({"path", "file_path", "filepath", "notebook_path", "from", "to", "patterns"})
_PATCHES = frozenset({"patch", "patchtext", "input"})
_HEADER = re.compile(r"^(?:\+\+\+|---|\*\*\*|rename|copy|diff) .*$", re.MULTILINE)
"""Lines of a patch with the path of a file."""


def changes_guarded_file(tool: str, input: Any) -> bool:
    """True if this use of a tool changes one of these files."""
    return tool.lower() in _CHANGES and any(map(names_guarded_file, _paths(input)))


def names_guarded_file(path: str) -> bool:
    return any(part in GUARDED for part in re.split(r"[/\\\s():,]", path.lower()))


def _paths(value: Any) -> Iterator[str]:
    """Texts of a tool's input that may be paths, in lists and objects in it, too."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            texts = [inner] if isinstance(inner, str) else inner if isinstance(inner, list) else []
            if str(key).lower() in _PATHS:
                yield from (text for text in texts if isinstance(text, str))
            elif str(key).lower() in _PATCHES and isinstance(inner, str):
                yield from _HEADER.findall(inner)
            if not isinstance(inner, str):
                yield from _paths(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _paths(inner)
