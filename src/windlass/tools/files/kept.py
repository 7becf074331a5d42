"""In which order an execution's steps changed files, and how much is kept of what was there before.

A person may want a step taken back long after it ended (`retrace.py`). Then two things must be known that no single
step knows: which of several changes came later, and whether there is room for one more copy. Both stand in one small
file beside the scratch folders. Losing it loses no safety: the order then falls back on the times of the logs, and
the bound starts anew.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

__all__ = ["MOST_KEPT", "number_change", "owner_of"]

MOST_KEPT = 64 << 20
"""Bytes kept for one step, with all that its agent or its programs did."""
_TALLY = ".kept"


def owner_of(scratch: str) -> str:
    """The step that a scratch folder belongs to: `build` of `build.call_3`. No step has a dot in its name."""
    return scratch.partition(".")[0]


def number_change(scratch: Path, size: int) -> tuple[int, bool]:
    """The number of one more finished change, and whether so many bytes of what it replaced can be kept."""
    fd = os.open(scratch.parent / _TALLY, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        count, kept = _read(fd)
        step = owner_of(scratch.name)
        fits = kept.get(step, 0) + size <= MOST_KEPT
        if fits and size:
            kept[step] = kept.get(step, 0) + size
        text = json.dumps({"count": count + 1, "kept": kept}).encode()
        os.pwrite(fd, text, 0)
        os.ftruncate(fd, len(text))
        return count + 1, fits
    finally:
        os.close(fd)


def _read(fd: int) -> tuple[int, dict[str, int]]:
    try:
        found: Any = json.loads(os.pread(fd, os.fstat(fd).st_size, 0) or b"{}")
        return int(found.get("count", 0)), {str(step): int(size) for step, size in found.get("kept", {}).items()}
    except (ValueError, AttributeError, TypeError):
        return 0, {}
