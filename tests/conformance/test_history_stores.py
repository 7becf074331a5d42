"""One suite for the history of every journal: records, observations and answers (D7). Files have promises of their own.

Records are kept in the commit of the event that stops an execution. What an older release writes, and what is removed
or goes on, is in the next answer; and everything can be made anew from the events, with the same result.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from windlass.core import events as ev
from windlass.core.history import ExecutionRecord, StepRecord, record_of
from windlass.core.resources import Resources
from windlass.core.rollup import FIELDS, HistoryAnswer, HistoryQuery
from windlass.core.state import fold
from windlass.engine.commit_writer import head_of
from windlass.journal import history_sums, postgres_schema
from windlass.journal.database import transaction
from windlass.journal.sqlite import SqliteJournal
from windlass.journal.stores import HomeStores
from windlass.plan.model import Plan
from windlass.ports import Head, Journal
from windlass.testing import MemoryJournal

PLAN = Plan.model_validate({"name": "p", "steps": [{"id": "a", "run": "true"}]})
STORED = sorted((Path(__file__).parent.parent / "journals").glob("v*-*.jsonl"))
OPENERS: dict[str, Callable[[Path], Journal]] = {
    "sqlite": lambda folder: SqliteJournal(folder / "windlass.db"),
    "memory": lambda _folder: MemoryJournal(),
}


@pytest.fixture(params=[*OPENERS, "postgres"])
async def journal(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Journal]:
    if request.param == "postgres":
        journal: Journal = HomeStores(tmp_path, request.getfixturevalue("postgres")).journal()
    else:
        journal = OPENERS[request.param](tmp_path)
    yield journal
    await journal.close()


@pytest.fixture
async def on_disk(tmp_path: Path) -> AsyncIterator[SqliteJournal]:
    journal = SqliteJournal(tmp_path / "windlass.db")
    yield journal
    await journal.close()


def created(name: str) -> ev.ExecutionCreated:
    return ev.ExecutionCreated(1.0, id=name, plan=msgspec.Raw(PLAN.encoded), inputs={}, workdir="/")


def note(what: Any) -> ev.AttemptFinished:
    return ev.AttemptFinished(2.0, "a", 1, what)


def head(name: str, status: str = "running") -> Head:
    return Head(name, "p", status, 1.0, 2.0, "d")


async def begin(journal: Journal, name: str) -> None:
    await journal.append(name, 0, [created(name)], head=head(name))


def step_record(step: str = "a", **fields: Any) -> StepRecord:
    known: dict[str, Any] = dict.fromkeys(("runtime", "model", "role", "category", "after"), "")
    known |= dict.fromkeys(("items", "unknown", "tokens_in", "tokens_out", "input_bytes"), 0)
    known |= dict.fromkeys(("queued_s", "waited_s", "person_s", "known_usd"), 0.0)
    known |= {"tool": "shell", "status": "completed", "attempts": 1, "started": 1.0, "ended": 2.0, "worked_s": 1.0}
    return StepRecord(**{"step": step, "edited": False, **known, **fields})


def record(name: str, *steps: StepRecord, status: str = "completed", plan: str = "p", ended: float = 2.0) -> Any:
    figures: dict[str, Any] = {"took_s": 1.0, "person_s": 0.0, "queued_s": 0.0, "waited_s": 0.0, "worked_s": 1.0}
    figures |= {"known_usd": 0.0, "unknown": 0, "tokens_in": 0, "tokens_out": 0, "attempts": 1}
    times = {"created": 1.0, "started": 1.0, "ended": ended}
    return ExecutionRecord(
        id=name, plan=plan, digest="d", status=status, category="", **times, **figures, steps=steps or (step_record(),)
    )


async def stop(journal: Journal, name: str, **fields: Any) -> ExecutionRecord:
    """Begin an execution and stop it, with a record."""
    await begin(journal, name)
    kept: ExecutionRecord = record(name, **fields)
    await journal.append(name, 1, [note(1)], head=head(name, kept.status), record=kept)
    return kept


# -- answers --------------------------------------------------------------------------------------


def rows(answer: HistoryAnswer, by: str) -> list[dict[str, Any]]:
    return [row.as_dict(by) for row in answer.rows]


async def everything(journal: Journal) -> dict[str, list[dict[str, Any]]]:
    return {by: rows(await journal.history.answer(HistoryQuery(by)), by) for by in FIELDS}


async def test_d7_an_empty_history_has_no_rows_and_no_made_up_number(journal: Journal) -> None:
    await begin(journal, "x")
    for by in FIELDS:
        answer = await journal.history.answer(HistoryQuery(by))
        assert (answer.rows, answer.unfinished, answer.damaged) == ([], 1, {})
    total = (await journal.history.answer(HistoryQuery("day"))).total().as_dict("day")
    assert (total["runs"], total["p50_s"]) == (0, None)


async def test_d7_steps_are_summed_up_by_each_of_their_fields(journal: Journal) -> None:
    steps = (
        step_record("a", worked_s=2.0, queued_s=0.5, cpu_s=1.25, memory=48_000_000),
        step_record("b", tool="agent", runtime="cli", model="m", role="coder", known_usd=0.25, tokens_in=7, changed=3),
        step_record(
            "c", tool="agent", runtime="cli", model="n", role="coder", unknown=1, status="failed", category="logic"
        ),
        step_record("d", status="skipped", attempts=0, worked_s=0.0),
        step_record("e", status="skipped", attempts=1, worked_s=2.0),  # by a person, after its attempt
    )
    await begin(journal, "x")
    await journal.append("x", 1, [note(1)], head=head("x", "failed"), record=record("x", *steps, status="failed"))
    found = await everything(journal)
    assert {row["tool"]: row["runs"] for row in found["tool"]} == {"shell": 2, "agent": 2}
    assert {row["step"]: row["runs"] for row in found["step"]} == {"a": 1, "b": 1, "c": 1, "d": 0, "e": 1}
    assert {row["model"]: (row["usd"], row["unknown_costs"]) for row in found["model"]} == {
        "m": (0.25, 0),
        "n": (None, 1),
    }
    assert [(row["role"], row["usd"], row["runs"]) for row in found["role"]] == [("coder", 0.25, 2)]
    assert {row["step"]: row["failed"] for row in found["step"]} == {"a": 0, "b": 0, "c": 1, "d": 0, "e": 0}
    (shell,) = (row for row in found["tool"] if row["tool"] == "shell")
    assert (shell["worked_s"], shell["queued_s"], shell["statuses"]) == (4.0, 0.5, {"completed": 1, "skipped": 2})
    assert shell["p50_s"] == pytest.approx(2.0, rel=0.045), "a step that did not run has no time"
    assert shell["cpu_s"] == 1.25
    assert shell["memory_bytes"] == pytest.approx(48e6, rel=0.045)
    (agents,) = (row for row in found["tool"] if row["tool"] == "agent")
    assert (agents["cpu_s"], agents["memory_bytes"]) == (None, None), "what is not known is never 0"
    assert (agents["changed_files"], shell["changed_files"]) == (3, None)
    failures = rows(await journal.history.answer(HistoryQuery("category", failed=True)), "category")
    assert [(row["category"], row["runs"]) for row in failures] == [("logic", 1)]
    assert [(row["status"], row["runs"]) for row in found["status"]] == [("failed", 1)]


async def test_d7_days_can_be_chosen_across_months_and_years(journal: Journal) -> None:
    first = date(2024, 12, 28)
    chance = random.Random(3)
    kept: list[date] = []
    for number in range(60):
        day = first + timedelta(chance.randrange(120))
        noon = float(int(datetime(day.year, day.month, day.day, 12).timestamp()))
        await begin(journal, f"x{number}")
        one = record(f"x{number}", step_record(ended=noon), ended=noon)
        await journal.append(f"x{number}", 1, [note(1)], head=head(f"x{number}", "completed"), record=one)
        kept.append(day)
    for _ in range(60):
        a, b = sorted(first + timedelta(chance.randrange(-5, 130)) for _ in range(2))
        for since, until in ((a, b), (a, None), (None, b)):
            wanted = sum((since is None or day >= since) and (until is None or day <= until) for day in kept)
            for by in ("day", "plan", "step"):
                answer = await journal.history.answer(HistoryQuery(by, since, until))
                assert sum(row.cell.runs for row in answer.rows) == wanted, (since, until, by)


async def test_d7_times_that_no_calendar_has_are_named_so(journal: Journal) -> None:
    for number, ended in enumerate((-5.0, 1e300, 4e10)):
        await stop(journal, f"x{number}", ended=ended)
    days = rows(await journal.history.answer(HistoryQuery("day")), "day")
    assert [(row["day"][:4], row["runs"]) for row in days] == [("3237", 1), ("(unk", 2)]


async def test_d7_nonsensical_figures_of_an_agent_keep_no_execution_from_stopping(journal: Journal) -> None:
    steps = (step_record("a", tokens_in=2**80, known_usd=1e200, worked_s=1e300), step_record("b", tokens_in=2**62))
    for number in range(70):
        await begin(journal, f"x{number}")
        kept = record(f"x{number}", *steps[number % 2 :])
        await journal.append(f"x{number}", 1, [note(1)], head=head(f"x{number}", "completed"), record=kept)
    answer = await journal.history.answer(HistoryQuery("tool"))
    assert answer.total().cell.runs > 0


def made_up(name: str, chance: random.Random) -> ExecutionRecord:
    def step(number: int) -> StepRecord:
        status = chance.choice(["completed", "completed", "failed", "skipped"])
        agent = {"tool": "agent", "runtime": "cli", "model": chance.choice("mn"), "role": "r"} if number % 2 else {}
        cost = {"known_usd": chance.random(), "unknown": chance.randrange(2), "tokens_in": chance.randrange(99)}
        at = 1.7e9 + chance.random() * 1e7
        used = {
            "cpu_s": chance.choice([None, chance.random()]),
            "memory": chance.choice([None, chance.randrange(10**9)]),
            "changed": chance.choice([None, chance.randrange(100)]),
        }
        made = agent | cost | used
        return step_record(f"s{number}", status=status, worked_s=chance.expovariate(1), ended=at, **made)

    steps = [step(number) for number in range(chance.randrange(5))]
    status = chance.choice(["completed", "failed", "paused"])
    return record(name, *steps, status=status, plan=chance.choice("pq"), ended=1.7e9 + chance.random() * 1e7)  # type: ignore[no-any-return]


@pytest.mark.parametrize("seed", range(4))
async def test_d7_whatever_happens_to_executions_the_sums_are_those_of_their_records(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.journal.history.LOOKED_AT_AFTER", 3)
    monkeypatch.setattr("windlass.journal.history.SUMMED_AFTER", 3)
    chance = random.Random(seed)
    disk, memory = SqliteJournal(tmp_path / "windlass.db"), MemoryJournal()
    seqs: dict[str, int] = {}
    for number in range(150):
        name = f"x{chance.randrange(25)}"
        seq, kept = seqs.get(name, 0), made_up(name, chance)
        deed = chance.choice(["stop", "stop", "stop", "go on", "remove"])
        for journal in (disk, memory):
            if seq == 0:
                await begin(journal, name)
            elif deed == "remove":
                await journal.remove(name)
            elif deed == "go on":
                await journal.append(name, seq, [note(number)], head=head(name, "running"))
            else:
                await journal.append(name, seq, [note(number)], head=head(name, kept.status), record=kept)
        seqs[name] = 0 if seq and deed == "remove" else seq + 1
        if number % 10 == 0:
            assert await everything(disk) == await everything(memory)
    assert await everything(disk) == await everything(memory)
    await disk.remove(*seqs)
    await disk.close()
    with closing(sqlite3.connect(tmp_path / "windlass.db")) as db:
        for table in ("history_records", "history_sums", "history_kinds", "history_due"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,), "nothing stays of what was removed"


async def test_d7_records_that_are_summed_while_an_answer_is_read_are_counted_once(
    on_disk: SqliteJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(5):
        await stop(on_disk, f"x{number}")
    real = history_sums._cells

    def summed_first(db: sqlite3.Connection, query: HistoryQuery) -> list[Any]:
        with closing(sqlite3.connect(tmp_path / "windlass.db", isolation_level=None)) as other, transaction(other):
            history_sums.sum_up(other)
        return list(real(db, query))

    monkeypatch.setattr(history_sums, "_cells", summed_first)
    found = await everything(on_disk)
    assert [sum(row["runs"] for row in found[by]) for by in ("day", "plan", "step")] == [5, 5, 5]


async def test_d7_plans_with_endless_names_share_a_row_that_says_so(
    on_disk: SqliteJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_sums, "MOST_KINDS", 10)
    monkeypatch.setattr(history_sums, "MOST_STEPS", 4)
    monkeypatch.setattr("windlass.journal.history_sums.SUMMED_AFTER", 0)
    for number in range(30):
        await begin(on_disk, f"x{number}")
        kept = record(f"x{number}", *(step_record(f"s{step}") for step in range(6)), plan=f"plan{number}")
        await on_disk.append(f"x{number}", 1, [note(1)], head=head(f"x{number}", "completed"), record=kept)
    found = await everything(on_disk)
    assert sum(row["runs"] for row in found["plan"]) == 30
    assert sum(row["runs"] for row in found["step"]) == sum(row["runs"] for row in found["tool"]) == 180
    assert {"(other plans)", "plan0"} <= {row["plan"] for row in found["plan"]}
    assert "(other steps)" in {row["step"] for row in found["step"]}
    assert len(found["plan"]) < 12


# -- homes of older releases, and damage ------------------------------------------------------------


def stored(path: Path) -> list[ev.Event]:
    return [ev.decode(line) for line in path.read_bytes().splitlines()]


async def kept_and_older(folder: Path) -> tuple[SqliteJournal, SqliteJournal]:
    """The same executions in a home of this release, with records, and in one of an older release."""
    journals = []
    for name in ("kept", "older"):
        (folder / name).mkdir()
        journal = SqliteJournal(folder / name / "windlass.db")
        # Two of the stored journals are of one execution.
        for events in {state.id: events for events in map(stored, STORED) if (state := fold(events))}.values():
            state = fold(events)
            made = record_of(state) if name == "kept" and state.status not in ("running", "pending") else None
            await journal.append(state.id, 0, events, head=head_of(state), record=made)
        journals.append(journal)
    return journals[0], journals[1]


def by_id(records: list[ExecutionRecord]) -> list[bytes]:
    return sorted(msgspec.json.encode(one) for one in records)


async def test_d7_the_history_of_an_older_home_is_built_and_equal_to_the_one_that_was_kept(tmp_path: Path) -> None:
    kept, older = await kept_and_older(tmp_path)
    assert len(await kept.history.records()) > 10
    assert by_id(await older.history.records()) == by_id(await kept.history.records())
    assert await everything(older) == await everything(kept)
    for journal in (kept, older):
        before = await everything(journal)
        left: list[int] = []
        await journal.history.rebuild(left.append)
        assert await everything(journal) == before
        assert left[0] > 10
        assert left[-1] == 0
        await journal.close()


async def test_d7_tables_that_are_missing_or_of_another_format_are_made_again(tmp_path: Path) -> None:
    kept, older = await kept_and_older(tmp_path)
    wanted = await everything(kept)
    await older.close()
    file = tmp_path / "older" / "windlass.db"
    with closing(sqlite3.connect(file)) as db:
        db.execute("UPDATE history_format SET format = 0")
        db.execute("UPDATE history_records SET record = x'00'")
        db.commit()
    again = SqliteJournal(file)
    assert await everything(again) == wanted
    await again.close()
    await kept.close()


async def test_j2_a_postgres_history_of_fewer_figures_is_built_anew(postgres: str, tmp_path: Path) -> None:
    import psycopg

    journal = HomeStores(tmp_path, postgres).journal()
    events: list[ev.Event] = [
        ev.ExecutionStarted(1.0, "d"),
        ev.AttemptStarted(1.0, "a", 1, "shell", {}, "none"),
        ev.AttemptFinished(2.0, "a", 1, "ok", Resources(0.5, 9_000_000)),
        ev.ExecutionFinished(2.0, "completed"),
    ]
    state = fold([created("x"), *events], PLAN)
    await begin(journal, "x")
    await journal.append("x", 1, events, head=head_of(state), record=record_of(state))
    wanted = await everything(journal)
    assert (wanted["step"][0]["cpu_s"], wanted["day"][0]["cpu_s"]) == (0.5, 0.5)
    await journal.close()
    with psycopg.connect(postgres) as db:
        columns = ("cpu", "measured", "peaks", "changed", "recorded")
        db.execute("ALTER TABLE history_sums " + ", ".join(f"DROP COLUMN {name}" for name in columns))
        db.execute("UPDATE history_records SET record = ''::bytea")
        db.execute("UPDATE history_format SET format = 3")
        db.execute("DROP TABLE workers, cluster")
        # The tables of other versions are there already.
        for statement in (*postgres_schema._VERSION_2, *postgres_schema._VERSION_7):
            db.execute(statement.encode())
    again = HomeStores(tmp_path, postgres).journal()
    assert await everything(again) == wanted
    await again.close()


async def test_d7_what_an_older_release_does_meanwhile_is_noticed(on_disk: SqliteJournal, tmp_path: Path) -> None:
    """It writes events and heads, and knows nothing of records."""
    (plain,) = (path for path in STORED if path.stem == "v1-plain")
    events = stored(plain)
    state = fold(events)
    await on_disk.append(state.id, 0, events, head=head_of(state), record=record_of(state))
    assert len((await everything(on_disk))["status"]) == 1
    with closing(sqlite3.connect(tmp_path / "windlass.db")) as db:
        db.execute("UPDATE executions SET status = 'running', updated_at = 99")
        db.commit()
    assert (await everything(on_disk))["status"] == [], "it goes on"
    with closing(sqlite3.connect(tmp_path / "windlass.db")) as db:
        db.execute("UPDATE executions SET status = 'completed', updated_at = 100")
        db.commit()
    assert [row["runs"] for row in (await everything(on_disk))["status"]] == [1], "it stopped again, without a record"
    with closing(sqlite3.connect(tmp_path / "windlass.db")) as db:
        db.execute("DELETE FROM executions")
        db.commit()
    assert (await everything(on_disk))["status"] == [], "it was removed"


async def test_d7_a_damaged_execution_is_named_and_left_out(tmp_path: Path) -> None:
    kept, older = await kept_and_older(tmp_path)
    total = sum(row["runs"] for row in (await everything(kept))["status"])
    await kept.close()
    (plain,) = (path for path in STORED if path.stem == "v1-plain")
    name = fold(stored(plain)).id
    await older.close()
    file = tmp_path / "older" / "windlass.db"
    with closing(sqlite3.connect(file)) as db:
        (key,) = db.execute("SELECT key FROM executions WHERE id = ?", (name,)).fetchone()
        db.execute("UPDATE events SET body = x'7b7d' WHERE execution = ? AND seq = 3", (key,))
        db.commit()
    again = SqliteJournal(file)
    answer = await again.history.answer(HistoryQuery("status"))
    assert list(answer.damaged) == [name]
    assert "checksum" in answer.damaged[name]
    assert sum(row.cell.runs for row in answer.rows) == total - 1
    await again.remove(name)
    assert (await again.history.answer(HistoryQuery("status"))).damaged == {}
    await again.close()


async def test_d7_a_damaged_record_is_made_again_from_the_events(tmp_path: Path) -> None:
    kept, older = await kept_and_older(tmp_path)
    wanted = await everything(kept)
    assert await everything(older) == wanted
    await kept.close()
    await older.close()
    file = tmp_path / "older" / "windlass.db"
    with closing(sqlite3.connect(file)) as db:
        db.execute("UPDATE history_records SET record = x'c1' WHERE number = 3")
        db.commit()
    again = SqliteJournal(file)
    assert await everything(again) == wanted
    assert len(await again.history.records()) == sum(row["runs"] for row in wanted["status"])
    await again.close()


async def test_d7_two_processes_build_an_older_home_at_once(tmp_path: Path) -> None:
    kept, older = await kept_and_older(tmp_path)
    other = SqliteJournal(tmp_path / "older" / "windlass.db")
    both = await asyncio.gather(everything(older), everything(other))
    assert both[0] == both[1] == await everything(kept)
    for journal in (kept, older, other):
        await journal.close()
