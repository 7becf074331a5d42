"""Summaries of executions, without their steps. Those who look at the same running execution share them."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from windlass.core.state import State
from windlass.core.view import question_view, summary
from windlass.engine.engine import Engine
from windlass.engine.timelines import Timelines

__all__ = ["SummaryCache"]

GOOD_FOR = 1.0
"""Seconds that a summary serves those who have `seen` no more than it has."""
MOST_RECENT = 20
MOST_QUESTIONS = 20


class _MadeSummary(NamedTuple):
    made_at: float
    seq: int
    body: bytes


class SummaryCache:
    """Makes summaries of the executions of one server, as JSON, and keeps the recent ones."""

    def __init__(self, engine: Engine, timelines: Timelines) -> None:
        self._engine, self._timelines = engine, timelines
        self._recent: dict[str, _MadeSummary] = {}
        self._sharing = asyncio.Lock()

    async def of(self, execution: str, at: int | None, seen: int | None) -> bytes:
        """An execution as it is, or `at` one of its events. For those who have `seen` one, a recent answer will do."""
        if at is not None or seen is None:
            return (await self._made(execution, at)).body
        # Every page that looks at a running execution asks this again and again: one answer serves all of them.
        async with self._sharing:
            found = self._recent.get(execution)
            if found is None or found.seq < seen or found.made_at + GOOD_FOR < time.monotonic():
                while len(self._recent) >= MOST_RECENT:
                    self._recent.pop(next(iter(self._recent)))
                self._recent.pop(execution, None)
                found = self._recent[execution] = await self._made(execution)
        return found.body

    async def _made(self, execution: str, at: int | None = None) -> _MadeSummary:
        made_at, engine = time.monotonic(), self._engine
        head = await engine.find(execution)
        state = (await self._timelines.at(head.id, at)).state
        forecast = await engine.forecast_view(state) if at is None else None
        found = {
            **summary(state, forecast),
            "seq": state.seq,
            "at": state.updated_at,
            "driven": engine.driven(head),
            "steps": len(state.plan.steps),
            "counts": Counter(str(step.status) for step in state.top_level()),
            "questions": _questions(state),
        }
        return _MadeSummary(made_at, state.seq, msgspec.json.encode(found))


def _questions(state: State) -> list[dict[str, Any]]:
    found = []
    for step in islice(state.questions.values(), MOST_QUESTIONS):
        if (question := question_view(step)) is None:
            continue
        limit = {"scope": step.scope, "unit": step.unit, "needed": step.needed}
        found.append({"step": step.id, **question, **(limit if question["kind"] == "budget" else {})})
    return found
