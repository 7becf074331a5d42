"""Composed tools on disk (G3): names, the two files, folders that came from strangers, and counts of uses."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace
from waiting import PATIENCE

from windlass.errors import NotFound, UsageError
from windlass.ports.composed import ComposedStore, ComposedTool, Uses
from windlass.tools.composed import FolderComposedStore

RESERVED = ("shell", "files.read", "files.write", "agent")
SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
WORDS = ComposedTool(
    "count.words",
    "return args.text.split(' ').length; // ü\n",
    SCHEMA,
    description="Count words\nin a text",
    grants=("files.*", "shell"),
    returns={"type": "integer"},
)


class World:
    def __init__(self, base: Path) -> None:
        self.project = base / "home" / "composed-tools"
        self.user = base / "user" / "composed-tools"
        self.shelf = self.fresh()

    def fresh(self) -> FolderComposedStore:
        """As another process would see it."""
        return FolderComposedStore(self.project, self.user, lambda: RESERVED)

    def names(self) -> list[str]:
        return [tool.name for tool in self.shelf.all()]

    def problem(self) -> str:
        (said,) = self.shelf.problems()
        return said

    def write(self, name: str, record: Any = None, source: str | None = "return 1;") -> None:
        """Files as a person or a repository brings them."""
        self.project.mkdir(parents=True, exist_ok=True)
        text = record if isinstance(record, str) else json.dumps(record or {"format": 1, "schema": SCHEMA})
        (self.project / f"{name}.json").write_text(text)
        if source is not None:
            (self.project / f"{name}.js").write_text(source)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def simple(name: str, **more: Any) -> ComposedTool:
    return ComposedTool(name, "return 1;", {"type": "object"}, **more)


# ── keeping and finding ──────────────────────────────────────────────────────────────────────────────


def test_g3_a_saved_tool_is_two_files_and_comes_back_as_it_was(world: World) -> None:
    shelf: ComposedStore = world.shelf
    assert shelf.save(WORDS) == world.project / "count.words.js"
    assert (world.project / "count.words.js").read_text() == WORDS.source
    text = (world.project / "count.words.json").read_text()
    assert json.loads(text) == {
        "format": 1,
        "description": WORDS.description,
        "schema": SCHEMA,
        "grants": ["files.*", "shell"],
        "returns": {"type": "integer"},
    }
    assert text.startswith('{\n  "format": 1,\n')
    assert world.fresh().all() == [WORDS]
    assert world.fresh().problems() == []
    assert sorted(os.listdir(world.project)) == ["count.words.js", "count.words.json"]


def test_g3_looking_makes_no_folder(world: World) -> None:
    assert world.shelf.all() == []
    assert world.shelf.problems() == []
    assert world.shelf.uses(WORDS) == Uses()
    assert not world.project.exists()
    assert not world.user.exists()


def test_g3_saving_again_takes_the_place_of_the_old_one(world: World) -> None:
    world.shelf.save(WORDS)
    newer = replace(WORDS, source="return 2;", description="new", returns=None)
    world.shelf.save(newer)
    assert world.shelf.all() == [newer]


def test_g3_the_schema_may_be_any_mapping(world: World) -> None:
    world.shelf.save(replace(WORDS, schema=MappingProxyType(SCHEMA)))
    assert world.shelf.all() == [WORDS]


def test_g3_files_are_for_the_user_alone_in_his_folder_and_as_the_umask_says_in_the_project(world: World) -> None:
    old = os.umask(0o027)
    try:
        world.shelf.save(WORDS)
        world.shelf.save(replace(WORDS, everywhere=True))
    finally:
        os.umask(old)
    for ending in ("js", "json"):
        assert stat.S_IMODE((world.project / f"count.words.{ending}").stat().st_mode) == 0o640
        assert stat.S_IMODE((world.user / f"count.words.{ending}").stat().st_mode) == 0o600
    assert stat.S_IMODE(world.user.stat().st_mode) == 0o700


def test_g3_a_projects_tool_hides_the_users_and_that_is_told(world: World) -> None:
    world.shelf.save(replace(WORDS, everywhere=True))
    world.shelf.save(simple("other", everywhere=True))
    assert [tool.everywhere for tool in world.shelf.all()] == [True, True]
    world.shelf.save(WORDS)
    assert [(tool.name, tool.everywhere) for tool in world.shelf.all()] == [("count.words", False), ("other", True)]
    assert world.problem() == f"{world.user}/count.words.js: it is hidden by the project's own tool of the same name"


def test_g3_what_a_person_edits_is_seen_at_the_next_look(world: World) -> None:
    world.shelf.save(WORDS)
    assert world.shelf.all() == [WORDS]
    (world.project / "count.words.js").write_text("return 3;")
    assert world.shelf.all() == [replace(WORDS, source="return 3;")]
    (world.project / "count.words.json").write_text("{")
    assert world.shelf.all() == []
    assert "count.words.json is not JSON" in world.problem()
    (world.project / "count.words.json").unlink()
    assert world.problem().endswith("count.words.js has no count.words.json beside it")


def test_g3_what_has_not_changed_is_not_read_again(world: World) -> None:
    world.shelf.save(WORDS)
    world.shelf.save(simple("other"))
    before = {tool.name: tool for tool in world.shelf.all()}
    (world.project / "other.js").write_text("return 22;")
    after = {tool.name: tool for tool in world.shelf.all()}
    assert after["count.words"] is before["count.words"]
    assert after["other"].source == "return 22;"


# ── names ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["a", "a1_b", "a.b.c.d.e", "x" * 64, "file", "shells.run", "agents"])
def test_g3_a_good_name_is_taken(world: World, name: str) -> None:
    world.shelf.save(simple(name))
    assert world.names() == [name]


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a..b",
        ".a",
        "a.",
        "../a",
        "a/b",
        "a\\b",
        "/etc/passwd",
        "a\0b",
        "A",
        "toString",
        "1a",
        "_a",
        "__proto__",
        "a-b",
        "a b",
        "ä",
        "a\n",
        "x" * 65,
        "a.b.c.d.e.f",
        "constructor",
        "prototype",
        "then",
        "reports.then",
        "class",
        "await",
        "x.delete",
        "con",
        "nul",
        "com1.x",
        "lpt9",
        "a.aux",
        None,
        7,
    ],
)
def test_g3_a_bad_name_is_refused_and_told_what_a_name_looks_like(world: World, name: Any) -> None:
    for refused in (lambda: world.shelf.save(simple(name)), lambda: world.shelf.delete(name)):
        with pytest.raises(UsageError, match="cannot be the name") as raised:
            refused()
        assert not isinstance(raised.value, NotFound)
        assert "reports.weekly" in raised.value.advice[0]
    assert not world.project.exists()


@pytest.mark.parametrize("name", ["shell", "shell.more", "files", "files.read", "files.count", "agent"])
def test_g3_the_names_and_groups_of_other_tools_are_theirs(world: World, name: str) -> None:
    with pytest.raises(UsageError, match="cannot be named"):
        world.shelf.save(simple(name))
    world.write(name)
    assert world.names() == []
    assert "belongs to the tool" in world.problem()


@pytest.mark.parametrize("elsewhere", [False, True])
def test_g3_a_name_is_a_tool_or_a_group_of_tools_but_not_both(world: World, elsewhere: bool) -> None:
    world.shelf.save(simple("reports"))
    for name in ("reports.weekly", "reports.a.b"):
        with pytest.raises(UsageError, match="beside 'reports'"):
            world.shelf.save(simple(name, everywhere=elsewhere))
    world.shelf.save(simple("report.weekly"))
    with pytest.raises(UsageError, match=r"beside 'report\.weekly'"):
        world.shelf.save(simple("report", everywhere=elsewhere))
    world.write("reports.daily")
    assert world.names() == ["report.weekly", "reports"]
    assert "`reports` is a composed tool too" in world.problem()


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"source": ""}, "empty"),
        ({"source": " \n"}, "empty"),
        ({"source": "x" * (256 * 1024 + 1)}, "larger than 256 KiB"),
        ({"source": "'\ud800'"}, "Unicode"),
        ({"schema": {"type": "string"}}, "its schema"),
        ({"schema": {"type": "object", "properties": {"a": {"$ref": "https://example.com"}}}}, "points outside"),
        ({"returns": {"type": "nonsense"}}, "what it returns"),
        ({"description": "x" * 2001}, "longer than 2000"),
        ({"description": "\x1b[31mred"}, "control character"),
        ({"description": "a\0"}, "control character"),
        ({"description": "safe \u202e evil"}, "control character"),
        ({"description": "\ud800"}, "control character"),
        ({"description": "\U000e0041"}, "invisible"),
        ({"grants": ("x",) * 101}, "more than 100 grants"),
        ({"grants": ("files read",)}, "not the name of a tool"),
        ({"grants": ("",)}, "not the name of a tool"),
        ({"grants": (3,)}, "not the name of a tool"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_g3_what_cannot_be_used_is_not_saved(world: World, change: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        world.shelf.save(replace(WORDS, **change))
    assert not world.project.exists()


def test_g3_a_folder_that_cannot_be_made_is_told(world: World) -> None:
    world.project.parent.mkdir()
    world.project.write_text("in the way")
    with pytest.raises(UsageError, match=r"cannot save the composed tool count\.words"):
        world.shelf.save(WORDS)


# ── folders that came from strangers ─────────────────────────────────────────────────────────────────

GOOD = {"format": 1, "schema": SCHEMA}


@pytest.mark.parametrize(
    ("record", "said"),
    [
        ("", "not JSON"),
        ("[]", "not a mapping"),
        ("[" * 100_000, "not JSON"),
        ('{"format": 1, "schema": {"type": "object", "default": NaN}}', "not JSON"),
        ({"schema": SCHEMA}, "`format` is not 1"),
        ({**GOOD, "format": 2}, "newer Windlass"),
        ({**GOOD, "format": True}, "`format` is not 1"),
        ({**GOOD, "descripton": "x"}, "did you mean `description`?"),
        ({**GOOD, "zzz": "x"}, "there are: format"),
        ({**GOOD, "schema": []}, "not a mapping"),
        ({**GOOD, "schema": {"type": "object", "pattern": "(?=a)"}}, "pattern"),
        ({**GOOD, "grants": "files.*"}, "grants are not a list"),
        ({**GOOD, "grants": {"a": 1}}, "grants are not a list"),
        ({**GOOD, "description": 5}, "description is not text"),
        ({**GOOD, "returns": "text"}, "what it returns"),
        ({**GOOD, "description": "x" * 1024 * 1024}, "larger than 1024 KiB"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_g3_a_damaged_tool_is_told_with_its_file_and_harms_no_other(world: World, record: Any, said: str) -> None:
    world.shelf.save(WORDS)
    world.write("bad", record)
    assert world.names() == ["count.words"]
    assert said in world.problem()
    assert "bad" in world.problem()


def test_g3_a_program_that_is_too_large_or_no_text_is_a_problem(world: World) -> None:
    world.write("big", source="x" * (256 * 1024 + 1))
    world.write("bytes", source=None)
    (world.project / "bytes.js").write_bytes(b"\xff\xfe")
    world.write("alone", source=None)
    (world.project / "Name.js").write_text("return 1;")
    os.close(os.open(os.fsencode(world.project) + b"/\xff.js", os.O_CREAT))
    assert world.names() == []
    said = "\n".join(world.shelf.problems())
    for part in ("big.js is larger", "bytes.js is not UTF-8", "alone.json has no alone.js", "Name.js: this cannot be"):
        assert part in said
    assert len(world.shelf.problems()) == 5
    said.encode()


def test_g3_links_pipes_and_folders_are_problems_and_not_followed(world: World, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("return 'secret';")
    for name in ("out", "pipe", "folder", "record", "loop"):
        world.write(name)
    for name, made in (("out", secret), ("loop", world.project / "loop.js")):
        (world.project / f"{name}.js").unlink()
        (world.project / f"{name}.js").symlink_to(made)
    (world.project / "record.json").unlink()
    (world.project / "record.json").symlink_to("/dev/zero")
    (world.project / "pipe.js").unlink()
    os.mkfifo(world.project / "pipe.js")
    (world.project / "folder.js").unlink()
    (world.project / "folder.js").mkdir()
    world.shelf.save(WORDS)
    assert world.names() == ["count.words"]
    problems = world.shelf.problems()
    assert len(problems) == 5
    assert all(any(name in said for said in problems) for name in ("out", "pipe", "folder", "record", "loop"))
    assert "secret" not in str(problems).replace(str(tmp_path), "")


def test_g3_saving_over_a_link_replaces_the_link_and_not_what_it_leads_to(world: World, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    world.project.mkdir(parents=True)
    for file in ("count.words.js", "count.words.json", ".count.words.js.tmp", ".count.words.json.tmp"):
        (world.project / file).symlink_to(precious)
    world.shelf.save(WORDS)
    assert world.shelf.all() == [WORDS]
    world.shelf.delete("count.words")
    assert precious.read_text() == "mine"


def test_g3_a_projects_folder_that_is_a_link_is_not_used_and_the_users_may_be_one(world: World, tmp_path: Path) -> None:
    elsewhere = World(tmp_path / "elsewhere")
    elsewhere.shelf.save(WORDS)
    for place in (world.project, world.user):
        place.parent.mkdir(parents=True)
        place.symlink_to(elsewhere.project)
    assert [tool.everywhere for tool in world.shelf.all()] == [True]
    assert "links are not followed" in world.problem()
    for refused in (lambda: world.shelf.save(WORDS), lambda: world.shelf.delete("count.words", everywhere=False)):
        with pytest.raises(UsageError, match="links are not followed"):
            refused()
    world.shelf.used(WORDS, 1.0, failed=False)
    assert sorted(os.listdir(elsewhere.project)) == ["count.words.js", "count.words.json"]


def test_g3_a_folder_of_more_than_one_can_use_is_read_up_to_a_limit(world: World) -> None:
    for n in range(501):
        world.write(f"t{n:03}")
    assert len(world.names()) == 500
    assert "more than 500 tools" in world.problem()
    for n in range(40):
        world.write(f"t{n:03}", source="x" * 250 * 1024)
    assert "t000" in world.names()
    assert "t500" not in world.names()
    assert any("larger than 8 MiB" in said for said in world.shelf.problems())


# ── deleting ─────────────────────────────────────────────────────────────────────────────────────────


def test_g3_deleting_takes_both_files_and_the_uses(world: World) -> None:
    world.shelf.save(WORDS)
    world.shelf.used(WORDS, 5.0, failed=False)
    world.shelf.delete("count.words")
    assert world.names() == []
    assert [file for file in os.listdir(world.project) if "words" in file] == []
    world.shelf.save(WORDS)
    assert world.shelf.uses(WORDS) == Uses()


def test_g3_deleting_what_is_not_there_names_the_nearest(world: World) -> None:
    world.shelf.save(WORDS)
    with pytest.raises(NotFound) as raised:
        world.shelf.delete("count.word")
    assert raised.value.advice == ("did you mean 'count.words'?",)
    with pytest.raises(NotFound):
        world.shelf.delete("count.words", everywhere=True)


def test_g3_deleting_a_name_that_is_in_both_places_asks_which(world: World) -> None:
    world.shelf.save(WORDS)
    world.shelf.save(replace(WORDS, everywhere=True))
    with pytest.raises(UsageError, match="which"):
        world.shelf.delete("count.words")
    assert len(world.shelf.problems()) == 1
    world.shelf.delete("count.words", everywhere=False)
    assert [tool.everywhere for tool in world.shelf.all()] == [True]
    world.shelf.delete("count.words")
    assert world.shelf.all() == []


def test_g3_what_is_damaged_can_be_deleted(world: World) -> None:
    world.write("bad", "{", source=None)
    world.shelf.delete("bad")
    assert world.shelf.problems() == []


# ── uses ─────────────────────────────────────────────────────────────────────────────────────────────


def test_g3_uses_are_counted_with_failures_and_the_last_time(world: World) -> None:
    world.shelf.save(WORDS)
    assert world.shelf.uses(WORDS) == Uses()
    assert not (world.project / "uses.db").exists()
    for at, failed in ((10.0, False), (30.0, True), (20.0, False)):
        world.shelf.used(WORDS, at, failed=failed)
    assert world.fresh().uses(WORDS) == Uses(3, 1, 30.0)
    assert world.fresh().uses(simple("other")) == Uses()
    assert world.fresh().uses(replace(WORDS, everywhere=True)) == Uses(), "each place counts for itself"


COUNTING = """
import sys
from pathlib import Path
from windlass.ports.composed import ComposedTool
from windlass.tools.composed import FolderComposedStore
shelf = FolderComposedStore(Path(sys.argv[1]), Path(sys.argv[2]), lambda: ())
tool = ComposedTool("count.words", "return 1;", {"type": "object"})
print("ready", flush=True)
sys.stdin.readline()
for n in range(100):
    shelf.used(tool, float(n), failed=n % 10 == 0)
print(shelf.problems())
"""


def test_g3_two_processes_that_count_at_once_lose_nothing(world: World) -> None:
    world.shelf.save(WORDS)
    command = [sys.executable, "-c", COUNTING, str(world.project), str(world.user)]
    both = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    for process in both:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in both:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    for process in both:
        assert process.communicate(timeout=PATIENCE)[0] == "[]\n"
    assert world.shelf.uses(WORDS) == Uses(200, 20, 99.0)


def test_g3_threads_that_count_at_once_lose_nothing(world: World) -> None:
    world.shelf.save(WORDS)
    threads = [
        threading.Thread(target=lambda: [world.shelf.used(WORDS, 1.0, failed=False) for _ in range(25)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert world.shelf.uses(WORDS) == Uses(100, 0, 1.0)


def hostile_files(folder: Path, outside: Path) -> Iterator[tuple[str, Any]]:
    yield "link", lambda: (folder / "uses.db").symlink_to(outside)
    yield "wal link", lambda: (folder / "uses.db-wal").symlink_to(outside)
    yield "folder", lambda: (folder / "uses.db").mkdir()
    yield "no database", lambda: (folder / "uses.db").write_text("not a database, but long enough to be looked at" * 50)
    yield "trigger", lambda: _database(folder, "CREATE TRIGGER t AFTER INSERT ON uses BEGIN SELECT 1; END")
    yield "other table", lambda: _database(folder, "CREATE TABLE more (x)")


def _database(folder: Path, statement: str) -> None:
    db = sqlite3.connect(folder / "uses.db")
    db.execute("CREATE TABLE uses (name TEXT PRIMARY KEY, times, failed, last_at)")
    db.execute(statement)
    db.commit()
    db.close()


@pytest.mark.parametrize("kind", ["link", "wal link", "folder", "no database", "trigger", "other table"])
def test_g3_where_uses_cannot_be_counted_the_use_goes_on_and_the_problem_is_told(
    world: World, tmp_path: Path, kind: str
) -> None:
    outside = tmp_path / "outside"
    outside.write_text("")
    world.shelf.save(WORDS)
    dict(hostile_files(world.project, outside))[kind]()
    world.shelf.used(WORDS, 1.0, failed=False)
    assert world.shelf.all() == [WORDS]
    assert "uses cannot be counted" in world.problem()
    assert world.shelf.uses(WORDS) == Uses()
    assert outside.read_text() == ""
    for file in world.project.glob("uses.db*"):
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
    world.shelf.used(WORDS, 2.0, failed=False)
    assert world.shelf.problems() == []
    assert world.shelf.uses(WORDS) == Uses(1, 0, 2.0)


def test_g3_a_folder_that_is_gone_loses_counts_and_is_not_made_again(world: World) -> None:
    world.shelf.used(WORDS, 1.0, failed=False)
    assert not world.project.exists()
    assert "uses cannot be counted" in world.problem()


# ── killed in the middle ─────────────────────────────────────────────────────────────────────────────

SAVING = """
import sys
from pathlib import Path
from windlass.ports.composed import ComposedTool
from windlass.tools.composed import FolderComposedStore
shelf = FolderComposedStore(Path(sys.argv[1]), Path(sys.argv[2]), lambda: ())
shelf.save(ComposedTool("count.words", "return 'new';", {"type": "object"}))
"""


@pytest.mark.parametrize("before", [False, True], ids=["new", "in the place of another"])
def test_g3_a_kill_between_the_two_renames_is_told_and_mended_by_saving_again(world: World, before: bool) -> None:
    if before:
        world.shelf.save(WORDS)
    done = subprocess.run(
        [sys.executable, "-c", SAVING, str(world.project), str(world.user)],
        env={**os.environ, "WINDLASS_FAULT": "composed.between:1"},
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert world.shelf.all() == []
    assert "interrupted" in world.problem()
    world.shelf.save(WORDS)
    assert world.shelf.all() == [WORDS]
    assert world.shelf.problems() == []
    assert not list(world.project.glob(".*.tmp"))


def test_g3_a_kill_before_the_first_rename_leaves_the_old_pair(world: World) -> None:
    world.shelf.save(WORDS)
    (world.project / ".count.words.js.tmp").write_text("return 'half")
    assert world.shelf.all() == [WORDS]
    (world.project / ".count.words.json.tmp").write_text("{}")
    assert world.shelf.all() == [WORDS]
    assert world.shelf.problems() == []
