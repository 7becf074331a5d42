"""Cap on the output of a use of a tool, which the journal keeps: more is dropped, and the use goes on.

The text is counted in the tool's own thread, if it has one: excess never reaches the loop.
"""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["MOST_SHOWN", "OutputCap"]

MOST_SHOWN = 4 * 1024 * 1024
"""Characters that one attempt may show."""
EACH = 64
"""Characters that every piece counts as, besides its own: each may become a record."""


class OutputCap:
    """`call.output`, within bounds."""

    __slots__ = ("_left", "_output")

    def __init__(self, output: Callable[[str, str], None]) -> None:
        self._output = output
        self._left = MOST_SHOWN

    def say(self, stream: str, text: str) -> None:
        """Show it past the bounds: for the engine's own words."""
        self._output(stream, text)

    def __call__(self, stream: str, text: str) -> None:
        if self._left <= 0:
            return
        room = self._left
        self._left -= len(text) + EACH
        self.say(stream, text[:room])
        if self._left <= 0:
            self.say("note", f"more than {MOST_SHOWN >> 20} MiB of output: the rest is not stored\n")
