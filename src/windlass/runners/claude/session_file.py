"""Uuids of messages in the session files of Claude Code.

A message keeps the uuid that we send it with: as its own after a turn, as `source_uuid` within one. The runtime drops a
second message with the uuid of the first kind by itself, but not of the second: so we look before we send it again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

__all__ = ["known_uuids", "uuid_of"]

_UUID = re.compile(rb'"(?:source_)?uuid":"([0-9a-f-]{36})"')


def uuid_of(message: str) -> str:
    """The uuid of a person's message, the same after a crash."""
    return str(uuid5(NAMESPACE_OID, f"windlass message {message}"))


def known_uuids(env: Mapping[str, str], session: str) -> set[str]:
    """Uuids of everything in that session; empty if its file is not there."""
    config = Path(env.get("CLAUDE_CONFIG_DIR") or Path(env.get("HOME", ""), ".claude"))
    found: set[str] = set()
    for path in config.glob(f"projects/*/{session}.jsonl"):
        with path.open("rb") as lines:
            for line in lines:
                found.update(name.decode() for name in _UUID.findall(line))
    return found
