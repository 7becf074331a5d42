"""What `ps` lists: all processes of the system, for systems that have no /proc to look at. Called by `group`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Listed", "beneath", "list_processes"]

COLUMNS = "pid=,ppid=,pgid=,rss=,time=,lstart="
"""Those that Linux, macOS and the BSDs have in common."""


@dataclass(frozen=True, slots=True)
class Listed:
    parent: int
    group: int
    memory: int
    """Bytes that are resident; those that it shares are counted for each who does."""
    cpu: float
    """Seconds of computing: its own, without its children's."""
    born: str
    """Tells it from a later one of that pid."""


async def list_processes() -> dict[int, Listed]:
    """By pid; empty where there is no `ps`."""
    try:
        ps = await asyncio.create_subprocess_exec(
            *("ps", "-axo", COLUMNS), stdout=asyncio.subprocess.PIPE, stdin=asyncio.subprocess.DEVNULL
        )
    except OSError:
        return {}
    table, _ = await ps.communicate()
    rows = [line.split(maxsplit=5) for line in table.decode(errors="replace").splitlines()]
    return {
        int(pid): Listed(int(parent), int(group), int(memory) * 1024, _seconds(cpu), born)
        for pid, parent, group, memory, cpu, born in rows
    }


def beneath(pid: int, processes: Mapping[int, Listed]) -> set[int]:
    """The descendants of a process that still have their parents."""
    family = [pid]
    for member in family:  # which grows by what is found below
        family += [child for child, listed in processes.items() if listed.parent == member]
    return set(family[1:])


def _seconds(text: str) -> float:
    """From `[[days-]hours:]minutes:seconds`."""
    days, _, clock = text.rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + 86400 * int(days or 0)
