"""Names in a home, and the user's own folder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from windlass.errors import NotPermitted, UsageError

__all__ = ["DATABASE", "HARMLESS", "HOME_FILE", "STATE_NAMES", "has_checkpoints", "not_saved", "user_folder"]

HOME_FILE = "home.json"
"""The id of a home, and the proof that its user made it."""
DATABASE = "windlass.db"

_DATABASES = (DATABASE, "gates.db", "messages.db")
STATE_NAMES = (
    HOME_FILE,
    "config.toml",
    *(name + suffix for name in _DATABASES for suffix in ("", "-wal", "-shm")),
    "server.token",
    "server.lock",
    "mcp-tools.json",
    "executions",
    "drivers",
    "places",
)
"""Entries of a home that the engine writes, and trusts when it reads them."""

HARMLESS = frozenset({".gitignore", ".gitkeep", ".DS_Store", "README.md", "lost+found", "agents", "skills"}) | {
    "composed-tools"
}
"""Entries that a home may have before it is anybody's: roles, skills and composed tools are shared with a repository,
and have rules of their own for what they may do."""


def has_checkpoints(home: Path) -> bool:
    """True if an execution has its automatic file: a journal without executions was then deleted or emptied."""
    return any((home / "executions").glob("*.json"))


def user_folder(env: Mapping[str, str] = os.environ) -> Path:
    """The folder with the user's own settings, trust and key."""
    base = env.get("XDG_CONFIG_HOME")
    if not base:
        try:
            base = str(Path(env.get("HOME") or Path.home()) / ".config")
        except RuntimeError as error:
            raise UsageError(
                "this user has no home directory, so there is no folder for their settings and key",
                advice=("name one: export XDG_CONFIG_HOME=DIR",),
            ) from error
    return Path(base) / "windlass"


def not_saved(what: str, folder: Path, error: OSError) -> NotPermitted:
    """The error where `what` (`your settings cannot be saved in`) is true of the user's folder."""
    return NotPermitted(
        f"{what} {folder}: {error.strerror}",
        advice=("name a folder that you can write to: export XDG_CONFIG_HOME=DIR",),
    )
