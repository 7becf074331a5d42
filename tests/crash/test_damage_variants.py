"""A home is damaged in hundreds of ways: the damaged execution is named, no other is harmed, all is noticed (D9)."""

from __future__ import annotations

import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import windlass
from windlass import Plan, Step, ToolError, tool
from windlass.core.events import encode
from windlass.errors import Damaged, WindlassError
from windlass.journal.deepcheck import check_home
from windlass.journal.rows import checksum
from windlass.journal.sqlite import SqliteJournal

CHAIN = Plan(name="chain", steps=[Step(id="a", tool="say"), Step(id="b", tool="say", needs=["a"])])
ASKS = Plan(name="asks", steps=[Step(id="a", tool="say"), Step(id="q", run="true", needs=["a"], approve="always")])
FAILS = Plan(name="fails", steps=[Step(id="a", tool="fail", retry=0), Step(id="b", tool="say", needs=["a"])])
Histories = dict[str, list[bytes]]


@tool
async def say() -> str:
    """Says enough to fill a page of the database."""
    return "word " * 300


@tool
async def fail() -> str:
    """Fails for good."""
    raise ToolError("no")


async def _live_home(base: Path) -> tuple[Path, Path]:
    """A home that was closed, and one as a killed process leaves it: with its log and shared index."""
    home, killed = base / "closed", base / "killed"
    async with windlass.open(home, tools=[say, fail]) as engine:
        for plan in (CHAIN, ASKS, FAILS, CHAIN, ASKS):
            await (await engine.start(plan, hold=False)).wait()
        for head in await engine.executions():
            await engine.checkpoint(head.id)
    async with windlass.open(home, tools=[say]) as engine:  # nothing has run in it: it writes nothing by itself
        for _ in range(3):
            await engine.create(CHAIN)
        shutil.copytree(home, killed)
    return home, killed


@pytest.fixture
async def homes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.chdir(tmp_path)
    return await _live_home(tmp_path)


async def _histories(home: Path) -> tuple[Histories, dict[str, int]]:
    """What the journal gives of each execution, and the damaged ones with the event that is named."""
    good: Histories = {}
    bad: dict[str, int] = {}
    journal = SqliteJournal(home / "windlass.db")
    try:
        for head in await journal.heads():
            try:
                good[head.id] = [encode(entry.event) for entry in await journal.read(head.id)]
            except Damaged as damage:
                bad[damage.execution] = damage.seq
    finally:
        await journal.close()
    return good, bad


def _contents(home: Path) -> Any:
    """All rows of the tables that matter; whatever cannot be read is None."""
    db = sqlite3.connect(home / "windlass.db")
    db.text_factory = bytes
    try:
        names = ("executions", "events", "inbox")
        return [db.execute(f"SELECT * FROM {name} ORDER BY 1").fetchall() for name in names]
    except (sqlite3.Error, UnicodeDecodeError):
        return None
    finally:
        db.close()


# -- one row, by a program that knows the database ---------------------------------------------------


def _flip(body: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(body))
    return body[:at] + bytes([body[at] ^ (1 << chance.randrange(8))]) + body[at + 1 :]


def _cut(body: bytes, chance: random.Random) -> bytes:
    return body[: chance.randrange(len(body))]


def _another_version(body: bytes, chance: random.Random) -> bytes:
    return b'{"type":"step.exploded","at":1}'


ROW_CHANGES: list[Callable[[bytes, random.Random], bytes]] = [_flip, _flip, _flip, _cut, _another_version]


def _change_row(home: Path, chance: random.Random) -> str:
    """Change one row of one execution; gives its id."""
    db = sqlite3.connect(home / "windlass.db")
    key, name = chance.choice(db.execute("SELECT key, id FROM executions ORDER BY id").fetchall())
    rows = db.execute("SELECT seq, body FROM events WHERE execution = ? ORDER BY seq", (key,)).fetchall()
    seq, body = rows[0] if chance.random() < 0.3 else chance.choice(rows)  # the first holds the plan
    match chance.randrange(4):
        case 0 if len(rows) > 1:
            db.execute("DELETE FROM events WHERE execution = ? AND seq = ?", (key, seq))
        case 1:
            db.execute("UPDATE events SET seq = ? WHERE execution = ? AND seq = ?", (seq + 1000, key, seq))
        case _:
            change = chance.choice(ROW_CHANGES)
            changed = change(body, chance)
            total = checksum(name, seq, changed) if change is _another_version else checksum(name, seq, body)
            sql = "UPDATE events SET body = ?, checksum = ? WHERE execution = ? AND seq = ?"
            db.execute(sql, (changed, total, key, seq))
    db.commit()
    db.close()
    return str(name)


async def _row_variant(home: Path, chance: random.Random) -> None:
    before, _none = await _histories(home)
    name = _change_row(home, chance)
    checked = check_home(home)
    assert name in {fault.where for fault in checked.faults}, "the damaged one is named"
    assert {fault.where for fault in checked.faults} == {name}, "and no other"
    good, bad = await _histories(home)
    assert all(good[other] == before[other] for other in before if other != name), "no other is harmed"
    if name in good:  # its last events are gone, which only a checkpoint file or its line in lists can tell
        assert len(good[name]) < len(before[name])
    else:
        assert set(bad) == {name}


# -- bytes anywhere ----------------------------------------------------------------------------------


async def _byte_variant(home: Path, chance: random.Random) -> None:
    """A byte of the file is another. Whatever that does: nothing is silently another than it was."""
    path = home / "windlass.db"
    before, _none = await _histories(home)
    kept, sound = _contents(home), path.read_bytes()
    while True:
        at = chance.randrange(100, len(sound))
        path.write_bytes(sound[:at] + bytes([sound[at] ^ (1 << chance.randrange(8))]) + sound[at + 1 :])
        if _contents(home) != kept:
            break  # else it was in a part that nothing uses
    await _nothing_is_silently_different(home, before)


async def _cut_variant(home: Path, chance: random.Random) -> None:
    path = home / "windlass.db"
    before, _none = await _histories(home)
    content = path.read_bytes()
    path.write_bytes(content[: chance.randrange(1, len(content) - 1024)])
    await _nothing_is_silently_different(home, before)


async def _nothing_is_silently_different(home: Path, before: Histories) -> None:
    try:
        faults = check_home(home).faults
    except WindlassError:
        return  # the database as a whole is refused, by name
    assert faults, "the deep check notices"
    told = " ".join(f"{fault.where} {fault.reason}" for fault in faults)
    try:
        good, _bad = await _histories(home)
    except WindlassError:
        assert "database" in told  # not even a list can be read: that is said
        return
    for name, events in before.items():
        if name in good:
            assert good[name] == events or name in told, f"{name} is another than it was, and not named"
        else:
            assert name in told or "database " in told, f"{name} cannot be read, and is not named"


# -- the log and the checkpoint files ----------------------------------------------------------------


async def _log_variant(home: Path, chance: random.Random) -> None:
    log = home / "windlass.db-wal"
    content = log.read_bytes()
    if chance.random() < 0.6:
        at = chance.randrange(len(content))
        log.write_bytes(content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :])
    else:
        log.write_bytes(content[: chance.randrange(len(content))])
    assert "log" in {fault.where for fault in check_home(home).faults}


async def _checkpoint_variant(home: Path, chance: random.Random) -> None:
    before, _none = await _histories(home)
    file = chance.choice(sorted(home.glob("executions/**/*.json")))
    content = file.read_bytes()
    file.write_bytes(_flip(content, chance) if chance.random() < 0.5 else content[: chance.randrange(len(content))])
    assert {fault.where for fault in check_home(home).faults} == {str(file)}
    assert await _histories(home) == (before, {}), "no execution is harmed"


VARIANTS = [
    (_row_variant, 0),
    (_row_variant, 0),
    (_byte_variant, 0),
    (_byte_variant, 0),
    (_cut_variant, 0),
    (_log_variant, 1),
    (_checkpoint_variant, 0),
]


async def _damage_and_look(homes: tuple[Path, Path], seeds: range) -> None:
    for home in homes:
        copied = home.with_name("untouched")
        shutil.copytree(home, copied)
        assert check_home(copied).faults == [], "a sound home has no faults"
        shutil.rmtree(copied)
    for seed in seeds:
        variant, which = VARIANTS[seed % len(VARIANTS)]
        copied = homes[which].with_name("damaged")
        shutil.copytree(homes[which], copied)
        try:
            await variant(copied, random.Random(seed))
        except Exception as error:
            error.add_note(f"seed {seed}, {variant.__name__}")
            raise
        shutil.rmtree(copied)


async def test_d9_damage_is_named_and_harms_no_other_and_the_deep_check_notices_all(homes: tuple[Path, Path]) -> None:
    await _damage_and_look(homes, range(42))


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_d9_three_hundred_and_more_ways_of_damage(homes: tuple[Path, Path]) -> None:
    await _damage_and_look(homes, range(42, 742))
