"""H2: what each file tool does, and what it says when it cannot."""

from __future__ import annotations

import base64
import hashlib
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from file_world import TOOLS, World

from windlass.errors import Category
from windlass.plan.model import Effect
from windlass.ports import Tool
from windlass.tools.files.place import MAX_DEPTH
from windlass.tools.files.tools import file_tools


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


# --- the port ---


def test_there_is_one_tool_for_each_deed_and_each_keeps_the_port() -> None:
    tools: list[Tool] = file_tools()
    assert sorted(tool.name for tool in tools) == [
        "files.apply", "files.copy", "files.delete", "files.edit", "files.list", "files.move", "files.patch",
        "files.read", "files.search", "files.write",
    ]  # fmt: skip
    for tool in tools:
        assert tool.description
        assert tool.schema["additionalProperties"] is False
        looks = tool.name in ("files.read", "files.list", "files.search")
        assert tool.effect({}) is (Effect.NONE if looks else Effect.REPEATABLE)


COMPLAINTS: list[tuple[str, dict[str, Any], list[str]]] = [
    ("read", {}, ["path is missing"]),
    ("read", {"path": 3}, ["path must be text"]),
    ("read", {"path": "x", "ofset": 3}, ["ofset is not known here: did you mean offset?"]),
    ("read", {"path": "x", "max_bytes": "many"}, ["max_bytes must be a whole number, not 'many'"]),
    ("read", {"path": "x", "max_bytes": 0}, ["max_bytes must be at least 1"]),
    ("read", {"path": "x", "max_bytes": 1 << 40}, ["max_bytes must be at most 67108864"]),
    ("write", {"path": "x"}, ["content is missing"]),
    ("edit", {"path": "x", "edits": [{"old": "\ud800", "new": ""}]}, ["edits[0].old is not valid Unicode text"]),
    ("write", {"path": "x", "content": "", "mode": "w"}, ["mode must be 'overwrite', 'create' or 'append'"]),
    ("write", {"path": "x", "content": "", "permissions": "4755"}, ["permissions must look like 0644"]),
    ("write", {"path": "x", "content": "", "make_parents": "?"}, ["make_parents must be true or false, not '?'"]),
    ("edit", {"path": "x", "edits": []}, ["edits must not be empty"]),
    ("edit", {"path": "x", "edits": "no"}, ["edits must be a list"]),
    ("edit", {"path": "x", "edits": ["no"]}, ["edits[0] must be a mapping of arguments"]),
    ("edit", {"path": "x", "edits": [{"old": "", "new": ""}]}, ["edits[0].old must not be empty"]),
    ("edit", {"path": "x", "edits": [{"old": "a", "nw": ""}]},
     ["edits[0].new is missing", "edits[0].nw is not known here: did you mean new?"]),
    ("list", {"glob": "src/*.py"}, ["a glob with / in it needs recursive: true"]),
    ("list", {"glob": "x" * 1001}, ["glob is longer than 1000 characters"]),
    ("move", {"from": "x"}, ["to is missing"]),
    ("move", {"source": "x", "to": "y"}, ["from is missing", "source is not known here"]),
    ("copy", {"from": "x"}, ["to is missing"]),
    ("patch", {}, ["patch is missing"]),
    ("patch", {"patch": ""}, ["patch must not be empty"]),
    ("patch", {"patch": "x", "fuzz": 3}, ["fuzz must be at most 2"]),
    ("search", {"path": "x"}, ["pattern is missing"]),
    ("search", {"pattern": "x", "context": 11}, ["context must be at most 10"]),
    ("search", {"pattern": "x" * 1001}, ["pattern is longer than 1000 characters"]),
    ("apply", {"changes": [{"path": "x"}]}, ["changes[0].do is missing: one of write, edit, move, delete"]),
    ("apply", {"changes": [{"do": "read"}]}, ["changes[0].do must be one of write, edit, move, delete"]),
    ("apply", {"changes": [{"do": "move", "from": "a"}]}, ["changes[0].to is missing"]),
    ("apply", {"changes": [{"do": "delete", "path": "x"}] * 1001}, ["changes has more than 1000 entries"]),
]  # fmt: skip


@pytest.mark.parametrize(("tool", "arguments", "sentences"), COMPLAINTS)
async def test_wrong_arguments_are_all_named_in_plain_words_and_nothing_runs(
    world: World, tool: str, arguments: dict[str, Any], sentences: list[str]
) -> None:
    assert TOOLS[f"files.{tool}"].validate(arguments) == sentences
    before = world.inside()
    failure = await world.fail(tool, arguments)
    assert failure.category is Category.CONFIGURATION
    assert all(sentence in failure.message for sentence in sentences)
    assert world.inside() == before


async def test_a_working_directory_that_is_not_there_is_a_clear_error(world: World) -> None:
    world.root = world.root / "gone"
    failure = await world.fail("list", {})
    assert failure.category is Category.CONFIGURATION
    assert "working directory" in failure.message


# --- read ---


async def test_read_returns_text_its_size_and_its_hash(world: World) -> None:
    world.write("t", "grüße\r\n")
    data = "grüße\r\n".encode()
    assert await world.do("read", {"path": "t"}) == {
        "path": "t", "content": "grüße\r\n", "bytes": 9, "truncated": False, "sha256": sha(data), "size": 9,
    }  # fmt: skip


async def test_reading_piece_by_piece_never_cuts_a_character_and_loses_none(world: World) -> None:
    text = "aé€😀" * 50
    world.write("t", text)
    for limit in (4, 5, 6, 7, 100):
        got, offset = "", 0
        while True:
            piece = await world.do("read", {"path": "t", "max_bytes": limit, "offset": offset})
            got, offset = got + piece["content"], offset + piece["bytes"]
            assert piece["bytes"] <= limit
            if not piece["truncated"]:
                break
        assert got == text


@pytest.mark.parametrize(
    ("encoding", "mark", "bare"),
    [
        ("utf-16", b"\xff\xfe", "utf-16-le"),
        ("U16", b"\xfe\xff", "utf-16-be"),
        ("utf-32", b"\xff\xfe\0\0", "utf-32-le"),
        ("utf-32", b"\0\0\xfe\xff", "utf-32-be"),
        ("utf-8-sig", b"\xef\xbb\xbf", "utf-8"),
        ("utf-8-sig", b"", "utf-8"),
        ("utf-16-be", b"", "utf-16-be"),
        ("gb18030", b"", "gb18030"),
    ],
)
async def test_h2_a_file_is_read_piece_by_piece_in_every_encoding(
    world: World, encoding: str, mark: bytes, bare: str
) -> None:
    text = "aé€😀b\ufeffc\n" * 5
    (world.root / "t").write_bytes(mark + text.encode(bare))
    for limit in (4, 5, 6, 7, 100):
        got, offset, more = "", 0, True
        while more:
            piece = await world.do("read", {"path": "t", "encoding": encoding, "max_bytes": limit, "offset": offset})
            got, offset, more = got + piece["content"], offset + piece["bytes"], piece["truncated"]
        assert got == text


async def test_h2_a_read_that_cannot_give_whole_characters_says_so(world: World) -> None:
    (world.root / "t").write_bytes("a€".encode("utf-16"))
    wrong = {"path": "t", "encoding": "utf-16", "offset": 3}
    assert "from byte 3 on: it is in the middle of a character" in (await world.fail("read", wrong)).message
    failure = await world.fail("read", {**wrong, "offset": 2, "max_bytes": 1})
    assert (failure.message, failure.advice) == ("'t' has no whole character in 1 bytes", ("raise max_bytes",))
    (world.root / "t").write_bytes("日本語".encode("iso-2022-jp"))
    shifted = {"path": "t", "encoding": "iso-2022-jp"}
    assert (await world.do("read", shifted))["content"] == "日本語"
    for more in ({"offset": 3}, {"max_bytes": 6}):
        assert "in one piece alone" in (await world.fail("read", {**shifted, **more})).message


async def test_reading_beyond_the_end_is_empty(world: World) -> None:
    result = await world.do("read", {"path": "note.txt", "offset": 1000})
    assert (result["content"], result["bytes"], result["truncated"]) == ("", 0, False)


async def test_binary_files_are_refused_with_advice_and_readable_as_base64(world: World) -> None:
    data = bytes(range(256))
    (world.root / "b").write_bytes(data)
    failure = await world.fail("read", {"path": "b"})
    assert failure.category is Category.CONFIGURATION
    assert "base64" in failure.advice[0]
    result = await world.do("read", {"path": "b", "encoding": "base64"})
    assert base64.b64decode(result["content"]) == data
    assert (await world.do("read", {"path": "b", "encoding": "latin-1"}))["content"] == data.decode("latin-1")


@pytest.mark.parametrize("encoding", ["no-such", "zip", "rot13", "", "utf-8\0"])
async def test_an_unknown_encoding_is_a_clear_error(world: World, encoding: str) -> None:
    for tool, more in (("read", {}), ("write", {"content": "x"})):
        failure = await world.fail(tool, {"path": "note.txt", "encoding": encoding, **more})
        assert failure.category is Category.CONFIGURATION
        assert "encoding" in failure.message


async def test_a_missing_file_is_named_with_the_nearest_name(world: World) -> None:
    failure = await world.fail("read", {"path": "a/oen.txt"})
    assert failure.category is Category.CONFIGURATION
    assert "'one.txt'" in failure.message
    failure = await world.fail("read", {"path": "aa/one.txt"})
    assert "no 'aa'; the nearest name there is 'a'" in failure.message


async def test_reduced_usage_halves_what_is_read(world: World) -> None:
    world.write("big", "x" * 100)
    assert (await world.do("read", {"path": "big", "max_bytes": 80}, reduced=2))["bytes"] == 20


# --- write ---


async def test_write_creates_with_parents_and_reports_what_is_on_disk(world: World) -> None:
    result = await world.do("write", {"path": "new/deep/file.txt", "content": "hé"})
    assert result == {"path": "new/deep/file.txt", "bytes": 3, "sha256": sha("hé".encode()), "created": True}
    assert (world.root / "new/deep/file.txt").read_text() == "hé"
    again = await world.do("write", {"path": "new/deep/file.txt", "content": ""}, attempt=2)
    assert (again["created"], again["bytes"]) == (False, 0)
    assert not world.litter()


async def test_write_without_make_parents_needs_the_folder(world: World) -> None:
    failure = await world.fail("write", {"path": "b/file", "content": "", "make_parents": False})
    assert failure.category is Category.CONFIGURATION


async def test_mode_create_never_replaces(world: World) -> None:
    failure = await world.fail("write", {"path": "note.txt", "content": "x", "mode": "create"})
    assert failure.category is Category.CONFIGURATION
    assert "exists already" in failure.message
    assert (world.root / "note.txt").read_text() == "a note\n"


async def test_append_adds_to_the_end_and_creates_when_there_is_nothing(world: World) -> None:
    result = await world.do("write", {"path": "note.txt", "content": "more", "mode": "append"})
    assert (world.root / "note.txt").read_text() == "a note\nmore"
    assert (result["bytes"], result["sha256"]) == (11, sha(b"a note\nmore"))
    assert (await world.do("write", {"path": "fresh", "content": "x", "mode": "append"}, step="t"))["created"]


async def test_a_rewritten_file_keeps_its_mode_and_a_new_one_gets_the_umask(world: World) -> None:
    file = world.write("script", "old")
    file.chmod(0o750)
    await world.do("write", {"path": "script", "content": "new"})
    assert file.stat().st_mode & 0o7777 == 0o750
    await world.do("edit", {"path": "script", "edits": [{"old": "new", "new": "newer"}]}, step="t")
    assert file.stat().st_mode & 0o7777 == 0o750
    old = os.umask(0o027)
    try:
        await world.do("write", {"path": "fresh", "content": ""}, step="u")
    finally:
        os.umask(old)
    assert (world.root / "fresh").stat().st_mode & 0o7777 == 0o640


@pytest.mark.parametrize(("text", "mode"), [("0600", 0o600), ("755", 0o755), ("000", 0)])
async def test_permissions_are_set_when_asked_for(world: World, text: str, mode: int) -> None:
    for path in ("fresh", "note.txt"):
        await world.do("write", {"path": path, "content": "", "permissions": text}, step=path)
        assert (world.root / path).stat().st_mode & 0o7777 == mode


async def test_a_rewritten_file_is_not_setuid_any_more(world: World) -> None:
    file = world.write("tool", "old")
    file.chmod(0o6755)
    await world.do("write", {"path": "tool", "content": "new"})
    assert file.stat().st_mode & 0o7777 == 0o755


@pytest.mark.skipif(os.geteuid() != 0, reason="giving files away needs root")
async def test_root_leaves_a_rewritten_file_to_its_owner(world: World) -> None:
    os.chown(world.root / "note.txt", 12345, 12346)
    await world.do("write", {"path": "note.txt", "content": "new"})
    found = (world.root / "note.txt").stat()
    assert (found.st_uid, found.st_gid) == (12345, 12346)


async def test_bytes_are_written_from_base64_and_text_in_other_encodings(world: World) -> None:
    await world.do("write", {"path": "b", "content": base64.b64encode(b"\xff\0").decode(), "encoding": "base64"})
    assert (world.root / "b").read_bytes() == b"\xff\0"
    await world.do("write", {"path": "l", "content": "é", "encoding": "latin-1"}, step="t")
    assert (world.root / "l").read_bytes() == b"\xe9"
    for content, encoding in (("no base64!", "base64"), ("é", "base64"), ("€", "latin-1"), ("\ud800", "utf-8")):
        failure = await world.fail("write", {"path": "b", "content": content, "encoding": encoding})
        assert failure.category is Category.CONFIGURATION


async def test_a_reader_sees_the_old_or_the_new_content_and_nothing_between(world: World) -> None:
    size = 300_000
    file = world.write("f", "0" * size)
    stop, torn = threading.Event(), list[str]()

    def look() -> None:
        while not stop.is_set():
            text = file.read_text()
            if len(text) != size or len(set(text)) != 1:
                torn.append(text[:10])

    reader = threading.Thread(target=look)
    reader.start()
    for number in range(20):
        await world.do("write", {"path": "f", "content": str(number % 10) * size}, step=f"s{number}")
    stop.set()
    reader.join()
    assert not torn


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "utf-8-sig", "utf-16-le", "utf-8", "base64"])
async def test_h2_what_is_appended_has_no_byte_order_mark_of_its_own(world: World, encoding: str) -> None:
    (world.root / "t").touch()
    for content in ("YQ==", "Yg=="):
        await world.do("write", {"path": "t", "content": content, "encoding": encoding, "mode": "append"})
    found = await world.do("read", {"path": "t", "encoding": encoding})
    assert found["content"] == ("YWI=" if encoding == "base64" else "YQ==Yg==")


# --- edit ---


async def test_edit_replaces_in_order_and_counts(world: World) -> None:
    world.write("f", "one two two three\n")
    result = await world.do(
        "edit",
        {
            "path": "f",
            "edits": [
                {"old": "one", "new": "1"},
                {"old": "two", "new": "2", "all": True},
                {"old": "1 2", "new": "12"},
            ],
        },
    )
    assert result["replacements"] == [1, 2, 1]
    assert (world.root / "f").read_text() == "12 2 three\n"


async def test_an_edit_that_is_ambiguous_says_how_often_and_changes_nothing(world: World) -> None:
    world.write("f", "x = 1\nx = 1\nx = 1\n")
    edits = [{"old": "x = 1\nx", "new": "y"}]
    failure = await world.fail("edit", {"path": "f", "edits": edits})
    assert "edit 1: the text to replace occurs 2 times" in failure.message  # overlapping ones count
    assert failure.category is Category.CONFIGURATION
    assert (world.root / "f").read_text() == "x = 1\nx = 1\nx = 1\n"


async def test_an_edit_that_finds_nothing_names_the_nearest_line_and_undoes_the_others(world: World) -> None:
    world.write("f", "first\n    def total(items):\n        return 0\n")
    edits = [{"old": "first", "new": "1st"}, {"old": "def totals(items):\n", "new": ""}]
    failure = await world.fail("edit", {"path": "f", "edits": edits})
    assert "edit 2" in failure.message
    assert "the nearest is line 2: 'def total(items):'" in failure.message
    assert (world.root / "f").read_text().startswith("first")


async def test_edit_keeps_windows_line_endings(world: World) -> None:
    world.write("f", "one\r\ntwo\r\nthree\r\n")
    await world.do("edit", {"path": "f", "edits": [{"old": "one\ntwo", "new": "1\n2"}]})
    assert (world.root / "f").read_bytes() == b"1\r\n2\r\nthree\r\n"
    await world.do("edit", {"path": "f", "edits": [{"old": "three", "new": "3\r\n4\n5"}]}, step="t")
    assert (world.root / "f").read_bytes() == b"1\r\n2\r\n3\r\n4\r\n5\r\n"


async def test_edit_takes_mixed_line_endings_and_a_byte_order_mark_as_they_are(world: World) -> None:
    world.write("f", "\ufeffone\r\ntwo\nthree")
    await world.do("edit", {"path": "f", "edits": [{"old": "two\n", "new": "2\n"}]})
    assert (world.root / "f").read_bytes() == "\ufeffone\r\n2\nthree".encode()


async def test_edit_refuses_what_is_not_text_or_not_there(world: World) -> None:
    (world.root / "b").write_bytes(b"\xff\xfe")
    for path in ("b", "nothing"):
        failure = await world.fail("edit", {"path": path, "edits": [{"old": "a", "new": "b"}]})
        assert failure.category is Category.CONFIGURATION


# --- list ---


def paths(result: dict[str, Any]) -> list[str]:
    return [entry["path"] for entry in result["entries"]]


async def test_list_shows_what_is_there_in_order_with_kind_size_and_time(world: World) -> None:
    (world.root / "link").symlink_to("note.txt")
    (world.root / ".hidden").write_text("")
    os.mkfifo(world.root / "pipe")
    os.utime(world.root / "note.txt", (0, 1_000_000_000))
    result = await world.do("list", {})
    assert result["path"] == "."
    assert not result["truncated"]
    assert [(e["path"], e["type"], e["bytes"]) for e in result["entries"]] == [
        (".hidden", "file", 0),
        ("a", "directory", 0),
        ("link", "link", 0),
        ("note.txt", "file", 7),
        ("pipe", "other", 0),
    ]
    assert result["entries"][3]["modified"] == "2001-09-09T01:46:40.000Z"


async def test_listing_all_beneath_does_not_follow_links(world: World) -> None:
    (world.root / "a/up").symlink_to("..")
    assert paths(await world.do("list", {"path": "a", "recursive": True})) == ["a/b", "a/one.txt", "a/up"]


@pytest.mark.parametrize(
    ("glob", "found"),
    [
        ("*.py", ["m.py", "src/m.py", "src/pkg/m.py", "src/pkg/n.py"]),
        ("m.?y", ["m.py", "src/m.py", "src/pkg/m.py"]),
        ("[!m].py", ["src/pkg/n.py"]),
        ("[m-n].p[xy]", ["m.py", "src/m.py", "src/pkg/m.py", "src/pkg/n.py"]),
        ("src/*.py", ["src/m.py"]),
        ("src/**/*.py", ["src/m.py", "src/pkg/m.py", "src/pkg/n.py"]),
        ("**/pkg/*", ["src/pkg/m.py", "src/pkg/n.py"]),
        ("src/**", ["src/m.py", "src/pkg", "src/pkg/m.py", "src/pkg/n.py"]),
        ("{m,n}.py", ["m.py", "src/m.py", "src/pkg/m.py", "src/pkg/n.py"]),
        ("*.{md,p{y,z}}", ["m.py", "src/m.py", "src/pkg/m.py", "src/pkg/n.py"]),
        ("src/{pkg/n,m}.py", ["src/m.py", "src/pkg/n.py"]),
        ("{m}.py", []),
        ("{m,n", []),
        ("{a,b}" * 7, None),
        ("[", []),
        ("(m|n).py", []),
        ("[z-a].py", None),
    ],
)
async def test_a_glob_chooses_by_name_or_by_path(world: World, glob: str, found: list[str] | None) -> None:
    for path in ("m.py", "src/m.py", "src/pkg/m.py", "src/pkg/n.py"):
        world.write(path, "")
    arguments = {"glob": glob, "recursive": True}
    if found is None:
        assert (await world.fail("list", arguments)).category is Category.CONFIGURATION
    else:
        assert paths(await world.do("list", arguments)) == found


async def test_list_stops_at_the_limit_and_says_so(world: World) -> None:
    for number in range(20):
        world.write(f"many/{number:02}", "")
    result = await world.do("list", {"path": "many", "max_entries": 5})
    assert (paths(result), result["truncated"]) == ([f"many/0{n}" for n in range(5)], True)
    assert not (await world.do("list", {"path": "many", "max_entries": 20}))["truncated"]


async def test_a_name_that_is_not_utf8_is_listed_all_the_same(world: World) -> None:
    os.mkdir(os.fsencode(world.root) + b"/\xff")
    assert "\\xff" in paths(await world.do("list", {}))


async def test_a_file_is_not_listed_and_a_missing_folder_is_named(world: World) -> None:
    assert "not a directory" in (await world.fail("list", {"path": "note.txt"})).message
    assert "'a'" in (await world.fail("list", {"path": "aa"})).message


def nest(folder: Path, depth: int) -> None:
    fd = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        inner = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = inner
    os.close(fd)


async def test_a_tree_that_is_nested_too_deep_is_refused_and_not_walked_into_the_ground(world: World) -> None:
    nest(world.root, 400)
    calls: list[tuple[str, dict[str, Any]]] = [
        ("delete", {"path": "d", "recursive": True}),
        ("move", {"from": "d", "to": "e"}),
        ("copy", {"from": "d", "to": "e"}),
    ]
    for tool, arguments in calls:
        failure = await world.fail(tool, arguments)
        assert failure.category is Category.RESOURCE
        assert "deep" in failure.message


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1])
async def test_h2_what_is_nested_too_deep_is_left_out_and_said_to_be(world: World, depth: int) -> None:
    (world.root / "top").mkdir()
    nest(world.root / "top", depth)
    (world.root / "top" / "here.txt").write_text("found")
    (world.root / "top" / Path(*["d"] * depth) / "deep.txt").write_text("found")
    deeper = depth > MAX_DEPTH
    listed = await world.do("list", {"path": "top", "recursive": True})
    assert (len(listed["entries"]), listed["truncated"]) == (depth + (1 if deeper else 2), deeper)
    found = await world.do("search", {"path": "top", "pattern": "found"})
    assert len(found["matches"]) == (1 if deeper else 2)
    assert found["skipped"]["unreadable"] == deeper
    assert not (await world.do("list", {"path": "top/d", "recursive": True}))["truncated"]
    copied = {"from": "top", "to": "copy"}
    if deeper:
        assert (await world.fail("copy", copied)).category is Category.RESOURCE
    else:
        assert (await world.do("copy", copied))["entries"] == depth + 3


# --- move and delete ---


async def test_move_renames_files_links_and_folders_and_makes_parents(world: World) -> None:
    result = await world.do("move", {"from": "note.txt", "to": "x/y/moved.txt"})
    assert result == {"from": "note.txt", "to": "x/y/moved.txt", "type": "file", "replaced": False}
    await world.do("move", {"from": "a/", "to": "x/a"}, step="t")
    assert (world.root / "x/a/one.txt").read_text() == "one\n"
    assert not (world.root / "a").exists()


async def test_move_replaces_only_when_told_and_never_a_folder(world: World) -> None:
    failure = await world.fail("move", {"from": "note.txt", "to": "a/one.txt"})
    assert "exists already" in failure.message
    failure = await world.fail("move", {"from": "note.txt", "to": "a", "overwrite": True})
    assert "a/note.txt" in failure.advice[0]
    result = await world.do("move", {"from": "note.txt", "to": "a/one.txt", "overwrite": True})
    assert result["replaced"]
    assert (world.root / "a/one.txt").read_text() == "a note\n"
    result = await world.do("move", {"from": "a", "to": "plain", "overwrite": True}, step="t")
    assert (world.root / "plain").is_dir()


async def test_a_folder_can_take_a_files_place(world: World) -> None:
    await world.do("move", {"from": "a", "to": "note.txt", "overwrite": True})
    assert (world.root / "note.txt/one.txt").read_text() == "one\n"


async def test_moving_onto_another_name_of_the_same_file_leaves_one(world: World) -> None:
    os.link(world.root / "note.txt", world.root / "twin")
    await world.do("move", {"from": "note.txt", "to": "twin", "overwrite": True})
    assert not (world.root / "note.txt").exists()
    assert (world.root / "twin").read_text() == "a note\n"


@pytest.mark.parametrize(("source", "to"), [("a", "a/b/c"), ("a", "a/x/y"), ("a", "a"), ("note.txt", "note.txt")])
async def test_nothing_is_moved_into_itself(world: World, source: str, to: str) -> None:
    before = world.inside()
    assert (await world.fail("move", {"from": source, "to": to, "overwrite": True})).category is (
        Category.CONFIGURATION
    )
    assert world.inside() == before


async def test_delete_asks_for_recursive_and_forgives_only_when_told(world: World) -> None:
    assert "2 inside" in (await world.fail("delete", {"path": "a"})).message
    assert (await world.do("delete", {"path": "a/b"}))["type"] == "directory"
    assert (await world.do("delete", {"path": "a", "recursive": True}, step="t"))["deleted"]
    assert not (world.root / "a").exists()
    assert (await world.fail("delete", {"path": "a"})).category is Category.CONFIGURATION
    for path in ("a", "a/b/c"):
        result = await world.do("delete", {"path": path, "missing_ok": True}, step=path)
        assert result == {"path": path, "deleted": False, "type": None}


# --- apply ---


async def test_apply_makes_all_changes_in_order(world: World) -> None:
    result = await world.do(
        "apply",
        {
            "changes": [
                {"do": "write", "path": "n/new.txt", "content": "new"},
                {"do": "edit", "path": "n/new.txt", "edits": [{"old": "new", "new": "newer"}]},
                {"do": "move", "from": "n", "to": "m"},
                {"do": "move", "from": "m/new.txt", "to": "note.txt", "overwrite": True},
                {"do": "delete", "path": "m"},
            ]
        },
    )
    assert [change["do"] for change in result["changes"]] == ["write", "edit", "move", "move", "delete"]
    assert (world.root / "note.txt").read_text() == "newer"
    assert not (world.root / "m").exists()
    assert not world.litter()
