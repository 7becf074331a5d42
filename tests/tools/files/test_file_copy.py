"""H2: `files.copy` copies a file or a tree at one stroke, with its modes, and follows no link."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from file_world import TOOLS, World, snapshot
from test_file_crash import fill
from test_file_undo import rich

from windlass.errors import Category
from windlass.tools.files import operations
from windlass.tools.files.tools import file_tools


async def test_h2_a_file_is_copied_with_its_mode_and_its_times(world: World) -> None:
    world.write("tool", "#!").chmod(0o751)
    told = await world.do("copy", {"from": "tool", "to": "p/q/tool"})
    assert told == {"from": "tool", "to": "p/q/tool", "type": "file", "entries": 1, "bytes": 2, "replaced": False}
    old, new = (world.root / path for path in ("tool", "p/q/tool"))
    assert (new.read_text(), new.stat().st_mode & 0o7777) == ("#!", 0o751)
    assert new.stat().st_mtime_ns == old.stat().st_mtime_ns
    new.write_text("changed")
    assert old.read_text() == "#!"
    assert not world.litter()


async def test_h2_a_tree_is_copied_with_everything_in_it(anywhere: World) -> None:
    rich(anywhere)
    told = await anywhere.do("copy", {"from": "tree", "to": "p/wood"})
    assert (told["type"], told["entries"], told["bytes"]) == ("directory", 7, 6)
    assert snapshot(anywhere.root / "p/wood") == snapshot(anywhere.root / "tree")
    assert not anywhere.litter()


async def test_h2_links_are_copied_as_links_wherever_they_lead(world: World) -> None:
    world.write("tree/f", "f")
    (world.root / "tree/out").symlink_to(world.outside)
    (world.root / "tree/secret").symlink_to("../../outside/secret.txt")
    beyond = world.beyond()
    await world.do("copy", {"from": "tree", "to": "wood"})
    await world.do("copy", {"from": "tree/secret", "to": "s"})
    assert os.readlink(world.root / "wood/out") == str(world.outside)
    assert (world.root / "s").is_symlink()
    failure = await world.fail("read", {"path": "s"})
    assert failure.category is Category.PERMISSION
    assert world.beyond() == beyond


async def test_h2_what_is_there_is_replaced_only_when_asked_for_and_a_folder_never(world: World) -> None:
    failure = await world.fail("copy", {"from": "note.txt", "to": "a/one.txt"})
    assert "exists already" in failure.message
    told = await world.do("copy", {"from": "note.txt", "to": "a/one.txt", "overwrite": True})
    assert told["replaced"]
    assert (world.root / "a/one.txt").read_text() == "a note\n"
    failure = await world.fail("copy", {"from": "note.txt", "to": "a", "overwrite": True})
    assert "to copy into it: a/note.txt" in failure.advice[0]
    await world.do("copy", {"from": "a", "to": "note.txt", "overwrite": True})
    assert (world.root / "note.txt/one.txt").read_text() == "a note\n"


@pytest.mark.parametrize("to", ["a", "a/b", "a/new/deep", "./a/../a"])
async def test_h2_nothing_is_copied_into_itself(world: World, to: str) -> None:
    before = world.inside()
    failure = await world.fail("copy", {"from": "a", "to": to, "overwrite": True})
    assert failure.category is Category.CONFIGURATION
    assert world.inside() == before


async def test_h2_what_cannot_be_copied_is_named_before_anything_is_made(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(world.root / "a/b/pipe")
    before = world.inside()
    assert "'a/b/pipe' is a device" in (await world.fail("copy", {"from": "a", "to": "p/a"})).message
    (world.root / "a/b/pipe").unlink()
    monkeypatch.setattr(operations, "MOST_ENTRIES", 1)
    assert (await world.fail("copy", {"from": "a", "to": "p/a"})).category is Category.RESOURCE
    failure = await world.fail("copy", {"from": "nota.txt", "to": "x"})
    assert "the nearest name there is 'note.txt'" in failure.message
    assert (await world.fail("copy", {"from": ".", "to": "x"})).category is Category.PERMISSION
    del before["a/b/pipe"]
    assert world.inside() == before


async def test_h2_a_folder_with_as_many_entries_as_are_allowed_is_copied(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(operations, "MOST_ENTRIES", 2)
    assert (await world.do("copy", {"from": "a", "to": "p/a"}))["entries"] == 3, "the folder itself, a folder, a file"


# --- room on the disk ---


async def test_h2_what_does_not_fit_on_the_disk_is_refused_before_anything_is_made(
    tmp_path: Path, small_disk: Callable[[Path], Path]
) -> None:
    world = World(small_disk(tmp_path / "disk")).make()
    world.write("big/f", "x" * 300_000)
    fill(world.base / "filler", 200_000)
    before = world.inside()
    large = "n" * 250_000
    for tool, arguments in (
        ("copy", {"from": "big", "to": "p/copy"}),
        ("write", {"path": "p/new", "content": large}),
        ("write", {"path": "big/f", "content": "more", "mode": "append"}),
        ("edit", {"path": "big/f", "edits": [{"old": "x", "new": "yy", "all": True}]}),
        ("patch", {"patch": f"--- /dev/null\n+++ b/p/new\n@@ -0,0 +1 @@\n+{large}\n"}),
        ("apply", {"changes": [{"do": "write", "path": f"p/{n}", "content": large[:90_000]} for n in range(3)]}),
    ):
        failure = await world.fail(tool, arguments, step=tool)
        assert failure.category is Category.RESOURCE, (tool, failure)
        assert "bytes are to be written" in failure.message
        assert world.inside() == before
    assert await world.do("delete", {"path": "big", "recursive": True})


async def test_h2_a_floor_stays_free_whatever_is_asked_for(tmp_path: Path, small_disk: Callable[[Path], Path]) -> None:
    world = World(small_disk(tmp_path / "disk")).make()
    tools = {tool.name: tool for tool in file_tools(disk_floor=10 << 20)}
    for name, arguments in (
        ("files.write", {"path": "new", "content": "x"}),
        ("files.copy", {"from": "note.txt", "to": "new"}),
        ("files.edit", {"path": "note.txt", "edits": [{"old": "note", "new": "x"}]}),
    ):
        with pytest.raises(Exception, match="10,485,760 are to stay free"):
            await tools[name].execute(arguments, world.call())
    assert await tools["files.delete"].execute({"path": "note.txt"}, world.call())
    assert (await TOOLS["files.write"].execute({"path": "new", "content": "x"}, world.call(step="t")))["created"]
