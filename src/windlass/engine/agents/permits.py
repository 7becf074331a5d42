"""Permissions of an agent (C6): the settings' rules, made stricter by its role, and then the step's.

Names are the runtime's own (`Bash`, `Write`), with patterns: `Bash(git log:*)`, `mcp__github__*`, `files.*`. Deny is
stronger than allow, and both are stronger than the mode.

A pattern for a command allows that command alone: one that goes on with another, or writes to a file, is asked about.
It denies the command anywhere in a line. That catches slips, not cunning (`sh -c`, a variable): to rule something out
for good, use `mode = "deny"` or a role without the tool. A rule for all files leaves out the guarded ones.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from windlass.errors import UsageError
from windlass.guarded import changes_guarded_file, names_guarded_file
from windlass.ports import Permissions
from windlass.settings import PermissionSettings

__all__ = ["exact_rule", "listed", "offers", "permitted", "verdict"]

_COMMANDS = ("command", "line")
_OTHERS = ("file_path", "filePath", "notebook_path", "path", "url", "pattern")
_GOES_ON = re.compile(r"[;&|`<>()\r\n]")
"""Characters of a line with more than one command, or a write to a file."""
_JOINTS = re.compile(r"[;&|`<>(){}\r\n]")
"""Characters after which a command may begin."""

_BESIDE_COMMAND = frozenset({*_COMMANDS, "argv", "timeout", "description"})
_OWN_FILES = {"files.write": "path", "files.edit": "path"}
"""Tools of ours whose path says what they change, with its argument."""
_NAME = re.compile(r"[A-Za-z][\w.-]*")
_READ_AS_PATTERN = frozenset("*?[](){},\\")
"""Characters that a rule, here or in a runtime, does not take as they are."""
MOST_IN_RULE = 500


def permitted(settings: PermissionSettings, role: str, step: Mapping[str, Any] | None) -> Permissions:
    """The permissions of a step before its role has narrowed them."""
    of_role = settings.roles.get(role)
    mode = (of_role.mode if of_role is not None else None) or settings.mode
    allow = (*settings.allow, *(of_role.allow if of_role is not None else ()))
    deny = (*settings.deny, *(of_role.deny if of_role is not None else ()))
    base = Permissions(mode, allow, deny)
    if not step:
        return base
    return replace(
        base,
        mode=step.get("mode") or base.mode,
        allow=(*base.allow, *step.get("allow", ())),
        deny=(*base.deny, *step.get("deny", ())),
    )


def verdict(permissions: Permissions, tool: str, input: Any) -> bool | None:
    """Allowed, denied, or None: a person is to be asked."""
    decided = listed(permissions, tool, input)
    return {"allow": True, "deny": False, "ask": None}[permissions.mode] if decided is None else decided


def listed(permissions: Permissions, tool: str, input: Any) -> bool | None:
    """The verdict of the lists alone; None if they have none."""
    use = _use(input)
    if any(_speaks_of(pattern, tool, use.parts) for pattern in permissions.deny):
        return False
    allow = permissions.allow
    if changes_guarded_file(tool, input):
        allow = tuple(pattern for pattern in allow if names_guarded_file(pattern.partition("(")[2]))
    if any(_speaks_of(pattern, tool, (use.whole,), exactly=use.more) for pattern in allow):
        return True
    return None


def exact_rule(settings: PermissionSettings, tool: str, input: Any) -> str:
    """The rule that allows this very command, or this very file, and no other. Raises `UsageError` with the reason
    where there is none: a rule is never wider than the use that it was made of.
    """
    given = input if isinstance(input, Mapping) else {}
    if tool in _OWN_FILES:
        text = given.get(_OWN_FILES[tool])
    else:
        text = _use(given).whole if given.keys() <= _BESIDE_COMMAND else None
    if not isinstance(text, str) or not text or not _NAME.fullmatch(tool):
        raise UsageError(f"no exact rule can be made of this use of {tool}: only of one command, or one file to write")
    if len(text) > MOST_IN_RULE:
        raise UsageError(f"a rule of {len(text):,} characters is too long to be read before it is saved")
    if text != text.strip() or not text.isprintable() or not _READ_AS_PATTERN.isdisjoint(text):
        raise UsageError("no exact rule can be made of it: it has characters that a rule reads as a pattern, or hidden")
    if ".." in re.split(r"[/\\]", text):
        raise UsageError("no exact rule can be made of a path that climbs out of its folder")
    denied = (*settings.deny, *(pattern for role in settings.roles.values() for pattern in role.deny))
    if listed(Permissions("ask", (), denied), tool, input) is False:
        raise UsageError("a `deny` rule of your settings is about this use, and is stronger than any `allow`")
    rule = f"{tool}({text})"
    if listed(Permissions("ask", (rule,), ()), tool, input) is not True:
        raise UsageError("no exact rule can be made of this use")
    return rule


def offers(permissions: Permissions, tool: str, input: Any) -> bool:
    """True if a list of the only tools there are, if any, includes this use."""
    use = _use(input)
    only = permissions.tools
    return only is None or any(_speaks_of(pattern, tool, (use.whole,), exactly=use.more) for pattern in only)


class _Use(NamedTuple):
    """The texts of a use that patterns are matched with."""

    whole: str | None
    """The command, path or address; None if other arguments change its meaning: no pattern allows that."""
    more: bool
    """It is, or may be, more than it begins with: nothing but its very words allows it."""
    parts: tuple[str, ...]
    """Itself and everything in it."""


def _use(input: Any) -> _Use:
    """The command, the path, the address."""
    given = input if isinstance(input, Mapping) else {}
    commands = [str(given[key]) for key in _COMMANDS if isinstance(given.get(key), str)]
    if isinstance(given.get("argv"), list):
        commands.append(shlex.join(map(str, given["argv"])))
    if commands:
        parts = [part.strip() for command in commands for part in (command, *_JOINTS.split(command))]
        whole = commands[0].strip()
        if len(commands) > 1 or given.get("env") or given.get("shell"):
            return _Use(None, True, tuple(parts))
        return _Use(whole, _GOES_ON.search(whole) is not None, tuple(parts))
    others = [str(given[key]) for key in _OTHERS if isinstance(given.get(key), str)] or [""]
    # A path that climbs out of the folder it begins with is not in it.
    return _Use(others[0], ".." in re.split(r"[/\\]", others[0]), tuple(others))


def _speaks_of(pattern: str, tool: str, told: tuple[str | None, ...], *, exactly: bool = False) -> bool:
    name, bracket, rest = pattern.partition("(")
    if not fnmatchcase(tool, name.strip()):
        return False
    wanted = rest.strip().removesuffix(")")
    if not bracket or wanted in ("", "*", ":*"):
        return True
    if exactly:
        return wanted in told
    if wanted.endswith(":*"):  # Claude Code's way to say: begins with
        prefix = wanted[:-2]
        return any(
            text == prefix or text.startswith((prefix + " ", prefix + "\t")) for text in told if text is not None
        )
    return any(fnmatchcase(text, wanted) for text in told if text is not None)
