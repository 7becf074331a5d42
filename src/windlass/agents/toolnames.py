"""Runtimes' names for the same tools. Roles are shared between runtimes, and a limit must hold in each of them.

`Bash` in a role for Claude Code is OpenCode's `bash` and our own `shell`. `to_offer` gives the names of tools that can
do what was named and no more; `to_deny` those of all that could do it. A name that is known to none (a server's tool, a
pattern like `mcp__github__*`) is kept as it was written.
"""

from __future__ import annotations

from collections.abc import Iterable

from windlass.runtimes import RUNTIMES

__all__ = ["to_deny", "to_offer"]

_WORDS = {
    "read": "read notebookread files.read",
    "list": "glob ls list files.list",
    "grep": "grep files.search",
    "write": "write files.write files.apply",
    "edit": "edit multiedit patch apply_patch files.edit files.apply",
    "notebook": "notebookedit",
    "shell": "bash shell",
    "fetch": "webfetch http.get",
    "search": "websearch search",
    "delegate": "task agent",
    "todo": "todowrite todoread",
    "skill": "skill",
}
"""Names that roles give to tools of each kind, in lower case, obsolete names included."""
_EVERY_CHANGE = ("write", "edit", "notebook")
"""Kinds that OpenCode's `edit` permission covers."""


def to_offer(names: Iterable[str], runtime: str) -> tuple[str, ...]:
    """Tools of a runtime for the named ones; without a runtime, the names as they are."""
    row = RUNTIMES.get(runtime)
    if row is None:
        return tuple(dict.fromkeys(names))
    found: dict[str, None] = {}
    for name in names:
        word, pattern = _parts(name)
        tools = [tool for kind in _kinds(word) for tool in row.tools.get(kind, "").split()]
        if not _kinds(word) or word in tools:
            found[name] = None
        else:
            found |= dict.fromkeys(tool + pattern for tool in tools)
    return tuple(found)


def to_deny(names: Iterable[str], runtime: str) -> tuple[str, ...]:
    """Tools of a runtime that could do what the named ones do; without a runtime, of all of them."""
    rows = (RUNTIMES[runtime],) if runtime in RUNTIMES else tuple(RUNTIMES.values())
    found: dict[str, None] = {}
    for name in names:
        word, pattern = _parts(name)
        # In OpenCode one permission stands for every change to a file.
        kinds = _EVERY_CHANGE if word == "edit" else _kinds(word)
        if not kinds or runtime not in RUNTIMES:
            found[name] = None
        for kind in kinds:
            for row in rows:
                tools = f"{row.tools.get(kind, '')} {row.also_does.get(kind, '')}".split()
                found |= dict.fromkeys(tool + pattern for tool in tools)
    return tuple(found)


def _parts(name: str) -> tuple[str, str]:
    """`Bash(git log:*)` is `Bash` and `(git log:*)`."""
    word, bracket, rest = name.partition("(")
    return word.strip(), bracket + rest


def _kinds(word: str) -> tuple[str, ...]:
    """Give the kinds of a tool by its name, else by the names that runtimes have for their own tools."""
    known = tuple(kind for kind, words in _WORDS.items() if word.lower() in words.split())
    own = (kind for row in RUNTIMES.values() for kind, tools in row.tools.items() if word in tools.split())
    return known or tuple(dict.fromkeys(own))
