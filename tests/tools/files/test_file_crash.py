"""H2: kill -9, a full disk and missing rights in the middle of a change leave the old or the new state."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random
from typing import Any

import pytest
from crash_child import attempt, in_child, limited_attempt, roll_back_there, unprivileged_attempt
from file_world import World

from windlass.errors import Category, Failure, ToolError
from windlass.tools.files.log import MOST_KEPT
from windlass.tools.files.undo import roll_back

BIG = 3 << 20  # several chunks

PATCH = """\
--- a/note.txt
+++ b/note.txt
@@ -1 +1,2 @@
 a note
+and another
--- a/a/one.txt
+++ /dev/null
@@ -1 +0,0 @@
-one
--- /dev/null
+++ b/p/q/new.txt
@@ -0,0 +1 @@
+new
"""

STEPS: dict[str, tuple[str, dict[str, Any]]] = {
    "overwrite": ("files.write", {"path": "note.txt", "content": "n" * BIG}),
    "create": ("files.write", {"path": "p/q/new.txt", "content": "n"}),
    "append": ("files.write", {"path": "note.txt", "content": "n", "mode": "append"}),
    "edit": ("files.edit", {"path": "note.txt", "edits": [{"old": "note", "new": "N"}]}),
    "move": ("files.move", {"from": "note.txt", "to": "a/one.txt", "overwrite": True}),
    "move a tree": ("files.move", {"from": "a", "to": "p/a"}),
    "delete a tree": ("files.delete", {"path": "a", "recursive": True}),
    "copy": ("files.copy", {"from": "note.txt", "to": "a/one.txt", "overwrite": True}),
    "copy a tree": ("files.copy", {"from": "a", "to": "p/a"}),
    "copy a tree over a file": ("files.copy", {"from": "a", "to": "note.txt", "overwrite": True}),
    "patch": ("files.patch", {"patch": PATCH}),
    "apply": (
        "files.apply",
        {
            "changes": [
                {"do": "write", "path": "p/new", "content": "x"},
                {"do": "write", "path": "note.txt", "content": "x"},
                {"do": "move", "from": "note.txt", "to": "a/one.txt", "overwrite": True},
                {"do": "move", "from": "a", "to": "p/a"},
                {"do": "delete", "path": "p/a", "recursive": True},
            ]
        },
    ),
}


def without_times(state: dict[str, tuple[Any, ...]]) -> dict[str, tuple[Any, ...]]:
    return {path: (*about[:2], about[-1]) for path, about in state.items()}


@contextmanager
def copy_of(world: World) -> Iterator[World]:
    """A copy of a world and of what its steps have noted."""
    base = Path(tempfile.mkdtemp(dir=world.base))
    world.folder.mkdir(exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=world.folder))
    shutil.copytree(world.root, base / "work", symlinks=True)
    if (world.folder / "steps").exists():
        shutil.copytree(world.folder / "steps", folder / "steps", symlinks=True)
    try:
        yield World.there(base, folder)
    finally:
        shutil.rmtree(base)
        shutil.rmtree(folder)


def points(world: World, name: str) -> Iterator[tuple[World, str]]:
    """The step killed at its first fault point, at its second, and so on until it comes through alive."""
    tool, arguments = STEPS[name]
    for number in count(1):
        with copy_of(world) as fresh:
            code = in_child(attempt, fresh.base, fresh.folder, f"*:{number}", tool, arguments)
            if code == 0:
                assert number > 4, "no fault point was passed"
                return
            assert code == -signal.SIGKILL
            yield fresh, f"{name} at point {number}"


async def outcome(world: World, tool: str, arguments: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """The state after the step, had nothing happened."""
    with copy_of(world) as fresh:
        await fresh.do(tool.removeprefix("files."), arguments)
        return without_times(fresh.inside())


@pytest.mark.parametrize("name", STEPS)
async def test_after_kill_9_at_any_point_a_step_can_be_taken_back_exactly_or_done_as_if_nothing_had_happened(
    anywhere: World, name: str
) -> None:
    tool, arguments = STEPS[name]
    before, expected = anywhere.inside(), await outcome(anywhere, tool, arguments)
    for world, where in points(anywhere, name):
        with copy_of(world) as again:
            await again.do(tool.removeprefix("files."), arguments, attempt=2)
            assert without_times(again.inside()) == expected, where
            assert not again.litter(), where
        roll_back(world.scratch, world.root, sealed=(world.scratch / "undo.done").exists())
        assert world.inside() == before, where


@pytest.mark.parametrize("name", ["overwrite", "append", "edit", "move"])
def test_kill_9_at_any_point_leaves_the_old_or_the_new_content_and_never_a_torn_one(world: World, name: str) -> None:
    old = (world.root / "note.txt").read_text()
    new = {"overwrite": "n" * BIG, "append": old + "n", "edit": old.replace("note", "N"), "move": old}[name]
    seen = set()
    for crashed, where in points(world, name):
        path = "note.txt" if (crashed.root / "note.txt").exists() else "a/one.txt"
        text = (crashed.root / path).read_text()
        assert text in (old, new), where
        seen.add(text)
    assert seen == {old, new}


def test_a_rollback_that_is_itself_killed_at_any_point_can_be_repeated(anywhere: World) -> None:
    tool, arguments = STEPS["apply"]
    before = anywhere.inside()
    for number in count(1):
        with copy_of(anywhere) as world:
            # Killed when all is changed and nothing sealed, so that there is the most to take back.
            died = in_child(attempt, world.base, world.folder, "files.ended", tool, arguments)
            assert died == -signal.SIGKILL
            code = in_child(roll_back_there, world.base, world.folder, f"*:{number}")
            roll_back(world.scratch, world.root)
            assert world.inside() == before, number
        if code == 0:
            assert number > 5
            return


def test_a_tree_from_another_device_is_taken_back_however_often_that_is_killed(
    world: World, small_disk: Callable[[Path], Path]
) -> None:
    small_disk(world.root / "disk")
    before = world.inside()
    step = ("files.move", {"from": "a", "to": "disk/a"})
    for number in count(1):
        for point in (f"*:{number}", "files.ended"):  # somewhere, and when all is done but the sealing
            made = in_child(attempt, world.base, world.folder, point, *step)
            back = in_child(roll_back_there, world.base, world.folder, f"*:{number}")
            roll_back(world.scratch, world.root, sealed=(world.scratch / "undo.done").exists())
            assert world.inside() == before, (number, point)
        if made != 0 and back == 0 and number > 12:
            return


def test_a_torn_last_line_of_the_log_covers_nothing(world: World) -> None:
    before = world.inside()
    tool, arguments = STEPS["apply"]
    assert in_child(attempt, world.base, world.folder, "files.changed:2", tool, arguments) == -signal.SIGKILL
    with open(world.scratch / "undo/log", "ab") as log:
        log.write(b'{"path": "note.txt", "was": nu')
    roll_back(world.scratch, world.root)
    assert world.inside() == before


# --- a full disk ---


async def test_a_full_disk_is_a_resource_failure_and_leaves_everything_as_it_was(
    tmp_path: Path, small_disk: Callable[[Path], Path]
) -> None:
    """With every amount of free space, from none to enough."""
    base = small_disk(tmp_path / "disk")
    world = World(base).make()
    world.write("note.txt", "old" * 10_000)
    failures = 0
    for free in range(0, 200_000, 4096):
        filler = base / "filler"
        fill(filler, free)
        before = world.inside()
        changes = [
            {"do": "write", "path": "p/q", "content": "x"},
            {"do": "write", "path": "note.txt", "content": "new" * 20_000},
            {"do": "write", "path": "p/r", "content": "new" * 20_000},
        ]
        result = await world.either("apply", {"changes": changes}, step=f"s{free}")
        if not isinstance(result, Failure):
            assert [c["bytes"] for c in result["changes"]] == [1, 60_000, 60_000]
            break
        assert result.category is Category.RESOURCE, result
        assert "disk is full" in result.message
        assert result.advice
        assert world.inside() == before
        failures += 1
        filler.unlink()
    else:
        pytest.fail("it never fitted")
    assert failures > 10


def fill(filler: Path, free: int) -> None:
    """Leave so much of the disk free."""
    found = os.statvfs(filler.parent)
    with open(filler, "wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, found.f_bavail * found.f_frsize - free))


def test_a_file_size_limit_is_a_resource_failure_and_leaves_everything_as_it_was(world: World) -> None:
    before = world.inside()
    report = world.base / "report.json"
    for tool, arguments in [
        ("files.write", {"path": "p/q", "content": "x" * 100_000}),
        ("files.write", {"path": "note.txt", "content": "x" * 100_000, "mode": "append"}),
        ("files.edit", {"path": "note.txt", "edits": [{"old": "note", "new": "x" * 100_000}]}),
    ]:
        assert in_child(limited_attempt, world.base, world.folder, 50_000, tool, arguments, report) == 0
        said = json.loads(report.read_text())
        assert said["category"] == "resource", said
        assert world.inside() == before


# --- missing rights ---


@pytest.fixture
def ours() -> Iterator[World]:
    """A world for a user who is not root, down a path that everybody may walk (pytest's own is private)."""
    base = Path(tempfile.mkdtemp(dir="/var/tmp"))
    yield World(base).make()
    subprocess.run(["chmod", "-R", "u+w", str(base)], check=True)
    shutil.rmtree(base)


def give_away(world: World) -> None:
    if os.geteuid() == 0:
        for path in (world.base, *world.base.rglob("*")):
            os.chown(path, 65534, 65534, follow_symlinks=False)


def unprivileged(world: World, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    report = world.base / "report.json"
    assert in_child(unprivileged_attempt, world.base, world.folder, tool, arguments, report) == 0
    said: dict[str, Any] = json.loads(report.read_text())
    return said


def test_what_is_protected_is_refused_and_says_who_refuses(ours: World) -> None:
    ours.write("protected", "p").chmod(0o444)
    ours.write("hidden", "h").chmod(0)
    locked = ours.write("locked/f", "f").parent
    give_away(ours)
    locked.chmod(0o555)
    before = ours.inside() if os.geteuid() == 0 else None
    calls: list[tuple[str, dict[str, Any]]] = [
        ("files.write", {"path": "protected", "content": "x"}),
        ("files.edit", {"path": "protected", "edits": [{"old": "p", "new": "x"}]}),
        ("files.read", {"path": "hidden"}),
        ("files.write", {"path": "locked/new", "content": "x"}),
        ("files.write", {"path": "locked/f", "content": "x"}),
        ("files.delete", {"path": "locked/f"}),
        ("files.move", {"from": "locked/f", "to": "f"}),
        ("files.copy", {"from": "note.txt", "to": "locked/new"}),
        ("files.copy", {"from": "note.txt", "to": "locked/f", "overwrite": True}),
        ("files.copy", {"from": "hidden", "to": "shown"}),
        ("files.copy", {"from": "note.txt", "to": "protected", "overwrite": True}),
        ("files.patch", {"patch": "--- protected\n+++ protected\n@@ -1 +1 @@\n-p\n\\ No\n+q\n"}),
        ("files.patch", {"patch": PATCH.replace("p/q/new.txt", "locked/new.txt")}),
    ]
    for tool, arguments in calls:
        said = unprivileged(ours, tool, arguments)
        assert said.get("category") == "permission", (tool, arguments, said)
    if before is not None:
        assert ours.inside() == before


@pytest.mark.parametrize("mode", [0o311, 0o644], ids=["no reading", "no entering"])
def test_h2_a_folder_that_may_not_be_looked_into_is_not_taken_for_an_empty_one(ours: World, mode: int) -> None:
    folder = ours.write("closed/f", "a note").parent
    give_away(ours)
    folder.chmod(mode)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("files.list", {"path": "closed"}),
        ("files.search", {"path": "closed", "pattern": "note"}),
        ("files.delete", {"path": "closed"}),
    ]
    for tool, arguments in calls:
        said = unprivileged(ours, tool, arguments)
        assert said.get("category") == "permission", (tool, said)
    found = unprivileged(ours, "files.search", {"pattern": "a note"})
    assert ([match["path"] for match in found["matches"]], found["skipped"]["unreadable"]) == (["note.txt"], 1)
    folder.chmod(0o755)
    assert (folder / "f").read_text() == "a note"


def test_h2_what_the_last_change_of_a_step_may_not_do_is_known_before_its_first(ours: World) -> None:
    ours.write("protected", "p").chmod(0o444)
    ours.write("locked/f", "f")
    give_away(ours)
    (ours.root / "locked").chmod(0o555)
    first = {"do": "write", "path": "made/first", "content": "x"}
    for last in (
        {"do": "write", "path": "protected", "content": ""},
        {"do": "edit", "path": "protected", "edits": [{"old": "p", "new": "q"}]},
        {"do": "write", "path": "locked/deep/new", "content": ""},
        {"do": "move", "from": "locked/f", "to": "f"},
        {"do": "delete", "path": "locked/f"},
    ):
        # Killed at the first thing that is done at all, it would not come to its refusal.
        report = ours.base / "report.json"
        step = ("files.apply", {"changes": [first, last]})
        assert in_child(unprivileged_attempt, ours.base, ours.folder, *step, report, "files.made") == 0
        said = json.loads(report.read_text())
        assert said["category"] == "permission", (last, said)
        assert said["message"].startswith(f"change 2 of 2 ({last['do']})")
    after_all = [{"do": "delete", "path": "protected"}, {"do": "write", "path": "protected", "content": "new"}]
    assert len(unprivileged(ours, "files.apply", {"changes": after_all})["changes"]) == 2


def test_a_write_protected_tree_can_be_deleted_and_its_backup_is_dropped_when_it_is_too_large(ours: World) -> None:
    inner = ours.write("tree/inner/f", "f").parent
    with open(inner / "f", "r+b") as file:
        file.truncate(MOST_KEPT + 1)
    give_away(ours)
    inner.chmod(0o555)
    assert unprivileged(ours, "files.delete", {"path": "tree", "recursive": True})["deleted"]
    assert {entry.name for entry in (ours.scratch / "undo.done").iterdir()} == {"log"}
    assert unprivileged(ours, "files.write", {"path": "x", "content": ""})["created"]


# --- everything at random ---

PLACES = ["note.txt", "a", "a/one.txt", "a/b", "x", "x/y", "a/b/z", "link"]


def random_change(random: Random) -> dict[str, Any]:
    path, other, text = random.choice(PLACES), random.choice(PLACES), random.choice(["", "1", "22", "1 22"])
    match random.choice(["write", "append", "edit", "move", "delete"]):
        case "write":
            return {"do": "write", "path": path, "content": text}
        case "append":
            return {"do": "write", "path": path, "content": text, "mode": "append"}
        case "edit":
            return {"do": "edit", "path": path, "edits": [{"old": "1", "new": text, "all": True}]}
        case "move":
            return {"do": "move", "from": path, "to": other, "overwrite": random.random() < 0.8}
    return {"do": "delete", "path": path, "recursive": random.random() < 0.8}


async def random_changes(world: World, random: Random) -> list[dict[str, Any]]:
    """Changes that work one after the other: each was tried in a copy of the world."""
    changes: list[dict[str, Any]] = []
    with copy_of(world) as trial:
        while len(changes) < 8:
            change = random_change(random)
            with suppress(ToolError):
                await trial.do("apply", {"changes": [change]})
                changes.append(change)
    return changes


async def killed_and_killed_again(world: World, seed: int) -> None:
    random = Random(seed)
    (world.root / "link").symlink_to("a")
    before = world.inside()
    changes = await random_changes(world, random)
    step = ("files.apply", {"changes": changes})
    expected = await outcome(world, *step)
    while True:
        code = in_child(attempt, world.base, world.folder, f"*:{random.randint(1, 120)}", *step)
        if code == 0 or (world.scratch / "undo.done").exists():
            break
        for _ in range(random.randint(0, 3)):
            in_child(roll_back_there, world.base, world.folder, f"*:{random.randint(1, 40)}")
        if random.random() < 0.3:
            roll_back(world.scratch, world.root)
            assert world.inside() == before, seed
    await world.do("apply", {"changes": changes}, attempt=2)
    assert without_times(world.inside()) == expected, seed
    roll_back(world.scratch, world.root, sealed=True)
    assert world.inside() == before, seed


@pytest.mark.parametrize("seed", range(6))
async def test_random_changes_killed_at_random_while_made_and_while_taken_back(anywhere: World, seed: int) -> None:
    await killed_and_killed_again(anywhere, seed)


@pytest.mark.soak
async def test_a_thousand_random_plans_of_changes_killed_at_random(anywhere: World) -> None:
    first = int.from_bytes(os.urandom(4), "big")
    for seed in range(first, first + 1000):
        print("seed", seed)
        with copy_of(anywhere) as world:
            await killed_and_killed_again(world, seed)
