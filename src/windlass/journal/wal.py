"""Finds commits that a damaged or cut write-ahead log has lost.

SQLite reads the log up to the first frame whose checksum is wrong and forgets the rest without a word: to it, that is
what a power cut leaves. But the shared index (`-shm`) of processes that died still says how many frames were committed.
More of those than can be read are acknowledged commits that are gone.

Only to be asked while this process has no connection to the database: closing a file of it would drop SQLite's locks.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

__all__ = ["lost_commits"]

_HEADER, _FRAME = 32, 24
_MAGIC = 0x377F0682


class _Index(NamedTuple):
    """What the shared index says of the log."""

    frames: int
    """Committed."""
    copied: int
    """Of those, already in the database itself."""
    salts: bytes


def lost_commits(path: Path) -> str:
    """What is wrong with the log of a database, in words; empty if nothing is."""
    log, index = path.with_name(path.name + "-wal"), _index(path.with_name(path.name + "-shm"))
    content = log.read_bytes() if log.exists() else b""
    if index is not None and content and index.salts != content[16:24]:
        index = None  # the log was begun anew, or it is another one: the frames tell
    if index is not None and index.frames <= index.copied:
        return ""
    if not content:
        missing = index.frames if index is not None else 0
        return f"{log} is gone, with {missing} committed pages" if missing else ""
    readable, broken = _readable(content)
    if index is not None and readable < index.frames:
        return f"{log} is damaged: {readable} of {index.frames} committed pages can be read"
    if broken:
        return f"{log} is damaged: {broken}"
    return ""


def _index(file: Path) -> _Index | None:
    try:
        head = file.read_bytes()[:136]
    except OSError:
        return None
    if len(head) < 136 or head[:48] != head[48:96] or not head[12]:
        return None  # it was being written, or never used
    (frames,) = struct.unpack_from("=I", head, 16)
    (copied,) = struct.unpack_from("=I", head, 96)
    return _Index(frames, copied, head[32:40])


def _readable(content: bytes) -> tuple[int, str]:
    """Frames that SQLite can read, and what is wrong with the one after them, if it was one of this log."""
    if len(content) < _HEADER:
        return 0, ""
    magic, _version, size = struct.unpack_from(">III", content)
    order = "<" if magic == _MAGIC else ">"
    sums = _checksum(content[:24], order, (0, 0))
    if magic & ~1 != _MAGIC or sums != struct.unpack_from(">II", content, 24):
        return 0, "its first bytes do not match their checksum"
    salts = content[16:24]
    count, at = 0, _HEADER
    while at + _FRAME + size <= len(content):
        head = content[at : at + _FRAME]
        following = _checksum(head[:8] + content[at + _FRAME : at + _FRAME + size], order, sums)
        if head[8:16] != salts or following != struct.unpack_from(">II", head, 16):
            ours = head[8:12] == salts[:4] or head[12:16] == salts[4:]
            return count, f"page {count + 1} in it does not match its checksum" if ours else ""
        sums = following
        count, at = count + 1, at + _FRAME + size
    return count, ""


def _checksum(data: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    """SQLite's own, over pairs of words."""
    first, second = sums
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for low, high in zip(words[::2], words[1::2], strict=True):
        first = (first + low + second) & 0xFFFFFFFF
        second = (second + high + first) & 0xFFFFFFFF
    return first, second
