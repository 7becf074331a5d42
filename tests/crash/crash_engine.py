"""An engine of parts that a test chooses: its journal, its clock, its tools."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from windlass.assembly.plan_loader import PlanLoader
from windlass.clock import Clock, SystemClock
from windlass.engine.drivers import LocalDrivers
from windlass.engine.engine import Engine
from windlass.engine.perform import AttemptRunner
from windlass.journal.checkpoint import CheckpointFolder
from windlass.journal.memory import MemoryLedger
from windlass.ports import Journal, Tool
from windlass.process import Supervisor
from windlass.tools.built_in import Registry
from windlass.trust import Trust

__all__ = ["engine_on"]


def engine_on(journal: Journal, home: Path, tools: Iterable[Tool] = (), clock: Clock | None = None) -> Engine:
    registry = Registry(tools)
    attempt_runner = AttemptRunner(registry, Supervisor(), {"PATH": os.environ["PATH"]}, home / "executions", grace=0.1)
    return Engine(
        LocalDrivers(journal, clock or SystemClock()),
        attempt_runner,
        home=home,
        reader=PlanLoader(registry, Trust(home / "user")),
        archive=CheckpointFolder(home / "executions"),
        ledger=MemoryLedger(),
    )
