"""WebSocket frames, made by hand once for everybody.

What a server sends is not masked and, without compression, is the same for every client: so an event's frame is made
once, and the frames of a moment are joined into one piece that is written to each client with one call.
"""

from __future__ import annotations

import struct

__all__ = ["payload", "text_frame"]

_WHOLE_TEXT = 0x81
"""The only frame of its message, and text."""


def text_frame(text: bytes) -> bytes:
    """One message of UTF-8 text as one unmasked frame (RFC 6455, section 5.2)."""
    size = len(text)
    if size < 126:
        return struct.pack("!BB", _WHOLE_TEXT, size) + text
    if size < 65536:
        return struct.pack("!BBH", _WHOLE_TEXT, 126, size) + text
    return struct.pack("!BBQ", _WHOLE_TEXT, 127, size) + text


def payload(frame: bytes) -> bytes:
    """The text in a frame that `text_frame` made."""
    return frame[{126: 4, 127: 10}.get(frame[1], 2) :]
