"""What tests of the engine share: a clock that stands still, and a sandbox whose workers stay warm for a module."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

import windlass.assembly as assembly
from windlass.assembly import cache_folder
from windlass.clock import SystemClock
from windlass.engine import driver
from windlass.process import Supervisor
from windlass.sandbox.programs import WasmSandbox
from windlass.testing import FakeClock


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sandbox() -> AsyncIterator[WasmSandbox]:
    supervisor = Supervisor()
    made = WasmSandbox(supervisor, cache_folder())
    yield made
    await made.close()
    await supervisor.close()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The clock of all engines that are opened. It stands still until the test sets it, however slow the machine is."""
    made = FakeClock(SystemClock().now())
    monkeypatch.setattr(assembly, "SystemClock", lambda: made)
    monkeypatch.setattr(driver, "LONGEST_NAP", 0.01)  # nobody wakes a driver when the clock is set
    return made
