"""What the tests of tools that mean no good share: servers on loopback, the HTTP server, and time that is told."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from server_process import serve, server

from windlass.clock import SystemClock
from windlass.engine import driver
from windlass.testing import FakeClock

if TYPE_CHECKING:
    from windlass.engine.engine import Engine

sys.path.append(str(Path(__file__).parents[1] / "net"))

__all__ = ["serve", "server", "told_time"]


@pytest.fixture
def told_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[Engine], FakeClock]:
    """From now on, an engine's time is what the test says it is: retries and gates wait for that alone."""
    monkeypatch.setattr(driver, "LONGEST_NAP", 0.01)

    def tell(engine: Engine) -> FakeClock:
        clock = FakeClock(SystemClock().now())  # so that other processes, with clocks of their own, agree for a while
        engine.clock = engine.performer.gates.clock = clock
        engine._world = replace(engine._world, clock=clock)
        return clock

    return tell
