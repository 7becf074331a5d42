"""The standard workflows on Temporal and PostgreSQL: each has the outcome that it has on one machine (H2, J2)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio
from postgres_server import PostgresServer
from temporal_server import TemporalServer

sys.path.append(str(Path(__file__).parent.parent / "workflows"))

from outcomes import ENDS, check  # found by the line above
from runner import GREET, PLANS, World, lacking, play, world

import windlass
from windlass.core import events as ev
from windlass.engine.engine import Engine
from windlass.homes.journal_url import PostgresUrl
from windlass.journal.postgres_workers import WorkerTable
from windlass.temporal.cluster import TemporalCluster
from windlass.temporal.worker import ClusterWorker

ON_ONE_LOOP = pytest.mark.asyncio(loop_scope="module")


class WorkedWorld(NamedTuple):
    """A world whose engine is that of a worker."""

    world: World
    person: Engine
    """Starts executions, and performs nothing."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def worked(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer, temporal_server: TemporalServer
) -> AsyncIterator[WorkedWorld]:
    base = tmp_path_factory.mktemp("workflows")
    (base / "user").mkdir()
    with pytest.MonkeyPatch.context() as patch, postgres_server.database() as journal:
        for name in [name for name in os.environ if name.startswith("WINDLASS_")]:
            patch.delenv(name)
        patch.setenv("HOME", str(base / "user"))
        patch.setenv("XDG_CONFIG_HOME", str(base / "user" / ".config"))
        async with world(base / "worker", journal=journal) as made:
            made.faults.deal(None)
            cluster = TemporalCluster(temporal_server.address, WorkerTable(PostgresUrl(journal)))
            ending, ready = asyncio.Event(), asyncio.Event()
            worker = asyncio.create_task(ClusterWorker(made.engine, cluster).run(ending, lambda _name: ready.set()))
            await ready.wait()
            settings = {**made.settings, "temporal": temporal_server.address}
            async with windlass.open(base / "person", **settings) as person:
                assert person.shelf is not None
                person.shelf.save(GREET)
                yield WorkedWorld(made, person)
            ending.set()
            await worker
            await cluster.close()


@pytest.mark.soak
@ON_ONE_LOOP
@pytest.mark.parametrize("plan", PLANS, ids=lambda plan: plan.stem)
async def test_j2_a_standard_workflow_ends_on_workers_as_on_one_machine(
    plan: Path, worked: WorkedWorld, tmp_path: Path
) -> None:
    if why := lacking(plan):
        pytest.skip(why)
    result = await play(worked.world, plan, tmp_path / "work", worked.person)
    assert result["status"] == ENDS.get(plan.stem, "completed"), result
    check(worked.world, plan.stem, result)
    entries = await worked.person.journal.read(result["id"])
    performed = {entry.event.step for entry in entries if isinstance(entry.event, ev.AttemptFinished)}
    assert performed <= {entry.event.step for entry in entries if isinstance(entry.event, ev.AttemptPlaced)}
