"""Checkpoint files (D4): written by themselves and on request, restored elsewhere, refused when they lie."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Call, Execution, Plan, Step, tool
from windlass.errors import UsageError
from windlass.journal.checkpoint import BadCheckpoint

if TYPE_CHECKING:
    from conftest import Project

PLAN = Plan(
    name="kept",
    steps=[
        Step(id="a", run="echo a >> ran; echo grün"),
        Step(id="b", run="echo b >> ran; pwd", needs=["a"], approve="always"),
    ],
)


def files(project: Project, execution: str, label: str = "*") -> list[Path]:
    folder = project.home / "executions" / execution / "checkpoints"
    return sorted(folder.glob(f"*-{label}.json"))


async def stopped(**settings: Any) -> str:
    """An execution that stands still before its second step."""
    async with windlass.open(**settings) as engine:
        execution = await engine.start(PLAN, hold=False)
        assert (await execution.wait()).status == "paused"
        return execution.id


@pytest.fixture
async def checkpoint(project: Project) -> Path:
    execution = await stopped()
    (path,) = files(project, execution)
    return path


# ── written ──────────────────────────────────────────────────────────────────────────────────────────


async def test_d4_a_pause_and_an_end_are_kept_by_themselves(project: Project) -> None:
    execution = await stopped()
    (paused,) = files(project, execution, "auto")
    async with windlass.open() as engine:
        await engine.approve(execution, "b")
        await (await engine.resume(execution)).wait()
    _, done = files(project, execution, "auto")
    for path in (paused, done):
        content = json.loads(path.read_text())
        assert content["format"] == "windlass.checkpoint"
        assert content["version"] == 1
        assert content["execution"] == execution
        assert content["created_at"].endswith("Z")
        assert len(content["events"]) == content["seq"]
        assert path.stat().st_mode & 0o077 == 0
    assert content["events"][-1]["type"] == "execution.finished"
    assert list(project.home.rglob("*.tmp")) == []


async def test_d4_a_manual_one_can_be_had_at_any_time(project: Project, eventually: Any) -> None:
    plan = Plan(steps=[Step(id="a", run="touch began; while [ ! -e go ]; do sleep 0.02; done")])
    async with windlass.open() as engine:
        execution = await engine.start(plan)
        await eventually(lambda: (project.path / "began").exists())
        path = await engine.checkpoint(execution.id[:13])
        assert path in files(project, execution.id, "manual")
        (project.path / "go").touch()
        await execution.wait()
    running = [e["type"] for e in json.loads(path.read_text())["events"]]
    assert running[-1] in ("attempt.started", "output.written")


async def test_d4_each_step_can_be_kept_and_only_the_newest_automatic_ones_are(
    project: Project, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.engine.keeper.LATEST", 0.0)  # instead of when there is time
    seen: set[Path] = set()

    @tool
    async def wait_for_checkpoint(call: Call) -> None:
        """Of the step before this one."""
        fresh = await eventually(lambda: set(files(project, call.execution, "auto")) - seen)
        seen.update(fresh)

    steps = [Step(id="s0", run="true")]
    steps += [Step(id=f"s{n}", tool="wait_for_checkpoint", needs=[f"s{n - 1}"]) for n in range(1, 6)]
    async with windlass.open(tools=[wait_for_checkpoint], checkpoint_each_step=True, checkpoints_kept=3) as engine:
        execution = await engine.start(Plan(steps=steps))
        manual = await engine.checkpoint(execution.id)
        result = await execution.result()
    assert len(seen) == 5
    assert result["status"] == "completed"
    kept = files(project, execution.id, "auto")
    assert len(kept) == 3
    assert json.loads(kept[-1].read_text())["events"][-1]["type"] == "execution.finished"
    assert manual.exists(), "what a person asked for is not cleaned away"


async def test_d4_many_pauses_leave_no_more_files_than_wanted(project: Project) -> None:
    execution = await stopped(checkpoints_kept=2)
    for _ in range(4):
        async with windlass.open(checkpoints_kept=2) as engine:
            await (await engine.resume(execution, hold=False)).wait()
    kept = files(project, execution)
    assert len(kept) == 2
    assert json.loads(kept[-1].read_text())["seq"] == len(project.events(execution))


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
        with pytest.raises(UsageError, match="here already") as refused:
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
    whole = json.loads(content)
    change(whole)
    events = whole.pop("events")
    whole.pop("sha256")
    lines = [json.dumps(whole)[:-1] + ', "events": [']
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
        (_set("execution", None), "make no sense"),
        (_set("seq", 3), "says it holds 3 events"),
        (_set("seq", None), "make no sense"),
        (_set("events", []), "make no sense"),
        (_set("events", 0, None), "its own execution"),
        (_set("events", 1, "type", "execution.exploded"), "make no sense"),
        (_set("events", 2, "step", "nobody"), "make no sense"),
        (_set("events", 2, "type", None), "make no sense"),
        (_set("events", 0, "plan", {"steps": []}), "make no sense"),
        (_set("events", 0, "plan", None), "make no sense"),
        (_set("events", 0, "format", 2), "newer Windlass"),
        (_twice, "make no sense"),
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
