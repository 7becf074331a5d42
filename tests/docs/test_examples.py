"""The examples run as their pages say, in a copy, with no network and no key."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from doc_pages import REPOSITORY, is_program, play

LEFT_BEHIND = shutil.ignore_patterns(
    *(
        ".windlass",
        "__pycache__",
        "NOTES.md",
        "COUNT.md",
        "WINCH.md",
        "REVIEW.md",
        "NEWS.md",
        "REPORT.md",
        "quotations.txt",
    ),
    *("address.txt", "repo", "spans.jsonl", "tried", "build.txt", "published-*.txt"),
)
"""What a run in place leaves in an example's folder: the copy must not begin with it."""
EXAMPLES = sorted(path for path in (REPOSITORY / "examples").iterdir() if path.is_dir())


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_does_what_its_page_says(example: Path, project: Any, zygote: Any) -> None:
    page = example / "README.md"
    assert is_program(page), f"{page} has no block that is run"
    shutil.copytree(example, project.path, dirs_exist_ok=True, ignore=LEFT_BEHIND)
    play(page, project.path, {**project.env, "PATH": f"{zygote.folder}:{project.env['PATH']}"})


def test_word_count_is_refused_until_its_code_is_trusted(project: Any, windlass: Any) -> None:
    shutil.copytree(REPOSITORY / "examples" / "word-count", project.path, dirs_exist_ok=True, ignore=LEFT_BEHIND)
    assert "tools.py" in windlass("run", "plan.yaml", code=4).err
    assert not (project.path / "COUNT.md").exists()
