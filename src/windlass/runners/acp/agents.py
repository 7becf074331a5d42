"""The agents that are known: programs, environments, and the modes in which each asks before it changes anything."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from windlass.ports import Health, Permissions
from windlass.runners.acp.gemini_chats import chat_settings, keep_chat
from windlass.runtimes import ACP, CODEX, GEMINI, Runtime

__all__ = ["ANY_AGENT", "CODEX_AGENT", "GEMINI_AGENT", "AgentProgram", "KnownAgent"]

BASE = frozenset(
    {
        *("HOME", "PATH", "LANG", "LC_ALL", "TMPDIR", "USER", "LOGNAME", "SHELL", "TZ"),
        *("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"),
        *("http_proxy", "https_proxy", "no_proxy", "all_proxy"),
    }
)
"""Names of variables that every agent gets; besides them those that begin with one of its prefixes."""


class AgentProgram(msgspec.Struct, frozen=True):
    """The program of an agent as it is started."""

    argv: tuple[str, ...]
    picked: Mapping[str, str]
    """The variables that it gets of the engine's."""

    def env(self, request: Mapping[str, str]) -> dict[str, str]:
        return {**self.picked, **request}


class KnownAgent(msgspec.Struct, frozen=True):
    row: Runtime
    command: tuple[str, ...] = ()
    """The program and its arguments; empty where the user's settings must name them."""
    prefixes: tuple[str, ...] = ()
    """Beginnings of the names of its own variables."""
    settings: Mapping[str, str] = msgspec.field(default_factory=dict)
    """Variables that are set for it."""
    asks_in: tuple[str, ...] = ()
    """Its modes in which it asks before it changes anything; the first that it offers is used."""
    allows_in: tuple[str, ...] = ()
    """Its modes in which it asks nothing, for a step that is allowed everything."""
    counts_calls: bool = False
    """It reports the tokens of each call of the model, not those of the conversation so far."""
    names_server: bool = False
    """It tells the server of an MCP tool apart from the arguments that the model gives it."""
    reads_folder: bool = False
    """It may read settings of a folder that it was not told to trust."""
    before_load: Callable[[str, Mapping[str, str]], None] | None = None
    """Prepares its files before it starts to go on with a session, in an environment."""

    @property
    def name(self) -> str:
        return self.row.name

    def located(self, path: str | None, command: Sequence[str], env: Mapping[str, str]) -> AgentProgram | Health:
        """The program to start, or why there is none. `path` and `command` are the user's settings."""
        argv = tuple(command) or self.command
        if not argv:
            detail = "no agent is set up for it"
            return Health(
                False, detail, f'name it in your settings: [runtimes.{self.name}] command = ["my-agent", "--acp"]'
            )
        named = os.path.expanduser(path or argv[0])
        found = shutil.which(named, path=env.get("PATH", os.defpath))
        if found is None:
            where = "is not an executable program" if path or os.sep in named else "is not on PATH"
            return Health(False, f"{named} {where}", self.row.install)
        picked = {name: value for name, value in env.items() if name in BASE or name.startswith(self.prefixes)}
        return AgentProgram((os.path.abspath(found), *argv[1:]), {**self.settings, **picked})

    def mode(self, permissions: Permissions, offered: Sequence[str]) -> str | None:
        """The mode for these permissions; None leaves the agent in its own."""
        everything = permissions.mode == "allow" and not permissions.deny and permissions.tools is None
        return next((mode for mode in (self.allows_in if everything else self.asks_in) if mode in offered), None)

    def login(self, methods: Sequence[Mapping[str, Any]], env: Mapping[str, str]) -> str | None:
        """The way to log in that needs no person: with a key that is in the environment."""
        for method in methods:
            names = [str(one.get("name")) for one in method.get("vars") or () if isinstance(one, Mapping)]
            if method.get("type") == "env_var" and names and all(env.get(name) for name in names):
                return str(method.get("id"))
        return None


GEMINI_AGENT = KnownAgent(
    GEMINI,
    command=("gemini", "--acp"),
    prefixes=("GEMINI_", "GOOGLE_", "CODE_ASSIST_", "CLOUD_ML_", "VERTEX_"),
    settings={"GEMINI_CLI_NO_RELAUNCH": "true", **chat_settings()},
    asks_in=("default",),
    allows_in=("yolo",),
    before_load=keep_chat,
)
CODEX_AGENT = KnownAgent(
    CODEX,
    command=("codex-acp",),
    prefixes=("CODEX_", "OPENAI_", "AZURE_OPENAI_"),
    asks_in=("read-only",),
    allows_in=("agent-full-access", "full-access"),
    counts_calls=True,
    names_server=True,
)
ANY_AGENT = KnownAgent(ACP, prefixes=("ANTHROPIC_", "OPENAI_", "GEMINI_", "GOOGLE_", "XDG_"), reads_folder=True)
