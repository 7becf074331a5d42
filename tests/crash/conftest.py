"""Homes in memory (a killed process loses nothing there either, and an fsync costs nothing), and the command line."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from crash_cli import Cli, Home
from forks import Zygote

SHM = Path("/dev/shm")


@pytest.fixture
def cli(zygote: Zygote) -> Cli:
    return Cli(zygote)


@pytest.fixture
def workplace(tmp_path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="windlass-", dir=SHM if SHM.is_dir() else tmp_path) as folder:
        yield Path(folder)


@pytest.fixture
def new_home(workplace: Path) -> Callable[[str], Home]:
    """Makes one home after another, each with this plan in it."""
    count = 0

    def make(plan: str) -> Home:
        nonlocal count
        count += 1
        home = Home(workplace / str(count))
        home.folder.mkdir()
        home.plan.write_text(plan)
        return home

    return make
