"""MCP servers from the user's settings, and from the files of Claude Code and OpenCode.

A project's own files start programs, so they count only where its folder is trusted. Of two servers with the same name
the first counts: settings, Claude Code's user settings for this folder, the project's files, the user's own files.
Something wrong with a file or an entry is reported by name, and harms nothing else. Files may come with a cloned
project: only regular files of a bearable size are read. Comments and trailing commas in their JSON are no mistake.

`${VAR}` and `${VAR:-default}` (Claude Code) and `{env:VAR}` (OpenCode) are filled in from the variables that children
may see, and no others: an entry that names another one is left out, and says so.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from windlass import jsonc
from windlass.errors import Category, ToolError
from windlass.redact import Redactor
from windlass.settings import McpServerSettings
from windlass.settings.variables import missing_variable
from windlass.tools.mcp.described import distinct

__all__ = ["McpServer", "Unreadable", "find_servers", "read_json"]

MOST_SERVERS = 200
Definition = tuple[McpServerSettings, dict[str, str]]
"""The server, and headers that are written out."""
Read = Callable[[Mapping[str, Any], Mapping[str, str]], Definition | None]


class _ServerEntry(NamedTuple):
    name: str
    value: Any
    source: str
    read: Read


def find_servers(
    settings: Mapping[str, McpServerSettings],
    folder: Path,
    *,
    env: Mapping[str, str],
    environ: Mapping[str, str],
    trusted: Callable[[Path], bool],
) -> tuple[list[McpServer], list[str]]:
    """Find the servers, and problems with their definitions.

    `env` has the variables that children may see, from which entries of files are filled in; `environ` says where the
    user's own files are. `trusted` is asked only if the folder names servers.
    """
    return _Search(folder, env, environ, trusted).run(settings)


class _Search:
    def __init__(
        self, folder: Path, env: Mapping[str, str], environ: Mapping[str, str], trusted: Callable[[Path], bool]
    ) -> None:
        self._folder, self._env, self._trusted = folder, env, trusted
        home = Path(environ.get("HOME") or Path.home())
        self._claude = Path(environ.get("CLAUDE_CONFIG_DIR") or home) / ".claude.json"
        self._opencode = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "opencode"
        self._problems: list[str] = []
        self._found: dict[str, McpServer] = {}

    def run(self, settings: Mapping[str, McpServerSettings]) -> tuple[list[McpServer], list[str]]:
        self._found = {name: McpServer("", told, title=name) for name, told in settings.items()}
        claude = self._read(self._claude)
        mine = self._local(claude)
        self._take(self._entries(mine, "mcpServers", self._claude, from_claude))
        project = [entry for entry in self._project(mine) if entry.name not in self._found]
        if project and self._trusted(self._folder):
            self._take(iter(project))
        elif project:
            names = ", ".join(sorted({entry.name for entry in project}))
            self._problems.append(
                f"{project[0].source} names MCP servers that are not used, as the folder is not trusted: {names:.300} "
                f"(windlass trust {self._folder})"
            )
        self._take(self._entries(claude, "mcpServers", self._claude, from_claude))
        for name in ("opencode.json", "opencode.jsonc"):
            file = self._opencode / name
            self._take(self._entries(self._read(file), "mcp", file, from_opencode))
        called = distinct(self._found)
        servers = [
            McpServer(called[title], server.told, server.source, title, server.headers)
            for title, server in self._found.items()
            if not is_windlass(server.told)
        ]
        if len(servers) > MOST_SERVERS:
            self._problems.append(f"{len(servers)} MCP servers are named; only the first {MOST_SERVERS} are used")
        return servers[:MOST_SERVERS], self._problems

    def _local(self, claude: dict[str, Any]) -> dict[str, Any]:
        """The servers that Claude Code's user keeps for this folder alone."""
        projects = claude.get("projects")
        found = projects.get(str(self._folder.resolve())) if isinstance(projects, dict) else None
        return found if isinstance(found, dict) else {}

    def _project(self, mine: dict[str, Any]) -> Iterator[_ServerEntry]:
        off = mine.get("disabledMcpjsonServers")
        file = self._folder / ".mcp.json"
        for entry in self._entries(self._read(file), "mcpServers", file, from_claude):
            if not isinstance(off, list) or entry.name not in off:
                yield entry
        for inner in (self._folder, self._folder / ".opencode"):
            for name in ("opencode.json", "opencode.jsonc"):
                file = inner / name
                yield from self._entries(self._read(file), "mcp", file, from_opencode)

    def _read(self, file: Path) -> dict[str, Any]:
        try:
            return read_json(file) or {}
        except Unreadable as error:
            self._problems.append(f"{file}: {error}; its MCP servers are left out")
            return {}

    def _entries(self, data: dict[str, Any], key: str, file: Path, read: Read) -> Iterator[_ServerEntry]:
        table = data.get(key)
        if table is not None and not isinstance(table, dict):
            self._problems.append(f"{file}: `{key}` must be an object; its MCP servers are left out")
        elif table:
            yield from (_ServerEntry(name, value, str(file), read) for name, value in table.items())

    def _take(self, entries: Iterator[_ServerEntry]) -> None:
        for name, value, source, read in entries:
            if name in self._found:
                continue
            try:
                if not isinstance(value, dict):
                    raise Unusable("it is not an object")
                defined = read(value, self._env)
            except (Unusable, RecursionError) as error:
                self._problems.append(f"{source}: the MCP server {name!r:.80} is left out: {error}")
                continue
            if defined is not None:
                self._found[name] = McpServer("", defined[0], source, name, defined[1])


@dataclass(frozen=True)
class McpServer:
    name: str
    """As it stands in `mcp.NAME.TOOL`."""
    told: McpServerSettings
    source: str = "your settings"
    """The file that names it, for people."""
    title: str = ""
    """Its name as it is written there."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that are written out in a file of another program's."""

    @cached_property
    def digest(self) -> str:
        """A digest of its definition: remembered tools are valid while it stays the same."""
        whole = [self.told.model_dump(mode="json"), dict(self.headers)]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()

    @property
    def command(self) -> list[str]:
        return [self.told.command or "", *self.told.args]

    def environment(self, env: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
        """The environment of its process: that of all children, variables that the user allows, and its entry's own."""
        allowed = {name: environ[name] for name in self.told.env_allow if name in environ}
        return {**env, **allowed, **self.told.env}

    def all_headers(self, environ: Mapping[str, str]) -> dict[str, str]:
        found = dict(self.headers)
        for header, variable in self.told.headers_env.items():
            if variable not in environ:
                raise ToolError(
                    f"the MCP server {self.name} needs the environment variable {variable} for its header {header}, "
                    f"and it is not set (see {self.source})",
                    category=Category.CONFIGURATION,
                    advice=(f"export {variable}=…",),
                )
            found[header] = environ[variable]
        return found

    def _trusted_with(self) -> list[str]:
        return [*self.told.env_allow, *self.told.headers_env.values()]

    def redactor(self, environ: Mapping[str, str]) -> Redactor:
        """Blots out what it was trusted with, should it repeat that in its errors."""
        secrets = {name: environ[name] for name in self._trusted_with() if name in environ}
        return Redactor({**environ, **self.told.env}, {**secrets, **self.headers})


_CLAUDE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")
_OPENCODE = re.compile(r"\{env:([^}]+)\}")


class Unusable(Exception):
    """An entry is left out; the text is the reason."""


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
    """True if it is this program: an engine that uses itself would go round in circles."""
    program, args = (told.command or "").rpartition("/")[2], told.args
    return bool(args) and args[-1] == "mcp" and (program == "windlass" or "windlass" in args)


def _filler(pattern: re.Pattern[str], env: Mapping[str, str]) -> Callable[[Any], Any]:
    def value(found: re.Match[str]) -> str:
        name = found[1].strip()
        if env.get(name):
            return env[name]
        if pattern is _CLAUDE and found[2] is not None:
            return found[2]
        missing = missing_variable(name[:60], env)
        raise Unusable(f"it needs the environment variable {name:.60}, which {missing.reason} ({missing.advice})")

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


MOST_BYTES = 32 * 1024 * 1024
"""Claude Code keeps much else in its file, too."""


class Unreadable(Exception):
    """A file cannot be read; the text is the reason."""


def read_json(path: Path) -> dict[str, Any] | None:
    """The object in the file; None where there is no file."""
    try:
        text = _text(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(f"it cannot be read: {(error.strerror or 'unknown').lower()}") from error
    except UnicodeDecodeError as error:
        raise Unreadable("it is not UTF-8 text") from error
    try:
        data = jsonc.parse(text)
    except (ValueError, RecursionError) as error:
        where = f" at line {error.lineno}: {error.msg}" if isinstance(error, json.JSONDecodeError) else ""
        raise Unreadable(f"it is not valid JSON{where}") from error
    if not isinstance(data, dict):
        raise Unreadable("it must hold an object")
    return data


def _text(path: Path) -> str:
    # Without O_NONBLOCK, to open a pipe that nobody writes to would wait for ever.
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
        os.close(fd)
        wrong = f"larger than {MOST_BYTES >> 20} MiB" if stat.S_ISREG(found.st_mode) else "not a regular file"
        raise Unreadable(f"it is {wrong}")
    with open(fd, "rb") as file:
        return file.read(MOST_BYTES).decode("utf-8-sig")
