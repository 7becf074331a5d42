"""Stop a timeout's clock while a person takes time to answer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["off_the_clock"]


@contextmanager
def off_the_clock(limit: asyncio.Timeout | None) -> Iterator[None]:
    """Within this, the limit's time stands still."""
    ends = limit.when() if limit is not None else None
    if limit is None or ends is None:
        yield
        return
    now = asyncio.get_running_loop().time
    left = ends - now()
    limit.reschedule(None)
    try:
        yield
    finally:
        with suppress(RuntimeError):  # the timeout has ended meanwhile
            limit.reschedule(now() + left)
