"""What the tests of tools that mean no good share: servers on loopback, the HTTP server, and time that is told."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from server_process import serve, server

from windlass import assembly
from windlass.clock import SystemClock
from windlass.engine import driver
from windlass.testing import FakeClock

sys.path.append(str(Path(__file__).parents[1] / "net"))

__all__ = ["serve", "server", "told_time"]


@pytest.fixture
def told_time(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """The time of engines opened after this is what the test says it is: retries and gates wait for that alone."""
    monkeypatch.setattr(driver, "LONGEST_NAP", 0.01)
    clock = FakeClock(SystemClock().now())  # so that other processes, with clocks of their own, agree for a while
    monkeypatch.setattr(assembly, "SystemClock", lambda: clock)
    return clock
