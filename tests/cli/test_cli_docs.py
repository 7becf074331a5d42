"""`windlass docs`: the pages of the documentation, for a person who has the package alone (I1)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from windlass.cli.docs import PAGES, docs
from windlass.errors import UsageError

if TYPE_CHECKING:
    from conftest import Windlass

SOURCES = Path(__file__).resolve().parents[2] / "src" / "windlass"


def test_i1_the_pages_are_listed_with_their_titles_and_printed_whole(windlass: Windlass) -> None:
    listed = windlass("docs").out
    assert re.search(r"^plans +Plans$", listed, re.MULTILINE)
    assert re.search(r"^guides/nightly +\S", listed, re.MULTILINE)
    assert "decisions" not in listed
    for name in ("plans", "plans.md", "docs/plans.md"):
        assert windlass("docs", name).out == (PAGES / "plans.md").read_text(encoding="utf-8")
    assert windlass("docs", "nightly").out == (PAGES / "guides" / "nightly.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "meant"), [("plan", "plans"), ("guides/nightli", "guides/nightly")])
def test_c5_a_page_that_is_none_is_told_with_the_nearest(windlass: Windlass, name: str, meant: str) -> None:
    assert f"there is no page '{name}'; did you mean `{meant}`?" in windlass("docs", name, code=2).err


@pytest.mark.parametrize("name", ["/etc/passwd", "../README", "decisions/0001"])
def test_trust_no_other_file_is_printed(windlass: Windlass, name: str) -> None:
    assert windlass("docs", name, code=2).out == ""


def test_c5_every_page_that_a_message_names_exists() -> None:
    named = {
        page
        for path in SOURCES.rglob("*.py")
        for page in re.findall(r"windlass docs ([a-z/-]+)", path.read_text(encoding="utf-8"))
    }
    assert {"checks", "triggers"} <= named
    assert [page for page in sorted(named) if not (PAGES / f"{page}.md").is_file()] == []


def test_c5_an_installation_without_pages_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.cli.docs.PAGES", tmp_path / "none")
    with pytest.raises(UsageError, match="has no pages"):
        docs("plans")
