"""Questions to the history, for every surface the same: the command, Python, HTTP and MCP (D7).

`query_of` understands what a person typed, `look_up` asks, `slow_steps` looks for bottlenecks and changes. Days are
those of this computer's calendar, as they were when a record was summed up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple

from windlass.clock import Clock
from windlass.core.events import ExecutionCreated
from windlass.errors import UsageError, WindlassError
from windlass.ports import Journal

if TYPE_CHECKING:  # an engine that is asked nothing of the kind does without them
    from windlass.core.history import ExecutionRecord, StepRecord
    from windlass.core.rollup import HistoryAnswer, HistoryQuery
    from windlass.core.trends import Bottleneck, StepChange

__all__ = ["HistoryPage", "PastRuns", "SlowPage", "look_up", "query_of", "slow_steps"]

_AGO = re.compile(r"(\d{1,6})\s*(d|day|days|w|week|weeks)")


class HistoryPage(NamedTuple):
    """A query with its answer."""

    query: HistoryQuery
    answer: HistoryAnswer
    today: date

    @property
    def in_future(self) -> int:
        """Days that have not come yet: a clock was wrong."""
        return sum(row.names[0] > self.today.isoformat() for row in self.answer.rows) if self.query.by == "day" else 0

    def as_dict(self) -> dict[str, Any]:
        query, answer = self.query, self.answer
        return {
            "by": query.by,
            "of": query.unit,
            "since": query.since.isoformat() if query.since is not None else None,
            "until": query.until.isoformat() if query.until is not None else None,
            "failed": query.failed,
            "plan": query.plan or None,
            "rows": [row.as_dict(query.by) for row in answer.rows],
            "total": answer.total().figures(),
            "not_included": {"unfinished": answer.unfinished, "damaged": answer.damaged},
            "complete": answer.complete,
        }


class SlowPage(NamedTuple):
    """Bottlenecks and changes of steps."""

    since: date | None
    bottlenecks: list[Bottleneck]
    changes: list[StepChange]
    looked_at: int
    """Steps with enough runs to compare."""

    def as_dict(self) -> dict[str, Any]:
        from windlass.core.trends import FALSE_ALARMS

        return {
            "since": self.since.isoformat() if self.since is not None else None,
            "bottlenecks": [one.as_dict() for one in self.bottlenecks],
            "changes": [one.as_dict() for one in self.changes],
            "looked_at": self.looked_at,
            "false_alarms": FALSE_ALARMS,
        }


class PastRuns:
    """Answers questions about executions that have stopped."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock

    async def history(
        self,
        by: str = "day",
        *,
        since: str | date | None = None,
        until: str | date | None = None,
        failed: bool = False,
        plan: str = "",
    ) -> HistoryPage:
        """Sum up stopped executions or their steps by a field; `since` is a day, or as `30d`."""
        now = self._clock.now()
        return await look_up(self._journal, query_of(by, since, until, failed, plan, now), now)

    async def recent_totals(self, days: int = 30) -> dict[str, Any]:
        """Sum up the executions of the last days, without building what an older release left to be built."""
        now = self._clock.now()
        page = await look_up(self._journal, query_of("status", f"{days}d", None, False, "", now), now, build=False)
        told = page.as_dict()
        return {key: told[key] for key in ("since", "total", "complete")}

    async def slow_steps(self, *, since: str | date | None = None, plan: str = "") -> SlowPage:
        """Find the steps that take most of the time, and those that get slower or fail more."""
        return await slow_steps(self._journal, query_of("step", since, None, False, plan, self._clock.now()))


def query_of(
    by: str, since: str | date | None, until: str | date | None, failed: bool, plan: str, now: float
) -> HistoryQuery:
    """Make a query of what was typed. Raises `UsageError` where it makes no sense."""
    from windlass.core.rollup import FIELDS, HistoryQuery

    if by not in FIELDS:
        import difflib

        near = difflib.get_close_matches(by, FIELDS, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(FIELDS)}"
        raise UsageError(f"the history cannot be grouped by {by!r}: {hint}")
    today = date.fromtimestamp(now)
    first = _day(since, today, "since")
    last = _day(until, today, "until")
    if first is not None and first > today:
        raise UsageError(f"`since` {first} is in the future; today is {today}")
    if first is not None and last is not None and last < first:
        raise UsageError(f"`until` {last} is before `since` {first}")
    return HistoryQuery(by, first, last, failed, plan)


def _day(given: str | date | None, today: date, name: str) -> date | None:
    """`2026-11-15`, `today`, `yesterday`, or `30d` and `4w`: the last so many days, today among them."""
    if given is None or isinstance(given, date):
        return given.date() if isinstance(given, datetime) else given
    text = given.strip().lower()
    if text in ("today", "yesterday"):
        return today - timedelta(text == "yesterday")
    ago = _AGO.fullmatch(text)
    if ago is not None and int(ago[1]):
        days = int(ago[1]) * (7 if ago[2].startswith("w") else 1)
        return date.fromordinal(max(1, today.toordinal() - days + 1))
    try:
        day = date.fromisoformat(text)
    except ValueError:
        day = None
    if day is None:
        raise UsageError(
            f"`{name}` {given!r} is not a day: use 30d, 4w, today, yesterday or a date like {today}",
            advice=("the history counts whole days: 1d is today",) if re.fullmatch(r"\d+\s*(h|m|s|min)", text) else (),
        )
    return day


async def look_up(journal: Journal, query: HistoryQuery, now: float, *, build: bool = True) -> HistoryPage:
    return HistoryPage(query, await journal.history.answer(query, build=build), date.fromtimestamp(now))


async def slow_steps(journal: Journal, query: HistoryQuery) -> SlowPage:
    from windlass.core.trends import RUNS_READ, bottlenecks, changes

    found = await journal.history.records_by_plan(RUNS_READ)
    kept: dict[str, list[ExecutionRecord]] = {}
    for plan, runs in found.items():
        begun = [run for run in runs if query.since is None or _since(run, query.since)]
        if begun and (not query.plan or query.plan == plan):
            kept[plan] = begun
    version = await _versions(journal, kept)
    changed, looked_at = changes(kept, version)
    return SlowPage(query.since, bottlenecks(kept), changed, looked_at)


def _since(run: ExecutionRecord, day: date) -> bool:
    try:
        return date.fromtimestamp(run.ended) >= day
    except (OverflowError, ValueError, OSError):
        return False  # no calendar has that day


async def _versions(
    journal: Journal, records: Mapping[str, list[ExecutionRecord]]
) -> Callable[[ExecutionRecord, StepRecord], str]:
    """Name the version of a step in a run: its text in the plan, its runtime and its model.

    Where a plan was edited, the texts of its versions are read from the journal: a step that stayed the same can still
    be compared. A version that is in no journal any more, as after a replan, is one of its own.
    """
    texts: dict[str, dict[str, str]] = {}
    for runs in records.values():
        digests = {run.digest: run.id for run in runs}
        if len(digests) > 1:
            for digest, execution in digests.items():
                texts[digest] = await _step_texts(journal, execution, digest)

    def version(run: ExecutionRecord, step: StepRecord) -> str:
        text = texts[run.digest].get(step.step, run.digest) if run.digest in texts else ""
        return f"{text} {step.runtime} {step.model}"

    return version


async def _step_texts(journal: Journal, execution: str, digest: str) -> dict[str, str]:
    from windlass.plan.model import Plan  # only where a plan was edited

    try:
        (entry,) = await journal.read(execution, limit=1)
        if not isinstance(entry.event, ExecutionCreated):
            return {}
        plan = Plan.decode(bytes(entry.event.plan))
    except (WindlassError, ValueError):
        return {}
    if plan.digest != digest:
        return {}
    return {step.id: step.model_dump_json() for step in plan.steps}
