"""The ledger on disk: shared by processes, cut off anywhere, in a file that older releases wrote (E1)."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from test_ledger import NOON, TEN, charge, cost, stands
from waiting import PATIENCE

from windlass.core.budget import Amount, Scope
from windlass.errors import JournalError
from windlass.journal.ledger import SqliteLedger
from windlass.journal.schema import open_database
from windlass.journal.sqlite import SqliteJournal
from windlass.ports import Charge, Head


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[SqliteLedger]:
    ledger = SqliteLedger(tmp_path / "windlass.db")
    yield ledger
    await ledger.close()


async def test_e1_the_file_is_not_touched_before_money_is_spoken_of(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "windlass.db")
    await ledger.close()
    assert list(tmp_path.iterdir()) == []


async def test_e1_spending_outlives_the_ledger(tmp_path: Path) -> None:
    first = SqliteLedger(tmp_path / "windlass.db")
    await first.reserve(charge(), NOON, Amount(usd=4.0), [TEN])
    await first.reserve(charge(attempt=2), NOON, Amount(usd=2.0), [TEN])
    await first.settle(charge(), NOON, cost(3.0))
    await first.close()
    second = SqliteLedger(tmp_path / "windlass.db")
    assert await stands(second) == (3.0, 2.0)
    await second.settle(charge(attempt=2), NOON, cost(1.0))
    assert await stands(second) == (4.0, 0.0)
    await second.close()


async def test_e1_an_older_database_gains_the_ledger_and_stays_what_it_was(tmp_path: Path) -> None:
    path = tmp_path / "windlass.db"

    def version_and_tables() -> tuple[int, set[str]]:
        db = open_database(path)
        (version,) = db.execute("PRAGMA user_version").fetchone()
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        db.close()
        return version, tables

    version, tables = version_and_tables()
    assert "charges" not in tables
    ledger = SqliteLedger(path)
    await ledger.settle(charge(), NOON, cost(3.0))
    await ledger.close()
    assert version_and_tables() == (version, tables | {"charges"})
    journal = SqliteJournal(path)
    assert await journal.heads() == []
    await journal.close()


async def test_e1_a_ledger_of_an_older_release_goes_on_with_what_it_holds(tmp_path: Path) -> None:
    path = tmp_path / "windlass.db"
    ledger = SqliteLedger(path)
    await ledger.reserve(charge(), NOON, Amount(usd=2.0), [TEN])
    await ledger.settle(charge(attempt=2), NOON, cost(3.0))
    await ledger.close()
    db = open_database(path)
    for column in ("used_usd", "used_tokens"):  # which that release did not have
        db.execute(f"ALTER TABLE charges DROP COLUMN {column}")
    db.close()
    ledger = SqliteLedger(path)
    assert await stands(ledger) == (3.0, 2.0)
    await ledger.reserve(charge(), NOON, Amount(usd=4.0), [TEN], Amount(usd=1.5))
    assert await stands(ledger) == (4.5, 2.5)
    await ledger.close()


async def test_e1_removing_an_execution_does_not_remove_what_it_spent(tmp_path: Path, file: SqliteLedger) -> None:
    from test_journal import created

    await file.settle(charge("x"), NOON, cost(3.0))
    journal = SqliteJournal(tmp_path / "windlass.db")
    await journal.append("x", 0, [created("x")], head=Head("x", "p", "completed", 1.0, 2.0, "d"))
    await journal.remove("x")
    await journal.close()
    assert await stands(file) == (3.0, 0.0)


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[Callable[[], None]]:
    """Somebody else is writing to the file, until told to stop."""
    path = tmp_path / "windlass.db"
    db = open_database(path)
    db.execute("BEGIN IMMEDIATE")

    def stop() -> None:
        if db.in_transaction:
            db.execute("ROLLBACK")

    yield stop
    stop()
    db.close()


async def test_e1_waiting_for_another_process_holds_up_nobody_else(
    file: SqliteLedger, writing: Callable[[], None]
) -> None:
    reserving = asyncio.create_task(file.reserve(charge(), NOON, Amount(usd=1.0), [TEN]))
    await asyncio.sleep(0)
    # If that had waited on the event loop, this line would come only after its patience was at an end.
    writing()
    assert await reserving is None
    assert await stands(file) == (0.0, 1.0)


async def test_e1_a_file_that_stays_locked_is_said_so_with_what_to_do(
    tmp_path: Path, writing: Callable[[], None]
) -> None:
    ledger = SqliteLedger(tmp_path / "windlass.db", patience=0.05)
    with pytest.raises(JournalError, match=r"windlass\.db has been locked by another program for 0\.05 s") as caught:
        await ledger.reserve(charge(), NOON, Amount(usd=1.0), [TEN])
    assert any("fuser -v" in line for line in caught.value.advice)
    writing()
    assert await ledger.reserve(charge(), NOON, Amount(usd=1.0), [TEN]) is None
    await ledger.close()


async def test_e1_a_file_that_is_no_database_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "windlass.db"
    path.write_text("dear diary")
    ledger = SqliteLedger(path)
    with pytest.raises(JournalError, match="not a database"):
        await ledger.reserve(charge(), NOON, Amount(usd=1.0), [TEN])
    await ledger.close()
    assert path.read_text() == "dear diary"


async def test_e1_a_reservation_is_one_transaction_that_looks_at_no_more_than_its_scopes_need(
    file: SqliteLedger,
) -> None:
    await file.reserve(charge(), NOON, Amount(usd=1.0), [TEN])
    db = file._db.open()
    said: list[str] = []
    db.set_trace_callback(said.append)
    scopes = [
        Scope("step", Amount(5.0), execution="x", step="a"),
        Scope("execution", Amount(5.0), execution="x"),
        Scope("day", Amount(5.0), since=NOON),
    ]
    await file.reserve(charge(), NOON, Amount(usd=1.0), scopes)
    kinds = [sql.split()[0] for sql in said]
    assert kinds == ["BEGIN", *["SELECT"] * (1 + len(scopes)), "UPDATE", "COMMIT"]
    assert said[0] == "BEGIN IMMEDIATE", "nobody else can take the room between the look and the taking"
    await file.settle(charge(), NOON, cost(1.0))
    await file.release(charge())
    db.set_trace_callback(None)
    looking = [sql for sql in said if sql.startswith(("SELECT", "UPDATE", "DELETE"))]
    assert len(looking) == 1 + len(scopes) + 1 + 3 + 1  # the attempt, the scopes, its change; settling; releasing
    plans = [str(row[3]) for sql in looking for row in db.execute(f"EXPLAIN QUERY PLAN {sql}")]
    assert plans
    assert [plan for plan in plans if not plan.startswith("SEARCH")] == []
    assert any("COVERING INDEX charges_in_time" in plan for plan in plans)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,), "every commit is an fsync"


# -- processes ---------------------------------------------------------------------------------------

LIMIT, WANT = 3.0, 1 / 64


class Spender:
    """A process of `ledger_race.py`."""

    def __init__(
        self, path: Path, name: str, limit: float = LIMIT, rounds: int = 10**9, free: bool = False, **env: str
    ) -> None:
        self.name = name
        self._lines: list[str] = []
        script = Path(__file__).with_name("ledger_race.py")
        self.process = subprocess.Popen(
            [sys.executable, *map(str, (script, path, name, limit, WANT, rounds, "free" if free else "paid"))],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **env},
        )

    def hear(self, lines: int) -> None:
        """Wait until it has said so much."""
        assert self.process.stdout is not None
        self._lines += [self.process.stdout.readline() for _ in range(lines)]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    def ended(self) -> list[list[str]]:
        """All that it said, in words, after its end."""
        out, _ = self.process.communicate(timeout=PATIENCE)
        lines = "".join([*self._lines, out]).splitlines(keepends=True)
        return [line.split() for line in lines if line.endswith("\n")]


@pytest.fixture
def spender(tmp_path: Path) -> Iterator[Callable[..., Spender]]:
    started: list[Spender] = []

    def start(name: str, **more: Any) -> Spender:
        started.append(Spender(tmp_path / "windlass.db", name, **more))
        return started[-1]

    yield start
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


ALL = Scope("day", Amount(usd=LIMIT), since=1000.0)


async def test_e1_eight_processes_use_a_days_limit_up_and_never_pass_it(
    file: SqliteLedger, spender: Callable[..., Spender]
) -> None:
    spenders = [spender(f"p{number}") for number in range(8)]
    said = {one.name: one.ended() for one in spenders}
    assert [one.process.returncode for one in spenders] == [0] * 8
    paid = sum(float(words[2]) for lines in said.values() for words in lines if words[0] == "settled")
    assert LIMIT - WANT < paid <= LIMIT
    assert await stands(file, ALL) == (paid, 0.0)
    most = [float(words[1]) for lines in said.values() for words in lines if words[0] == "most"]
    assert len(most) == 8
    assert max(most) <= LIMIT
    attempts = {one.heading: one.attempts for one in await file.spent("execution")}
    assert attempts == {
        name: done for name, lines in said.items() if (done := sum(words[0] == "settled" for words in lines))
    }


async def test_e1_eight_processes_at_the_edge_of_a_limit_never_step_over_it(spender: Callable[..., Spender]) -> None:
    """There is room for three, and it comes free again at once: every reservation is one for the last place."""
    spenders = [spender(f"p{number}", limit=3 * WANT, rounds=60, free=True) for number in range(8)]
    said = [one.ended() for one in spenders]
    assert [one.process.returncode for one in spenders] == [0] * 8
    assert [sum(words[0] == "settled" for words in lines) for lines in said] == [60] * 8
    assert max(float(lines[-1][1]) for lines in said) <= 3 * WANT


async def test_e1_kill_9_among_spenders_leaves_a_ledger_that_holds(
    tmp_path: Path, file: SqliteLedger, spender: Callable[..., Spender]
) -> None:
    plenty = 1000.0  # so that nobody comes to an end before the kill
    victims = [spender(f"victim{number}", limit=plenty) for number in range(3)]
    others = [spender(f"other{number}", limit=plenty, rounds=30) for number in range(3)]
    for number, victim in enumerate(victims):
        victim.hear(4 + number)
        victim.kill()
    said = {one.name: one.ended() for one in (*victims, *others)}
    assert [one.process.returncode for one in victims] == [-signal.SIGKILL] * 3
    assert [one.process.returncode for one in others] == [0] * 3
    db = open_database(tmp_path / "windlass.db")
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    kept = {(e, a): usd for e, a, usd in db.execute("SELECT execution, attempt, usd FROM charges WHERE settled")}
    known = set(db.execute("SELECT execution, attempt FROM charges"))
    open_ones = db.execute("SELECT execution, step, attempt FROM charges WHERE NOT settled").fetchall()
    db.close()
    for name, lines in said.items():
        for what, attempt, *usd in [words for words in lines if words[0] != "most"]:
            assert (name, int(attempt)) in known, f"{name} was told that {attempt} is {what}"
            assert what != "settled" or kept[name, int(attempt)] == float(usd[0])
    # What the dead hold still counts: nobody knows what it cost. Given up, exactly that much can be spent again.
    spent, held = await stands(file, ALL)
    assert spent == sum(kept.values())
    assert held in [number * WANT for number in range(4)]
    exactly = Scope("day", Amount(usd=spent + held + WANT), since=1000.0)
    assert await file.reserve(charge("heir"), 2000.0, Amount(usd=2 * WANT), [exactly]) is not None
    assert await file.reserve(charge("heir"), 2000.0, Amount(usd=WANT), [exactly]) is None
    for left in open_ones:
        await file.release(Charge(*left))
    assert await stands(file, ALL) == (spent, WANT)
    assert await file.reserve(charge("heir"), 2000.0, Amount(usd=WANT + held), [exactly]) is None


@pytest.mark.parametrize(
    ("point", "spent", "held"),
    [
        ("ledger.before_write:1", 0.0, 0.0),
        ("ledger.before_commit:1", 0.0, 0.0),
        ("ledger.after_commit:1", 0.0, WANT),
        ("ledger.before_commit:2", 0.0, WANT),
        ("ledger.after_commit:2", WANT, 0.0),
        ("ledger.before_commit:3", WANT, 0.0),
    ],
)
async def test_e1_cut_off_anywhere_a_change_is_there_whole_or_not_at_all(
    file: SqliteLedger, spender: Callable[..., Spender], point: str, spent: float, held: float
) -> None:
    one = spender("p", WINDLASS_FAULT=point)
    one.ended()
    assert one.process.returncode == -signal.SIGKILL
    assert await stands(file, ALL) == (spent, held)
