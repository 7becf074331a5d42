"""What the tests of code share: one sandbox for all tests of a module, in which workers stay warm."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from windlass.assembly import cache_folder
from windlass.process import Supervisor
from windlass.sandbox.programs import WasmSandbox


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[WasmSandbox]:
    supervisor = Supervisor()
    made = WasmSandbox(supervisor, cache_folder())
    yield made
    await made.close()
    await supervisor.close()
