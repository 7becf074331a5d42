"""Homes as each earlier release left them open, are listed and read, go on, and stay readable (D2, D6)."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project, Windlass

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from try_homes import STORED, try_home  # noqa: E402  the scripts are no package


@pytest.mark.parametrize("stored", STORED, ids=lambda path: path.name.removesuffix(".tar.gz"))
def test_d2_a_home_of_an_earlier_release_goes_on(stored: Path, project: Project, windlass: Windlass) -> None:
    try_home(stored, project.path, lambda *arguments, code=0: windlass(*arguments, code=code).out)


def test_d2_there_is_a_stored_home_for_each_change_of_its_tables() -> None:
    assert {path.name.removesuffix(".tar.gz") for path in STORED} >= {
        "v1-first",
        "v1-checksums",
        "v1-counts",
        "v1-history",
    }
