"""Processes that a turn leaves behind beneath a server that lives on (A8).

An agent's shell commands lead sessions of their own, unlike what the server keeps for itself (MCP servers, language
servers). So what still runs in another session than the server's when no turn is running was left by a turn. The look
needs /proc; without it nothing is found here, and leftovers end with the server.
"""

from __future__ import annotations

import os
from typing import NamedTuple

__all__ = ["left_beneath"]


class _Stat(NamedTuple):
    parent: int
    session: int
    state: str


def left_beneath(server: int) -> dict[int, str]:
    """Living processes that turns have started beneath this server, and the folder that each stands in.

    Those that have lost their parents are found too.
    """
    table = _table()
    if server not in table:
        return {}
    ours = table[server]
    # Orphans are given to the keeper, which is the server's parent and has no other child of its own.
    family = [ours.parent]
    for member in family:  # which grows by what is found below
        family += [pid for pid, stat in table.items() if stat.parent == member]
    strangers = (pid for pid in family[1:] if pid != server and table[pid].session != ours.session)
    return {pid: _folder(pid) for pid in strangers if table[pid].state not in "ZX"}


def _folder(pid: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/cwd")
    except OSError:
        return ""  # it has ended, or is another user's


def _table() -> dict[int, _Stat]:
    table: dict[int, _Stat] = {}
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return table
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue  # it has ended
        table[pid] = _Stat(int(fields[1]), int(fields[3]), fields[0].decode())
    return table
