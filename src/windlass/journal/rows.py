"""An event as a row of the journal: its checksum, and reading it back.

The checksum covers the event's bytes, its execution and its sequence, so that a changed byte and a row in the wrong
place are both noticed. It shows accidents, not intent. Rows that an older release has written have none.
"""

from __future__ import annotations

import zlib
from typing import Any

import msgspec

from windlass.core.events import Event, decode
from windlass.errors import Damaged

__all__ = ["checksum", "decode_row"]


def checksum(execution: str, seq: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(f"{execution} {seq}".encode()))


def decode_row(execution: str, seq: int, body: Any, stored: Any) -> Event:
    """The event of a row. Raises `Damaged`; a damaged row may hold values of any type."""
    if not isinstance(body, bytes):
        raise Damaged(execution, seq, "it is not stored as bytes")
    if stored is not None and stored != checksum(execution, seq, body):
        raise Damaged(execution, seq, "its checksum does not match its contents")
    try:
        return decode(body)
    except msgspec.DecodeError as error:
        newer = "it may have been written by a newer Windlass: upgrade and try again"
        raise Damaged(execution, seq, str(error), advice=(newer,)) from error
