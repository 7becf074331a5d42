"""How much of files a use reads and writes: counted where it happens, told by whoever runs the use (H1).

It goes with the context of the thread that does the work: all that reads and writes here would have to hand it on
otherwise. Only contents count, those of undo copies too; names of entries and the lines of the undo log do not.
"""

from __future__ import annotations

from contextvars import ContextVar

__all__ = ["Tally", "count_read", "count_written", "tally"]


class Tally:
    """Bytes, so far."""

    __slots__ = ("cpu", "read", "written")

    def __init__(self) -> None:
        self.read = self.written = 0
        self.cpu = 0.0
        """Seconds that the thread computed."""


tally: ContextVar[Tally | None] = ContextVar("windlass_files_tally", default=None)
"""Of the use whose work this is; None where nobody counts."""


def count_read(size: int) -> None:
    if (counting := tally.get()) is not None:
        counting.read += size


def count_written(size: int) -> None:
    if (counting := tally.get()) is not None:
        counting.written += size
