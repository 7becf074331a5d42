"""What an agent may do unasked (C6): the settings' word, made stricter by its role, and then the step's.

Names are the runtime's own (`Bash`, `Write`), with patterns: `Bash(git log:*)`, `mcp__github__*`, `files.*`. Deny is
stronger than allow, and both are stronger than the mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from windlass.ports import Permissions
from windlass.settings import PermissionSettings

__all__ = ["matches", "permitted", "verdict"]


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
    if any(matches(pattern, tool, input) for pattern in permissions.deny):
        return False
    if any(matches(pattern, tool, input) for pattern in permissions.allow):
        return True
    return {"allow": True, "deny": False, "ask": None}[permissions.mode]


def matches(pattern: str, tool: str, input: Any) -> bool:
    """Whether a pattern speaks of this use of a tool."""
    name, bracket, rest = pattern.partition("(")
    if not fnmatchcase(tool, name.strip()):
        return False
    if not bracket:
        return True
    wanted = rest.removesuffix(")")
    told = _told(input)
    if wanted.endswith(":*"):  # Claude Code's way to say: begins with
        prefix = wanted[:-2]
        return told == prefix or (told.startswith(prefix + " ") and not _chained(told))
    return fnmatchcase(told, wanted)


def _told(input: Any) -> str:
    """The part of a use that patterns speak of: the command, the path, the address."""
    if isinstance(input, Mapping):
        for key in ("command", "line", "file_path", "filePath", "path", "url", "pattern"):
            if isinstance(input.get(key), str):
                return str(input[key])
    return ""


def _chained(command: str) -> bool:
    """A command that goes on with another one is not the one that was allowed."""
    return any(mark in command for mark in (";", "&", "|", "`", "$(", "\n", ">", "<("))
