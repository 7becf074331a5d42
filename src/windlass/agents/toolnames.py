"""What the runtimes call the same tools. Roles are shared between runtimes, and a limit must hold in each of them.

`Bash` in a role for Claude Code is OpenCode's `bash` and our own `shell`. `to_offer` gives the names of tools that can
do what was named and no more; `to_deny` those of all that could do it. A name that is known to none (a server's tool, a
pattern like `mcp__github__*`) is kept as it was written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

__all__ = ["to_deny", "to_offer"]


class _Deed(NamedTuple):
    """Something tools do, and the tools that do it."""

    words: str
    """What roles call it, in lower case: also names that are out of use."""
    offer: Mapping[str, str]
    """By runtime, what does this and nothing more."""
    deny: str = ""
    """Tools of ours that can do this among other things."""


def _deed(words: str, claude_code: str, open_code: str, cli: str = "", deny: str = "") -> _Deed:
    return _Deed(words, {"claude-code": claude_code, "open-code": open_code, "cli": cli}, deny)


_DEEDS = (
    _deed("read notebookread files.read", "Read", "read", "files.read", "files.search files.copy"),
    _deed("glob ls list files.list", "Glob", "glob list", "files.list"),
    _deed("grep files.search", "Grep", "grep", "files.search"),
    _deed(
        "write files.write files.apply",
        "Write",
        "write",
        "files.write",
        "files.apply files.move files.delete files.patch files.copy http.download",
    ),
    _deed(
        "edit multiedit patch apply_patch files.edit files.apply",
        "Edit",
        "edit",
        "files.edit",
        "files.apply files.patch",
    ),
    _deed("notebookedit", "NotebookEdit", "edit"),
    _deed("bash shell", "Bash", "bash", "shell"),
    _deed("webfetch http.get", "WebFetch", "webfetch", "http.get", "http.* browser.*"),
    _deed("websearch search", "WebSearch", "websearch", "search"),
    _deed("task agent", "Task", "task"),
    _deed("todowrite todoread", "TodoWrite", "todowrite"),
    _deed("skill", "Skill", "skill"),
)
_RUNTIMES = ("claude-code", "open-code", "cli")
_EVERY_CHANGE = "write edit notebookedit"
"""What OpenCode's `edit` permission is about."""


def to_offer(names: Iterable[str], runtime: str) -> tuple[str, ...]:
    """Tools of a runtime for the named ones; without a runtime, the names as they are."""
    if runtime not in _RUNTIMES:
        return tuple(dict.fromkeys(names))
    found: dict[str, None] = {}
    for name in names:
        word, pattern = _parts(name)
        deeds = _deeds(word)
        if not deeds or any(word in deed.offer[runtime].split() for deed in deeds):
            found[name] = None
            continue
        for deed in deeds:
            found |= dict.fromkeys(tool + pattern for tool in deed.offer[runtime].split())
    return tuple(found)


def to_deny(names: Iterable[str], runtime: str) -> tuple[str, ...]:
    """Tools of a runtime that could do what the named ones do; without a runtime, of all of them."""
    found: dict[str, None] = {}
    for name in names:
        word, pattern = _parts(name)
        # In OpenCode one permission stands for every change to a file.
        deeds = [deed for part in _EVERY_CHANGE.split() for deed in _deeds(part)] if word == "edit" else _deeds(word)
        if not deeds or runtime not in _RUNTIMES:
            found[name] = None
        for deed in deeds:
            for target in (runtime,) if runtime in _RUNTIMES else _RUNTIMES:
                tools = f"{deed.offer[target]} {deed.deny if target == 'cli' else ''}".split()
                found |= dict.fromkeys(tool + pattern for tool in tools)
    return tuple(found)


def _parts(name: str) -> tuple[str, str]:
    """`Bash(git log:*)` is `Bash` and `(git log:*)`."""
    word, bracket, rest = name.partition("(")
    return word.strip(), bracket + rest


def _deeds(word: str) -> list[_Deed]:
    return [deed for deed in _DEEDS if word.lower() in deed.words.split()]
