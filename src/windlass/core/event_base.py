"""The common part of all records of the journal, and the usage of an agent."""

from __future__ import annotations

from typing import Literal

import msgspec

__all__ = ["EventBase", "Usage"]


class EventBase(msgspec.Struct, frozen=True, tag_field="type", omit_defaults=True, gc=False):
    # Without `gc`: an event holds plain data alone, so that no cycle leads through it.
    at: float
    """Seconds since the epoch."""


class Usage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Total usage of an agent's attempt, so far or at its end."""

    tokens_in: int = 0
    """Everything the models read, including reads from a cache and writes to one."""
    tokens_out: int = 0
    cache_read: int = 0
    """Of `tokens_in`: read from a cache."""
    cache_write: int = 0
    """Of `tokens_in`: written to a cache."""
    usd: float | None = None
    """None is unknown, which is not the same as nothing."""
    source: Literal["runtime", "prices", "unknown"] = "unknown"
    """Source of the cost: the runtime itself, or our prices."""
    model: str = ""
    """The model that did (most of) it, by its own name."""
    at_least: float = 0.0
    """Known part of the dollars where `usd` is None: the calls before the one that could not be counted."""
