"""The journal and the ledger in memory, with the same promises but the disk: for tests, and homes that are missing."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from windlass.core.budget import (
    NOTHING,
    Amount,
    ReservationRefused,
    Scope,
    Standing,
    admit,
    counted,
    day_of,
    known_cost,
    known_part,
    month_of,
)
from windlass.core.events import ApprovalAsked, Event, decode, encode
from windlass.core.history import ExecutionRecord, StepRecord, matches
from windlass.core.questions import OpenQuestion, QuestionChanges
from windlass.errors import JournalError
from windlass.journal.append import stale
from windlass.journal.ledger import checked_heading, in_order
from windlass.ports import (
    ASKED_FOR,
    AskedQuestion,
    Charge,
    Entry,
    ForecastOutcome,
    Head,
    Message,
    Note,
    PolledJournal,
    Spending,
    Usage,
)

if TYPE_CHECKING:
    from windlass.core.forecast.value import Forecast
    from windlass.core.rollup import HistoryAnswer, HistoryQuery

__all__ = ["MemoryForecasts", "MemoryHistory", "MemoryJournal", "MemoryLedger"]


class MemoryJournal(PolledJournal):
    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._position = 0
        self._last: dict[str, int] = {}
        self._heads: dict[str, Head] = {}
        self._inbox: list[Message] = []
        self._sent = 0
        self._questions: dict[tuple[str, str], tuple[int, OpenQuestion]] = {}
        """Open questions by execution and step, with their positions."""
        self._asked = 0
        self._drivers: set[str] = set()
        self.history = MemoryHistory(self._heads)
        self.forecasts = MemoryForecasts(self.history.kept)
        self.notes: list[Note] = []
        """The outbox, which nobody empties: a home that is missing has nobody to tell."""

    def enlist(self, label: str = "") -> str:
        driver = "-".join(filter(None, (label, uuid.uuid4().hex[:12])))
        self._drivers.add(driver)
        return driver

    def alive(self, driver: str) -> bool:
        return driver in self._drivers

    def retire(self, driver: str) -> None:
        """End a driver as the death of its process would: for tests."""
        self._drivers.discard(driver)

    async def append(
        self,
        execution: str,
        after: int,
        events: Sequence[Event],
        *,
        head: Head | None = None,
        consumed: Sequence[int] = (),
        questions: QuestionChanges | None = None,
        record: ExecutionRecord | None = None,
        notes: Sequence[Note] = (),
    ) -> None:
        if self._last.get(execution, 0) != after:
            raise stale(execution, after)
        if after == 0 and head is None:
            raise JournalError("the first append of an execution brings its head")
        # Through JSON and back, so that nothing survives here that would not survive on disk.
        copies = [decode(encode(event)) for event in events]
        for offset, copy in enumerate(copies, 1):
            self._position += 1
            self._entries.append(Entry(self._position, execution, after + offset, copy))
        self._last[execution] = after + len(events)
        self.notes += notes
        if head is not None:
            self._heads[execution] = head
            if head.status in ("pending", "running"):
                self.history.kept.pop(execution, None)
        if record is not None:
            self.history.kept[execution] = record
        self._inbox = [message for message in self._inbox if message.id not in consumed]
        if questions is not None:
            for step in (*questions.closed, *(question.step for question in questions.opened)):
                self._questions.pop((execution, step), None)
            for question in questions.opened:
                self._asked += 1
                self._questions[execution, question.step] = (self._asked, question)

    async def questions(self, *, named: str = "", before: int = 0, limit: int = 0) -> list[AskedQuestion]:
        found = []
        for (execution, _), (position, question) in sorted(self._questions.items(), key=lambda row: -row[1][0]):
            if (not named or named in (question.id, question.digest)) and (not before or position < before):
                (entry,) = await self.read(execution, question.seq - 1, 1)
                assert isinstance(entry.event, ApprovalAsked)
                found.append(AskedQuestion(position, execution, self._heads[execution].name, question, entry.event))
        return found[:limit] if limit else found

    async def asking(self, executions: Sequence[str]) -> set[str]:
        return {execution for execution, _step in self._questions}.intersection(executions)

    async def count_questions(self) -> int:
        return len(self._questions)

    async def read(self, execution: str | None, after: int = 0, limit: int = 0) -> list[Entry]:
        if execution is None:
            found = [e for e in self._entries if e.position > after]
        else:
            found = [e for e in self._entries if e.execution == execution and e.seq > after]
        return found[:limit] if limit else found

    async def heads(
        self,
        *,
        prefix: str = "",
        statuses: Sequence[str] = (),
        name: str = "",
        text: str = "",
        since: float = 0.0,
        before: str = "",
        asking: bool = False,
        limit: int = 0,
    ) -> list[Head]:
        ask = {execution for execution, _step in self._questions}
        going_on = (head for head in self._heads.values() if head.status in ("running", "paused"))
        ask |= {head.id for head in going_on if head.detail in ASKED_FOR}
        created = {id: number for number, id in enumerate(self._heads)}
        older = max((number for id, number in created.items() if id < before), default=-1) + 1
        end = created.get(before, older) if before else len(created)
        found = [
            head
            for head in reversed(self._heads.values())
            if head.id.startswith(prefix) and (not statuses or head.status in statuses)
            if not asking or head.id in ask
            if (not name or head.name == name) and created[head.id] < end and head.created_at >= since
            if text.encode().lower() in f"{head.name}\0{head.id}".encode().lower()
        ]
        return found[:limit] if limit else found

    async def counts(self) -> dict[str, int]:
        return dict(Counter(head.status for head in self._heads.values()))

    async def send(self, execution: str, at: float, body: dict[str, Any]) -> None:
        self._sent += 1
        self._inbox.append(Message(self._sent, execution, at, body))

    async def receive(self, after: int = 0) -> list[Message]:
        return [message for message in self._inbox if message.id > after]

    async def remove(self, *executions: str) -> None:
        self._entries = [entry for entry in self._entries if entry.execution not in executions]
        self._inbox = [message for message in self._inbox if message.execution not in executions]
        for execution in executions:
            self._heads.pop(execution, None)
            self._last.pop(execution, None)
            self.history.kept.pop(execution, None)
        self._questions = {where: asked for where, asked in self._questions.items() if where[0] not in executions}

    async def reclaim(self, most: int | None = None) -> int:
        return 0

    async def close(self) -> None:
        """Nothing to close."""


class MemoryForecasts:
    """The forecasts of a journal in memory; `records` are those of its history."""

    def __init__(self, records: Mapping[str, ExecutionRecord]) -> None:
        self._records = records
        self._made: list[tuple[str, str, Forecast, bool]] = []
        self._marks: set[tuple[str, int]] = set()
        """Executions and quarters that have a mark."""

    async def add(self, execution: str, plan: str, forecast: Forecast) -> None:
        from windlass.core.forecast.calibration import bucket_of

        mark = (execution, bucket_of(forecast.done))
        self._made.append((execution, plan, forecast, mark not in self._marks))
        self._marks.add(mark)

    async def latest(self, *executions: str) -> dict[str, Forecast]:
        return {name: forecast for name, _plan, forecast, _mark in self._made if name in executions}

    async def outcomes(self, plan: str = "", limit: int = 400) -> list[ForecastOutcome]:
        from windlass.journal.forecasts import SCORED, outcome_of

        found = []
        for name, of, forecast, mark in self._made:
            record = self._records.get(name)
            if record is None or not mark or (plan and of != plan):
                continue
            if outcome_of(record.status, record.took_s, record.waited_s) == SCORED:
                found.append(ForecastOutcome(name, of, forecast, record.took_s, record.usd))
        return found[-limit:]


class MemoryHistory:
    """The records of a journal in memory."""

    def __init__(self, heads: Mapping[str, Head]) -> None:
        self._heads = heads
        self.kept: dict[str, ExecutionRecord] = {}

    async def catch_up(self, most: int = 0, progress: Callable[[int], None] | None = None) -> None:
        """Every record is there."""

    async def rebuild(self, progress: Callable[[int], None] | None = None) -> None:
        """Every record is there."""

    async def answer(self, query: HistoryQuery, *, build: bool = True) -> HistoryAnswer:
        from windlass.core.rollup import HistoryAnswer, answer_query  # lists do without it
        from windlass.core.tally import HistoryTally

        tally = HistoryTally()
        for record in self.kept.values():
            tally.add(record)
        unfinished = sum(head.status in ("pending", "running") for head in self._heads.values())
        return HistoryAnswer(answer_query(query, tally.cells.items()), unfinished, {})

    async def records_by_plan(self, limit: int) -> dict[str, list[ExecutionRecord]]:
        plans = sorted({record.plan for record in self.kept.values()})
        return {plan: await self.records(plan, limit) for plan in plans}

    async def records(self, plan: str = "", limit: int = 60) -> list[ExecutionRecord]:
        found = [record for record in self.kept.values() if not plan or record.plan == plan]
        found.sort(key=lambda record: record.ended if plan else record.id, reverse=True)
        return found[:limit]

    async def observations(
        self,
        *,
        plan: str | None = None,
        step: str | None = None,
        tool: str | None = None,
        runtime: str | None = None,
        model: str | None = None,
        limit: int = 60,
    ) -> list[StepRecord]:
        records = await self.records(plan or "", len(self.kept))
        found = (one for record in records for one in record.steps if matches(one, step, tool, runtime, model))
        return list(found)[:limit]


@dataclass(slots=True)
class _Row:
    charge: Charge
    began: float
    reserved: Amount
    used: Amount = NOTHING
    """Of the reservation, while the attempt runs."""
    reported: Usage = field(default_factory=Usage)
    """By the attempt itself, while it runs."""
    usage: Usage | None = None
    """None while the attempt runs."""
    abandoned: bool = False
    """Its process is dead: all of the reservation counts."""

    @property
    def counts(self) -> Amount:
        return self.reserved if self.usage is None or self.abandoned else counted(self.usage, self.reserved)

    @property
    def held(self) -> Amount:
        """Set aside and not used yet."""
        (usd, tokens), used = self.reserved, self.used
        return Amount((usd or 0.0) - (used.usd or 0.0), (tokens or 0) - (used.tokens or 0))


class MemoryLedger:
    def __init__(self, *, tz: tzinfo | None = None) -> None:
        self._tz = tz
        self._rows: list[_Row] = []

    async def reserve(
        self,
        charge: Charge,
        at: float,
        want: Amount,
        scopes: Sequence[Scope],
        used: Amount = NOTHING,
        reported: Usage | None = None,
    ) -> ReservationRefused | None:
        own = self._latest(charge)
        if own is not None and own.usage is not None:
            own = None  # settled before: what it spent then stays
        refusal = admit(want, [self._standing(scope, own) for scope in scopes])
        if refusal is None:
            if own is not None:
                self._rows.remove(own)
            told = reported or Usage()
            self._rows.append(_Row(charge._replace(model=told.model or charge.model), at, want, used, told))
        return refusal

    async def settle(self, charge: Charge, at: float, usage: Usage) -> None:
        row = self._latest(charge)
        if row is None:
            row = _Row(charge, at, Amount())
            self._rows.append(row)
        row.charge = charge._replace(model=usage.model or charge.model)
        row.usage, row.abandoned = usage, False

    async def release(self, charge: Charge) -> None:
        self._rows = [row for row in self._rows if row.charge[:3] != charge[:3] or row.usage is not None]

    async def abandon(self, execution: str, at: float, step: str = "") -> None:
        """Count open reservations as spent: the process of their attempts is dead. Their usage after the last report
        is not known."""
        for row in self._rows:
            if row.charge.execution == execution and step in ("", row.charge.step) and row.usage is None:
                row.usage = replace(row.reported, usd=None, at_least=row.used.usd or 0.0)
                row.abandoned = True

    async def spent(self, by: str, since: float = 0.0) -> list[Spending]:
        checked_heading(by)
        found: dict[str, Spending] = {}
        for row in self._rows:
            if row.began >= since:
                name = self._heading(by, row)
                sofar = found.get(name, Spending(name, 0.0, 0, 0, 0, 0))
                found[name] = _added(sofar, row)
        return in_order(by, list(found.values()))

    async def spent_by(self, headings: Sequence[str], since: float = 0.0) -> dict[str, list[Spending]]:
        return {by: await self.spent(by, since) for by in headings}

    async def standing(self, scopes: Sequence[Scope]) -> list[Standing]:
        """Sum up what counts against each scope now."""
        return [self._standing(scope, None) for scope in scopes]

    async def close(self) -> None:
        """Nothing to close."""

    def _latest(self, charge: Charge) -> _Row | None:
        """The last run of an attempt."""
        return next((row for row in reversed(self._rows) if row.charge[:3] == charge[:3]), None)

    def _standing(self, scope: Scope, without: _Row | None) -> Standing:
        rows = [
            row
            for row in self._rows
            if row is not without
            and row.began >= scope.since
            and scope.execution in (None, row.charge.execution)
            and scope.step in (None, row.charge.step, row.charge.step.partition("[")[0])
        ]
        running = [row for row in rows if row.usage is None]
        spent = [row.counts for row in rows if row.usage is not None] + [row.used for row in running]
        return Standing(scope, _sum(spent), _sum([row.held for row in running]))

    def _heading(self, by: str, row: _Row) -> str:
        if by in ("day", "month"):
            return (day_of if by == "day" else month_of)(row.began, self._tz)
        return str(getattr(row.charge, by))


def _sum(amounts: list[Amount]) -> Amount:
    return Amount(sum(amount.usd or 0.0 for amount in amounts), sum(amount.tokens or 0 for amount in amounts))


def _added(sofar: Spending, row: _Row) -> Spending:
    if row.usage is None:
        return sofar._replace(
            usd=sofar.usd + (row.used.usd or 0.0),
            tokens_in=sofar.tokens_in + row.reported.tokens_in,
            tokens_out=sofar.tokens_out + row.reported.tokens_out,
            attempts=sofar.attempts + 1,
            reserved_usd=sofar.reserved_usd + (row.held.usd or 0.0),
            reserved_tokens=sofar.reserved_tokens + (row.held.tokens or 0),
        )
    return sofar._replace(
        usd=sofar.usd + known_part(row.usage),
        unknown=sofar.unknown + (known_cost(row.usage) is None),
        tokens_in=sofar.tokens_in + row.usage.tokens_in,
        tokens_out=sofar.tokens_out + row.usage.tokens_out,
        attempts=sofar.attempts + 1,
    )
