"""How Claude Code and OpenCode write an MCP server down, and what that is here.

`${VAR}` and `${VAR:-default}` (Claude Code) and `{env:VAR}` (OpenCode) are filled in from the variables that children
may see, and no others: an entry that names another one is left out, and says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import ValidationError

from windlass.settings.tools import McpServerSettings

__all__ = ["Definition", "Unusable", "from_claude", "from_opencode", "is_windlass"]

Definition = tuple[McpServerSettings, dict[str, str]]
"""The server, and headers that are written out."""

_CLAUDE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_OPENCODE = re.compile(r"\{env:([^}]+)\}")


class Unusable(Exception):
    """Why an entry is left out."""


def from_claude(entry: Mapping[str, Any], env: Mapping[str, str]) -> Definition | None:
    """An entry of `mcpServers`; None when it is switched off."""
    if entry.get("disabled") is True:
        return None
    kind = entry.get("type") or ("http" if "url" in entry else "stdio")
    fill = _filler(_CLAUDE, env)
    if kind == "stdio":
        parts = {"command": entry.get("command"), "args": entry.get("args", []), "env": entry.get("env") or {}}
        return _checked(fill(parts)), {}
    if kind in ("http", "streamable-http"):
        return _checked(fill({"url": entry.get("url")})), _headers(fill(entry.get("headers") or {}))
    raise Unusable(f"its type is {kind!r:.40}; servers are spoken to over stdio and streamable HTTP (`http`)")


def from_opencode(entry: Mapping[str, Any], env: Mapping[str, str]) -> Definition | None:
    """An entry of `mcp`; None when it is switched off."""
    if entry.get("enabled") is False:
        return None
    fill = _filler(_OPENCODE, env)
    command = entry.get("command")
    if entry.get("type", "local") == "local":
        if not isinstance(command, list) or not command:
            raise Unusable("its `command` is not a list that begins with a program")
        parts = {"command": command[0], "args": command[1:], "env": entry.get("environment") or {}}
        return _checked(fill(parts)), {}
    return _checked(fill({"url": entry.get("url")})), _headers(fill(entry.get("headers") or {}))


def is_windlass(told: McpServerSettings) -> bool:
    """Whether it is this program: an engine that uses itself would go round in circles."""
    program, args = (told.command or "").rpartition("/")[2], told.args
    return bool(args) and args[-1] == "mcp" and (program == "windlass" or "windlass" in args)


def _filler(pattern: re.Pattern[str], env: Mapping[str, str]) -> Callable[[Any], Any]:
    def value(found: re.Match[str]) -> str:
        name = found[1].strip()
        if env.get(name):
            return env[name]
        if pattern is _CLAUDE and found[2] is not None:
            return found[2]
        raise Unusable(
            f"it needs the environment variable {name:.60}, which is not set or not among those that are handed on "
            f"(env_allow in your settings)"
        )

    def fill(part: Any) -> Any:
        match part:
            case str():
                if "{file:" in part and pattern is _OPENCODE:
                    raise Unusable("it uses {file:…}, which is not read here: use {env:…}")
                return pattern.sub(value, part)
            case list():
                return [fill(one) for one in part]
            case dict():
                return {name: fill(one) for name, one in part.items()}
        return part

    return fill


def _checked(parts: dict[str, Any]) -> McpServerSettings:
    try:
        return McpServerSettings.model_validate(parts)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        message = str(first["msg"]).removeprefix("Value error, ")
        raise Unusable(f"{place}: {message}" if place else message) from error


def _headers(found: Any) -> dict[str, str]:
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise Unusable("its `headers` are not texts by name")
    return found
