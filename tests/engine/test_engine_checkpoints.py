"""Checkpoint files (D4): written by themselves and on request, restored elsewhere, refused when they lie."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Call, Execution, Plan, Step, tool
from windlass.core.events import encode
from windlass.errors import UsageError
from windlass.journal.checkpoint import BadCheckpoint, read_checkpoint

if TYPE_CHECKING:
    from conftest import Project

PLAN = Plan(
    name="kept",
    steps=[
        Step(id="a", run="echo a >> ran; echo grün"),
        Step(id="b", run="echo b >> ran; pwd", needs=["a"], approve="always"),
    ],
)


def automatic(project: Project, execution: str) -> Path:
    return project.home / "executions" / f"{execution}.json"


async def stopped(**settings: Any) -> str:
    """An execution that stands still before its second step."""
    async with windlass.open(**settings) as engine:
        execution = await engine.start(PLAN, hold=False)
        assert (await execution.wait()).status == "paused"
        return execution.id


@pytest.fixture
async def checkpoint(project: Project) -> Path:
    return automatic(project, await stopped())


# ── written ──────────────────────────────────────────────────────────────────────────────────────────


def whole(path: Path) -> dict[str, Any]:
    """A file's contents, after a check that they are what a checkpoint promises."""
    content: dict[str, Any] = json.loads(path.read_text())
    assert content["format"] == "windlass.checkpoint"
    assert content["version"] == 1
    assert content["created_at"].endswith("Z")
    assert content["saved_at"].endswith("Z")
    assert len(content["events"]) == content["seq"]
    assert [encode(event) for event in read_checkpoint(path)], "it can be restored"
    assert path.stat().st_mode & 0o077 == 0
    return content


async def test_d4_a_removed_execution_leaves_no_file(project: Project) -> None:
    async with windlass.open(grace=0.1) as engine:
        written = await stopped()
        other = await engine.start(Plan(steps=[Step(id="a", run="sleep 600")]))  # files are written once a second now
        soon = await engine.start(Plan(steps=[Step(id="a", run="true")]))
        await soon.wait()
        await engine.forget(written, soon.id)
        await other.cancel()
        assert [*engine.checkpoint_failures] == []
    assert [path.name for path in (project.home / "executions").rglob("*.json")] == [f"{other.id}.json"]


async def test_d4_files_that_are_asked_for_at_the_same_time_are_all_whole(project: Project) -> None:
    execution = await stopped()
    async with windlass.open() as engine:
        made = await asyncio.gather(*(engine.checkpoint(execution) for _ in range(40)))
    assert {whole(path)["seq"] for path in made} == {len(project.events(execution))}
    assert {path.suffix for path in made[0].parent.iterdir()} == {".json"}


async def test_d4_a_pause_and_an_end_are_in_the_automatic_file(project: Project) -> None:
    execution = await stopped()
    path = automatic(project, execution)
    assert whole(path)["events"][-1]["type"] == "execution.paused"
    async with windlass.open() as engine:
        await engine.approve(execution, "b")
        await (await engine.resume(execution)).wait()
    content = whole(path)
    assert content["execution"] == execution
    assert content["events"][-1]["type"] == "execution.finished"
    assert content["seq"] == len(project.events(execution))
    assert list(project.home.rglob("*.tmp")) == []


async def test_d4_a_manual_one_can_be_had_at_any_time(project: Project, eventually: Any) -> None:
    plan = Plan(steps=[Step(id="a", run="touch began; while [ ! -e go ]; do sleep 0.02; done")])
    async with windlass.open() as engine:
        execution = await engine.start(plan)
        await eventually(lambda: (project.path / "began").exists())
        path = await engine.checkpoint(execution.id[:13])
        assert path.parent == project.home / "executions" / execution.id / "checkpoints"
        (project.path / "go").touch()
        await execution.wait()
    running = [e["type"] for e in whole(path)["events"]]
    assert running[-1] in ("attempt.started", "output.written")


def waiting_for_checkpoints(
    project: Project, eventually: Any, harm: Mapping[int, Callable[[Path], object]] | None = None
) -> tuple[Any, Plan, list[int]]:
    """A plan whose steps each wait until the automatic file has the step before it, and the sizes that it had then.

    `harm` is done to the file by the step of that number, after it has waited.
    """
    sizes: list[int] = []

    @tool
    async def wait_for_checkpoint(call: Call) -> None:
        """Of the step before this one."""
        path = automatic(project, call.execution)
        before = f'"step":"s{len(sizes)}"'

        def size_with_the_step_before() -> int:
            lines = path.read_text().splitlines() if path.exists() else []
            return len(lines) if any("attempt.finished" in line and before in line for line in lines) else 0

        sizes.append(await eventually(size_with_the_step_before))
        if harm and len(sizes) in harm:
            harm[len(sizes)](path)

    steps = [Step(id="s0", run="true")]
    steps += [Step(id=f"s{n}", tool="wait_for_checkpoint", needs=[f"s{n - 1}"]) for n in range(1, 7)]
    return wait_for_checkpoint, Plan(steps=steps), sizes


async def test_d4_the_automatic_file_has_each_step_while_the_next_one_runs(
    project: Project, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.engine.checkpoints.INTERVAL", 0.0)
    function, plan, sizes = waiting_for_checkpoints(project, eventually)
    async with windlass.open(tools=[function]) as engine:
        execution = await engine.start(plan)
        assert (await execution.result())["status"] == "completed"
    assert len(sizes) == 6
    assert sizes == sorted(set(sizes)), "each step added to the file"
    content = whole(automatic(project, execution.id))
    assert content["events"][-1]["type"] == "execution.finished"
    assert content["seq"] == len(project.events(execution.id))


async def test_d4_a_file_that_is_deleted_or_spoilt_meanwhile_is_written_anew(
    project: Project, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.engine.checkpoints.INTERVAL", 0.0)
    harm = {2: Path.unlink, 4: lambda path: path.write_text("not a checkpoint")}
    function, plan, sizes = waiting_for_checkpoints(project, eventually, harm)
    async with windlass.open(tools=[function]) as engine:
        execution = await engine.start(plan)
        assert (await execution.result())["status"] == "completed"
    assert len(sizes) == 6
    path = automatic(project, execution.id)
    assert whole(path)["seq"] == len(project.events(execution.id))


@pytest.mark.parametrize("when", ["stop", "off"])
async def test_d4_automatic_files_can_be_left_to_the_stops_or_left_out(project: Project, when: str) -> None:
    execution = await stopped(checkpoints=when)
    assert automatic(project, execution).exists() == (when == "stop")


async def test_d4_many_pauses_leave_one_file(project: Project) -> None:
    execution = await stopped()
    for _ in range(4):
        async with windlass.open() as engine:
            await (await engine.resume(execution, hold=False)).wait()
    assert [path.name for path in (project.home / "executions").glob("*.json")] == [f"{execution}.json"]
    assert whole(automatic(project, execution))["seq"] == len(project.events(execution))


async def test_d4_a_file_that_cannot_be_written_is_told_and_written_once_it_can_be(
    project: Project, eventually: Any, caplog: pytest.LogCaptureFixture
) -> None:
    execution = await stopped(checkpoints="off")
    folder = project.home / "executions"
    async with windlass.open() as engine:
        shutil.rmtree(folder)
        folder.write_text("in the way")
        await (await engine.resume(execution, hold=False)).wait()
        await eventually(lambda: execution in engine.checkpoint_failures)
        assert "executions" in engine.checkpoint_failures[execution]
        await (await engine.resume(execution, hold=False)).wait()
        folder.unlink()
        await (await engine.resume(execution, hold=False)).wait()
        await eventually(lambda: not engine.checkpoint_failures)
    assert whole(automatic(project, execution))["seq"] == len(project.events(execution))
    logged = [record for record in caplog.records if "checkpoint" in record.message]
    assert [vars(record)["fields"] for record in logged] == [{"execution": execution}], "a server tells it, once"


# ── restored ─────────────────────────────────────────────────────────────────────────────────────────


async def test_d4_an_execution_goes_on_in_another_home_and_folder(project: Project, checkpoint: Path) -> None:
    elsewhere = project.path.parent / "elsewhere"
    elsewhere.mkdir()
    async with windlass.open(elsewhere / ".windlass") as engine:
        restored = await engine.restore(checkpoint)
        state = await engine.state(restored)
        assert (state.status, state.paused_for) == ("paused", "approval")
        assert state.steps["a"].output["stdout"] == "grün\n"
        await engine.approve(restored, "b")
        result = await (await engine.resume(restored, workdir=str(elsewhere))).result()
    assert result["status"] == "completed"
    assert result["steps"][1]["output"]["stdout"] == f"{elsewhere}\n"
    assert (elsewhere / "ran").read_text() == "b\n", "what was completed did not run again"
    assert project.state(restored).status == "paused", "the original is not touched"


async def test_d4_a_restored_execution_that_was_running_is_one_that_was_left_behind(project: Project) -> None:
    plan = Plan(steps=[Step(id="a", run="echo ran >> ran"), Step(id="b", run="sleep 600", needs=["a"])])
    async with windlass.open(grace=0.1) as engine:
        execution = await engine.start(plan)
        async for event in execution.events():
            if getattr(event, "step", "") == "b":
                break
        path = await engine.checkpoint(execution.id)
        await execution.cancel()
    async with windlass.open(project.path.parent / "other") as engine:
        restored = await engine.restore(path)
        assert [head.id for head in await engine.orphans()] == [restored]
        assert (await engine.pause(restored)).steps["a"].status == "completed"


async def test_d4_what_is_here_already_is_not_brought_in_again(project: Project, checkpoint: Path) -> None:
    before = project.events(project.ids()[0])
    async with windlass.open() as engine:
        with pytest.raises(UsageError, match="already exists here") as refused:
            await engine.restore(checkpoint)
    assert "windlass status" in refused.value.advice[0]
    assert project.events(project.ids()[0]) == before


# ── refused ──────────────────────────────────────────────────────────────────────────────────────────


async def refused(project: Project, content: bytes) -> str:
    """Try to restore these bytes into a home that holds something else, which must not be harmed."""
    path = project.path / "bad.json"
    path.write_bytes(content)
    home = project.path.parent / "other"
    async with windlass.open(home) as engine:
        other = await engine.create(Plan(steps=[Step(id="x", run="true")]))
        with pytest.raises(BadCheckpoint) as error:
            await engine.restore(path)
        assert [head.id for head in await engine.executions()] == [other]
        await engine.forget(other)
    assert "bad.json" in error.value.message, "the file is named"
    assert error.value.exit_code == 2
    assert path.read_bytes() == content
    return error.value.message


async def test_d4_one_flipped_bit_anywhere_is_noticed(project: Project, checkpoint: Path) -> None:
    content = checkpoint.read_bytes()
    chance = random.Random(4)
    places = sorted({0, 1, len(content) - 1, len(content) - 2, *chance.sample(range(len(content)), 56)})
    assert len(places) >= 50
    for place in places:
        flipped = bytearray(content)
        flipped[place] ^= 1 << chance.randrange(8)
        await refused(project, bytes(flipped))


async def test_d4_a_file_that_was_cut_anywhere_is_noticed(project: Project, checkpoint: Path) -> None:
    content = checkpoint.read_bytes()
    cuts = [0, 1, len(content) - 1, *range(2, len(content) - 1, len(content) // 30)]
    assert len(cuts) >= 30
    for cut in cuts:
        await refused(project, content[:cut])


def tampered(content: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    """A file that somebody edited and gave the right checksum again."""
    parts = json.loads(content)
    change(parts)
    events = parts.pop("events")
    parts.pop("sha256")
    lines = [json.dumps(parts)[:-1] + ', "events": [']
    lines += [json.dumps(e) + ("," if n < len(events) else "") for n, e in enumerate(events, 1)]
    body = "\n".join([*lines, "],", ""]).encode()
    return body + f'"sha256": "{hashlib.sha256(body).hexdigest()}"}}\n'.encode()


async def test_d4_the_way_of_tampering_itself_makes_a_good_file(project: Project, checkpoint: Path) -> None:
    path = project.path / "good.json"
    path.write_bytes(tampered(checkpoint.read_bytes(), lambda whole: None))
    async with windlass.open(project.path.parent / "other") as engine:
        assert await Execution(engine, await engine.restore(path)).state()


def _set(*keys: Any) -> Callable[[dict[str, Any]], None]:
    *path, last, value = keys

    def change(whole: dict[str, Any]) -> None:
        place: Any = whole
        for key in path:
            place = place[key]
        if value is None:
            del place[last]
        else:
            place[last] = value

    return change


def _twice(whole: dict[str, Any]) -> None:
    whole["events"] += whole["events"][1:]
    whole["seq"] = len(whole["events"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_set("version", 2), "newer Windlass"),
        (_set("version", 99), "newer Windlass"),
        (_set("version", None), "newer Windlass"),
        (_set("format", "something.else"), "not a checkpoint"),
        (_set("execution", "01900000-0000-7000-8000-000000000000"), "its own execution"),
        (_set("execution", None), "contradictory events"),
        (_set("seq", 3), "should have 3 events"),
        (_set("seq", None), "contradictory events"),
        (_set("events", []), "contradictory events"),
        (_set("events", 0, None), "its own execution"),
        (_set("events", 1, "type", "execution.exploded"), "contradictory events"),
        (_set("events", 2, "step", "nobody"), "contradictory events"),
        (_set("events", 2, "type", None), "contradictory events"),
        (_set("events", 0, "plan", {"steps": []}), "contradictory events"),
        (_set("events", 0, "plan", None), "contradictory events"),
        (_set("events", 0, "format", 2), "newer Windlass"),
        (_twice, "contradictory events"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
async def test_d4_a_file_that_makes_no_sense_is_refused_even_with_a_right_checksum(
    project: Project, checkpoint: Path, change: Callable[[dict[str, Any]], None], said: str
) -> None:
    assert said in await refused(project, tampered(checkpoint.read_bytes(), change))


@pytest.mark.parametrize("name", ["../../../victim", "/victim", "", ".", "x\0y", "a/b"])
async def test_d4_an_id_that_is_a_path_leads_nowhere(project: Project, checkpoint: Path, name: str) -> None:
    """The id names a folder that is written to, and removed by `clean`."""

    def change(whole: dict[str, Any]) -> None:
        whole["execution"] = whole["events"][0]["id"] = name

    await refused(project, tampered(checkpoint.read_bytes(), change))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\n",
        b"{}",
        b"null\n",
        b"not json at all",
        b"\xff\xfe\x00",
        b'{"format": "windlass.checkpoint"}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b'["windlass.checkpoint"]\n',
    ],
    ids=["empty", "newline", "object", "null", "text", "binary", "only a head", "deep list", "deep object", "list"],
)
async def test_d4_what_is_no_checkpoint_is_refused(project: Project, content: bytes) -> None:
    await refused(project, content)


async def test_d4_a_file_that_is_not_there_or_a_folder_is_refused(project: Project) -> None:
    async with windlass.open() as engine:
        for path in (project.path / "nothing.json", project.path):
            with pytest.raises(BadCheckpoint, match="cannot be read"):
                await engine.restore(path)
