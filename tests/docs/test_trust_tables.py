"""The tables of what was tried under fault and attack: each row has its tests, and the pages have each row."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
ROWS = tomllib.loads((ROOT / "scripts/trust.toml").read_text())
PAGES = {"faults": "docs/durability.md", "attacks": "docs/security.md"}


@pytest.mark.parametrize("kind", PAGES)
def test_every_row_names_tests_that_are_there(kind: str) -> None:
    for row in ROWS[kind]:
        for test in row["tests"]:
            file, _, name = test.partition("::")
            assert f"def {name}" in (ROOT / file).read_text(), test


@pytest.mark.parametrize("kind", PAGES)
def test_every_row_stands_on_its_page_and_held_every_time(kind: str) -> None:
    page = (ROOT / PAGES[kind]).read_text()
    table = page.partition(f"<!-- trust: {kind} -->")[2].partition("<!-- end of trust -->")[0]
    rows = dict(re.findall(r"^\| (.+?) \| ([\d,]+ \| [\d,]+) \|", table, flags=re.MULTILINE))
    assert list(rows) == [row["what"] for row in ROWS[kind]], "run `make trust`"
    for what, counts in rows.items():
        tried, held = counts.split(" | ")
        assert tried == held != "0", what
