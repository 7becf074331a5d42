"""What a person sees before allowing a change: the difference, or nothing, never something untrue (C6)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest

from windlass.core.approval import ABSENT
from windlass.engine.preview import MAX_DIFF, MAX_FILE, difference, rests_on


@pytest.fixture
def work(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text("one\ntwo\nthree\n")
    return tmp_path


@pytest.mark.parametrize(
    "input",
    [
        {"path": "a.txt", "content": "one\n2\nthree\n"},
        {"path": "a.txt", "edits": [{"old": "two", "new": "2"}]},
        {"file_path": "a.txt", "old_string": "two", "new_string": "2"},
        {"filePath": "a.txt", "oldString": "two", "newString": "2"},
        {"file_path": "a.txt", "edits": [{"old_string": "two", "new_string": "2"}]},
    ],
)
def test_c6_a_change_is_shown_as_a_difference_whatever_the_tool_calls_its_arguments(
    work: Path, input: dict[str, Any]
) -> None:
    shown = difference(input, work)
    assert shown is not None
    assert [line for line in shown.splitlines() if line[0] in "+-"][2:] == ["-two", "+2"]


def test_absolute_paths_inside_are_shown_too(work: Path) -> None:
    assert "+new" in (difference({"file_path": str(work / "b.txt"), "content": "new\n"}, work) or "")


def test_a_new_file_an_append_and_a_missing_newline_are_shown(work: Path) -> None:
    assert "+hello" in (difference({"path": "new.txt", "content": "hello"}, work) or "")
    assert "no newline" in (difference({"path": "new.txt", "content": "hello"}, work) or "")
    assert "-one" not in (difference({"path": "a.txt", "content": "four\n", "mode": "append"}, work) or "-one")


@pytest.mark.parametrize(
    "input",
    [
        None,
        "rm -rf /",
        {"command": "ls"},
        {"path": "a.txt"},
        {"path": 5, "content": "x"},
        {"path": "a.txt", "content": "one\ntwo\nthree\n"},
        {"path": "a.txt", "edits": [{"old": "four", "new": "4"}]},
        {"path": "a.txt", "edits": ["x"]},
        {"path": "../outside.txt", "content": "x"},
        {"path": "/etc/passwd", "content": "x"},
        {"path": "link", "content": "x"},
        {"path": "pipe", "content": "x"},
        {"path": ".", "content": "x"},
        {"path": "a\0b", "content": "x"},
        {"path": "binary", "content": "x"},
    ],
)
def test_what_is_no_change_of_a_text_file_inside_shows_nothing(work: Path, input: Any) -> None:
    (work / "link").symlink_to("/etc/passwd")
    os.mkfifo(work / "pipe")
    (work / "binary").write_bytes(b"\xff\x00")
    assert difference(input, work) is None


def test_a_long_difference_is_cut_and_says_so(work: Path) -> None:
    shown = difference({"path": "a.txt", "content": "x\n" * MAX_DIFF}, work)
    assert shown is not None
    assert len(shown) < MAX_DIFF + 100
    assert "is cut off" in shown


def test_c6_the_difference_has_three_lines_around_the_change_and_names_the_file(work: Path) -> None:
    (work / "a.txt").write_text("".join(f"{number}\n" for number in range(1, 10)))
    assert difference({"path": "a.txt", "old": "5", "new": "five"}, work) == (
        "--- a.txt (now)\n+++ a.txt (then)\n@@ -2,7 +2,7 @@\n 2\n 3\n 4\n-5\n+five\n 6\n 7\n 8\n"
    )


@pytest.mark.parametrize("mark", ["\f", "\v", "\r", "\x1c", "\x85", "\u2028"])
def test_c6_a_line_ends_at_a_line_feed_alone_as_in_editors_and_git(work: Path, mark: str) -> None:
    (work / "a.txt").write_text(f"one{mark}two\nthree\n", newline="")
    assert difference({"path": "a.txt", "old": "three", "new": "3"}, work) == (
        f"--- a.txt (now)\n+++ a.txt (then)\n@@ -1,2 +1,2 @@\n one{mark}two\n-three\n+3\n"
    )


@pytest.mark.parametrize("name", ["all", "replace_all", "replaceAll"])
def test_c6_an_edit_is_shown_in_one_place_or_in_all_as_the_tool_will_make_it(work: Path, name: str) -> None:
    (work / "a.txt").write_text("x\ny\nx\ny\nx\n")
    edit = {"path": "a.txt", "old": "x", "new": "z"}
    assert (difference(edit, work) or "").count("\n+z") == 1
    assert (difference({**edit, name: False}, work) or "").count("\n+z") == 1
    assert (difference({**edit, name: True}, work) or "").count("\n+z") == 3


def test_c6_a_file_that_changed_since_the_question_is_said_to_have_changed(work: Path) -> None:
    def shown(name: str, mark: str) -> str:
        return difference({"path": name, "content": "new\n"}, work, {"tool x": "0", f"file {name}": mark}) or ""

    (work / "empty").write_text("")
    for name in ("a.txt", "empty"):
        mark = hashlib.sha256((work / name).read_bytes()).hexdigest()
        assert "+new" in shown(name, mark)
        for other in ("0" * 64, ABSENT):
            assert shown(name, other).startswith(f"{name} changed since this question")
    assert "+new" in shown("new.txt", ABSENT)
    assert shown("new.txt", hashlib.sha256(b"").hexdigest()).startswith("new.txt changed since this question")


def test_c6_files_up_to_a_mebibyte_are_compared(work: Path) -> None:
    assert MAX_FILE == 1024 * 1024
    for size, is_shown in ((MAX_FILE, True), (MAX_FILE + 1, False)):
        (work / "large").write_text("x\n" * (size // 2) + "y" * (size % 2))
        assert (difference({"path": "large", "content": "y\n", "mode": "append"}, work) is not None) is is_shown


def test_a_difference_of_60_000_characters_is_whole_and_so_is_the_longest(work: Path) -> None:
    shown = difference({"path": "new.txt", "content": "x" * 60_000 + "\n"}, work) or ""
    assert shown.endswith("x" * 60_000 + "\n")
    longest = "x" * (60_000 + MAX_DIFF - len(shown))
    shown = difference({"path": "new.txt", "content": longest + "\n"}, work) or ""
    assert len(shown) == MAX_DIFF
    assert shown.endswith(longest + "\n")
    shown = difference({"path": "new.txt", "content": longest + "x\n"}, work) or ""
    assert shown.endswith(f"it has {MAX_DIFF + 1:,} characters\n")


def test_looking_at_a_file_leaves_no_file_open(work: Path) -> None:
    before = len(os.listdir("/dev/fd"))
    (work / "binary").write_bytes(b"\xff\x00")
    for name in ("a.txt", "binary", ".", "new.txt") * 20:
        difference({"path": name, "content": "x"}, work)
    assert len(os.listdir("/dev/fd")) < before + 20


def test_c6_a_question_names_the_files_and_programs_that_it_rests_on_and_nothing_else() -> None:
    marks = {"step a": "0", "tool shell": "1", "question it": "2"}
    assert rests_on(marks) == ""
    basis = {**marks, "program report": "fedcba9876543210", "file run.sh": "0123456789abcdef"}
    assert rests_on(basis) == "file run.sh (0123456789ab), program report (fedcba987654)"
