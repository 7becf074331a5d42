"""A whole home in one file: taken under load, restored elsewhere, refused when it is damaged or hostile (D9)."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import stat
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import windlass as library
from windlass import Engine, Plan, Step, tool
from windlass.core.events import encode
from windlass.errors import UsageError, WindlassError
from windlass.journal.backup import BadBackup, restore_backup, write_backup
from windlass.journal.deepcheck import check_home

if TYPE_CHECKING:
    from conftest import Project, Windlass

CHAIN = Plan(name="chain", steps=[Step(id=f"s{n}", tool="say", needs=[f"s{n - 1}"] if n else []) for n in range(8)])
ASKS = Plan(name="asks", steps=[Step(id="a", run="true"), Step(id="q", run="true", needs=["a"], approve="always")])
NOW = 1_790_000_000.0


@tool
async def say() -> str:
    """Says something."""
    return "word " * 20


async def _journal(engine: Engine) -> set[tuple[str, int, bytes]]:
    """Everything that is acknowledged at this moment."""
    return {(entry.execution, entry.seq, encode(entry.event)) for entry in await engine.journal.read(None)}


async def _under_load(home: Path, aside: Path, repeats: int) -> None:
    """Executions go on one after the other while the home is backed up again and again."""
    async with library.open(home, tools=[say]) as engine:
        stop = asyncio.Event()

        async def load() -> None:
            while not stop.is_set():
                await (await engine.start(CHAIN)).wait()

        running = [asyncio.create_task(load()) for _ in range(4)]
        try:
            for turn in range(repeats):
                acknowledged = await _journal(engine)
                written = await asyncio.to_thread(write_backup, home, aside / f"{turn}.zip", now=NOW)
                assert written.checked.faults == []
                there = aside / f"home-{turn}"
                restored = await asyncio.to_thread(restore_backup, written.path, there)
                assert restored.checked.faults == []
                async with library.open(there, tools=[say]) as other:
                    assert acknowledged <= await _journal(other), "every acknowledged event is in the backup"
                shutil.rmtree(there)
                written.path.unlink()
        finally:
            stop.set()
            await asyncio.gather(*running)
    assert check_home(home).faults == [], "the home itself is as sound as before"


async def test_d9_a_backup_under_load_has_every_acknowledged_event(project: Project, tmp_path: Path) -> None:
    await _under_load(project.home, tmp_path, 3)


@pytest.mark.soak
@pytest.mark.timeout(1800)
async def test_d9_a_hundred_backups_under_load(project: Project, tmp_path: Path) -> None:
    for number in range(20):  # a home of its own for each five: one that only grows takes longer and longer
        await _under_load(tmp_path / f"live-{number}", tmp_path, 5)


@pytest.fixture
async def backup(project: Project, tmp_path: Path) -> Path:
    """A backup of a home with a finished and a waiting execution, a checkpoint, settings, a tool and an artifact."""
    async with library.open(tools=[say]) as engine:
        finished = await engine.start(CHAIN)
        await finished.wait()
        asking = await engine.start(ASKS, hold=False)
        await asking.wait()
        await engine.checkpoint(asking.id)
    project.file(".windlass/config.toml", 'grace = "3s"\n')
    project.file(".windlass/composed-tools/mine.js", "return 1\n")
    project.file(f".windlass/artifacts/{finished.id}/s0/picture.png", "picture\n")
    path = tmp_path / "home.zip"
    write_backup(project.home, path, now=NOW)
    return path


def test_d9_a_home_is_backed_up_and_restored_on_the_command_line(
    project: Project, windlass: Windlass, backup: Path, tmp_path: Path
) -> None:
    file, there = tmp_path / "b.zip", tmp_path / "there"
    told = windlass("backup", file, "--artifacts", "--json").json
    assert (told["executions"], told["faults"]) == (2, [])
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "already exists" in windlass("backup", file, code=2).err
    windlass("backup", file, "--artifacts", "--force")
    refused = windlass("restore", file, code=2)
    assert "has 2 executions" in refused.err
    assert "--home DIR restore FILE" in refused.err
    made = windlass("--home", there, "restore", file)
    assert made.out == f"{there}\n"
    assert stat.S_IMODE(there.stat().st_mode) == 0o700
    assert (there / "config.toml").read_text() == 'grace = "3s"\n'
    assert (there / "composed-tools" / "mine.js").exists()
    (picture,) = there.glob("artifacts/*/s0/picture.png")
    assert picture.read_text() == "picture\n"
    assert not (there / "server.token").exists()
    asking = project.ids()[1]
    windlass("--home", there, "approve", asking, "q")
    assert windlass("--home", there, "resume", asking, "--json").json["status"] == "completed"
    assert project.state(asking).status == "paused", "the home that was backed up is not touched"


async def test_d9_a_home_without_executions_is_set_aside_for_the_restored_one(project: Project, backup: Path) -> None:
    empty = project.path / "empty"
    async with library.open(empty) as engine:
        assert await engine.executions() == []
    restored = restore_backup(backup, empty)
    assert restored.set_aside is not None
    assert (restored.set_aside / "windlass.db").exists()
    async with library.open(empty) as engine:
        assert len(await engine.executions()) == 2


async def test_d9_a_damaged_backup_is_refused_and_leaves_nothing(
    project: Project, backup: Path, tmp_path: Path
) -> None:
    """A byte changed or the end cut off, anywhere: what is restored is what was backed up, or nothing is."""
    content, there, bad = backup.read_bytes(), tmp_path / "there" / "home", tmp_path / "bad.zip"
    restore_backup(backup, there)
    async with library.open(there) as engine:
        whole = await _journal(engine)
    shutil.rmtree(there)
    refused = 0
    for seed in range(40):
        chance = random.Random(seed)
        at = chance.randrange(len(content))
        flipped = content[:at] + bytes([content[at] ^ (1 << chance.randrange(8))]) + content[at + 1 :]
        bad.write_bytes(flipped if seed % 4 else content[:at])
        try:
            restore_backup(bad, there)
        except WindlassError:
            refused += 1
            assert list(there.parent.iterdir()) == [], "nothing is left of it"
            continue
        async with library.open(there) as engine:
            assert await _journal(engine) == whole
        shutil.rmtree(there)
    assert refused > 30


def _rewritten(backup: Path, path: Path, change: Any) -> Path:
    """The backup with its members changed: `change` gets names with contents, manifest included."""
    with zipfile.ZipFile(backup) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    change(members)
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return path


def _listed(members: dict[str, bytes], name: str, data: bytes, size: int | None = None) -> None:
    import hashlib

    manifest = json.loads(members["manifest.json"])
    line = {"name": name, "bytes": len(data) if size is None else size, "sha256": hashlib.sha256(data).hexdigest()}
    manifest["files"] = [one for one in manifest["files"] if one["name"] != name] + [line]
    members["manifest.json"] = json.dumps(manifest).encode()
    members[name] = data


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "executions/../../evil",
        "/etc/evil",
        "executions//evil",
        "executions/./evil",
        "executions\\..\\evil",
        "executions/a\x00b",
        "home.json",
        "server.token",
        "drivers/1-x",
        "windlass.db-wal",
        "gates.db",
        "executions",
    ],
)
def test_d9_a_backup_with_a_hostile_name_is_refused(project: Project, backup: Path, tmp_path: Path, name: str) -> None:
    bad = _rewritten(backup, tmp_path / "bad.zip", lambda members: _listed(members, name, b"evil"))
    with pytest.raises(BadBackup):
        restore_backup(bad, tmp_path / "there")
    assert not (tmp_path / "there").exists()
    assert not list(tmp_path.rglob("*evil*"))


def test_d9_a_backup_that_lies_is_refused(project: Project, backup: Path, tmp_path: Path) -> None:
    def newer(members: dict[str, bytes]) -> None:
        members["manifest.json"] = members["manifest.json"].replace(b'"version": 1', b'"version": 2')

    def bomb(members: dict[str, bytes]) -> None:
        _listed(members, "executions/x/bomb", b"0" * 10_000_000, size=10)

    def huge(members: dict[str, bytes]) -> None:
        _listed(members, "executions/x/huge", b"0", size=1 << 60)

    def unlisted(members: dict[str, bytes]) -> None:
        members["executions/x/more"] = b"more"

    def missing(members: dict[str, bytes]) -> None:
        del members["windlass.db"]

    def other_content(members: dict[str, bytes]) -> None:
        members["config.toml"] = b"grace = '9s'"

    def no_database(members: dict[str, bytes]) -> None:
        _listed(members, "windlass.db", b"dear grandmother")

    for change in (newer, bomb, huge, unlisted, missing, other_content, no_database):
        bad = _rewritten(backup, tmp_path / "bad.zip", change)
        with pytest.raises(WindlassError):
            restore_backup(bad, tmp_path / "there")
        assert not (tmp_path / "there").exists(), change.__name__
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".windlass")] == []


def test_d9_a_backup_is_not_written_over_a_file_or_into_the_home(
    project: Project, backup: Path, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match="inside the home"):
        write_backup(project.home, project.home / "b.zip", now=NOW)
    before = backup.read_bytes()
    with pytest.raises(UsageError, match="already exists"):
        write_backup(project.home, backup, now=NOW)
    assert backup.read_bytes() == before
    assert [name for name in os.listdir(tmp_path) if name.endswith(".tmp")] == []
