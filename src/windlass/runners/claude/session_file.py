"""Session files of Claude Code: uuids of their messages, and copies for other machines.

A session is `projects/FOLDER/SESSION.jsonl` below its configuration, with a folder beside it for results of tools and
subagents. FOLDER is made of the path of the working directory, which is the same on every machine that goes on with it.

A message keeps the uuid that we send it with: as its own after a turn, as `source_uuid` within one. The runtime drops a
second message with the uuid of the first kind by itself, but not of the second: so we look before we send it again.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from uuid import NAMESPACE_OID, uuid5

__all__ = ["copy_in", "copy_out", "known_uuids", "uuid_of"]

_UUID = re.compile(rb'"(?:source_)?uuid":"([0-9a-f-]{36})"')


def uuid_of(message: str) -> str:
    """The uuid of a person's message, the same after a crash."""
    return str(uuid5(NAMESPACE_OID, f"windlass message {message}"))


def known_uuids(env: Mapping[str, str], session: str) -> set[str]:
    """Uuids of everything in that session; empty if its file is not there."""
    found: set[str] = set()
    for path in _projects(env).glob(f"*/{session}.jsonl"):
        with path.open("rb") as lines:
            for line in lines:
                found.update(name.decode() for name in _UUID.findall(line))
    return found


def copy_out(env: Mapping[str, str], session: str, folder: Path) -> None:
    """Copy the session into the folder, in place of what is there."""
    shutil.rmtree(folder, ignore_errors=True)
    _copy(_projects(env), session, folder)


def copy_in(env: Mapping[str, str], session: str, folder: Path) -> bool:
    """Copy the session from the folder to where Claude Code looks for it; False if it is not there."""
    return _copy(folder, session, _projects(env))


def _copy(source: Path, session: str, target: Path) -> bool:
    found = list(source.glob(f"*/{session}.jsonl"))
    for path in found:
        beside, placed = path.with_suffix(""), target / path.parent.name
        placed.mkdir(mode=0o700, parents=True, exist_ok=True)
        if beside.is_dir():
            shutil.copytree(beside, placed / session, symlinks=True, dirs_exist_ok=True)
        draft = placed / f".{session}"
        shutil.copyfile(path, draft)
        draft.replace(placed / path.name)
    return bool(found)


def _projects(env: Mapping[str, str]) -> Path:
    return Path(env.get("CLAUDE_CONFIG_DIR") or Path(env.get("HOME", ""), ".claude"), "projects")
