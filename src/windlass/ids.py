"""Execution ids: UUIDv7, so that they sort by the time they were made (D1)."""

from __future__ import annotations

import os
import time
import uuid

__all__ = ["new_id"]


def new_id() -> str:
    """RFC 9562: 48 bits of milliseconds, then 74 random bits around the version and variant marks."""
    millis = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10))
    high = (millis << 16) | 0x7000 | (random >> 68)
    low = (0b10 << 62) | (random & ((1 << 62) - 1))
    return str(uuid.UUID(int=(high << 64) | low))
