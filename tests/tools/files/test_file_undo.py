"""H2: a step that fails or is cancelled leaves the files exactly as they were."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from file_world import TOOLS, World, snapshot

from windlass.errors import ApprovalOutdated, Category, ToolError
from windlass.tools.files.log import locked
from windlass.tools.files.preflight import Approved
from windlass.tools.files.safe_path import Root
from windlass.tools.files.undo import begin, roll_back, seal
from windlass.tools.files.undo_step import undo_steps

FAILS = {"do": "delete", "path": "no such file"}


def rich(world: World) -> None:
    """Something of every kind, with modes and times that a careless restoration would lose."""
    world.write("tree/sub/deep.txt", "deep").chmod(0o640)
    world.write("tree/bin", "#!").chmod(0o755)
    (world.root / "tree/link").symlink_to("sub/deep.txt")
    (world.root / "tree/dangling").symlink_to("nowhere")
    (world.root / "tree/empty").mkdir(mode=0o700)
    (world.root / "tree/sub").chmod(0o711)
    for path in ("tree/sub/deep.txt", "note.txt", "a/one.txt"):
        os.utime(world.root / path, ns=(1, 1_000_000_000_123_456_789))
    os.utime(world.root / "tree/sub", ns=(1, 1_000_000_000_000_000_000))


CHANGES: dict[str, list[dict[str, Any]]] = {
    "create": [{"do": "write", "path": "fresh", "content": "x"}],
    "create with parents": [{"do": "write", "path": "p/q/r", "content": "x"}],
    "overwrite": [{"do": "write", "path": "note.txt", "content": "x", "permissions": "0600"}],
    "append": [{"do": "write", "path": "note.txt", "content": "x", "mode": "append"}],
    "edit": [{"do": "edit", "path": "note.txt", "edits": [{"old": "note", "new": "x"}]}],
    "move a file": [{"do": "move", "from": "note.txt", "to": "p/q/moved"}],
    "move over a file": [{"do": "move", "from": "note.txt", "to": "a/one.txt", "overwrite": True}],
    "move a tree": [{"do": "move", "from": "tree", "to": "p/tree"}],
    "move a tree over a file": [{"do": "move", "from": "tree", "to": "note.txt", "overwrite": True}],
    "move a link": [{"do": "move", "from": "tree/link", "to": "link"}],
    "move over a link": [{"do": "move", "from": "note.txt", "to": "tree/link", "overwrite": True}],
    "delete a file": [{"do": "delete", "path": "note.txt"}],
    "delete a link": [{"do": "delete", "path": "tree/dangling"}],
    "delete a tree": [{"do": "delete", "path": "tree", "recursive": True}],
    "delete an empty folder": [{"do": "delete", "path": "tree/empty"}],
    "write the same file again and again": [
        {"do": "write", "path": "note.txt", "content": f"{n}", "mode": "append"} for n in range(4)
    ],
    "all sorts on the same paths": [
        {"do": "write", "path": "p/new", "content": "x"},
        {"do": "edit", "path": "p/new", "edits": [{"old": "x", "new": "y"}]},
        {"do": "move", "from": "p", "to": "tree/p"},
        {"do": "write", "path": "tree/sub/deep.txt", "content": "changed"},
        {"do": "move", "from": "tree", "to": "wood"},
        {"do": "delete", "path": "wood/sub", "recursive": True},
        {"do": "write", "path": "wood/sub", "content": "a file now"},
        {"do": "move", "from": "wood/p/new", "to": "note.txt", "overwrite": True},
        {"do": "delete", "path": "wood", "recursive": True},
        {"do": "write", "path": "tree/sub/deep.txt", "content": "again"},
    ],
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_failing_last_change_takes_every_other_one_back(anywhere: World, name: str) -> None:
    rich(anywhere)
    before = anywhere.inside()
    folder_time = (anywhere.root / "tree/sub").stat().st_mtime_ns
    failure = await anywhere.fail("apply", {"changes": [*CHANGES[name], FAILS]})
    number = len(CHANGES[name]) + 1
    assert failure.message.startswith(f"change {number} of {number} (delete): 'no such file' does not exist")
    assert anywhere.inside() == before
    if name in ("delete a tree", "move a tree"):
        assert (anywhere.root / "tree/sub").stat().st_mtime_ns == folder_time
    assert list(anywhere.scratch.iterdir()) == []


@pytest.mark.parametrize("name", CHANGES)
async def test_a_finished_step_can_be_undone_later_from_its_sealed_log(anywhere: World, name: str) -> None:
    rich(anywhere)
    before = anywhere.inside()
    await anywhere.do("apply", {"changes": CHANGES[name]})
    assert anywhere.inside() != before
    assert not anywhere.litter()
    assert roll_back(anywhere.scratch, anywhere.root) == []  # nothing is unfinished
    assert roll_back(anywhere.scratch, anywhere.root, sealed=True)
    assert anywhere.inside() == before
    assert roll_back(anywhere.scratch, anywhere.root, sealed=True) == []


@pytest.mark.parametrize("name", CHANGES)
async def test_an_attempt_that_finds_its_work_done_does_not_do_it_again(anywhere: World, name: str) -> None:
    """The engine died between the step's end and the journal's word for it."""
    rich(anywhere)
    first = await anywhere.do("apply", {"changes": CHANGES[name]}, attempt=1)
    after = anywhere.inside()
    assert await anywhere.do("apply", {"changes": CHANGES[name]}, attempt=2) == first
    assert anywhere.inside() == after


async def test_the_same_call_again_in_one_attempt_or_after_a_change_is_a_new_call(world: World) -> None:
    more = {"path": "note.txt", "content": "+", "mode": "append"}
    await world.do("write", more, attempt=1)
    await world.do("write", more, attempt=1)
    assert (world.root / "note.txt").read_text() == "a note\n++"
    world.write("note.txt", "from somebody else")
    await world.do("write", more, attempt=2)
    assert (world.root / "note.txt").read_text() == "from somebody else+"
    await world.do("write", {**more, "content": "-"}, attempt=3)
    assert (world.root / "note.txt").read_text() == "from somebody else+-"


async def leave_unfinished(world: World, changes: list[dict[str, Any]]) -> None:
    """As a killed engine leaves it: the changes made, the log open."""
    await world.do("apply", {"changes": changes})
    os.rename(world.scratch / "undo.done", world.scratch / "undo")


async def test_what_somebody_else_changed_since_is_left_alone_and_named(anywhere: World) -> None:
    rich(anywhere)
    await leave_unfinished(
        anywhere,
        [
            {"do": "write", "path": "note.txt", "content": "mine"},
            {"do": "write", "path": "a/one.txt", "content": "mine"},
            {"do": "write", "path": "fresh", "content": "mine"},
            {"do": "delete", "path": "tree/bin"},
            {"do": "move", "from": "tree/sub", "to": "moved"},
        ],
    )
    theirs = {"note.txt": "theirs", "fresh": "theirs", "tree/bin": "theirs", "moved/deep.txt": "theirs"}
    for path, text in theirs.items():
        anywhere.write(path, text)
    for _ in range(2):  # as often as it is tried
        with pytest.raises(ToolError) as caught:
            roll_back(anywhere.scratch, anywhere.root)
        failure = caught.value.failure
        assert failure.category is Category.CONFIGURATION
        for path in ("'note.txt'", "'fresh'", "'tree/bin'", "'moved'"):
            assert path in failure.message
        assert "'a/one.txt'" not in failure.message
        assert str(anywhere.scratch / "undo") in failure.advice[0]
        for path, text in theirs.items():
            assert (anywhere.root / path).read_text() == text
        assert (anywhere.root / "a/one.txt").read_text() == "one\n"
    assert (await anywhere.fail("write", {"path": "x", "content": ""})).message == failure.message
    assert not (anywhere.root / "x").exists()


def test_what_somebody_else_put_there_in_the_last_moment_is_neither_replaced_nor_taken_back(world: World) -> None:
    def theirs() -> None:
        """Called between the look at the place and the change of it."""
        (world.root / "new").write_text("theirs")

    with Root(world.root) as root, locked(world.scratch) as home:
        with begin(root, home, request="", attempt=1, check=theirs) as undo, root.locate("new") as place:
            temporary = undo.temporary(place)
            (world.root / temporary.name).write_text("mine")
            with pytest.raises(FileExistsError):
                undo.put(temporary, place)
    assert roll_back(world.scratch, world.root) == []
    assert (world.root / "new").read_text() == "theirs"
    assert not world.litter()


async def test_a_person_can_keep_what_an_unfinished_step_left(world: World) -> None:
    await leave_unfinished(world, [{"do": "write", "path": "note.txt", "content": "mine"}])
    seal(world.scratch)
    await world.do("write", {"path": "other", "content": ""})
    assert (world.root / "note.txt").read_text() == "mine"


async def test_an_unfinished_step_is_taken_back_before_the_next_attempt_begins(anywhere: World) -> None:
    rich(anywhere)
    before = anywhere.inside()
    await leave_unfinished(anywhere, CHANGES["all sorts on the same paths"])
    assert anywhere.inside() != before
    await anywhere.fail("apply", {"changes": [FAILS]}, attempt=2)
    assert anywhere.inside() == before


async def test_a_folder_that_others_came_to_use_stays_when_its_maker_fails(world: World) -> None:
    await leave_unfinished(world, [{"do": "write", "path": "out/mine", "content": ""}])
    world.write("out/theirs", "theirs")
    assert roll_back(world.scratch, world.root) == ["out/mine"]
    assert snapshot(world.root / "out").keys() == {"theirs"}


async def test_a_damaged_log_is_a_clear_error_and_changes_nothing(world: World) -> None:
    await leave_unfinished(world, [{"do": "write", "path": "note.txt", "content": "mine"}])
    log = world.scratch / "undo/log"
    lines = log.read_bytes().splitlines(keepends=True)
    log.write_bytes(b"".join([lines[0], b"\0" * 20 + b"\n", *lines[1:]]))
    failure = await world.fail("write", {"path": "x", "content": ""}, attempt=2)
    assert failure.category is Category.CONFIGURATION
    assert "damaged" in failure.message
    assert (world.root / "note.txt").read_text() == "mine"


async def test_a_name_that_is_not_utf8_behind_a_link_is_written_and_taken_back(world: World) -> None:
    os.rename(world.root / "note.txt", os.fsencode(world.root) + b"/\xff")
    os.symlink(b"\xff", os.fsencode(world.root) + b"/link")
    change = {"do": "write", "path": "link", "content": "new"}
    await world.fail("apply", {"changes": [change, FAILS]})
    assert (world.root / "link").read_text() == "a note\n"
    assert (await world.do("apply", {"changes": [change]}))["changes"][0]["path"] == "\\xff"
    assert (world.root / "link").read_text() == "new"


BESIDE = "--- a/link/x\n+++ b/link/x\n@@ -1 +1 @@\n-old\n+new\n--- /dev/null\n+++ b/link/y\n@@ -0,0 +1 @@\n+y\n"
IN_THE_LINK: dict[str, dict[str, Any]] = {
    "write": {"path": "link/x", "content": "new\n"},
    "move": {"from": "link/x", "to": "link/y"},
    "patch": {"patch": BESIDE},
}


@pytest.mark.parametrize("name", IN_THE_LINK)
async def test_c6_k5_a_change_in_a_folder_that_is_not_utf8_is_approved_and_taken_back(world: World, name: str) -> None:
    os.mkdir(os.fsencode(world.root) + b"/\xff")
    os.symlink(b"\xff", os.fsencode(world.root) + b"/link")
    world.write("link/x", "old\n")
    before = world.inside()
    tool = TOOLS[f"files.{name}"]
    basis = tool.basis(IN_THE_LINK[name], world.root, {})
    assert msgspec.json.encode(basis)  # as the journal does
    await world.do(name, IN_THE_LINK[name], approved=basis)
    assert world.inside() != before
    assert b"xff/x" in msgspec.json.encode(undo_steps(world.folder, ["s"], world.root))
    assert world.inside() == before


async def test_c6_a_file_in_a_folder_that_is_not_utf8_must_be_the_one_that_was_approved(world: World) -> None:
    os.mkdir(os.fsencode(world.root) + b"/\xff")
    os.symlink(b"\xff", os.fsencode(world.root) + b"/link")
    file = world.write("link/x", "old\n")
    basis = TOOLS["files.write"].basis(IN_THE_LINK["write"], world.root, {})
    approved = Approved(basis)
    file.write_text("another\n")
    with Root(world.root) as root, root.locate("link/x") as place, pytest.raises(ApprovalOutdated, match="xff/x"):
        approved.check(place.path, place)


async def test_two_steps_can_make_the_same_new_folder_at_the_same_time(world: World) -> None:
    writes = [world.do("write", {"path": f"out/deep/{n}", "content": f"{n}"}, step=f"s{n}") for n in range(20)]
    await asyncio.gather(*writes)
    assert len(list((world.root / "out/deep").iterdir())) == 20


async def test_a_second_attempt_waits_while_the_first_still_holds_the_files(world: World) -> None:
    with locked(world.scratch):
        failure = await world.fail("write", {"path": "x", "content": ""}, attempt=2)
    assert failure.category is Category.TRANSIENT
    await world.do("write", {"path": "x", "content": ""}, attempt=3)


def many(world: World, count: int) -> list[dict[str, Any]]:
    return [{"do": "write", "path": f"many/{n}", "content": f"{n}"} for n in range(count)]


async def appearing(path: Path, task: asyncio.Task[Any]) -> None:
    while not path.exists():
        assert not task.done()
        await asyncio.sleep(0)


@pytest.mark.parametrize("impatient", [False, True])
async def test_a_cancelled_step_is_taken_back_before_the_cancellation_goes_on(anywhere: World, impatient: bool) -> None:
    rich(anywhere)
    before = anywhere.inside()
    changes = [*CHANGES["all sorts on the same paths"], *many(anywhere, 900)]
    task = asyncio.create_task(anywhere.do("apply", {"changes": changes}))
    await appearing(anywhere.root / "many/3", task)
    task.cancel()
    if impatient:
        await asyncio.sleep(0)
        task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert anywhere.inside() == before
    assert list(anywhere.scratch.iterdir()) == []


async def test_a_step_that_finished_in_the_moment_of_its_cancellation_is_taken_back_too(world: World) -> None:
    before = world.inside()
    task = asyncio.create_task(world.do("write", {"path": "note.txt", "content": "x"}))
    await asyncio.sleep(0)
    while not (world.scratch / "undo.done").exists():
        pass  # the loop stands still: the thread is done, and nobody has heard of it
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert world.inside() == before


async def test_a_cancelled_step_says_what_it_could_not_take_back(world: World) -> None:
    task = asyncio.create_task(world.do("write", {"path": "note.txt", "content": "x"}))
    await asyncio.sleep(0)
    while not (world.scratch / "undo.done").exists():
        pass
    world.write("note.txt", "theirs, and longer")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "'note.txt' was changed by another program" in world.said[0]
    assert (world.root / "note.txt").read_text() == "theirs, and longer"


async def test_a_call_that_is_told_to_stop_without_being_cancelled_changes_nothing_and_says_so(world: World) -> None:
    before = world.inside()
    call = world.call()
    call.stopping.set()
    with pytest.raises(ToolError, match="stopped before it was finished"):
        await TOOLS["files.write"].execute({"path": "note.txt", "content": "x"}, call)
    assert world.inside() == before


def test_a_loop_that_shuts_down_waits_for_the_thread_and_its_rollback(world: World) -> None:
    before = world.inside()

    async def leave() -> None:
        task = asyncio.create_task(world.do("apply", {"changes": many(world, 900)}))
        await appearing(world.root / "many/3", task)

    asyncio.run(leave())
    assert world.inside() == before


async def test_moving_to_another_device_and_back_keeps_everything_and_can_be_undone(
    world: World, small_disk: Callable[[Path], Path]
) -> None:
    rich(world)
    small_disk(world.root / "disk")
    world.write("disk/there", "there")
    before, tree = world.inside(), snapshot(world.root / "tree")
    there_and_back = [
        {"do": "move", "from": "tree", "to": "disk/wood"},
        {"do": "move", "from": "note.txt", "to": "disk/there", "overwrite": True},
        {"do": "move", "from": "disk/wood", "to": "tree2"},
        {"do": "move", "from": "disk/there", "to": "a/one.txt", "overwrite": True},
    ]
    await world.fail("apply", {"changes": [*there_and_back, FAILS]})
    assert world.inside() == before
    await world.do("apply", {"changes": there_and_back})
    assert snapshot(world.root / "tree2") == tree
    assert (world.root / "a/one.txt").stat().st_mtime_ns == before["note.txt"][2]
    assert not (world.root / "tree").exists()
    assert not world.litter()


async def test_special_files_do_not_cross_devices(world: World, small_disk: Callable[[Path], Path]) -> None:
    small_disk(world.root / "disk")
    (world.root / "tree").mkdir()
    os.mkfifo(world.root / "tree/pipe")
    before = world.inside()
    failure = await world.fail("move", {"from": "tree", "to": "disk/tree"})
    assert "FIFO" in failure.message
    assert world.inside() == before
    await world.do("move", {"from": "tree", "to": "wood"})  # a rename does not look inside


async def test_a_mount_point_is_neither_moved_nor_deleted(world: World, small_disk: Callable[[Path], Path]) -> None:
    small_disk(world.root / "disk")
    small_disk(world.root / "a/b/inner")
    world.write("disk/f", "f")
    before = world.inside()
    for path in ("disk", "a"):
        await world.fail("delete", {"path": path, "recursive": True})
        await world.fail("move", {"from": path, "to": "elsewhere"})
    assert world.inside() == before


# --- a power cut ---


async def test_an_overwrite_waits_for_the_disk_six_times(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        synced.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    await world.do("write", {"path": "note.txt", "content": "ab"})
    assert synced[0].startswith(".windlass-")
    assert synced[1:] == ["log", "undo", world.scratch.name, world.root.name, "log"]


async def test_a_step_whose_last_rename_a_power_cut_lost_is_not_done_twice(world: World) -> None:
    appended = {"path": "note.txt", "content": "x", "mode": "append"}
    first = await world.do("write", appended)
    (world.scratch / "undo.done").rename(world.scratch / "undo")
    assert await world.do("write", appended, attempt=2) == first
    assert (world.root / "note.txt").read_text() == "a note\nx"


async def test_a_step_whose_last_rename_a_power_cut_lost_is_undone_like_any_other(world: World) -> None:
    await world.do("write", {"path": "note.txt", "content": "x"})
    (world.scratch / "undo.done").rename(world.scratch / "undo")
    world.write("note.txt", "somebody else's")
    with pytest.raises(ToolError, match=r"nothing was undone: .note\.txt. was changed by another program"):
        undo_steps(world.folder, ("s",), world.root)
