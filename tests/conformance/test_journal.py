"""One suite for every journal: what `ports.Journal` promises, driven through the real adapters (D1, D2).

A new adapter is one more line in `OPENERS`. What only files can promise is below, for those that are files.
"""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from windlass.core import events as ev
from windlass.core.forecast.calibration import Band
from windlass.core.forecast.value import Forecast
from windlass.core.history import ExecutionRecord, StepRecord
from windlass.core.questions import OpenQuestion, QuestionChanges, question_id
from windlass.engine.lookup import find_head
from windlass.errors import Conflict, JournalError
from windlass.journal.schema import open_database
from windlass.journal.sqlite import SqliteJournal
from windlass.journal.stores import HomeStores
from windlass.plan.model import Plan
from windlass.ports import Entry, Head, Journal
from windlass.testing import MemoryJournal

PLAN = Plan.model_validate({"name": "p", "steps": [{"id": "a", "run": "true"}]})
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


@pytest.fixture(params=["sqlite", "postgres"])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Journal, Journal]]:
    """Two journals on one file or database, as two processes would have them."""
    if request.param == "postgres":
        stores = HomeStores(tmp_path, request.getfixturevalue("postgres"))
    else:
        stores = HomeStores(tmp_path)
    first, second = stores.journal(), stores.journal()
    yield first, second
    await first.close()
    await second.close()


def created(name: str) -> ev.ExecutionCreated:
    return ev.ExecutionCreated(1.0, id=name, plan=msgspec.Raw(PLAN.encoded), inputs={}, workdir="/")


def note(what: Any) -> ev.AttemptFinished:
    return ev.AttemptFinished(2.0, "a", 1, what)


def head(name: str, status: str = "running", driver: str = "d") -> Head:
    return Head(name, "p", status, 1.0, 2.0, driver)


async def begin(journal: Journal, name: str, status: str = "running") -> None:
    await journal.append(name, 0, [created(name)], head=head(name, status))


async def notes(journal: Journal, name: str) -> list[Any]:
    return [entry.event.output for entry in await journal.read(name) if isinstance(entry.event, ev.AttemptFinished)]


async def raises_conflict(appending: Awaitable[None]) -> bool:
    try:
        await appending
    except Conflict:
        return True
    return False


# -- appending and reading -----------------------------------------------------------------------


async def test_d2_events_are_read_in_the_order_they_were_appended_without_gaps(journal: Journal) -> None:
    await begin(journal, "x")
    for n in range(1, 20, 2):
        await journal.append("x", n, [note(n), note(n + 1)])
    entries = await journal.read("x")
    assert [entry.seq for entry in entries] == list(range(1, 22))
    assert await notes(journal, "x") == list(range(1, 21))
    assert isinstance(entries[0].event, ev.ExecutionCreated)
    assert {entry.execution for entry in entries} == {"x"}


async def test_d2_what_is_read_is_what_was_written(journal: Journal) -> None:
    await begin(journal, "x")
    events: list[ev.Event] = [
        ev.AttemptStarted(1.5, "a", 1, "shell", {"line": "true", "n": [1, 2.5, None, True]}, "once", reduced=2),
        ev.AttemptFinished(1.75, "a", 1, {"deep": [{"er": {}}]}),
        ev.StepExpanded(2.0, "a", [1, "zwei", None]),
        ev.ExecutionFinished(3.0, "partial", None, ("a", "b")),
    ]
    await journal.append("x", 1, events)
    assert [entry.event for entry in await journal.read("x", 1)] == events


@pytest.mark.parametrize("after", [0, 1, 2, 4, 5, 100])
async def test_d2_an_append_from_a_stale_view_is_refused_and_writes_nothing(journal: Journal, after: int) -> None:
    await begin(journal, "x")
    await journal.append("x", 1, [note("one"), note("two")])
    await journal.send("x", 1.0, {"kind": "pause"})
    (message,) = await journal.receive()
    with pytest.raises(Conflict):
        await journal.append("x", after, [note("stale")], head=head("x", "cancelled"), consumed=[message.id])
    assert [entry.seq for entry in await journal.read("x")] == [1, 2, 3]
    assert [found.status for found in await journal.heads()] == ["running"]
    assert await journal.receive() == [message]
    await journal.append("x", 3, [note("three")])
    assert await notes(journal, "x") == ["one", "two", "three"]


async def test_d2_the_same_execution_cannot_be_created_twice(journal: Journal) -> None:
    await begin(journal, "x")
    with pytest.raises(Conflict, match="there is an execution x already"):
        await begin(journal, "x")
    assert len(await journal.read("x")) == 1


async def test_d2_an_execution_that_does_not_exist_cannot_go_on(journal: Journal) -> None:
    with pytest.raises(Conflict):
        await journal.append("ghost", 3, [note("boo")], head=head("ghost"))
    assert await journal.heads() == []
    assert await journal.read("ghost") == []


async def test_d2_the_first_append_brings_its_head_or_is_refused(journal: Journal) -> None:
    with pytest.raises(JournalError):
        await journal.append("x", 0, [created("x")])
    assert await journal.read("x") == []


async def test_reading_goes_on_after_a_sequence_and_stops_at_a_limit(journal: Journal) -> None:
    await begin(journal, "x")
    await journal.append("x", 1, [note(n) for n in range(10)])
    assert [entry.seq for entry in await journal.read("x", after=7)] == [8, 9, 10, 11]
    assert [entry.seq for entry in await journal.read("x", after=7, limit=2)] == [8, 9]
    assert await journal.read("x", after=11) == []
    assert await journal.read("nobody") == []


async def test_i3_everyones_events_have_one_order_that_can_be_followed_without_gaps(journal: Journal) -> None:
    await begin(journal, "x")
    await begin(journal, "y")
    await journal.append("x", 1, [note("x2")])
    await journal.append("y", 1, [note("y2"), note("y3")])
    await journal.append("x", 2, [note("x3")])
    everything = await journal.read(None)
    assert [(entry.execution, entry.seq) for entry in everything] == [
        *(("x", 1), ("y", 1), ("x", 2)),
        *(("y", 2), ("y", 3), ("x", 3)),
    ]
    positions = [entry.position for entry in everything]
    assert positions == sorted(set(positions))
    assert await journal.read(None, after=positions[3]) == everything[4:]
    assert await journal.read(None, after=positions[1], limit=2) == everything[2:4]


async def test_concurrent_appends_of_many_executions_all_arrive_in_their_own_order(journal: Journal) -> None:
    names = [f"execution-{n:02d}" for n in range(40)]

    async def drive(name: str) -> None:
        await begin(journal, name)
        for n in range(1, 26):
            await journal.append(name, n, [note(n)])

    await asyncio.gather(*map(drive, names))
    for name in names:
        entries = await journal.read(name)
        assert [entry.seq for entry in entries] == list(range(1, 27))
        assert await notes(journal, name) == list(range(1, 26))
        assert [entry.position for entry in entries] == sorted(entry.position for entry in entries)
    everything = await journal.read(None)
    assert len({entry.position for entry in everything}) == 40 * 26


async def test_a_stale_append_among_many_spoils_none_of_the_others(journal: Journal) -> None:
    names = [f"execution-{n}" for n in range(20)]
    for name in names:
        await begin(journal, name)
    await journal.append("execution-7", 1, [note("first")])
    refused = await asyncio.gather(*(raises_conflict(journal.append(name, 1, [note(name)])) for name in names))
    assert refused == [name == "execution-7" for name in names]
    for name in names:
        assert await notes(journal, name) == (["first"] if name == "execution-7" else [name])


async def test_two_appends_from_one_sequence_are_never_both_taken(journal: Journal) -> None:
    await begin(journal, "x")
    for n in range(1, 101):
        refused = await asyncio.gather(*(raises_conflict(journal.append("x", n, [note(w)])) for w in range(3)))
        assert sorted(refused) == [False, True, True]
    assert [entry.seq for entry in await journal.read("x")] == list(range(1, 102))


@pytest.mark.parametrize(
    "text",
    ["", "naïve café ☃ 日本語", "😀\U0010ffff", "\x00 NUL \x1b[31m", 'quotes " \\ and\nlines\r\n\u2028', "e\u0301 ≠ é"],
)
async def test_any_text_survives(journal: Journal, text: str) -> None:
    await begin(journal, "x")
    written: list[ev.Event] = [note({text: [text]}), ev.OutputWritten(1.0, "a", 1, "stdout", text)]
    await journal.append("x", 1, written)
    assert [entry.event for entry in await journal.read("x", 1)] == written


async def test_large_bodies_survive(journal: Journal) -> None:
    await begin(journal, "x")
    large = "0123456789abcdeé" * (1 << 19)  # 8 MiB and more in one event
    await journal.append("x", 1, [note(large), note("small")])
    await journal.append("x", 3, [note(n) for n in range(5000)])
    assert await notes(journal, "x") == [large, "small", *range(5000)]


async def test_an_event_that_cannot_be_kept_is_refused_whole(journal: Journal) -> None:
    await begin(journal, "x")
    with pytest.raises(Exception, match=r"unsupported|not supported"):
        await journal.append("x", 1, [note("fine"), note(object())])
    assert len(await journal.read("x")) == 1
    await journal.append("x", 1, [note("next")])
    assert await notes(journal, "x") == ["next"]


# -- heads ---------------------------------------------------------------------------------------


async def test_d1_heads_are_listed_newest_first_and_found_by_prefix_status_and_limit(journal: Journal) -> None:
    for name, status in (("0a1", "running"), ("0a2", "paused"), ("0b1", "completed"), ("0b2", "running")):
        await begin(journal, name, status)

    async def ids(**filters: Any) -> list[str]:
        return [found.id for found in await journal.heads(**filters)]

    assert await ids() == ["0b2", "0b1", "0a2", "0a1"]
    assert await ids(limit=3) == ["0b2", "0b1", "0a2"]
    assert await ids(prefix="0a") == ["0a2", "0a1"]
    assert await ids(prefix="0a1") == ["0a1"]
    assert await ids(prefix="1") == []
    assert await ids(statuses=["running"]) == ["0b2", "0a1"]
    assert await ids(statuses=["running", "paused"], prefix="0a") == ["0a2", "0a1"]
    assert await ids(statuses=["failed"]) == []
    assert await ids(prefix="0b", limit=1) == ["0b2"]
    assert await ids(before="0b1") == ["0a2", "0a1"]
    assert await ids(before="0b1", limit=1, statuses=["running"]) == ["0a1"]
    [first] = await journal.heads(prefix="0a1")
    assert await ids(name=first.name) == ["0b2", "0b1", "0a2", "0a1"]
    assert await ids(name="another") == []
    assert await ids(text=first.name[1:].upper(), limit=2) == ["0b2", "0b1"]
    assert await ids(text="B1") == ["0b1"]
    assert await ids(text="%") == []
    assert await ids(since=first.created_at, prefix="0a") == ["0a2", "0a1"]
    assert await ids(since=first.created_at + 1e6) == []


async def test_l1_the_newest_execution_is_the_last_created_whatever_time_its_id_has(journal: Journal) -> None:
    for name in ("0b", "0a", "0c", "0b5"):
        await begin(journal, name, "failed" if name == "0a" else "running")

    async def ids(**filters: Any) -> list[str]:
        return [found.id for found in await journal.heads(**filters)]

    assert await ids() == ["0b5", "0c", "0a", "0b"]
    assert await ids(statuses=["running"], limit=2) == ["0b5", "0c"]
    assert await ids(before="0c", limit=1) == ["0a"]
    assert (await find_head(journal, "@last")).id == "0b5"
    assert (await find_head(journal, "@last-failed")).id == "0a"
    await journal.remove("0c")
    assert await ids(before="0c") == ["0b5", "0a", "0b"], "a page after one that is gone leaves none out"
    await journal.remove("0b5", "0a")
    assert await ids(before="0c") == ["0b"]


@pytest.mark.parametrize("prefix", ["%", "_", "0_", "0%", "'", "0a1\x00"])
async def test_d1_a_prefix_is_taken_literally(journal: Journal, prefix: str) -> None:
    await begin(journal, "0a1")
    assert await journal.heads(prefix=prefix) == []


async def test_d2_a_head_changes_with_the_events_that_change_it(journal: Journal) -> None:
    await begin(journal, "x")
    changed = Head("x", "p", "paused", 1.0, 9.0, "another", "approval", 77.0)
    await journal.append("x", 1, [note("n")], head=changed)
    assert await journal.heads() == [changed]
    await journal.append("x", 2, [note("m")])
    assert await journal.heads() == [changed]


# -- messages ------------------------------------------------------------------------------------


async def test_d3_messages_are_received_in_order_until_they_are_consumed(journal: Journal) -> None:
    await begin(journal, "x")
    await begin(journal, "y")
    await journal.send("x", 1.0, {"kind": "pause", "by": "ann", "now": False})
    await journal.send("y", 2.0, {"kind": "approve", "note": "日本"})
    await journal.send("x", 3.0, {"kind": "cancel"})
    messages = await journal.receive()
    assert [(m.execution, m.at, m.body["kind"]) for m in messages] == [
        ("x", 1.0, "pause"),
        ("y", 2.0, "approve"),
        ("x", 3.0, "cancel"),
    ]
    assert messages[1].body == {"kind": "approve", "note": "日本"}
    assert await journal.receive(messages[0].id) == messages[1:]
    await journal.append("x", 1, [note("n")], consumed=[messages[0].id, messages[2].id])
    assert await journal.receive() == [messages[1]]


async def test_d3_a_message_is_consumed_in_the_same_commit_as_its_event_or_not_at_all(journal: Journal) -> None:
    await begin(journal, "x")
    await journal.send("x", 1.0, {"kind": "cancel"})
    (message,) = await journal.receive()
    with pytest.raises(Conflict):
        await journal.append("x", 5, [note("stale")], consumed=[message.id])
    assert await journal.receive() == [message]
    await journal.append("x", 1, [note("n")], consumed=[message.id])
    assert await journal.receive() == []


async def test_d3_the_id_of_a_message_is_never_used_again(journal: Journal) -> None:
    await begin(journal, "x")
    seen: list[int] = []
    for n in range(1, 6):
        await journal.send("x", 1.0, {"n": n})
        (message,) = await journal.receive()
        seen.append(message.id)
        await journal.append("x", n, [note(n)], consumed=[message.id])
    assert seen == sorted(set(seen)), "a reader that asks for what is newer would miss one"


# -- removing ------------------------------------------------------------------------------------


async def test_removing_forgets_events_head_and_messages_of_one_execution_only(journal: Journal) -> None:
    for name in ("x", "y"):
        await begin(journal, name)
        await journal.append(name, 1, [note(name)])
        await journal.send(name, 1.0, {"kind": "pause"})
    await journal.remove("x")
    assert await journal.read("x") == []
    assert [found.id for found in await journal.heads()] == ["y"]
    assert [message.execution for message in await journal.receive()] == ["y"]
    assert await notes(journal, "y") == ["y"]
    await journal.remove("x")
    await journal.remove("never was")


async def test_d9_several_executions_are_removed_at_once_and_their_space_is_given_back(
    journal: Journal, tmp_path: Path
) -> None:
    names = [f"x{n}" for n in range(50)]
    for name in (*names, "y"):
        await begin(journal, name)
        await journal.append(name, 1, [note("n" * 5_000)])
    await journal.remove(*names)
    assert [found.id for found in await journal.heads()] == ["y"]
    assert await journal.reclaim(most=0) == 0, "not now, with that much in use"
    freed = await journal.reclaim()
    assert freed > 200_000 or not isinstance(journal, SqliteJournal)
    assert await journal.reclaim() == 0
    assert await notes(journal, "y") == ["n" * 5_000]
    await journal.append("y", 2, [note("more")])
    last = (await journal.read(None))[-1]
    assert (last.execution, last.seq) == ("y", 3)
    for file in tmp_path.rglob("windlass.db"):
        assert file.stat().st_size < 100_000


async def test_i3_positions_are_never_reused_after_a_removal(journal: Journal) -> None:
    await begin(journal, "x")
    await begin(journal, "y")
    await journal.append("y", 1, [note(n) for n in range(10)])
    last = (await journal.read(None))[-1].position
    await journal.remove("y")
    await begin(journal, "z")
    new = await journal.read(None, after=last)
    assert [entry.execution for entry in new] == ["z"], "a reader that goes on after the last position sees z"


async def test_a_removed_execution_cannot_go_on_but_may_be_created_again(journal: Journal) -> None:
    await begin(journal, "x")
    await journal.append("x", 1, [note("n")])
    await journal.remove("x")
    with pytest.raises(Conflict):
        await journal.append("x", 2, [note("late")])
    await begin(journal, "z")
    assert [entry.execution for entry in await journal.read(None)] == ["z"]
    await begin(journal, "x")
    assert [entry.seq for entry in await journal.read("x")] == [1]


async def test_executions_are_counted_by_status(journal: Journal) -> None:
    assert await journal.counts() == {}
    for name in ("x", "y", "z"):
        await begin(journal, name)
    (head,) = await journal.heads(prefix="x")
    await journal.append("x", 1, [note("n")], head=head._replace(status="completed"))
    assert await journal.counts() == {head.status: 2, "completed": 1}
    await journal.append("x", 2, [note("m")], head=head._replace(status="completed"))
    await journal.remove("y", "none")
    assert await journal.counts() == {head.status: 1, "completed": 1}
    await journal.remove("x", "z")
    assert await journal.counts() == {}


async def test_a_refused_append_changes_no_count(journal: Journal) -> None:
    await begin(journal, "x")
    (head,) = await journal.heads(prefix="x")
    assert await raises_conflict(journal.append("x", 5, [note("n")], head=head._replace(status="completed")))
    assert await journal.counts() == {head.status: 1}


async def test_short_reads_on_the_loop_and_those_in_a_thread_find_the_same(journal: Journal) -> None:
    for name in ("x", "y", "z"):
        await begin(journal, name)
    for _ in range(50):  # far more than it takes to trust the disk
        assert [head.id for head in await journal.heads(limit=2)] == ["z", "y"]
        assert await journal.counts() == {"running": 3}
    listed = await asyncio.gather(*(journal.heads(limit=1) for _ in range(20)), *(journal.heads() for _ in range(20)))
    assert [len(found) for found in listed] == [1] * 20 + [3] * 20


# -- drivers -------------------------------------------------------------------------------------


def test_d6_a_driver_that_enlisted_is_alive_and_an_unknown_one_is_not(tmp_path: Path) -> None:
    for opener in OPENERS.values():
        journal = opener(tmp_path)
        first, second = journal.enlist(), journal.enlist()
        assert first != second
        assert journal.alive(first)
        assert journal.alive(second)
        assert not journal.alive("")
        assert not journal.alive("12345-nobody")
        assert not journal.alive("../windlass.db")
        assert "-server-" in f"-{journal.enlist('server')}"
        asyncio.run(journal.close())


# -- files ---------------------------------------------------------------------------------------


async def test_j1_two_journals_on_one_file_see_each_others_commits(pair: tuple[Journal, Journal]) -> None:
    first, second = pair
    await begin(first, "x")
    assert len(await second.read("x")) == 1
    await second.append("x", 1, [note("from the second")], head=head("x", "paused"))
    assert await notes(first, "x") == ["from the second"]
    assert [found.status for found in await first.heads()] == ["paused"]
    await first.send("x", 1.0, {"kind": "pause"})
    assert len(await second.receive()) == 1


async def test_d2_of_two_journals_on_one_file_only_the_one_that_is_up_to_date_may_append(
    pair: tuple[Journal, Journal],
) -> None:
    first, second = pair
    await begin(first, "x")
    await first.append("x", 1, [note("a")])
    await second.append("x", 2, [note("b")])
    with pytest.raises(Conflict):
        await first.append("x", 2, [note("stale")])
    await first.append("x", 3, [note("c")])
    with pytest.raises(Conflict):
        await second.append("x", 3, [note("stale")])
    assert await notes(first, "x") == ["a", "b", "c"]


async def test_d2_an_execution_that_another_process_removed_cannot_go_on_here(
    pair: tuple[Journal, Journal],
) -> None:
    first, second = pair
    await begin(first, "x")
    await first.append("x", 1, [note("a")])
    await second.remove("x")
    with pytest.raises(Conflict):
        await first.append("x", 2, [note("late")])
    await begin(second, "y")
    with pytest.raises(Conflict):
        await first.append("x", 1, [note("into another's journal")])
    assert await notes(second, "y") == []
    assert [(entry.execution, entry.seq) for entry in await second.read(None)] == [("y", 1)]


async def test_d2_many_appends_through_two_journals_at_once_lose_nothing(
    pair: tuple[Journal, Journal],
) -> None:
    async def drive(journal: Journal, name: str) -> None:
        await begin(journal, name)
        for n in range(1, 41):
            await journal.append(name, n, [note(n)])

    drives = [drive(journal, f"{side}-{n}") for side, journal in enumerate(pair) for n in range(10)]
    await asyncio.gather(*drives)
    for side in range(2):
        for n in range(10):
            assert await notes(pair[1 - side], f"{side}-{n}") == list(range(1, 41))


async def test_d2_what_was_acknowledged_is_there_after_reopening(tmp_path: Path) -> None:
    path = tmp_path / "windlass.db"
    written: list[Entry] = []
    for round_ in range(5):
        journal = SqliteJournal(path)
        await begin(journal, f"x{round_}")
        await journal.append(f"x{round_}", 1, [note(round_)])
        written = await journal.read(None)
        await journal.close()
        again = SqliteJournal(path)
        assert await again.read(None) == written
        await again.close()
    assert len(written) == 10


@pytest.mark.parametrize("rounds", [25, pytest.param(100, marks=pytest.mark.soak)])
def test_j1_a_new_file_can_be_opened_by_many_processes_at_the_same_moment(tmp_path: Path, rounds: int) -> None:
    """None may find it locked, and none may take it for another program's while its tables are being made."""
    memory = Path("/dev/shm")  # where an fsync costs nothing, so that there is time for many rounds
    race = Path(__file__).with_name("open_race.py")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        done = subprocess.run([sys.executable, race, folder, str(rounds)], capture_output=True, text=True, check=True)
    assert done.stdout == ""


@pytest.mark.parametrize("rounds", [10, pytest.param(30, marks=pytest.mark.soak)])
def test_d9_an_old_file_gains_the_checksum_when_many_processes_open_it_at_the_same_moment(
    tmp_path: Path, rounds: int
) -> None:
    memory = Path("/dev/shm")
    race = Path(__file__).with_name("open_race.py")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else tmp_path) as folder:
        words = [sys.executable, race, folder, str(rounds), "old"]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        for home in Path(folder).iterdir():
            with closing(sqlite3.connect(home / "windlass.db")) as db:
                assert db.execute("SELECT seq, body, checksum FROM events").fetchall() == [(1, b"{}", None)]
    assert done.stdout == ""


async def test_d9_the_counts_of_an_old_file_are_made_and_stay_right_when_an_older_release_writes(
    tmp_path: Path,
) -> None:
    path = tmp_path / "windlass.db"
    journal = SqliteJournal(path)
    for name in ("x", "y"):
        await begin(journal, name)
    await journal.close()
    with closing(sqlite3.connect(path)) as db:
        for row in db.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            db.execute(f"DROP TRIGGER {row[0]}")
        db.execute("DROP TABLE status_counts")
        db.execute("DROP INDEX created_by_name")
        db.execute("UPDATE executions SET status = 'completed' WHERE id = 'x'")
        db.commit()
    journal = SqliteJournal(path)
    assert await journal.counts() == {"running": 1, "completed": 1}
    with closing(sqlite3.connect(path)) as db:  # as a release that knows nothing of the counts
        db.execute("UPDATE executions SET status = 'failed', detail = 'd' WHERE id = 'y'")
        db.commit()
        assert db.execute("SELECT 1 FROM sqlite_master WHERE name = 'created_by_name'").fetchone()
    assert await journal.counts() == {"failed": 1, "completed": 1}
    await journal.close()


async def test_d9_events_without_a_checksum_are_read_and_those_after_them_have_one(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "windlass.db")
    created = ev.ExecutionCreated(1.0, id="x", plan=msgspec.Raw(b"{}"), inputs={}, workdir="/")
    head = Head("x", "p", "pending", 1.0, 1.0, "")
    await journal.append("x", 0, [created], head=head)
    with closing(sqlite3.connect(tmp_path / "windlass.db")) as db:
        db.execute("UPDATE events SET checksum = NULL")
        db.commit()
        await journal.append("x", 1, [ev.ExecutionStarted(2.0, "d")])
        assert [row[0] is None for row in db.execute("SELECT checksum FROM events ORDER BY seq")] == [True, False]
    assert [entry.seq for entry in await journal.read("x")] == [1, 2]
    await journal.close()


def test_d2_every_commit_reaches_the_disk_before_it_is_acknowledged(tmp_path: Path) -> None:
    """What no test without a power cut can see: SQLite is told to fsync its log at each commit."""
    db = open_database(tmp_path / "windlass.db")
    assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    assert db.execute("PRAGMA synchronous").fetchone() == (2,), "FULL"
    db.close()


def test_another_programs_database_is_refused_by_name_and_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "windlass.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE precious (x)")
    db.commit()
    db.close()
    before = path.read_bytes()
    with pytest.raises(JournalError, match="another program"):
        SqliteJournal(path)
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "content", [b"this is no database, and long enough to be seen as none" * 20, b"SQLite format 3\0"]
)
def test_a_file_that_is_no_database_is_refused_by_name_and_not_touched(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "windlass.db"
    path.write_bytes(content)
    with pytest.raises(JournalError, match=r"windlass\.db"):
        SqliteJournal(path)
    assert path.read_bytes() == content


def test_a_newer_journal_is_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    path = tmp_path / "windlass.db"
    asyncio.run(SqliteJournal(path).close())
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 999")
    db.close()
    with pytest.raises(JournalError, match="newer Windlass") as caught:
        SqliteJournal(path)
    assert "upgrade" in caught.value.advice[0]


def test_i6_the_files_are_for_their_owner_alone(tmp_path: Path) -> None:
    journal = SqliteJournal(tmp_path / "windlass.db")
    driver = journal.enlist()
    modes = {found.name: found.stat().st_mode & 0o077 for found in tmp_path.rglob("*") if found.is_file()}
    assert driver in modes
    assert "windlass.db" in modes
    assert set(modes.values()) == {0}
    asyncio.run(journal.close())


def test_a_foreign_database_with_a_wal_of_its_own_is_not_even_opened(tmp_path: Path) -> None:
    """SQLite folds a WAL into its file when the last connection closes: somebody's file would be changed by a look."""
    path = tmp_path / "windlass.db"
    theirs = sqlite3.connect(path)
    theirs.execute("PRAGMA journal_mode = WAL")
    theirs.execute("CREATE TABLE t (x)")
    theirs.commit()
    files = {file: file.read_bytes() for file in tmp_path.iterdir() if file.suffix != ".db-shm"}
    assert path.with_name("windlass.db-wal") in files
    with pytest.raises(JournalError, match="another program"):
        SqliteJournal(path)
    assert {file: file.read_bytes() for file in files} == files
    theirs.close()


# -- open questions ------------------------------------------------------------------------------


def asking(step: str, seq: int, execution: str = "x") -> OpenQuestion:
    digest = f"digest of {step} {seq}"
    return OpenQuestion(step, seq, question_id(execution, step, digest), digest, "/work")


async def ask(journal: Journal, execution: str, after: int, *steps: str) -> None:
    events = [ev.ApprovalAsked(3.0, step, f"digest of {step}", "shell", {"line": step}, 99.0) for step in steps]
    opened = tuple(asking(step, after + number, execution) for number, step in enumerate(steps, 1))
    await journal.append(execution, after, events, questions=QuestionChanges(opened))


async def steps_asking(journal: Journal, **which: Any) -> list[str]:
    return [f"{found.execution} {found.question.step}" for found in await journal.questions(**which)]


async def test_c6_open_questions_are_found_newest_first_page_by_page_and_with_what_they_ask(journal: Journal) -> None:
    await begin(journal, "x")
    await begin(journal, "y")
    await ask(journal, "x", 1, "a", "b")
    await ask(journal, "y", 1, "a")
    assert await steps_asking(journal) == ["y a", "x b", "x a"]
    assert await journal.count_questions() == 3
    assert await journal.asking(["x", "z"]) == {"x"}
    assert await journal.asking([]) == set()
    page = await journal.questions(limit=2)
    assert [found.asked.input for found in page] == [{"line": "a"}, {"line": "b"}]
    assert (page[0].plan, page[0].question.workdir) == ("p", "/work")
    assert await steps_asking(journal, before=page[-1].position, limit=2) == ["x a"]


async def test_c6_a_question_is_found_by_its_id_and_by_its_digest(journal: Journal) -> None:
    await begin(journal, "x")
    await ask(journal, "x", 1, "a", "b")
    question = asking("b", 3)
    assert await steps_asking(journal, named=question.id) == ["x b"]
    assert await steps_asking(journal, named=question.digest) == ["x b"]
    assert await steps_asking(journal, named="no such thing") == []


async def test_c6_a_closed_question_and_one_of_a_removed_execution_are_open_no_more(journal: Journal) -> None:
    await begin(journal, "x")
    await begin(journal, "y")
    await ask(journal, "x", 1, "a", "b")
    await ask(journal, "y", 1, "a")
    answered = ev.ApprovalAnswered(4.0, "a", "digest of a", True, "ann")
    await journal.append("x", 3, [answered], questions=QuestionChanges(closed=("a",)))
    await journal.remove("y")
    assert await steps_asking(journal) == ["x b"]
    await ask(journal, "x", 4, "b")
    assert [found.question.seq for found in await journal.questions()] == [5], "a step asks one thing at a time"


async def test_c6_a_refused_append_changes_no_question(journal: Journal) -> None:
    await begin(journal, "x")
    await ask(journal, "x", 1, "a")
    with pytest.raises(Conflict):
        await journal.append("x", 1, [note(1)], questions=QuestionChanges(closed=("a",)))
    assert await steps_asking(journal) == ["x a"]


async def test_c6_the_index_of_a_file_that_has_none_is_made_from_its_events(tmp_path: Path) -> None:
    first = SqliteJournal(tmp_path / "windlass.db")
    for name in ("x", "damaged"):
        await begin(first, name)
        started = ev.ExecutionStarted(2.0, "d")
        asked = ev.ApprovalAsked(3.0, "a", "digest", "shell", {"line": "true"}, 99.0)
        await first.append(name, 1, [started, asked])
    await first.close()
    with sqlite3.connect(tmp_path / "windlass.db") as db:
        db.execute("DROP TABLE questions")
        db.execute("UPDATE events SET body = '{' WHERE seq = 2 AND execution = (SELECT max(key) FROM executions)")
    db.close()
    second = SqliteJournal(tmp_path / "windlass.db")
    (found,) = await second.questions()
    assert (found.execution, found.question.step, found.question.seq, found.question.workdir) == ("x", "a", 3, "/")
    await second.close()


# -- the history ---------------------------------------------------------------------------------


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


async def test_d7_a_record_is_kept_with_the_event_that_stops_its_execution(journal: Journal) -> None:
    kept = await stop(journal, "x")
    assert await journal.history.records() == [kept]


async def test_d7_a_refused_append_leaves_the_record_as_it_was(journal: Journal) -> None:
    kept = await stop(journal, "x", status="paused")
    with pytest.raises(Conflict):
        await journal.append("x", 1, [note(2)], head=head("x", "failed"), record=record("x", status="failed"))
    assert await journal.history.records() == [kept]


async def test_d7_an_execution_that_goes_on_has_no_record_until_it_stops_again(journal: Journal) -> None:
    await stop(journal, "x", status="paused")
    await journal.append("x", 2, [note(2)], head=head("x", "running"))
    assert await journal.history.records() == []
    again = record("x", ended=9.0)
    await journal.append("x", 3, [note(3)], head=head("x", "completed"), record=again)
    assert await journal.history.records() == [again]


async def test_d7_a_second_record_of_the_same_stop_replaces_the_first(journal: Journal) -> None:
    await stop(journal, "x", status="paused")
    again = record("x", status="paused", ended=5.0)
    await journal.append("x", 2, [note(2)], record=again)
    assert await journal.history.records() == [again]


async def test_d7_the_record_of_a_removed_execution_is_gone(journal: Journal) -> None:
    await stop(journal, "x")
    kept = await stop(journal, "y")
    await journal.remove("x")
    assert await journal.history.records() == [kept]


async def test_d7_records_are_read_newest_first_by_plan_and_up_to_a_limit(journal: Journal) -> None:
    for name, plan, ended in (("x", "p", 5.0), ("y", "q", 9.0), ("z", "p", 7.0)):
        await stop(journal, name, plan=plan, ended=ended)
    assert [found.id for found in await journal.history.records()] == ["z", "y", "x"]
    assert [found.id for found in await journal.history.records("p")] == ["z", "x"]
    assert [found.id for found in await journal.history.records(limit=1)] == ["z"]
    assert await journal.history.records("none") == []


async def test_d7_observations_are_steps_that_ran_to_their_end_newest_first(journal: Journal) -> None:
    steps = (
        step_record("a", worked_s=2.0),
        step_record("b", tool="agent", runtime="cli", model="m", worked_s=3.0),
        step_record("c", status="skipped", attempts=0),
        step_record("d", status="paused", ended=None),
        step_record("e", status="failed", category="logic"),
    )
    for name, plan, ended in (("x", "p", 5.0), ("y", "q", 9.0)):
        await begin(journal, name)
        kept = record(name, *steps, plan=plan, ended=ended)
        await journal.append(name, 1, [note(1)], head=head(name, "failed"), record=kept)
    seen = journal.history.observations
    assert [one.step for one in await seen()] == ["a", "b", "e", "a", "b", "e"]
    assert [one.step for one in await seen(plan="p")] == ["a", "b", "e"]
    assert await seen(plan="p", step="b") == [steps[1]]
    assert await seen(tool="agent", runtime="cli", model="m") == [steps[1], steps[1]]
    assert await seen(tool="agent", runtime="opencode") == []
    assert len(await seen(tool="shell", limit=3)) == 3


# -- recorded forecasts --------------------------------------------------------------------------


def made(seconds: float, **fields: Any) -> Forecast:
    band = Band(seconds / 2, seconds, seconds * 2)
    told = {name: 0 for name in ("spent_usd", "runs", "unchanged", "samples", "approvals")}
    told |= {name: () for name in ("estimated", "unknown", "uncounted", "unpriced", "overdue")}
    told |= {"origins": {}, "approval_s": None, "low_confidence": True, "usd": None, "usd_raw": None}
    return Forecast(**{**told, "at": 1.0, "elapsed_s": 0.0, "done": 0.0, "left": band, "raw": band, **fields})


async def test_d7_the_last_forecast_of_an_execution_is_read(journal: Journal) -> None:
    assert await journal.forecasts.latest("x", "y") == {}
    await stop(journal, "x")
    for seconds in (10.0, 20.0):
        await journal.forecasts.add("x", "p", made(seconds))
    assert await journal.forecasts.latest("x", "y") == {"x": made(20.0)}


async def test_d7_a_forecast_gets_its_outcome_from_the_record_of_its_execution(journal: Journal) -> None:
    assert await journal.forecasts.outcomes() == []
    await journal.append("x", 0, [created("x")], head=head("x", "running"))
    await journal.forecasts.add("x", "p", made(10.0))
    await journal.forecasts.add("x", "p", made(9.0))
    assert await journal.forecasts.outcomes() == [], "it still runs"
    kept = record("x")
    await journal.append("x", 1, [note(1)], head=head("x", "completed"), record=kept)
    found = await journal.forecasts.outcomes()
    assert [(one.execution, one.plan, one.forecast, one.took_s) for one in found] == [
        ("x", "p", made(10.0), kept.took_s)
    ]
    assert await journal.forecasts.outcomes("p") == found
    assert await journal.forecasts.outcomes("other") == []


async def test_d7_only_executions_that_completed_measure_a_forecast(journal: Journal) -> None:
    for name, status in (("x", "failed"), ("y", "cancelled"), ("z", "completed")):
        await stop(journal, name, status=status)
        await journal.forecasts.add(name, "p", made(10.0))
    assert [one.execution for one in await journal.forecasts.outcomes()] == ["z"]


async def test_d7_two_processes_record_forecasts_at_once(pair: tuple[Journal, Journal]) -> None:
    for name in ("x", "y"):
        await stop(pair[0], name)
    both = list(zip("xy", pair, strict=True))
    rows = [(name, journal, made(float(n), done=n / 4)) for n in range(4) for name, journal in both]
    await asyncio.gather(*(journal.forecasts.add(name, "p", one) for name, journal, one in rows))
    first, second = await asyncio.gather(*(journal.forecasts.outcomes() for journal in pair))
    assert first == second
    assert len(first) == 8
    assert sorted(one.forecast.raw.middle for one in first if one.execution == "y") == [float(n) for n in range(4)]


async def test_d7_a_quarter_of_an_execution_is_marked_once(journal: Journal) -> None:
    await stop(journal, "x")
    for done in (0.0, 0.2, 0.3, 0.2, 0.45, 0.8, 1.0):
        await journal.forecasts.add("x", "p", made(10.0, done=done))
    assert [one.forecast.done for one in await journal.forecasts.outcomes()] == [0.0, 0.3, 0.8]
    assert (await journal.forecasts.latest("x"))["x"].done == 1.0, "the others are kept too"


async def test_d7_two_processes_mark_a_quarter_once(pair: tuple[Journal, Journal]) -> None:
    await stop(pair[0], "x")
    rows = [(journal, made(10.0, done=n / 40)) for n in range(40) for journal in pair]
    await asyncio.gather(*(journal.forecasts.add("x", "p", one) for journal, one in rows))
    for journal in pair:
        assert sorted(int(4 * one.forecast.done) for one in await journal.forecasts.outcomes()) == [0, 1, 2, 3]


async def test_d7_forecasts_of_a_removed_execution_are_no_outcome(journal: Journal) -> None:
    await journal.append("x", 0, [created("x")], head=head("x", "running"))
    await journal.forecasts.add("x", "p", made(10.0))
    await journal.remove("x")
    assert await journal.forecasts.outcomes() == []


async def test_d2_what_is_committed_is_not_written_again_if_the_look_at_the_file_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = SqliteJournal(tmp_path / "windlass.db")
    for name in ("a", "b"):
        await journal.append(name, 0, [created(name)], head=head(name))
    file = journal._writer._file
    monkeypatch.setattr(type(file), "check", broken_once(type(file).check))
    both = [journal.append(name, 1, [note("once")]) for name in ("a", "b")]
    outcomes = await asyncio.gather(*both, return_exceptions=True)
    assert [type(error) for error in outcomes] == [JournalError, JournalError], outcomes
    assert [len(await journal.read(name)) for name in ("a", "b")] == [2, 2]
    await journal.close()


def broken_once(check: Callable[[Any], None]) -> Callable[[Any], None]:
    """Fails the first time, as a file system without an answer would."""
    calls = iter([OSError(5, "Input/output error")])

    def looked(file: Any) -> None:
        for error in calls:
            raise error
        check(file)

    return looked
