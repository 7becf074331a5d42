"""Supervisors and marks for the process tests."""

from __future__ import annotations

import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress

import pytest
from process_probes import MARK, OTHERS, bearing, wardens
from waiting import PATIENCE

from windlass.process import Mechanism, Supervisor, containment


def _mechanism(name: Mechanism) -> Mechanism:
    if name == "subreaper" and containment().mechanism != name:
        pytest.skip("this system has no subreapers")
    return name


@pytest.fixture(autouse=True)
def only_its_own_wardens() -> None:
    OTHERS.clear()
    OTHERS.update(wardens())


@pytest.fixture(autouse=True)
def patient_farewell(monkeypatch: pytest.MonkeyPatch) -> None:
    """A warden ends what it owns before it is killed itself, on a busy machine, too."""
    monkeypatch.setattr("windlass.process.warden_client.FAREWELL", PATIENCE)


@pytest.fixture(params=["subreaper", "process group"])
async def supervisor(request: pytest.FixtureRequest) -> AsyncIterator[Supervisor]:
    """One of each mechanism: what both promise."""
    async with Supervisor(_mechanism(request.param)) as supervisor:
        yield supervisor


@pytest.fixture
async def warded() -> AsyncIterator[Supervisor]:
    """With a warden: what only subreapers can promise."""
    async with Supervisor(_mechanism("subreaper")) as supervisor:
        yield supervisor


@pytest.fixture
def mark() -> Iterator[str]:
    """Finds the processes of one test; what a failing test leaves behind is killed."""
    mark = uuid.uuid4().hex
    yield mark
    while pids := bearing(mark):
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def env(mark: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], MARK: mark}
