"""The browser's tools for a test, with the servers of `tests/tools/net/loopback.py` to open."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

sys.path.append(str(Path(__file__).parents[1] / "net"))
sys.path.append(str(Path(__file__).parents[2] / "process"))

from browser_world import Web, find_chromium, page
from loopback import serve
from waiting import PATIENCE


@pytest.fixture(autouse=True)
def chromium() -> str:
    pytest.importorskip("playwright")
    found = find_chromium()
    if found is None:
        pytest.skip("no Chromium is installed")
    return found


@pytest.fixture
def patient_glance(monkeypatch: pytest.MonkeyPatch) -> None:
    """For pages that answer: a failure tells what they show, on a busy machine, too."""
    monkeypatch.setattr("windlass.tools.browser.failures.GLANCE", PATIENCE)


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


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def warm_web(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Web]:
    temporary = Path(tempfile.mkdtemp(prefix="wb-"))
    warm = Web(tmp_path_factory.mktemp("browser"), temporary, ("127.0.0.1",), linger=3600.0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tempfile.tempdir", str(temporary))
        async with serve({"/": page("warm")}) as server:
            await warm.use("open", url=server.url("/"))
    yield warm
    await warm.close()
    shutil.rmtree(temporary)


@pytest_asyncio.fixture(loop_scope="session")
async def shared(warm_web: Web, tmp_path: Path) -> AsyncIterator[Web]:
    """The browser of all tests that need none of their own, marked `SHARED`: a start takes seconds of CPU."""
    await warm_web.use("close")
    warm_web.folder, warm_web.env, warm_web.said = tmp_path, {}, []
    yield warm_web
    for execution in ("e-1", "e-2"):
        await warm_web.use("close", execution)
