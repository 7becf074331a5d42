"""What a person sees before allowing a change: the difference, or nothing, never something untrue (C6)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from windlass.engine.preview import MAX_DIFF, difference


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
