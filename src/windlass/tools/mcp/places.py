"""Where MCP servers are named: the user's settings, and the files that Claude Code and OpenCode keep them in.

A project's own files start programs, so they count only where its folder is trusted. Of two servers with the same name
the first counts: settings, what Claude Code's user keeps for this folder, the project's files, the user's own files.
Something wrong with a file or an entry is told by name, and harms nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from windlass.settings.tools import McpServerSettings
from windlass.tools.mcp.files import Unreadable, read_json
from windlass.tools.mcp.formats import Definition, Unusable, from_claude, from_opencode, is_windlass
from windlass.tools.mcp.names import distinct
from windlass.tools.mcp.server import Server

__all__ = ["find_servers"]

MOST_SERVERS = 200
Read = Callable[[Mapping[str, Any], Mapping[str, str]], Definition | None]


class _Entry(NamedTuple):
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
) -> tuple[list[Server], list[str]]:
    """The servers, and what is wrong with where they are named.

    `env` is what children may see, and all that entries of files are filled in from; `environ` says where the user's
    own files are. `trusted` is asked only if the folder names servers.
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
        self._found: dict[str, Server] = {}

    def run(self, settings: Mapping[str, McpServerSettings]) -> tuple[list[Server], list[str]]:
        self._found = {name: Server("", told, title=name) for name, told in settings.items()}
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
            Server(called[title], server.told, server.source, title, server.headers)
            for title, server in self._found.items()
            if not is_windlass(server.told)
        ]
        if len(servers) > MOST_SERVERS:
            self._problems.append(f"{len(servers)} MCP servers are named; only the first {MOST_SERVERS} are used")
        return servers[:MOST_SERVERS], self._problems

    def _local(self, claude: dict[str, Any]) -> dict[str, Any]:
        """What Claude Code's user keeps for this folder alone."""
        projects = claude.get("projects")
        found = projects.get(str(self._folder.resolve())) if isinstance(projects, dict) else None
        return found if isinstance(found, dict) else {}

    def _project(self, mine: dict[str, Any]) -> Iterator[_Entry]:
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

    def _entries(self, data: dict[str, Any], key: str, file: Path, read: Read) -> Iterator[_Entry]:
        table = data.get(key)
        if table is not None and not isinstance(table, dict):
            self._problems.append(f"{file}: `{key}` must be an object; its MCP servers are left out")
        elif table:
            yield from (_Entry(name, value, str(file), read) for name, value in table.items())

    def _take(self, entries: Iterator[_Entry]) -> None:
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
                self._found[name] = Server("", defined[0], source, name, defined[1])
