"""A home under another name is no place for tools that take paths: it is known by device and inode (I6)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from file_world import SECRET, World

from windlass.errors import Category, ToolError
from windlass.tools.files.safe_path import Root
from windlass.tools.message.content import load

FILE = "state/windlass.db"


@pytest.fixture
def home(world: World) -> World:
    """A world whose home is in the working directory, as with `--home ./state`."""
    world.folder = world.root / "state/executions/e"
    world.folder.mkdir(parents=True)
    (world.folder / "checkpoint.json").write_text(SECRET)
    (world.root / FILE).write_text(SECRET)
    (world.root / "state/server.token").write_text(SECRET)
    return world


def uses(path: str) -> list[tuple[str, dict[str, Any]]]:
    patch = f"--- a/{path}\n+++ b/{path}\n@@ -1 +1 @@\n-{SECRET}\n+edited\n"
    return [
        ("read", {"path": path}),
        ("search", {"path": path, "pattern": "secret"}),
        ("write", {"path": path, "content": "x"}),
        ("edit", {"path": path, "edits": [{"old": SECRET, "new": "x"}]}),
        ("copy", {"from": path, "to": "taken"}),
        ("copy", {"from": "note.txt", "to": path, "overwrite": True}),
        ("move", {"from": path, "to": "taken"}),
        ("move", {"from": "note.txt", "to": path, "overwrite": True}),
        ("delete", {"path": path}),
        ("patch", {"patch": patch}),
        ("apply", {"changes": [{"do": "write", "path": path, "content": "x"}]}),
    ]


def untouched(world: World) -> dict[str, Any]:
    """Everything but the folder in which the engine itself keeps what a step needs to undo its changes."""
    return {path: about for path, about in world.inside().items() if not path.startswith("state/executions/e/steps")}


def direct(world: World) -> str:
    return FILE


def deeper(world: World) -> str:
    return "state/executions/e/checkpoint.json"


def detour(world: World) -> str:
    return "a/.././state//windlass.db"


def absolute(world: World) -> str:
    return f"{world.root}/{FILE}"


def behind_a_link(world: World) -> str:
    (world.root / "a/l").symlink_to("../state")
    return "a/l/windlass.db"


def hard_link(world: World) -> str:
    os.link(world.root / FILE, world.root / "a/copy.db")
    return "a/copy.db"


def new_file(world: World) -> str:
    return "state/new.txt"


@pytest.mark.parametrize("form", [direct, deeper, detour, absolute, behind_a_link, hard_link, new_file])
async def test_i6_no_file_tool_touches_the_home_whatever_its_name(home: World, resolver: str, form: Any) -> None:
    path = form(home)
    before = untouched(home)
    for tool, arguments in uses(path):
        if (tool, form) == ("patch", absolute):
            continue  # a diff names no absolute paths
        failure = await home.fail(tool, arguments)
        assert SECRET not in failure.message
        assert failure.category is Category.PERMISSION, (tool, failure)
    with pytest.raises(ToolError, match="own state"):
        load(home.root, home.call().home, [path], 1000)
    assert untouched(home) == before


async def test_i6_walks_leave_the_home_out_and_nothing_around_it_is_moved(home: World, resolver: str) -> None:
    os.link(home.root / FILE, home.root / "a/copy.db")
    listed = await home.do("list", {"recursive": True})
    assert [entry["path"] for entry in listed["entries"]] == ["a", "a/b", "a/one.txt", "note.txt"]
    assert (await home.do("search", {"pattern": "secret"}))["matches"] == []
    for tool, arguments in (
        ("list", {"path": "state"}),
        ("delete", {"path": "state", "recursive": True}),
        ("delete", {"path": "a", "recursive": True}),
        ("move", {"from": "state", "to": "b"}),
        ("copy", {"from": "a", "to": "b"}),
    ):
        assert (await home.fail(tool, arguments)).category is Category.PERMISSION, tool


@pytest.fixture
def mounted(home: World) -> Iterator[str]:
    (home.root / "mounted").mkdir()
    bind = ["mount", "--bind", str(home.root / "state"), str(home.root / "mounted")]
    if os.geteuid() != 0 or subprocess.run(bind, capture_output=True, check=False).returncode:
        pytest.skip("a mount needs root")
    yield "mounted/windlass.db"
    subprocess.run(["umount", "-l", str(home.root / "mounted")], check=True)


async def test_i6_a_bind_mount_of_the_home_is_the_home(home: World, mounted: str, resolver: str) -> None:
    assert (await home.fail("read", {"path": mounted})).category is Category.PERMISSION


async def test_i6_a_working_directory_inside_the_home_can_be_used_without_the_engines_files(home: World) -> None:
    home.root = home.root / "state"
    (home.root / "project").mkdir()
    (home.root / "project/x").write_text("fine")
    assert (await home.do("read", {"path": "project/x"}))["content"] == "fine"
    assert (await home.fail("read", {"path": "windlass.db"})).category is Category.PERMISSION
    assert (await home.fail("read", {"path": "executions/e/checkpoint.json"})).category is Category.PERMISSION


def test_i6_a_home_that_is_not_there_yet_is_no_obstacle(world: World, tmp_path: Path) -> None:
    with Root(world.root, tmp_path / "none") as root, root.locate("note.txt") as place:
        assert place.stat() is not None
