"""A home, a database or a working directory that vanishes in use is noticed before anything is acknowledged (D9)."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import windlass
from windlass import Call, Plan, Step, tool
from windlass.core.budget import Amount
from windlass.errors import JournalError, Vanished
from windlass.journal.gatebook import SqliteGateStore
from windlass.journal.ledger import SqliteLedger
from windlass.ports import Charge, Rate

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = Plan(steps=[Step(id="a", tool="work"), Step(id="b", tool="work", needs=["a"])])


def _home_deleted(home: Path) -> None:
    shutil.rmtree(home)


def _home_replaced(home: Path) -> None:
    shutil.copytree(home, home.with_name("copy"))
    home.rename(home.with_name("old"))
    home.with_name("copy").rename(home)


def _project_moved(home: Path) -> None:
    home.parent.rename(home.parent.with_name("elsewhere"))


def _database_deleted(home: Path) -> None:
    (home / "windlass.db").unlink()


def _database_replaced(home: Path) -> None:
    shutil.copy(home / "windlass.db", home / "other")
    (home / "other").rename(home / "windlass.db")


def _database_emptied(home: Path) -> None:
    (home / "windlass.db").write_bytes(b"")


def _log_deleted(home: Path) -> None:
    (home / "windlass.db-wal").unlink()


WAYS: list[Callable[[Path], None]] = [
    _home_deleted,
    _home_replaced,
    _project_moved,
    _database_deleted,
    _database_replaced,
    _database_emptied,
    _log_deleted,
]


@pytest.mark.parametrize("vanish", WAYS, ids=lambda way: way.__name__.strip("_"))
async def test_d9_a_home_that_vanishes_is_noticed_before_the_next_acknowledgement(
    project: Project, vanish: Callable[[Path], None]
) -> None:
    began, release = asyncio.Event(), asyncio.Event()
    ran: list[str] = []

    @tool
    async def work(call: Call) -> str:
        ran.append(call.step)
        began.set()
        await release.wait()
        return call.step

    async with windlass.open(tools=[work]) as engine:
        execution = await engine.start(PLAN)
        await began.wait()
        vanish(project.home)
        release.set()
        with pytest.raises(Vanished, match="while it was in use") as error:
            await execution.wait()
        assert (error.value.exit_code, error.value.category) == (1, "resource")
        assert "restore a backup" in error.value.advice[0]
        assert ran == ["a"], "nothing is begun that could not be written down"
        with pytest.raises(Vanished):
            await engine.executions()
        with pytest.raises(Vanished):
            await engine.start(PLAN)


def test_d9_a_command_whose_home_vanishes_ends_with_an_error(
    project: Project, windlass: Windlass, until: object
) -> None:
    plan = "steps: [{id: a, run: 'touch began; until [ -e go ]; do sleep 0.1; done'}, {id: b, run: 'true', needs: [a]}]"
    run = windlass.background("run", project.plan(plan), "--progress=quiet")
    until((project.path / "began").exists)
    shutil.rmtree(project.home)
    (project.path / "go").touch()
    ended = run.ended()
    assert ended.code == 1, str(ended)
    assert "was deleted or moved away while it was in use" in ended.err
    assert "completed" not in ended.out + ended.err
    assert "Traceback" not in ended.err


async def test_d9_the_ledger_does_not_acknowledge_into_a_file_that_is_gone(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path / "windlass.db")
    charge = Charge("e", "s", 1, "cli", "m", "r")
    assert await ledger.reserve(charge, 1.0, Amount(1.0, None), []) is None
    (tmp_path / "windlass.db").unlink()
    with pytest.raises(Vanished):
        await ledger.release(charge)
    await ledger.close()


def test_d9_the_gate_book_begins_anew_when_it_is_deleted_and_counts_nothing_without_a_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    book = SqliteGateStore(home / "gates.db")
    rate = Rate(1, 3600.0)
    assert book.take("x", rate, 1.0) == 0.0
    for file in home.iterdir():
        file.unlink()
    assert book.take("x", rate, 1.0) == 0.0, "a deleted book is a new one"
    assert book.take("x", rate, 1.0) > 0.0
    shutil.rmtree(home)
    with pytest.raises(JournalError):
        book.take("x", rate, 1.0)
    assert not home.exists(), "a home is not made anew behind the user's back"
    book.close()


@pytest.fixture
def own_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "none", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting a file system needs root")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def _make_read_only(disk: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)


async def test_d9_a_disk_that_was_remounted_read_only_is_named(project: Project, own_disk: Path) -> None:
    plan = Plan(steps=[Step(id="a", run="true")])
    async with windlass.open(own_disk / "home", load={"disk_floor": 0}) as engine:
        await (await engine.start(plan)).wait()
    _make_read_only(own_disk)
    with pytest.raises(JournalError, match="on a read-only disk"):
        async with windlass.open(own_disk / "home", load={"disk_floor": 0}) as engine:
            await engine.start(plan)


def test_d9_a_deleted_working_directory_is_told_without_a_traceback(
    project: Project, windlass: Windlass, tmp_path: Path
) -> None:
    there = tmp_path / "gone"
    there.mkdir()
    script = f'rmdir "{there}"; exec windlass list'
    ran = subprocess.run(["sh", "-c", script], cwd=there, env=project.env, capture_output=True, text=True, check=False)
    assert ran.returncode == 2
    assert "the working directory was deleted" in ran.stderr
    assert "Traceback" not in ran.stderr
    plan = "steps: [{id: a, run: 'rm -r ../work'}, {id: b, run: 'true', needs: [a], retry: 0}]"
    (project.path / "work").mkdir()
    windlass("run", project.plan(plan), "--progress=quiet", "--workdir", project.path / "work", code=1)
    (execution,) = project.ids()
    failed = project.state(execution).steps["b"].error
    assert failed is not None
    assert failed.category == "configuration"
    assert "work" in failed.message
