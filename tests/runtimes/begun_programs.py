"""Tells programs from forks: until its exec, a child shows the command line and the environment of its parent."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

__all__ = ["without_forks"]


def without_forks(pids: Iterable[int]) -> set[int]:
    """Those whose parents are not among them."""
    all_of_them = set(pids)
    return {pid for pid in all_of_them if _parent(pid) not in all_of_them}


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0  # it has ended
