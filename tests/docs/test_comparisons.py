"""The page beside other tools is fair by its form: each tool's strengths come first, each claim has its source (I7)."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from doc_pages import REPOSITORY

PAGE = (REPOSITORY / "docs/comparisons/README.md").read_text(encoding="utf-8")
BENCHMARKS = (REPOSITORY / "docs/benchmarks.md").read_text(encoding="utf-8")
TOOLS = ("Make", "GitHub Actions", "Temporal", "LangGraph", "Claude Code")
SOURCE = re.compile(r" \([^()]+, \"[^\"]+\"\)$")
"""The name of the documentation, and of its page."""


def section(tool: str) -> str:
    found = re.search(rf"^## {tool}\n(.*?)(?=^## )", PAGE, re.MULTILINE | re.DOTALL)
    assert found is not None, f"no section on {tool}"
    return found[1]


@pytest.mark.parametrize("tool", TOOLS)
def test_each_tool_is_praised_first_and_each_claim_about_it_has_a_source(tool: str) -> None:
    text = section(tool)
    parts = [
        text.find(part) for part in ("**What it does better**", "**What to know of it**", "**What Windlass adds**")
    ]
    assert parts == sorted(parts)
    assert -1 not in parts
    better, claims = text[: parts[1]], [line for line in text[: parts[2]].splitlines() if line.startswith("- ")]
    assert sum(line.startswith("- ") for line in better.splitlines()) >= 3
    assert [line for line in claims if not SOURCE.search(line)] == []
    assert re.search(r"\*\*(Take both|Choose )", text), "it says when to take which"


@pytest.mark.parametrize("tool", TOOLS)
def test_every_ratio_is_one_of_the_benchmarks_page(tool: str) -> None:
    rows = [row for row in BENCHMARKS.splitlines() if row.startswith("|")]
    measured = [row for before, row in pairwise(rows) if tool in row or ("over the same" in row and tool in before)]
    for ratio in re.findall(r"\d[\d.]*×", section(tool)):
        assert any(f"| {ratio} |" in row for row in measured), f"{ratio} is no figure beside {tool}"


def test_the_readme_and_the_site_lead_to_the_page() -> None:
    assert "(docs/comparisons/README.md)" in (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert ": docs/comparisons/README.md" in (REPOSITORY / "mkdocs.yml").read_text(encoding="utf-8")
