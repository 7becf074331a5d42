"""H2: file tools stay inside the working directory, whatever the path (TRUST.md, row "paths")."""

from __future__ import annotations

import os
import shutil
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from file_world import SECRET, World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windlass.errors import Category, Failure, ToolError
from windlass.tools.files.safe_path import Root

PERMISSION, CONFIGURATION = Category.PERMISSION, Category.CONFIGURATION


def link(name: str, target: str) -> Callable[[World], None]:
    def make(world: World) -> None:
        (world.root / name).symlink_to(target.format(base=world.root.parent, root=world.root))

    return make


def links(**targets: str) -> Callable[[World], None]:
    def make(world: World) -> None:
        for name, target in targets.items():
            link(name, target)(world)

    return make


def fifo(world: World) -> None:
    os.mkfifo(world.root / "pipe")


def sock(world: World) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        here = os.open(world.root, os.O_RDONLY)
        server.bind(f"/proc/self/fd/{here}/sock")
        os.close(here)


def device(world: World) -> None:
    if os.geteuid() != 0:
        pytest.skip("making a device node needs root")
    os.mknod(world.root / "zero", 0o20666, os.makedev(1, 5))


def nothing(world: World) -> None:
    """The world as it is."""


def quoted(path: str) -> str:
    """As git writes a name that is not plain."""
    return '"' + "".join(f"\\{byte:03o}" for byte in path.encode("utf-8", "surrogatepass")) + '"'


def diff_of(path: str) -> str:
    return f"--- {quoted(path)}\n+++ {quoted(path)}\n@@ -1 +1 @@\n-{SECRET}\n+hostile\n"


def renaming(old: str, new: str) -> str:
    return f"diff --git a/x b/y\nsimilarity index 100%\nrename from {quoted(old)}\nrename to {quoted(new)}\n"


def new_file_of(path: str) -> str:
    return f"--- /dev/null\n+++ {quoted(path)}\n@@ -0,0 +1 @@\n+hostile\n"


HOSTILE: dict[str, tuple[Callable[[World], None], str, Category]] = {
    "parent": (nothing, "../outside/secret.txt", PERMISSION),
    "grandparents": (nothing, "../../../../../../etc/passwd", PERMISSION),
    "down and up": (nothing, "a/../../outside/secret.txt", PERMISSION),
    "far down and further up": (nothing, "a/b/../../../outside/secret.txt", PERMISSION),
    "just dots": (nothing, "..", PERMISSION),
    "dots and a slash": (nothing, "../", PERMISSION),
    "dots at the end": (nothing, "a/../..", PERMISSION),
    "dot first": (nothing, "./../outside/secret.txt", PERMISSION),
    "double slashes": (nothing, "a//..//..//outside//secret.txt", PERMISSION),
    "missing folder, then up": (nothing, "nowhere/../../outside/secret.txt", PERMISSION),
    "absolute": (nothing, "{base}/outside/secret.txt", PERMISSION),
    "etc": (nothing, "/etc/passwd", PERMISSION),
    "the root": (nothing, "/", PERMISSION),
    "two leading slashes": (nothing, "//etc/passwd", PERMISSION),
    "sibling with the same prefix": (nothing, "{root}-sibling/secret.txt", PERMISSION),
    "relative sibling with the same prefix": (nothing, "../work-sibling/secret.txt", PERMISSION),
    "absolute inside, then up": (nothing, "{root}/../outside/secret.txt", PERMISSION),
    "prefix without a slash": (nothing, "{root}evil", PERMISSION),
    "proc root": (nothing, "/proc/self/root/etc/passwd", PERMISSION),
    "proc cwd": (nothing, "/proc/self/cwd/x", PERMISSION),
    "link to a file": (link("l", "{base}/outside/secret.txt"), "l", PERMISSION),
    "relative link to a file": (link("l", "../outside/secret.txt"), "l", PERMISSION),
    "file behind a link to a folder": (link("l", "{base}/outside"), "l/secret.txt", PERMISSION),
    "new file behind a link to a folder": (link("l", "../outside"), "l/new.txt", PERMISSION),
    "new folder behind a link to a folder": (link("l", "../outside"), "l/x/y/new.txt", PERMISSION),
    "link to a folder": (link("l", "../outside/dir"), "l", PERMISSION),
    "chain of links": (links(l="m", m="n", n="../outside/secret.txt"), "l", PERMISSION),
    "chain of links to folders": (links(l="m", m="../outside"), "l/secret.txt", PERMISSION),
    "link in a folder, climbing": (link("a/l", "../../outside"), "a/l/secret.txt", PERMISSION),
    "link that climbs too far for a moment": (link("l", "../work/note.txt"), "l", PERMISSION),
    "dangling link": (link("l", "../outside/new.txt"), "l", PERMISSION),
    "dangling absolute link": (link("l", "{base}/outside/new.txt"), "l", PERMISSION),
    "dangling link to nowhere": (link("l", "/no/such/place"), "l", PERMISSION),
    "link to the root": (link("l", "/"), "l/etc/passwd", PERMISSION),
    "link to proc's root": (link("l", "/proc/self/root"), "l/etc/passwd", PERMISSION),
    "link to proc's cwd": (link("l", "/proc/self/cwd"), "l/pyproject.toml", PERMISSION),
    "link to a descriptor": (link("l", "/proc/self/fd/0"), "l", PERMISSION),
    "link to the sibling": (link("l", "{root}-sibling/secret.txt"), "l", PERMISSION),
    "link inside, then up": (link("l", "{root}/../outside/secret.txt"), "l", PERMISSION),
    "link to a device": (link("l", "/dev/zero"), "l", PERMISSION),
    "links in a circle": (links(l="m", m="l"), "l", CONFIGURATION),
    "link to itself": (link("l", "l"), "l", CONFIGURATION),
    "link to itself on the way": (link("l", "l/x"), "l/y", CONFIGURATION),
    "NUL": (nothing, "note.txt\0", CONFIGURATION),
    "NUL before the escape": (nothing, "note.txt\0/../../outside/secret.txt", CONFIGURATION),
    "empty": (nothing, "", CONFIGURATION),
    "long name": (nothing, "x" * 256, CONFIGURATION),
    "long name of wide characters": (nothing, "ü" * 128, CONFIGURATION),
    "long path": (nothing, "a/" * 3000 + "x", CONFIGURATION),
    "long way up": (nothing, "../" * 2000 + "etc/passwd", CONFIGURATION),
    "half a character": (nothing, "a\udcff", CONFIGURATION),
    "engine state": (nothing, ".windlass/windlass.db", PERMISSION),
    "engine state's new file": (nothing, ".windlass/new", PERMISSION),
    "engine state further down": (nothing, "a/.windlass/x", PERMISSION),
    "engine state in capitals": (nothing, ".WINDLASS/windlass.db", PERMISSION),
    "engine state by detours": (nothing, "a/.././.windlass//windlass.db", PERMISSION),
    "engine state, absolute": (nothing, "{root}/.windlass/windlass.db", PERMISSION),
    "engine state behind a link": (link("l", ".windlass"), "l/windlass.db", PERMISSION),
    "engine state's file behind a link": (link("a/l", "../.windlass/windlass.db"), "a/l", PERMISSION),
    "FIFO": (fifo, "pipe", CONFIGURATION),
    "FIFO on the way": (fifo, "pipe/x", CONFIGURATION),
    "socket": (sock, "sock", CONFIGURATION),
    "device": (device, "zero", CONFIGURATION),
    "file with a trailing slash": (nothing, "note.txt/", CONFIGURATION),
    "file with a trailing dot": (nothing, "note.txt/.", CONFIGURATION),
    "file on the way": (nothing, "note.txt/x", CONFIGURATION),
    "folder": (nothing, "a", CONFIGURATION),
    "folder with a slash": (nothing, "a/", CONFIGURATION),
    "the working directory": (nothing, ".", CONFIGURATION),
    "the working directory, absolute": (nothing, "{root}", CONFIGURATION),
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_path_is_refused_and_nothing_outside_is_touched(world: World, resolver: str, name: str) -> None:
    prepare, path, category = HOSTILE[name]
    prepare(world)
    path = path.replace("{base}", str(world.root.parent)).replace("{root}", str(world.root))
    beyond = world.beyond()
    refused: list[tuple[str, dict[str, Any]]] = [
        ("read", {"path": path}),
        ("read", {"path": path, "encoding": "base64"}),
        ("write", {"path": path, "content": "hostile"}),
        ("write", {"path": path, "content": "hostile", "mode": "append"}),
        ("edit", {"path": path, "edits": [{"old": "s", "new": "hostile", "all": True}]}),
        ("apply", {"changes": [{"do": "write", "path": path, "content": "hostile"}]}),
        ("apply", {"changes": [{"do": "write", "path": "fine", "content": ""}, {"do": "edit", "path": path, "edits": [
            {"old": "s", "new": "hostile"}]}]}),
        ("patch", {"patch": diff_of(path), "strip": 0}),
    ]  # fmt: skip
    for tool, arguments in refused:
        inside = world.inside()
        failure = await world.fail(tool, arguments)
        assert failure.category is category, (tool, failure)
        assert failure.advice, failure
        assert SECRET not in failure.message
        assert world.inside() == inside
        assert world.beyond() == beyond
    # These may act on a link itself, or list a folder that is fine: then nothing beyond may change or show.
    tolerated: list[tuple[str, dict[str, Any]]] = [
        ("list", {"path": path, "recursive": True}),
        ("move", {"from": "a/one.txt", "to": path, "overwrite": True}),
        ("move", {"from": path, "to": "taken", "overwrite": True}),
        ("copy", {"from": "note.txt", "to": path, "overwrite": True}),
        ("copy", {"from": path, "to": "copied", "overwrite": True}),
        ("search", {"pattern": "secret|root:", "path": path}),
        ("patch", {"patch": renaming("note.txt", path)}),
        ("patch", {"patch": renaming(path, "renamed")}),
        ("patch", {"patch": new_file_of(path), "strip": 0}),
        ("delete", {"path": path, "recursive": True}),
    ]
    for tool, arguments in tolerated:
        result = await world.either(tool, arguments)
        if isinstance(result, Failure):
            assert result.category in (PERMISSION, CONFIGURATION)
        else:
            assert "secret" not in str(result)
            assert "passwd" not in str(result)
        assert world.beyond() == beyond, (tool, arguments)


def test_the_table_of_hostile_paths_is_as_long_as_promised() -> None:
    assert len(HOSTILE) >= 40


HARMLESS = [
    "‥/x", "．．/x", "…", "...", "..x", "x..", "~", "~root/x", "$HOME/x", "a\\..\\..\\x", "C:\\x", " ", "\n", "-rf",
    "%2e%2e/x", "file:/etc/passwd", "\u202egpj.exe", "e\u0301", "é", "a b\tc", "*", "$(reboot)", ".windlass2",
    ".windlas", "x" * 255, "a/../a/./b//deep", "{root}/a/absolute",
]  # fmt: skip


@pytest.mark.parametrize("path", HARMLESS)
async def test_a_strange_name_is_just_a_name_inside(world: World, resolver: str, path: str) -> None:
    beyond = world.beyond()
    path = path.replace("{root}", str(world.root))
    await world.do("write", {"path": path, "content": "inside"})
    assert (await world.do("read", {"path": path}))["content"] == "inside"
    assert (world.root / os.path.normpath(path)).read_text() == "inside"
    assert world.beyond() == beyond


INWARD = {
    "to a file": ("l", "note.txt", "l", "note.txt"),
    "to a folder": ("l", "a", "l/one.txt", "a/one.txt"),
    "up and down again": ("a/b/l", "../../note.txt", "a/b/l", "note.txt"),
    "absolute": ("l", "{root}/a/one.txt", "l", "a/one.txt"),
    "absolute, from deep down": ("a/b/l", "{root}/a", "a/b/l/one.txt", "a/one.txt"),
    "to the working directory": ("a/l", "..", "a/l/note.txt", "note.txt"),
    "to a file that is not there yet": ("l", "a/b/new.txt", "l", "a/b/new.txt"),
}


@pytest.mark.parametrize("name", INWARD)
async def test_a_link_that_stays_inside_is_followed_and_kept(world: World, resolver: str, name: str) -> None:
    place, target, path, real = INWARD[name]
    link(place, target)(world)
    result = await world.do("write", {"path": path, "content": "through the link"})
    assert result["path"] == real
    assert (world.root / real).read_text() == "through the link"
    assert (world.root / place).is_symlink()
    assert (await world.do("read", {"path": path}))["content"] == "through the link"


async def test_moving_and_deleting_act_on_a_link_and_not_on_its_target(world: World, resolver: str) -> None:
    link("l", "{base}/outside/secret.txt")(world)
    link("d", "../outside/dir")(world)
    beyond = world.beyond()
    await world.do("move", {"from": "l", "to": "a/l"})
    assert (world.root / "a/l").is_symlink()
    await world.do("delete", {"path": "a/l"})
    await world.do("delete", {"path": "d/", "recursive": True})
    await world.do("write", {"path": "f", "content": "f"})
    link("l", "{base}/outside/secret.txt")(world)
    await world.do("move", {"from": "f", "to": "l", "overwrite": True})
    assert (world.root / "l").read_text() == "f"
    assert world.beyond() == beyond


@pytest.mark.parametrize("tool", ["overwrite", "append", "edit", "move"])
async def test_a_hard_link_to_a_file_outside_is_replaced_and_never_written_through(
    world: World, resolver: str, tool: str
) -> None:
    os.link(world.outside / "secret.txt", world.root / "hard")
    beyond = world.beyond()
    if tool == "edit":
        await world.do("edit", {"path": "hard", "edits": [{"old": "secret", "new": "changed"}]})
    elif tool == "move":
        await world.do("move", {"from": "note.txt", "to": "hard", "overwrite": True})
    else:
        await world.do("write", {"path": "hard", "content": "changed", "mode": tool})
    assert (world.root / "hard").read_text() != SECRET
    assert world.beyond() == beyond


async def test_the_engines_state_can_neither_be_moved_nor_deleted_with_the_folder_around_it(
    world: World, resolver: str
) -> None:
    world.write("project/deep/.windlass/windlass.db", SECRET)
    before = world.inside()
    calls: list[tuple[str, dict[str, Any]]] = [
        ("delete", {"path": "project", "recursive": True}),
        ("move", {"from": "project", "to": "elsewhere"}),
        ("delete", {"path": ".", "recursive": True}),
        ("move", {"from": ".", "to": "elsewhere"}),
        ("move", {"from": "note.txt", "to": ".windlass/note.txt"}),
    ]
    for tool, arguments in calls:
        assert (await world.fail(tool, arguments)).category is PERMISSION
    assert world.inside() == before


async def test_listing_leaves_out_the_engines_state(world: World, resolver: str) -> None:
    world.write("a/.windlass/x", "x")
    listed = await world.do("list", {"recursive": True})
    assert [e["path"] for e in listed["entries"]] == ["a", "a/b", "a/one.txt", "note.txt"]


def test_a_file_that_becomes_a_link_after_it_was_located_is_not_opened(world: World, resolver: str) -> None:
    with Root(world.root) as root, root.locate("note.txt") as place:
        (world.root / "note.txt").unlink()
        link("note.txt", "../outside/secret.txt")(world)
        for flags in (os.O_RDONLY, os.O_WRONLY | os.O_CREAT):
            with pytest.raises(OSError, match="symbolic links"):
                place.open(flags)


def test_a_folder_that_becomes_a_link_after_it_was_located_stays_the_folder(world: World, resolver: str) -> None:
    with Root(world.root) as root, root.locate("a/new.txt") as place:
        (world.root / "a").rename(world.root / "moved")
        link("a", "../outside")(world)
        os.close(place.open(os.O_WRONLY | os.O_CREAT))
    assert (world.root / "moved/new.txt").exists()
    assert not (world.outside / "new.txt").exists()


class Swapper(threading.Thread):
    """Keeps replacing a place by a link to the outside and back, whatever else happens there."""

    def __init__(self, place: Path, spare: Path, outside: Path, least: int) -> None:
        super().__init__(daemon=True)
        self.place, self.spare, self.outside = place, spare, outside
        self.swaps, self.least = 0, least
        self.enough = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            while not (self.enough.is_set() and self.swaps >= self.least):
                try:
                    os.rename(self.place, self.spare)
                except FileNotFoundError:  # deleted by the tool
                    (Path.mkdir if self.outside.is_dir() else Path.touch)(self.spare)
                self.insist(lambda: os.symlink(self.outside, self.place))
                self.swaps += 1
                self.insist(lambda: os.rename(self.spare, self.place))
        except BaseException as error:
            self.error = error

    def insist(self, deed: Callable[[], None]) -> None:
        """The tool may make the place anew in the moment it is free: clear it, then."""
        while True:
            if self.place.is_symlink() or self.place.is_file():
                self.place.unlink(missing_ok=True)
            else:
                shutil.rmtree(self.place, ignore_errors=True)
            with suppress(OSError):
                return deed()


@pytest.mark.parametrize("tries", [10, pytest.param(40, marks=pytest.mark.soak)])
@pytest.mark.parametrize("what", ["folder", "deep folder", "file"])
async def test_nothing_lands_outside_while_a_thread_swaps_in_links(
    world: World, resolver: str, what: str, tries: int
) -> None:
    place = {"folder": "d", "deep folder": "a/d", "file": "a/f"}[what]
    target = world.root / place
    if what == "file":
        target.write_text("inside")
        outside, path = world.outside / "secret.txt", place
    else:
        target.mkdir()
        (target / "secret.txt").write_text("inside")
        outside, path = world.outside, f"{place}/secret.txt"
    beyond = world.beyond()
    thread = Swapper(target, world.root / "spare", outside, 25 * tries)
    thread.start()
    succeeded = 0
    calls: list[tuple[str, dict[str, Any]]] = [
        ("write", {"path": path, "content": "inside"}),
        ("edit", {"path": path, "edits": [{"old": "e", "new": "E", "all": True}]}),
        ("read", {"path": path}),
        ("list", {"path": "a" if what == "file" else place}),
        ("search", {"pattern": "secret", "path": "a" if what == "file" else place}),
        ("patch", {"patch": f"--- {path}\n+++ {path}\n@@ -1 +1 @@\n-insidE\n\\ No newline\n+inside\n"}),
        ("copy", {"from": path, "to": f"copies/{what}", "overwrite": True}),
        ("copy", {"from": "note.txt", "to": path, "overwrite": True}),
        ("delete", {"path": path, "missing_ok": True}),
    ]
    for number in range(tries):
        for tool, arguments in calls:
            result = await world.either(tool, arguments, step=f"{tool}{number}")
            assert SECRET not in str(result)
            assert "/dir'" not in str(result)  # the name of a folder outside
            succeeded += not isinstance(result, Failure)
    thread.enough.set()
    thread.join()
    assert thread.error is None
    assert thread.swaps >= thread.least
    assert succeeded > 0
    assert world.beyond() == beyond


names = st.sampled_from(["a", "b", "..", ".", "", "l", "up", "out", "deep", ".windlass", "note.txt", "x"])


@settings(suppress_health_check=list(HealthCheck))
@given(st.lists(names, min_size=1, max_size=8), st.booleans(), st.booleans())
def test_both_resolvers_and_the_operating_system_agree_on_every_path(
    tmp_path_factory: pytest.TempPathFactory, parts: list[str], absolute: bool, follow: bool
) -> None:
    from windlass.tools.files import kernel

    base = tmp_path_factory.mktemp("agree")
    world = World(base).make()
    links(l="a", up="a/..", out="../outside", deep="a/b/../l2")(world)
    (world.root / "a/l2").symlink_to("b")
    path = "/".join(parts)
    if absolute:
        path = f"{world.root}/{path}"
    found: list[tuple[str, str] | Category] = []
    for openat2 in (True, False):
        kernel.OPENAT2 = openat2
        try:
            with Root(world.root) as root, root.locate(path, follow=follow) as place:
                where = Path(os.readlink(f"/proc/self/fd/{place.fd}"))
                assert where.is_relative_to(world.root)
                assert ".windlass" not in where.parts[len(world.root.parts) :]
                assert os.path.normpath(where / place.name) == os.path.normpath(world.root / place.path)
                found.append((str(where), place.name))
        except ToolError as error:
            found.append(error.failure.category)
        finally:
            kernel.OPENAT2 = True
    assert found[0] == found[1]
