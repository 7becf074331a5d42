"""Execution ids: UUIDv7, so that they sort by the time they were made (D1)."""

from __future__ import annotations

import hashlib
import os
import re
import time

__all__ = ["derived_id", "is_id", "new_id"]

_last = 0


def new_id() -> str:
    """RFC 9562: 48 bits of milliseconds, 12 bits of the millisecond's fraction, 62 random bits.

    Two made by one process in the same instant still sort in the order they were made.
    """
    global _last
    millis, rest = divmod(time.time_ns(), 1_000_000)
    fraction = rest * 4096 // 1_000_000
    random = int.from_bytes(os.urandom(8)) >> 2
    made = (millis << 80) | (0x7 << 76) | (fraction << 64) | (0b10 << 62) | random
    _last = made if made > _last else _last + 1
    return _written(_last)


def is_id(text: str) -> bool:
    """True for a text of that form: it names files."""
    return re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", text) is not None


def derived_id(at: float, *parts: str) -> str:
    """The one id for a moment and these texts, whichever process asks for it, and however often."""
    millis = min(max(round(at * 1000), 0), (1 << 48) - 1)
    bits = int.from_bytes(hashlib.sha256("\0".join(parts).encode()).digest()[:10])
    return _written((millis << 80) | (0x7 << 76) | (bits >> 68 << 64) | (0b10 << 62) | (bits & (1 << 62) - 1))


def _written(number: int) -> str:
    text = f"{number:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
