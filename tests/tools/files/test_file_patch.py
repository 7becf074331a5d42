"""H2: `files.patch` applies a unified diff whole or not at all, and says what does not fit."""

from __future__ import annotations

import difflib
import hashlib
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from file_world import World
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import Category, ToolError
from windlass.tools.files.diff_text import read_diff
from windlass.tools.files.patch import fit

CODE = "".join(f"line {number}\n" for number in range(1, 31))


def diff(old: str, new: str, path: str = "f", context: int = 3) -> str:
    """What `diff -u` says of two texts."""
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), f"a/{path}", f"b/{path}", n=context
    )
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


def run(*command: str, text: str = "") -> str:
    return subprocess.run(command, input=text, text=True, check=True, capture_output=True).stdout


def make_large(path: Path, size: int) -> None:
    with open(path, "wb") as file:
        file.truncate(size)


async def apply(world: World, patch: str, **more: Any) -> list[dict[str, Any]]:
    files: list[dict[str, Any]] = (await world.do("patch", {"patch": patch, **more}))["files"]
    return files


# --- what it does ---


async def test_h2_a_patch_of_several_files_is_applied_and_says_what_became_of_each(world: World) -> None:
    world.write("f", CODE).chmod(0o640)
    changed = CODE.replace("line 5\n", "LINE 5\n").replace("line 25\n", "")
    made = "--- /dev/null\n+++ b/new/deep/g\n@@ -0,0 +1,2 @@\n+one\n+two\n"
    gone = "--- a/note.txt\n+++ /dev/null\n@@ -1 +0,0 @@\n-a note\n"
    told = await apply(world, diff(CODE, changed) + made + gone)
    assert (world.root / "f").read_text() == changed
    assert (world.root / "f").stat().st_mode & 0o777 == 0o640
    assert (world.root / "new/deep/g").read_text() == "one\ntwo\n"
    assert not (world.root / "note.txt").exists()
    sha = hashlib.sha256(changed.encode()).hexdigest()
    assert told[0] == {
        "path": "f", "change": "modified", "from": None, "hunks": 2, "offset": 0, "fuzz": 0,
        "bytes": len(changed), "sha256": sha,
    }  # fmt: skip
    assert [(file["path"], file["change"]) for file in told[1:]] == [
        ("new/deep/g", "created"),
        ("note.txt", "deleted"),
    ]
    assert not world.litter()


GIT = """\
From 1234 Mon Sep 17 00:00:00 2001
Subject: [PATCH] what people write around a patch
---
 a/one.txt | 2 +-
 3 files changed

diff --git a/a/one.txt b/moved to/zwei ü.txt
similarity index 60%
rename from a/one.txt
rename to "moved to/zwei \\303\\274.txt"
index 1234567..89abcde 100644
--- a/a/one.txt
+++ "b/moved to/zwei \\303\\274.txt"
@@ -1 +1 @@ def section():
-one
+two
diff --git a/note.txt b/note.txt
old mode 100644
new mode 100755
diff --git a/empty b/empty
new file mode 100644
index 0000000..e69de29
diff --git a/run.sh b/run.sh
new file mode 100755
index 0000000..1234567
--- /dev/null
+++ b/run.sh
@@ -0,0 +1 @@
+#!/bin/sh
diff --git a/note.txt b/copy.txt
similarity index 100%
copy from note.txt
copy to copy.txt
-- \n2.40.0
"""


async def test_h2_headers_of_git_are_understood_renames_copies_modes_and_empty_files_included(world: World) -> None:
    (world.root / "a/one.txt").chmod(0o600)
    told = await apply(world, GIT)
    assert [file["change"] for file in told] == ["renamed", "modified", "created", "created", "copied"]
    assert told[0]["from"] == "a/one.txt"
    assert not (world.root / "a/one.txt").exists()
    moved = world.root / "moved to/zwei ü.txt"
    assert (moved.read_text(), moved.stat().st_mode & 0o777) == ("two\n", 0o600)
    assert (world.root / "note.txt").stat().st_mode & 0o777 == 0o755
    assert (world.root / "empty").read_bytes() == b""
    assert (world.root / "run.sh").stat().st_mode & 0o777 == 0o755
    assert (world.root / "copy.txt").read_text() == "a note\n"


async def test_h2_what_git_itself_says_of_two_folders_makes_the_one_the_other(world: World) -> None:
    if shutil.which("git") is None:
        pytest.skip("there is no git here")
    world.write("r/keep.txt", CODE)
    world.write("r/gone.txt", "gone\n")
    world.write("r/old name.txt", CODE * 2)
    world.write("r/no newline", "a\nb")
    git = ["git", "-C", str(world.root / "r"), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "core.fileMode=true"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "x"]):
        run(*git, *command)
    world.write("r/keep.txt", CODE.replace("line 3\n", "").replace("line 20\n", "line 20\nmore\n"))
    (world.root / "r/gone.txt").unlink()
    (world.root / "r/old name.txt").rename(world.root / "r/new näme.txt")
    world.write("r/new näme.txt", (CODE * 2).replace("line 9\n", "nine\n", 1)).chmod(0o755)
    world.write("r/no newline", "a\nc")
    world.write("r/fresh/x", "x")
    run(*git, "add", "-A")
    text = run(*git, "diff", "--cached", "-M")
    wanted = {p: p.read_bytes() for p in (world.root / "r").rglob("*") if p.is_file() and ".git" not in p.parts}
    run(*git, "reset", "-q", "--hard")
    world.root = world.root / "r"
    await apply(world, text)
    assert {p: p.read_bytes() for p in world.root.rglob("*") if p.is_file() and ".git" not in p.parts} == wanted
    assert (world.root / "new näme.txt").stat().st_mode & 0o111


async def test_h2_a_hunk_that_moved_is_found_and_says_how_far(world: World) -> None:
    world.write("f", "before\n" * 7 + CODE)
    told = await apply(world, diff(CODE, CODE.replace("line 15\n", "x\n")))
    assert told[0]["offset"] == 7
    assert (world.root / "f").read_text() == "before\n" * 7 + CODE.replace("line 15\n", "x\n")


async def test_h2_the_nearest_of_several_places_is_taken(world: World) -> None:
    block = "a\nb\nc\n"
    world.write("f", block * 9)
    patch = "--- f\n+++ f\n@@ -14,2 +14,2 @@\n-b\n+B\n c\n"
    await apply(world, patch)
    assert (world.root / "f").read_text() == block * 4 + "a\nB\nc\n" + block * 4


async def test_h2_fuzz_is_refused_by_default_and_used_when_asked_for(world: World) -> None:
    patch = diff(CODE, CODE.replace("line 15\n", "x\n"))
    world.write("f", CODE.replace("line 12\n", "other 12\n"))
    failure = await world.fail("patch", {"patch": patch})
    assert "line 12 should be 'line 12', but it is 'other 12'" in failure.message
    told = await apply(world, patch, fuzz=1)
    assert told[0]["fuzz"] == 1
    assert (world.root / "f").read_text() == CODE.replace("line 12\n", "other 12\n").replace("line 15\n", "x\n")
    world.write("f", CODE.replace("line 14\n", "other 14\n"))
    await world.fail("patch", {"patch": patch, "fuzz": 2})  # the third line of context is never given up


@pytest.mark.parametrize("patch_style", ["unix", "git", "windows"])
async def test_h2_windows_line_endings_stay_however_the_patch_is_written(world: World, patch_style: str) -> None:
    world.write("f", CODE.replace("\n", "\r\n"))
    new = CODE.replace("line 5\n", "LINE 5\nand more\n")
    patch = diff(CODE, new)
    if patch_style == "windows":
        patch = patch.replace("\n", "\r\n")
    elif patch_style == "git":  # the headers as ever, the lines of the file as they are
        lines = patch.splitlines()
        patch = "".join(f"{line}\n" if line[:3] in ("---", "+++", "@@ ") else f"{line}\r\n" for line in lines)
    await apply(world, patch)
    assert (world.root / "f").read_bytes() == new.replace("\n", "\r\n").encode()


@pytest.mark.parametrize("patch_mark", ["", "\ufeff"], ids=["a patch without it", "a patch with it"])
@pytest.mark.parametrize(
    ("old", "new"),
    [("one\ntwo\n", "1\ntwo\n"), ("one\n", "new\none\n"), ("one\ntwo\n", "two\n"), (CODE, CODE + "last\n")],
    ids=["changed", "before", "removed", "after"],
)
async def test_h2_a_byte_order_mark_stays_however_the_patch_is_written(
    world: World, old: str, new: str, patch_mark: str
) -> None:
    world.write("f", f"\ufeff{old}")
    await apply(world, diff(patch_mark + old, patch_mark + new))
    assert (world.root / "f").read_bytes() == f"\ufeff{new}".encode()


async def test_h2_a_patch_takes_a_byte_order_mark_away_and_deletes_a_file_with_one(world: World) -> None:
    world.write("f", "\ufeffone\n")
    await apply(world, diff("\ufeffone\n", "one\n"))
    assert (world.root / "f").read_bytes() == b"one\n"
    world.write("g", "\ufeffone\n")
    await apply(world, "--- g\n+++ /dev/null\n@@ -1 +0,0 @@\n-one\n")
    assert not (world.root / "g").exists()


async def test_h2_a_file_with_mixed_line_endings_is_matched_to_the_letter(world: World) -> None:
    world.write("f", "a\r\nb\nc\r\n")
    await apply(world, "--- f\n+++ f\n@@ -1,3 +1,3 @@\n a\r\n-b\n+B\n c\r\n")
    assert (world.root / "f").read_bytes() == b"a\r\nB\nc\r\n"


async def test_h2_a_missing_last_newline_is_part_of_the_context(world: World) -> None:
    world.write("f", "a\nb")
    await apply(world, diff("a\nb", "a\nb\n"))
    assert (world.root / "f").read_bytes() == b"a\nb\n"
    failure = await world.fail("patch", {"patch": diff("a\nb", "a\nc")})
    assert "should be 'b' without a line ending, but it is 'b'" in failure.message
    await apply(world, diff("a\nb\n", "a\nc"))
    assert (world.root / "f").read_bytes() == b"a\nc"


async def test_h2_one_patch_may_come_back_to_a_file(world: World) -> None:
    world.write("f", "a\nb\n")
    await apply(world, diff("a\nb\n", "x\nb\n") + diff("x\nb\n", "x\ny\n"))
    assert (world.root / "f").read_text() == "x\ny\n"


async def test_h2_bytes_that_are_no_text_stay_as_they_are_around_a_hunk(world: World) -> None:
    (world.root / "f").write_bytes(b"\xff\xfe\nb\nc\nd\ne\nf\n\xc3\n")
    await apply(world, "--- f\n+++ f\n@@ -4 +4 @@\n-d\n+D\n")
    assert (world.root / "f").read_bytes() == b"\xff\xfe\nb\nc\nD\ne\nf\n\xc3\n"


async def test_h2_names_are_stripped_as_told(world: World) -> None:
    world.write("b/c", "x\n")
    told = await apply(world, "--- p/a/b/c\t2020-01-01\n+++ q/a/b/c\t2020-01-02\n@@ -1 +1 @@\n-x\n+y\n", strip=2)
    assert told[0]["path"] == "b/c"
    world.write("a/f", "x\n")
    await apply(world, "--- a/f\n+++ a/f\n@@ -1 +1 @@\n-x\n+y\n")  # no b/: it is a folder's name
    assert (world.root / "a/f").read_text() == "y\n"


# --- what it refuses ---

REFUSED: dict[str, tuple[str, str]] = {
    "nothing": ("just a letter\n", "there is no change in the patch"),
    "binary": ("diff --git a/x b/x\nGIT binary patch\nliteral 3\n", "binary file"),
    "binary by name": ("Binary files a/x and b/x differ\n", "binary file"),
    "binary among others": (diff("a note\n", "x\n", "note.txt") + "Binary files a/x and b/x differ\n", "binary file"),
    "hunk alone": ("so:\n@@ -1 +1 @@\n-a\n+b\n", ": a hunk without --- and +++"),
    "cut short": ("--- note.txt\n+++ note.txt\n@@ -1,3 +1,3 @@\n a note\n", "says 3 old and 3 new lines, but 1 and 1"),
    "too long": ("--- note.txt\n+++ note.txt\n@@ -1,1 +1,2 @@\n-a note\n-more\n+x\n+y\n", "but has 2 and 2"),
    "bad head": ("--- note.txt\n+++ note.txt\n@@ what @@\n", "is not the head of a hunk"),
    "no new name": ("diff --git a/x b/x\n--- a/x\n@@ -1 +1 @@\n", "+++ is missing"),
    "of nothing": ("--- /dev/null\n+++ /dev/null\n@@ -0,0 +1 @@\n+x\n", "of no file"),
    "overlapping": ("--- f\n+++ f\n@@ -5,2 +5,2 @@\n a\n b\n@@ -2,2 +2,2 @@\n a\n b\n", "order of the file"),
    "a link": ("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+/etc\n", "link"),
    "missing file": (diff("x\n", "y\n", "a/oen.txt"), "the nearest name there is 'one.txt'"),
    "missing folder": (diff("x\n", "y\n", "nowhere/x"), "does not exist"),
    "there already": ("--- /dev/null\n+++ b/note.txt\n@@ -0,0 +1 @@\n+x\n", "already exists"),
    "more than it deletes": ("--- a/a/one.txt\n+++ /dev/null\n@@ -0,0 +0,0 @@\n", "1 lines more than the patch"),
    "applied before": (diff("an old note\n", "a note\n", "note.txt"), "already has its result"),
    "behind the end": ("--- note.txt\n+++ note.txt\n@@ -9,0 +10 @@\n+x\n", "behind line 9, but the file ends after"),
    "a folder": (diff("x\n", "y\n", "a"), "names a directory"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
async def test_h2_a_patch_that_cannot_be_applied_says_why_and_changes_nothing(world: World, name: str) -> None:
    patch, said = REFUSED[name]
    before = world.inside()
    good = diff("one\n", "two\n", "a/one.txt") if "one.txt" not in patch and name != "nothing" else ""
    for text in (patch, good + patch):
        failure = await world.fail("patch", {"patch": text})
        assert failure.category is Category.CONFIGURATION
        assert said in failure.message
        assert world.inside() == before
    assert list(world.scratch.iterdir()) == []


async def test_h2_a_hunk_that_does_not_fit_is_named_with_what_stands_there_instead(world: World) -> None:
    world.write("f", CODE.replace("line 22\n", "something else\n"))
    new = CODE.replace("line 5\n", "x\n").replace("line 21\n", "y\n")
    failure = await world.fail("patch", {"patch": diff(CODE, new)})
    assert failure.message == (
        "hunk 2 of 2 of 'f' (at line 18) does not fit: line 22 should be 'line 22', but it is 'something else'"
    )
    assert failure.advice


async def test_h2_too_many_files_and_too_large_ones_are_refused(world: World) -> None:
    many = "".join(diff("", "x\n", f"many/{number}") for number in range(1001))
    assert (await world.fail("patch", {"patch": many})).category is Category.RESOURCE
    make_large(world.root / "big", (16 << 20) + 1)
    failure = await world.fail("patch", {"patch": diff("x\n", "y\n", "big")})
    assert failure.category is Category.RESOURCE
    assert "too large" in failure.message


# --- against others ---

texts = st.lists(st.sampled_from(["a\n", "b\n", "c\n", "\n", " \n", "-\n", "+x\n", "\\ d\n", "é\r\n"]), max_size=14)


@given(texts, texts, st.integers(0, 3), st.booleans())
def test_h2_what_difflib_says_of_any_two_texts_makes_the_one_the_other(
    old: list[str], new: list[str], context: int, ends: bool
) -> None:
    before, after = "".join(old), "".join(new) + ("" if ends else "end")
    patch = diff_bytes(old, [*new, *([] if ends else ["end"])], context)
    if before == after:
        return
    (found,) = read_diff(patch, None)
    if "\r" in before and before.count("\n") == before.count("\r\n"):
        after = "".join(f"{line[:-1]}\r\n" if line[-1:] == "\n" and line[-2:-1] != "\r" else line for line in new)
        after += "" if ends else "end"
    assert fit(found, before.encode(), 0, lambda: None).data == after.encode()


def diff_bytes(old: list[str], new: list[str], context: int) -> str:
    lines = difflib.unified_diff(old, new, "a/f", "b/f", n=context)
    return "".join(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in lines)


@given(st.text(alphabet='-+@ \\,01adev/nul\n\r"', max_size=200))
def test_h2_no_text_breaks_the_reader(text: str) -> None:
    with suppress(ToolError):
        for found in read_diff(f"--- a\n+++ b\n@@ -1 +1 @@\n{text}", None):
            fit(found, b"a\nb\n", 2, lambda: None)


async def test_h2_gnu_patch_makes_the_same_of_a_file_whose_lines_moved(world: World, tmp_path: Path) -> None:
    if shutil.which("patch") is None:
        pytest.skip("there is no patch here")
    moved = "0\n" * 4 + CODE.replace("line 3\n", "") + "tail\n"
    patch = diff(CODE, CODE.replace("line 11\n", "eleven\n").replace("line 28\n", "28\n29a\n"))
    world.write("f", moved)
    theirs = tmp_path / "f"
    theirs.write_text(moved)
    run("patch", "-s", "-p1", "-d", str(tmp_path), text=patch)
    await apply(world, patch)
    assert (world.root / "f").read_bytes() == theirs.read_bytes()
