"""What a person is asked to allow, bound to a hash of exactly that (C6)."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

__all__ = ["digest_of"]

_encoder = msgspec.json.Encoder(order="deterministic")


def digest_of(step: str, tool: str, arguments: Any) -> str:
    """Names one request: another step, tool or argument gives another digest, and needs another answer."""
    return hashlib.sha256(_encoder.encode([step, tool, arguments])).hexdigest()
