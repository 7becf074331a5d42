"""H2: what a finished step changed can be taken back when a person wants it, or a sentence says why not."""

from __future__ import annotations

import fcntl
import os
import signal
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from crash_child import attempt, in_child, undo_there
from file_world import World
from test_file_crash import STEPS, copy_of, random_change
from test_file_undo import CHANGES, rich

from windlass.errors import Category, Failure, ToolError
from windlass.tools.files import log
from windlass.tools.files.undo_step import undo_steps


def undo(world: World, *steps: str) -> list[dict[str, str]]:
    return undo_steps(world.folder, steps or ("s",), world.root)


def refusal(world: World, *steps: str) -> Failure:
    """Why it is not taken back; and then nothing is."""
    before = world.inside()
    with pytest.raises(ToolError) as caught:
        undo(world, *steps)
    assert world.inside() == before
    assert caught.value.failure.advice
    return caught.value.failure


@pytest.mark.parametrize("name", CHANGES)
async def test_h2_a_finished_step_is_taken_back_and_asked_again_says_the_same(anywhere: World, name: str) -> None:
    rich(anywhere)
    before = anywhere.inside()
    await anywhere.do("apply", {"changes": CHANGES[name]})
    changes = undo(anywhere)
    assert anywhere.inside() == before
    assert {change["path"] for change in changes} >= {
        change["path"] for change in CHANGES[name] if change["do"] == "delete"
    }
    assert undo(anywhere) == changes
    assert anywhere.inside() == before
    assert not anywhere.litter()


@pytest.mark.parametrize("name", STEPS)
async def test_h2_what_every_tool_did_is_taken_back(anywhere: World, name: str) -> None:
    tool, arguments = STEPS[name]
    before = anywhere.inside()
    await anywhere.do(tool.removeprefix("files."), arguments)
    assert undo(anywhere)
    assert anywhere.inside() == before


async def test_h2_what_was_done_is_told_newest_first(world: World) -> None:
    changes = [
        {"do": "write", "path": "new", "content": "x"},
        {"do": "edit", "path": "new", "edits": [{"old": "x", "new": "y"}]},
        {"do": "write", "path": "note.txt", "content": "x"},
        {"do": "move", "from": "a/one.txt", "to": "two"},
    ]
    await world.do("apply", {"changes": changes})
    assert undo(world) == [
        {"path": "two", "undone": "moved back", "to": "a/one.txt"},
        {"path": "note.txt", "undone": "restored"},
        {"path": "new", "undone": "removed"},
    ]


def test_h2_a_step_that_changed_nothing_has_nothing_to_take_back(world: World) -> None:
    assert undo(world) == []


@pytest.mark.parametrize(
    ("path", "named"),
    [("note.txt", "note.txt"), ("fresh", "fresh"), ("tree/bin", "tree/bin"), ("moved/deep.txt", "moved")],
)
async def test_h2_a_file_that_was_changed_since_is_named_and_nothing_is_touched(
    anywhere: World, path: str, named: str
) -> None:
    rich(anywhere)
    changes = [
        {"do": "write", "path": "note.txt", "content": "mine"},
        {"do": "write", "path": "fresh", "content": "mine"},
        {"do": "delete", "path": "tree/bin"},
        {"do": "move", "from": "tree/sub", "to": "moved"},
    ]
    await anywhere.do("apply", {"changes": changes})
    anywhere.write(path, "theirs, and longer")
    failure = refusal(anywhere)
    assert failure.category is Category.CONFIGURATION
    assert failure.message == f"nothing was undone: '{named}' was changed by another program since step s"
    (anywhere.root / path).unlink()
    if path == "tree/bin":
        assert undo(anywhere)  # it is as the step left it again: gone
    else:
        assert f"'{named}' was changed" in refusal(anywhere).message


async def test_h2_a_later_step_that_changed_the_same_file_is_named_and_can_be_taken_back_first(world: World) -> None:
    before = world.inside()
    await world.do("write", {"path": "note.txt", "content": "first"}, step="first")
    await world.do("edit", {"path": "note.txt", "edits": [{"old": "f", "new": "F"}]}, step="second")
    assert "'note.txt' was changed by step second since step first" in refusal(world, "first").message
    undo(world, "second")
    assert (world.root / "note.txt").read_text() == "first"
    undo(world, "first")
    assert world.inside() == before


async def test_h2_calls_of_programs_and_agents_are_taken_back_with_their_step_newest_first(world: World) -> None:
    before = world.inside()
    await world.do("write", {"path": "note.txt", "content": "1"}, step="work.1")
    await world.do("write", {"path": "note.txt", "content": "2"}, step="work.call_x")
    await world.do("move", {"from": "a", "to": "b"}, step="work.3.1")
    await world.do("write", {"path": "b/one.txt", "content": "in it"}, step="work.0")
    await world.do("write", {"path": "other", "content": "of another step"}, step="works.1")
    await world.do("delete", {"path": "b", "recursive": True}, step="work.10")
    await world.do("write", {"path": "a/new", "content": "x"}, step="work.2")
    changes = undo(world, "work")
    assert (world.root / "other").read_text() == "of another step"
    (world.root / "other").unlink()
    assert world.inside() == before
    assert changes[0]["path"] == "a/new"
    assert changes[-1] == {"path": "note.txt", "undone": "restored"}


async def test_h2_one_changed_file_keeps_all_calls_of_a_step_as_they_are(world: World) -> None:
    for number in range(5):
        await world.do("write", {"path": f"f{number}", "content": "x"}, step=f"work.{number}")
    world.write("f2", "theirs")
    assert "'f2'" in refusal(world, "work").message


async def test_h2_a_change_between_two_calls_of_a_step_is_seen_before_anything_is_taken_back(world: World) -> None:
    await world.do("write", {"path": "note.txt", "content": "1"}, step="work.1")
    world.write("note.txt", "somebody's, in between")
    await world.do("write", {"path": "note.txt", "content": "2"}, step="work.2")
    assert "'note.txt' was changed by another program" in refusal(world, "work").message


async def test_h2_several_calls_in_one_scratch_are_all_taken_back(world: World) -> None:
    """A second attempt after the first one's end was lost, or a runtime that gives two uses one name."""
    before = world.inside()
    for number in range(4):
        await world.do("write", {"path": "note.txt", "content": f"{number}"})
        await world.do("write", {"path": f"new{number}", "content": ""})
    undo(world)
    assert world.inside() == before


async def test_h2_an_attempt_that_was_cut_off_is_taken_back_too(anywhere: World) -> None:
    before = anywhere.inside()
    await anywhere.do("write", {"path": "note.txt", "content": "done"}, step="s.1")
    tool, arguments = STEPS["apply"]
    where = (anywhere.base, anywhere.folder)
    assert in_child(attempt, *where, "files.changed:4", tool, arguments) == -signal.SIGKILL
    assert undo(anywhere)
    assert anywhere.inside() == before


def test_h2_an_undo_that_is_killed_at_any_point_goes_on_when_it_is_asked_for_again(anywhere: World) -> None:
    tool, arguments = STEPS["apply"]
    before = anywhere.inside()
    for number in count(1):
        with copy_of(anywhere) as world:
            in_child(attempt, world.base, world.folder, "", tool, arguments)
            code = in_child(undo_there, world.base, world.folder, f"*:{number}")
            changes = undo(world)
            assert world.inside() == before, number
            assert len(changes) == 4
            assert not world.litter()
        if code == 0:
            assert number > 5
            return


async def test_h2_what_is_kept_for_a_step_is_bounded_and_then_it_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MOST_KEPT", 3 << 20)
    for name in ("one", "two"):
        world.write(name, "x" * (2 << 20))
    await world.do("delete", {"path": "one"}, step="s.1")
    await world.do("delete", {"path": "two"}, step="s.2")
    await world.do("write", {"path": "new", "content": ""}, step="s.3")  # replaces nothing
    await world.do("write", {"path": "note.txt", "content": ""}, step="t")
    failure = refusal(world)
    assert failure.category is Category.RESOURCE
    assert "2 MiB" in failure.message
    assert undo(world, "t")
    assert size_of(world.folder) < 3 << 20


def size_of(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())


async def test_h2_a_step_over_the_bound_still_finds_its_work_done_after_a_crash(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "MOST_KEPT", 0)
    arguments: dict[str, Any] = {"path": "note.txt", "content": "more", "mode": "append"}
    first = await world.do("write", arguments, attempt=1)
    assert await world.do("write", arguments, attempt=2) == first


async def test_h2_a_lost_or_damaged_tally_loses_neither_order_nor_safety(world: World) -> None:
    before = world.inside()
    await world.do("write", {"path": "note.txt", "content": "1"}, step="s.1")
    (world.folder / "steps/.kept").write_text("damaged")
    await world.do("write", {"path": "other.txt", "content": "2"}, step="s.2")
    (world.folder / "steps/.kept").unlink()
    undo(world)
    assert world.inside() == before


async def test_h2_nobody_undoes_while_somebody_else_does(world: World) -> None:
    await world.do("write", {"path": "note.txt", "content": "1"})
    fd = os.open(world.folder / "steps", os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(ToolError, match="another process is undoing"):
        undo(world)
    os.close(fd)
    assert undo(world)


async def test_h2_a_folder_that_others_came_to_use_stays(world: World) -> None:
    await world.do("write", {"path": "out/mine", "content": ""})
    world.write("out/theirs", "theirs")
    assert undo(world) == [{"path": "out/mine", "undone": "removed"}]
    assert (world.root / "out/theirs").exists()


@pytest.mark.parametrize("seed", range(20))
async def test_h2_random_calls_of_a_step_are_all_taken_back(anywhere: World, seed: int) -> None:
    random = Random(seed)
    (anywhere.root / "link").symlink_to("a")
    before = anywhere.inside()
    for number in range(12):
        change = random_change(random)
        await anywhere.either(
            "apply", {"changes": [change, random_change(random)][: random.randint(1, 2)]}, step=f"s.{number}"
        )
    undo(anywhere)
    assert anywhere.inside() == before, seed


async def test_h2_a_damaged_log_stands_in_the_way_of_its_own_step_alone(world: World) -> None:
    await world.do("write", {"path": "note.txt", "content": "1"}, step="good")
    await world.do("write", {"path": "other", "content": "2"}, step="bad.1")
    log = world.folder / "steps/bad.1/undo.done/log"
    log.write_bytes(b"\0\n" + log.read_bytes())
    assert "damaged" in refusal(world, "bad").message
    assert undo(world, "good")
