"""The servers of `tests/tools/net/loopback.py`, and the tools that are tried on them."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "net"))

from http_world import Web

from windlass.settings import NetworkSettings


@pytest.fixture
async def make_web(tmp_path: Path) -> AsyncIterator[Callable[..., Web]]:
    made: list[Web] = []

    def make(private: tuple[str, ...] = ("127.0.0.1",), more: Mapping[str, Any] | None = None, **lists: Any) -> Web:
        made.append(Web(tmp_path, NetworkSettings(private=private, **lists), **(more or {})))
        return made[-1]

    yield make
    for web in made:
        await web.close()


@pytest.fixture
def web(make_web: Callable[..., Web]) -> Web:
    return make_web()
