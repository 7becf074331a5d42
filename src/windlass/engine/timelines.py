"""Timelines of executions, kept between questions: a page that is open asks again and again for the same one.

Each is advanced by the events that came since. A moment of the past is folded anew up to its event, and the last such
fold is kept too, for the one after it is near.
"""

from __future__ import annotations

import asyncio
import gc
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from windlass.core.record import folded_on
from windlass.core.timeline import Timeline
from windlass.errors import UsageError
from windlass.ports import Journal

__all__ = ["Timelines"]

MOST_KEPT = 8
"""Executions whose timelines are kept: each holds all its steps' inputs and outputs."""
PAGE = 2_000
"""Events that are folded before others have a turn."""


@contextmanager
def _uncollected() -> Iterator[None]:
    """Fold without Python's search for garbage: a fold makes none, and the search goes over all of it many times."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


class Timelines:
    """Timelines of the executions in a journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._kept: OrderedDict[tuple[str, bool], tuple[Timeline, int]] = OrderedDict()
        """Each with the position of its last event, which no other event ever has."""
        self._turn = asyncio.Lock()

    async def at(self, execution: str, seq: int | None = None) -> Timeline:
        """The timeline of an execution, by its full id, now or after one of its events. It must not be kept."""
        async with self._turn:
            key = (execution, seq is not None)
            kept = self._kept.pop(key, None)
            if kept is not None and ((seq is not None and kept[0].seq > seq) or not await self._is_there(*kept)):
                kept = None
            self._kept[key] = found = await self._advanced(execution, kept, seq)
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            return found[0]

    async def _is_there(self, timeline: Timeline, position: int) -> bool:
        """False if the execution was removed and restored: what was folded may not be what it is now."""
        entries = await self._journal.read(timeline.id, timeline.seq - 1, 1)
        return bool(entries) and entries[0].position == position

    async def _advanced(
        self, execution: str, kept: tuple[Timeline, int] | None, until: int | None
    ) -> tuple[Timeline, int]:
        timeline, position = kept or (None, 0)
        while True:
            before = timeline.seq if timeline is not None else 0
            wanted = PAGE if until is None else min(PAGE, until - before)
            entries = await self._journal.read(execution, before, wanted) if wanted else []
            with _uncollected():
                timeline = folded_on(execution, timeline, [entry.event for entry in entries], Timeline)
            position = entries[-1].position if entries else position
            if until is not None and len(entries) < wanted:
                raise UsageError(f"execution {execution} has {timeline.seq} events, not {until}")
            if len(entries) < PAGE:
                return timeline, position
            await asyncio.sleep(0)
