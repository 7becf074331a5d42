"""One MCP server as somebody has named it, and what it gets to see of the environment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from windlass.errors import Category, ToolError
from windlass.redact import Redactor
from windlass.settings.tools import McpServerSettings

__all__ = ["Server"]


@dataclass(frozen=True)
class Server:
    name: str
    """As it stands in `mcp.NAME.TOOL`."""
    told: McpServerSettings
    source: str = "your settings"
    """Where it is named, for people."""
    title: str = ""
    """Its name as it is written there."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Headers that are written out in a file of another program's."""

    @cached_property
    def digest(self) -> str:
        """The same as long as its definition is: what is remembered of its tools is good for that long."""
        whole = [self.told.model_dump(mode="json"), dict(self.headers)]
        return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()

    @property
    def command(self) -> list[str]:
        return [self.told.command or "", *self.told.args]

    def environment(self, env: Mapping[str, str], environ: Mapping[str, str]) -> dict[str, str]:
        """What its process sees: what all children see, what the user allows it besides, and what its entry says."""
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
