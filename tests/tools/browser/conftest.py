"""The browser's tools for a test, with the servers of `tests/tools/net/loopback.py` to open."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "net"))
sys.path.append(str(Path(__file__).parents[2] / "process"))

from browser_world import Web, find_chromium


@pytest.fixture(autouse=True)
def chromium() -> str:
    pytest.importorskip("playwright")
    found = find_chromium()
    if found is None:
        pytest.skip("no Chromium is installed")
    return found


@pytest.fixture
async def make_web(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Web]]:
    temporary = Path(tempfile.mkdtemp(prefix="wb-"))  # a short path: the browser's socket is in it
    made: list[Web] = []

    def make(private: tuple[str, ...] = ("127.0.0.1",), **more: Any) -> Web:
        made.append(Web(tmp_path, temporary, private, **more))
        return made[-1]

    # The browser's folders of this test and of no other.
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    yield make
    for web in made:
        await web.close()
    left = [path.name for path in temporary.iterdir()]
    shutil.rmtree(temporary)
    assert left == []


@pytest.fixture
def web(make_web: Callable[..., Web]) -> Web:
    return make_web()
