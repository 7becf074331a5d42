"""When the journal cannot be used (D2): a clear error, nothing harmed, everything resumable afterwards."""

from __future__ import annotations

import asyncio
import os
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Call, Plan, Step, tool
from windlass.errors import JournalError
from windlass.homes import prepare_home
from windlass.journal import schema
from windlass.journal.rows import checksum

if TYPE_CHECKING:
    from conftest import Project

PLAN = Plan(steps=[Step(id="a", run="true"), Step(id="b", run="true", needs=["a"])])


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite with the patience of a test: 10 s to wait for a lock are 50 ms."""
    monkeypatch.setattr(schema.sqlite3, "connect", partial(_connect, sqlite3.connect))
    monkeypatch.setattr("windlass.journal.sqlite.PATIENCE", 0.05)


def _connect(real: Any, path: Any, **options: Any) -> sqlite3.Connection:
    return real(path, **{**options, "timeout": 0.05})


def locked(db: Path) -> sqlite3.Connection:
    other = sqlite3.connect(db, isolation_level=None)
    other.execute("PRAGMA locking_mode = EXCLUSIVE")
    other.execute("BEGIN EXCLUSIVE")
    return other


async def test_d2_a_locked_database_is_named_and_left_alone(project: Project, hasty: None) -> None:
    async with windlass.open() as engine:
        await (await engine.start(PLAN)).wait()
    other = locked(project.home / "windlass.db")
    try:
        before = (project.home / "windlass.db").read_bytes()
        with pytest.raises(JournalError, match="locked by another program") as error:
            async with windlass.open() as engine:
                await engine.executions()
        assert str(project.home / "windlass.db") in error.value.message
        assert "fuser" in error.value.advice[0]
        assert (project.home / "windlass.db").read_bytes() == before
    finally:
        other.close()
    async with windlass.open() as engine:
        assert len(await engine.executions()) == 1


async def test_d2_a_lock_in_the_middle_of_a_run_ends_the_driver_and_a_resume_goes_on(
    project: Project, hasty: None
) -> None:
    """The step's result could not be acknowledged, so the step runs again; what was acknowledged does not."""
    began, release = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    @tool
    async def work(call: Call) -> str:
        ran.append(call.step)
        if call.step == "b" and call.attempt == 1:
            began.set()
            await release.wait()
        return call.step

    plan = Plan(steps=[Step(id="a", tool="work"), Step(id="b", tool="work", needs=["a"])])
    async with windlass.open(tools=[work]) as engine:
        execution = await engine.start(plan)
        await began.wait()
        other = sqlite3.connect(project.home / "windlass.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        release.set()
        with pytest.raises(JournalError, match="locked"):
            await execution.wait()
        assert [e async for e in execution.events()], "following it ends, too"
        other.close()
        result = await (await engine.resume(execution.id)).result()
    assert result["status"] == "completed"
    assert ran == ["a", "b", "b"]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(place)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_d2_a_full_disk_is_told_and_nothing_acknowledged_is_lost(project: Project, small_disk: Path) -> None:
    plan = Plan(steps=[Step(id="small", run="true"), Step(id="big", run="head -c 900000 /dev/zero", needs=["small"])])
    home = small_disk / "home"
    async with windlass.open(home, load={"disk_floor": 0}) as engine:
        execution = await engine.start(plan)
        with pytest.raises(JournalError, match="full") as error:
            await execution.wait()
    assert "windlass resume" in error.value.advice[0]
    roomy = project.path / "copy"
    shutil.copytree(home, roomy)
    async with windlass.open(roomy) as engine:
        state = await engine.state(execution.id)
        assert state.steps["small"].status == "completed"
        assert state.steps["big"].status == "running"
        result = await (await engine.resume(execution.id)).result()
    assert result["status"] == "completed"
    assert [s["attempts"] for s in result["steps"]] == [1, 2]


def _foreign(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE recipes (name TEXT)")
    db.execute("INSERT INTO recipes VALUES ('soup')")
    db.commit()
    db.close()


def _foreign_by_id(path: Path) -> None:
    db = sqlite3.connect(path)
    db.execute("PRAGMA application_id = 4711")
    db.commit()
    db.close()


def _text(path: Path) -> None:
    path.write_text("this is no database, it is a letter to my grandmother\n" * 50)


def _newer(path: Path) -> None:
    schema.open_database(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.commit()
    db.close()


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (_foreign, "database of another program"),
        (_foreign_by_id, "database of another program"),
        (_text, "is not a database"),
        (_newer, "newer Windlass"),
    ],
)
async def test_d2_a_file_that_is_not_ours_is_not_touched(project: Project, make: Any, said: str) -> None:
    prepare_home(project.home)
    path = project.home / "windlass.db"
    make(path)
    before = path.read_bytes()
    with pytest.raises(JournalError, match=said) as error:
        async with windlass.open() as engine:
            await engine.start(PLAN)
    assert str(path) in error.value.message
    assert path.read_bytes() == before
    assert error.value.advice
    assert sorted(p.name for p in project.home.glob("windlass.db*")) == ["windlass.db"]


async def test_d2_a_damaged_database_is_told_without_a_traceback(project: Project) -> None:
    async with windlass.open() as engine:
        for _ in range(30):
            await (await engine.start(PLAN)).wait()
    path = project.home / "windlass.db"
    content = bytearray(path.read_bytes())
    content[1024:] = b"\x5a" * (len(content) - 1024)
    path.write_bytes(content)
    with pytest.raises(JournalError, match=r"damaged|not a database"):
        async with windlass.open() as engine:
            await engine.executions()
    assert path.read_bytes() == bytes(content)


async def test_d2_an_event_that_nobody_can_read_is_named(project: Project) -> None:
    async with windlass.open() as engine:
        execution = await engine.start(PLAN)
        await execution.wait()
    db = sqlite3.connect(project.home / "windlass.db")
    body = b'{"type":"step.exploded","at":1}'
    db.execute("UPDATE events SET body = ?, checksum = ? WHERE seq = 3", (body, checksum(execution.id, 3, body)))
    db.commit()
    db.close()
    async with windlass.open() as engine:
        with pytest.raises(JournalError, match="event 3") as error:
            await engine.state(execution.id)
        assert execution.id in error.value.message
        assert "newer Windlass" in error.value.advice[0]
        other = await engine.start(PLAN)
        assert (await other.wait()).status == "completed", "the others are not harmed"
