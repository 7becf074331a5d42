"""Sums of the history by day and month in the journal's file, and the answers that are made of them and the records.

Sums are made of many records at once, soon after they came; an answer adds those that are not in them yet. They follow
from the records, and these from the events: `rebuild` makes everything anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from windlass.core.history import ExecutionRecord, StepRecord, matches
from windlass.core.rollup import AGENT_FIELDS, HistoryAnswer, HistoryQuery, answer_query, ranges_of
from windlass.core.tally import OTHER_PLANS, OTHER_STEPS, HistoryCell, HistoryTally, Place, StepKind
from windlass.journal.database import EVERYTHING, SqlConnection, snapshot
from windlass.journal.history import SUMMED_AFTER, begin_anew, build_due, forget_record, read_record

__all__ = ["SqliteHistory", "sum_up"]

T = TypeVar("T")

_COUNTED = HistoryCell.__struct_fields__[:-2]
_BUCKETS = HistoryCell.__struct_fields__[-2:]
_ROW = "SELECT number, execution, number <= (SELECT summed FROM history_format), record FROM history_records WHERE"
_NEW = "number > (SELECT summed FROM history_format)"
_GONE = "execution IS NULL AND number <= (SELECT summed FROM history_format)"
_KEY = "span = ? AND kind = ? AND status = ? AND category = ?"
_REPLACE = "ON CONFLICT (span, kind, status, category) DO UPDATE SET " + ", ".join(
    f"{name} = excluded.{name}" for name in (*_COUNTED, *_BUCKETS)
)

MOST_READ = 500
"""Records that are read at most to find the last steps of a kind."""
BUILT_TOGETHER = 50
"""Executions whose records are built in one commit."""
SUMMED_TOGETHER = 1000
"""Records that are added to the sums in one commit."""
MOST_STEPS, MOST_KINDS = 500, 5_000
"""Kinds of steps of a plan, and of all plans, that have sums of their own. The rest share one: an answer must not take
longer because somebody's plans have names that never come again."""
MOST_PLANS = 500
"""Plans whose last executions are read at a time."""

_encode = msgspec.msgpack.Encoder().encode
_decode_buckets = msgspec.msgpack.Decoder(dict[int, int]).decode


def sum_up(db: SqlConnection, most: int = SUMMED_TOGETHER) -> int:
    """Add new records to the sums, take those that are gone out of them, and return how many there were."""
    found = _to_sum(db, most)
    if not found:
        return 0
    try:
        tally = _tally(found, steps=True)
    except msgspec.DecodeError:  # the sums may hold the damaged record, and would keep it
        begin_anew(db)
        return 0
    for _number, _execution, _summed, body in found:
        forget_record(body)
    kinds = _Kinds(db)
    cells: dict[tuple[int, int, str, str], HistoryCell] = {}
    for (span, kind, status, category), cell in tally.cells.items():
        place = (span, kinds.number(kind), status, category)
        if place in cells:
            cells[place].add(cell)
        else:
            cells[place] = cell
    columns = ", ".join((*_COUNTED, *_BUCKETS))
    marks = ", ".join("?" * (len(_COUNTED) + len(_BUCKETS) + 4))
    insert = f"INSERT INTO history_sums (span, kind, status, category, {columns}) VALUES ({marks}) {_REPLACE}"
    for place, cell in cells.items():
        row = db.execute(f"SELECT {columns} FROM history_sums WHERE {_KEY}", place).fetchone()
        if row is not None:
            cell.add(_stored(row))
        if any(cell.figures):
            db.execute(insert, (*place, *cell.figures, _encode(cell.times), _encode(cell.peaks)))
        elif row is not None:
            db.execute(f"DELETE FROM history_sums WHERE {_KEY}", place)
    gone = [(number,) for number, execution, _summed, _record in found if execution is None]
    db.executemany("DELETE FROM history_records WHERE number = ?", gone)
    new = max((number for number, _execution, summed, _record in found if not summed), default=0)
    # The number of a deleted last record is given out again: nothing that is still to come may count as summed.
    ((summed,), (last,)) = (
        db.execute(sql).fetchone()
        for sql in ("SELECT summed FROM history_format", "SELECT coalesce(max(number), 0) FROM history_records")
    )
    db.execute("UPDATE history_format SET summed = ?", (min(max(summed, new), last),))
    if gone:  # the name of a removed plan must not stay behind
        db.execute("DELETE FROM history_kinds WHERE kind NOT IN (SELECT kind FROM history_sums)")
    return len(found)


def _to_sum(db: SqlConnection, most: int = EVERYTHING) -> list[tuple[int, int | None, int, bytes]]:
    """Records that are not in the sums, and those that are and are gone; by their numbers."""
    found = db.execute(f"{_ROW} {_GONE} LIMIT ?", (most,)).fetchall()
    return found + db.execute(f"{_ROW} {_NEW} ORDER BY number LIMIT ?", (most,)).fetchall()


def _stored(row: Sequence[Any]) -> HistoryCell:
    cell = HistoryCell(*row[:-2])
    cell.times, cell.peaks = (_decode_buckets(buckets) for buckets in row[-2:])
    return cell


def _tally(rows: Iterable[tuple[int, int | None, int, bytes]], *, steps: bool) -> HistoryTally:
    """Sum up new records, and those that are gone with a minus."""
    tally = HistoryTally()
    for _number, execution, summed, body in rows:
        if execution is not None or summed:
            tally.add(read_record(body), -1 if summed else 1, steps=steps)
    return tally


class _Kinds:
    """Numbers of the kinds of steps that have sums of their own."""

    def __init__(self, db: SqlConnection) -> None:
        self._db = db
        rows = db.execute("SELECT * FROM history_kinds").fetchall()
        self._numbers = {StepKind(*row[1:]): int(row[0]) for row in rows}
        self._of_plan = Counter(kind.plan for kind in self._numbers)

    def number(self, kind: StepKind) -> int:
        found = self._numbers.get(kind)
        if found is not None:
            return found
        if kind.step != OTHER_STEPS and kind.step and self._of_plan[kind.plan] >= MOST_STEPS:
            return self.number(kind._replace(step=OTHER_STEPS))
        if kind.plan not in ("", OTHER_PLANS) and len(self._numbers) >= MOST_KINDS:
            return self.number(kind._replace(plan=OTHER_PLANS, step=OTHER_STEPS if kind.step else ""))
        marks = ", ".join("?" * len(kind))
        sql = f"INSERT INTO history_kinds ({', '.join(StepKind._fields)}) VALUES ({marks})"
        number = self._db.execute(sql, kind).lastrowid or 0
        self._numbers[kind] = number
        self._of_plan[kind.plan] += 1
        return number


# -- answers --------------------------------------------------------------------------------------


class HistoryReader(Protocol):
    """Calls a function with a connection for reading."""

    def __call__(self, fetch: Callable[[SqlConnection], T]) -> Awaitable[T]: ...


class SqliteHistory:
    """The history of a journal's file, read and kept through the journal's own connections."""

    def __init__(
        self, reading: HistoryReader, writing: Callable[[Callable[[SqlConnection], None]], Awaitable[None]]
    ) -> None:
        self._reading = reading
        self._writing = writing

    async def catch_up(self, most: int = 0, progress: Callable[[int], None] | None = None) -> None:
        """Build records that are missing, all or the newest, and bring the sums up to date; say how many are left."""
        built = 0
        while True:
            due, to_sum = await self._reading(_backlog)
            if progress is not None:
                progress(due)
            if due and (not most or built < most):
                await self._writing(lambda db: _ignored(build_due(db, BUILT_TOGETHER)))
                built += BUILT_TOGETHER
            elif to_sum > SUMMED_AFTER and not most:
                await self._writing(lambda db: _ignored(sum_up(db)))
            else:
                return

    async def rebuild(self, progress: Callable[[int], None] | None = None) -> None:
        """Make all records and sums anew from the events."""
        await self._writing(begin_anew)
        await self.catch_up(progress=progress)

    async def answer(self, query: HistoryQuery, *, build: bool = True) -> HistoryAnswer:
        if build:
            await self.catch_up()
        return await self._read(lambda db: _answer(db, query, build))

    async def records(self, plan: str = "", limit: int = 60) -> list[ExecutionRecord]:
        await self.catch_up(most=limit)
        return await self._read(lambda db: list(_newest(db, plan or None, limit)))

    async def records_by_plan(self, limit: int) -> dict[str, list[ExecutionRecord]]:
        await self.catch_up()
        return await self._read(lambda db: {plan: list(_newest(db, plan, limit)) for plan in _plans(db)})

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
        def fetch(db: SqlConnection) -> list[StepRecord]:
            found: list[StepRecord] = []
            for record in _newest(db, plan, MOST_READ):
                found += [one for one in record.steps if matches(one, step, tool, runtime, model)]
                if len(found) >= limit:
                    break
            return found[:limit]

        await self.catch_up(most=limit)
        return await self._read(fetch)

    async def _read(self, fetch: Callable[[SqlConnection], T]) -> T:
        """Read records and sums of one moment: others move records into the sums at any time.

        Where a record is damaged, all are made anew first: the sums may hold it, and would keep it.
        """

        def read(db: SqlConnection) -> T:
            with snapshot(db):
                return fetch(db)

        try:
            return await self._reading(read)
        except msgspec.DecodeError:
            await self.rebuild()
            return await self._reading(read)


def _ignored(_count: int) -> None:
    """For a write of which nobody needs the result."""


def _backlog(db: SqlConnection) -> tuple[int, int]:
    """Executions without a record, and records that are not in the sums."""
    (due,) = db.execute("SELECT count(*) FROM history_due WHERE damage IS NULL").fetchone()
    counts = [db.execute(f"SELECT count(*) FROM history_records WHERE {which}").fetchone() for which in (_NEW, _GONE)]
    return due, sum(count for (count,) in counts)


def _newest(db: SqlConnection, plan: str | None, limit: int) -> Iterator[ExecutionRecord]:
    if plan is not None:
        sql = "SELECT record FROM history_records WHERE execution IS NOT NULL AND plan = ? ORDER BY ended DESC LIMIT ?"
    else:  # their ids grow with the time of their beginning
        join = "executions x JOIN history_records r ON r.execution = x.key"
        sql = f"SELECT r.record FROM {join} ORDER BY x.id DESC LIMIT ?"
    for (body,) in db.execute(sql, (limit,) if plan is None else (plan, limit)):
        yield read_record(body)


def _plans(db: SqlConnection) -> list[str]:
    """Names of plans in the records, found by leaps in their index."""
    found, last = list[str](), ""
    while len(found) < MOST_PLANS:
        (name,) = db.execute("SELECT min(plan) FROM history_records WHERE plan > ?", (last,)).fetchone()
        if name is None:
            break
        found.append(last := name)
    return found


def _answer(db: SqlConnection, query: HistoryQuery, built: bool) -> HistoryAnswer:
    new = _tally(_to_sum(db), steps=query.unit == "steps")
    cells = [*_cells(db, query), *new.cells.items()]
    counts = dict(db.execute("SELECT status, count FROM status_counts").fetchall())
    unfinished = counts.get("pending", 0) + counts.get("running", 0)
    complete = db.execute("SELECT 1 FROM history_due WHERE damage IS NULL LIMIT 1").fetchone() is None
    sql = "SELECT x.id, d.damage FROM history_due d JOIN executions x ON x.key = d.execution WHERE d.damage IS NOT NULL"
    # Before records are built there may be any number of rows to look through, and damage is found by building them.
    damaged = dict(db.execute(sql).fetchall()) if built or complete else {}
    return HistoryAnswer(answer_query(query, cells), unfinished, damaged, complete)


def _cells(db: SqlConnection, query: HistoryQuery) -> Iterator[tuple[Place, HistoryCell]]:
    ranges = ranges_of(query)
    where = " OR ".join(["r.span BETWEEN ? AND ?"] * len(ranges))
    parameters: list[int | str] = [edge for pair in ranges for edge in pair]
    unit = "k.step <> ''" if query.unit == "steps" else "k.step = ''"
    if query.by in AGENT_FIELDS:
        unit += " AND k.runtime <> ''"
    if query.plan or query.by in ("day", "status"):
        unit += " AND k.plan = ?"
        parameters.append(query.plan)
    figures = ", ".join(f"r.{name}" for name in (*_COUNTED, *_BUCKETS))
    sql = (
        f"SELECT r.span, r.status, r.category, k.plan, k.step, k.tool, k.runtime, k.model, k.role, {figures} "
        f"FROM history_sums r JOIN history_kinds k ON k.kind = r.kind WHERE ({where}) AND {unit}"
    )
    for span, status, category, *row in db.execute(sql, parameters):
        yield (span, StepKind(*row[:6]), status, category), _stored(row[6:])
