"""Adopting a home: a folder whose content its user has seen becomes the user's own.

The files that say nothing about executions and that others may know or have prepared are not taken over: the server's
token, the answers of tools that were kept, the list of tools of MCP servers. They are made anew when they are needed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from windlass.errors import NotPermitted
from windlass.homes.find import look_at
from windlass.homes.names import DATABASE, STATE_NAMES
from windlass.homes.proof import mark_home_as_ours
from windlass.homes.safety import entry_flaw

__all__ = ["adopt_home", "database_of", "require_adoptable"]

NOT_TAKEN_OVER = ("server.token", "mcp-tools.json", "gates.db", "gates.db-wal", "gates.db-shm")


def require_adoptable(home: Path) -> None:
    """Raise unless all that keeps a home from being used is a missing proof, or modes that can be set right."""
    for path in (home, *(home / name for name in STATE_NAMES)):
        if flaw := entry_flaw(path):
            raise NotPermitted(f"the home {home} cannot be adopted: {flaw}", advice=(f"look at it: ls -la {home}",))


def adopt_home(home: Path, env: Mapping[str, str] = os.environ) -> None:
    """Make it the user's own, and private."""
    require_adoptable(home)
    os.chmod(home, 0o700)
    for name in NOT_TAKEN_OVER:
        (home / name).unlink(missing_ok=True)
    for path in (home / name for name in STATE_NAMES):
        if path.exists():
            os.chmod(path, stat.S_IMODE(path.stat().st_mode) & 0o700)
    mark_home_as_ours(home, env)
    look_at(home, env).require()


def database_of(home: Path) -> list[Path]:
    """The files that its database is made of, as far as they are there."""
    return [path for suffix in ("", "-wal") if (path := home / (DATABASE + suffix)).exists()]
