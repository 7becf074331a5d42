"""Hears what apprise logs during one call, and keeps it from anybody else.

apprise says yes or no; why, only its log knows. Details that tell a refused connection from one that was lost half-way
are logged for debugging, beside payloads and addresses: they are heard here, and go no further.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from threading import Lock

__all__ = ["Heard", "listening"]

MOST = 2000
"""Records that are kept of one call."""


class Heard(list[tuple[int, str]]):
    """Level and text, in order."""

    @property
    def full(self) -> bool:
        """There may have been more."""
        return len(self) >= MOST

    def texts(self, lowest: int, highest: int = logging.CRITICAL) -> list[str]:
        return [text for level, text in self if lowest <= level <= highest]


_heard: ContextVar[Heard | None] = ContextVar("windlass_apprise_heard", default=None)
_lock = Lock()


class _Ear(logging.Filter):
    def __init__(self, lowest: int) -> None:
        super().__init__()
        self._lowest = lowest

    def filter(self, record: logging.LogRecord) -> bool:
        heard = _heard.get()
        if heard is None:
            return record.levelno >= self._lowest  # somebody else's use of apprise: as it was before
        if not heard.full:
            heard.append((record.levelno, record.getMessage()))
        return False


@contextmanager
def listening() -> Iterator[Heard]:
    """For this thread, and those that apprise starts from it."""
    logger = logging.getLogger("apprise")
    with _lock:
        if not any(isinstance(found, _Ear) for found in logger.filters):
            logger.addFilter(_Ear(logger.getEffectiveLevel()))
            logger.setLevel(logging.DEBUG)
    heard = Heard()
    token = _heard.set(heard)
    try:
        yield heard
    finally:
        _heard.reset(token)
