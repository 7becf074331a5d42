"""The journal in memory, where tests look for it."""

from __future__ import annotations

from windlass.journal.memory import MemoryJournal

__all__ = ["MemoryJournal"]
