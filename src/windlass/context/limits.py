"""Window, threshold, and the room of each part of a request."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

__all__ = ["THRESHOLD", "ContextLimits", "ContextRule"]

THRESHOLD = 0.8


class ContextRule(NamedTuple):
    """Settings of one agent's context, as the plan, the role and the settings name them."""

    threshold: float = THRESHOLD
    """Part of the window at which the older messages are summarised."""
    model: str | None = None
    """The model that summarises; None is the step's own."""
    window: int | None = None
    """The window in tokens, where the settings name one; None: as the price data say."""


class ContextLimits(msgspec.Struct, frozen=True):
    """Numbers of tokens for a window."""

    window: int
    threshold: float = THRESHOLD

    @property
    def most(self) -> int:
        """Tokens of a request above which the older part of it is summarised."""
        return int(self.window * self.threshold)

    @property
    def keep(self) -> int:
        """Tokens of the newest messages, which stay verbatim."""
        return int(self.most * 0.3)

    @property
    def summary(self) -> int:
        """Tokens of a summary at most."""
        return max(100, min(4_000, int(self.most * 0.1)))

    @property
    def pinned(self) -> int:
        """Tokens of all pinned facts at most."""
        return max(100, min(12_000, int(self.most * 0.2)))

    @property
    def result(self) -> int:
        """Tokens of one tool result at most."""
        return max(100, int(self.most * 0.25))

    @property
    def material(self) -> int:
        """Tokens of the files and handoffs of the first prompt at most: work must fit beside them."""
        return max(100, int(self.most * 0.5))
