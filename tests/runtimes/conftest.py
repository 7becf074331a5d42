"""One OpenCode server for all tests of a worker that need no start of their own: a start takes seconds of CPU."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from opencode_fixtures import Bench, opencode_binary

SLOWEST = 600
"""Seconds that a test may take: the start of a real program takes a minute on a machine with a load of 20."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SLOWEST))


@pytest_asyncio.fixture(scope="package", loop_scope="session")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench | None]:
    """A bench with a warm server, on the loop of the session; None where OpenCode is not installed.

    It ends with the tests of this folder: an idle server takes a twentieth of a core.
    """
    if opencode_binary() is None:
        yield None
        return
    made = Bench(tmp_path_factory.mktemp("opencode"), retries=0)
    await made.warm()
    yield made
    await made.close()
