"""Timelines of executions, kept between questions: a page that is open asks again and again for the same one.

Each is advanced by the events that came since. A moment of the past is folded anew up to its event, and the last such
fold is kept too, for the one after it is near.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from windlass.core.record import folded_on
from windlass.core.timeline import Timeline
from windlass.errors import UsageError
from windlass.ports import Journal

__all__ = ["Timelines"]

MOST_KEPT = 8
"""Executions whose timelines are kept: each holds all its steps' inputs and outputs."""
PAGE = 2_000
"""Events that are folded before others have a turn."""


class Timelines:
    """Timelines of the executions in a journal."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._kept: OrderedDict[tuple[str, bool], Timeline] = OrderedDict()
        self._turn = asyncio.Lock()

    async def at(self, execution: str, seq: int | None = None) -> Timeline:
        """The timeline of an execution, by its full id, now or after one of its events. It must not be kept."""
        async with self._turn:
            key = (execution, seq is not None)
            kept = self._kept.pop(key, None)
            if kept is not None and seq is not None and kept.seq > seq:
                kept = None
            found = await self._advanced(execution, kept, seq)
            self._kept[key] = found
            while len(self._kept) > MOST_KEPT:
                self._kept.popitem(last=False)
            return found

    async def _advanced(self, execution: str, timeline: Timeline | None, until: int | None) -> Timeline:
        while True:
            before = timeline.seq if timeline is not None else 0
            wanted = PAGE if until is None else min(PAGE, until - before)
            entries = await self._journal.read(execution, before, wanted) if wanted else []
            timeline = folded_on(execution, timeline, [entry.event for entry in entries], Timeline)
            if until is not None and timeline.seq < until and len(entries) < wanted:
                raise UsageError(f"execution {execution} has {timeline.seq} events, not {until}")
            if len(entries) < PAGE:
                return timeline
            await asyncio.sleep(0)
