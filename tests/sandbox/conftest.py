"""Sandboxes for the tests. QuickJS is compiled by the first worker of a session, and taken from there by all others."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from windlass.process import Supervisor
from windlass.sandbox.programs import WasmSandbox


@pytest.fixture(scope="session")
def compiled_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("quickjs") / "cache"


@pytest.fixture
async def sandbox(compiled_cache: Path) -> AsyncIterator[WasmSandbox]:
    async with Supervisor() as supervisor:
        made = WasmSandbox(supervisor, compiled_cache, most=2)
        yield made
        await made.close()


@pytest.fixture
async def narrow(compiled_cache: Path) -> AsyncIterator[WasmSandbox]:
    """With one worker, in which everything happens."""
    async with Supervisor() as supervisor:
        made = WasmSandbox(supervisor, compiled_cache, most=1)
        yield made
        await made.close()
