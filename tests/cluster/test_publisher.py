"""One worker is told of what all write, so that traces, checkpoint files and forecasts are made (D4, D7, I6, J2)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_until_async

import windlass
from windlass.core import events as ev
from windlass.core.state import fold
from windlass.engine import forecasts
from windlass.engine.commit_writer import head_of
from windlass.engine.engine import Engine
from windlass.journal import postgres_workers
from windlass.journal.checkpoint import CheckpointFolder
from windlass.journal.postgres_presence import LEASE
from windlass.journal.stores import HomeStores
from windlass.temporal.publisher import CommitPublisher

DRIVER = "temporal"
PLAN = windlass.Plan.model_validate(
    {"name": "told", "steps": [{"id": "a", "run": "echo a"}, {"id": "b", "run": "true"}]}
)


@pytest.fixture
def long_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody renews the lines of these workers, and the machine may be slow."""
    for name in ("_LIST", "_FORGET"):
        longer = getattr(postgres_workers, name).replace(f"{LEASE:g} seconds", "1 hour")
        monkeypatch.setattr(postgres_workers, name, longer)


async def begin(engine: Engine, workdir: Path) -> str:
    """Start an execution for workers."""
    id = await engine.create(PLAN, workdir=workdir)
    begun = fold([(await engine.journal.read(id))[0].event])
    begun.apply(started := ev.ExecutionStarted(engine.clock.now(), DRIVER))
    await engine.journal.append(id, 1, [started], head=head_of(begun))
    return id


async def run_on(engine: Engine, workdir: Path, id: str = "") -> str:
    """Have a worker do an execution to its end, a new one unless there is one."""
    worker = engine.shared(DRIVER, "one")
    id = id or await begin(engine, workdir)
    while not (turn := await worker.turn(id, hold=False)).over:
        for due in turn.active:
            await worker.attempt(id, due.step, due.attempt)
    return id


@pytest.mark.usefixtures("long_lease")
async def test_d4_the_first_worker_is_told_of_all_events_and_the_next_one_after_it(
    tmp_path: Path, postgres: str
) -> None:
    heard: dict[str, list[tuple[str, int, int]]] = {"first": [], "second": []}

    def hear(name: str) -> Any:
        def told(execution: str, events: Sequence[ev.Event], seq: int) -> None:
            heard[name].append((execution, len(events), seq))

        return told

    async with AsyncExitStack() as stack:
        opened = [windlass.open(tmp_path / f"home{n}", journal=postgres) for n in range(3)]
        person, *engines = [await stack.enter_async_context(engine) for engine in opened]
        table = HomeStores(tmp_path, postgres).workers()
        stack.push_async_callback(table.close)
        publishers = []
        for name, engine in zip(("first", "second"), engines, strict=True):
            await table.renew(name, "host", [], "1", [])
            engine.commits.subscribe(hear(name))
            publishers.append(CommitPublisher(engine, table, DRIVER, name))
        first, second = publishers
        await first.look()
        id = await run_on(engines[1], tmp_path)
        local = await (await person.start(PLAN, workdir=tmp_path)).wait()
        for publisher in publishers:
            await publisher.look()
        last = len(await person.journal.read(id))
        assert heard["second"] == []
        assert {execution for execution, _, _ in heard["first"]} == {id}, local.id
        assert sum(count for _, count, _ in heard["first"]) == last
        assert heard["first"][-1] == (id, 0, last)
        await table.leave("first")
        await second.look()
        other = await run_on(engines[0], tmp_path)
        await second.look()
        assert {execution for execution, _, _ in heard["second"]} == {other}
        assert {execution for execution, _, _ in heard["first"]} == {id}
    for home, execution in ((1, id), (2, other)):
        written = CheckpointFolder(tmp_path).read(tmp_path / f"home{home}" / "executions" / f"{execution}.json")
        assert isinstance(written[-1], ev.ExecutionFinished), "the automatic checkpoint file is whole"


@pytest.mark.usefixtures("long_lease")
async def test_d7_one_worker_forecasts_what_all_run_and_the_next_one_goes_on(
    tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasts, "FIRST", 0.01)
    monkeypatch.setattr(forecasts, "IDLE", 0.0)
    async with AsyncExitStack() as stack:
        opened = [windlass.open(tmp_path / f"home{n}", journal=postgres) for n in range(3)]
        person, *engines = [await stack.enter_async_context(engine) for engine in opened]
        table = HomeStores(tmp_path, postgres).workers()
        stack.push_async_callback(table.close)
        await run_on(engines[0], tmp_path)  # it is known how long the steps take
        first, second = (
            CommitPublisher(engine, table, DRIVER, name) for engine, name in zip(engines, "ab", strict=True)
        )
        for name in "ab":
            await table.renew(name, "host", [], "1", [])
        await first.look()
        id = await begin(person, tmp_path)
        for publisher in (first, second):
            await publisher.look()
        found = (await wait_until_async(partial(person.forecasts, id)))[id]
        assert found.left is not None
        assert engines[1]._forecasts._watched == {}, "one worker is enough"
        await table.leave("a")
        await second.look()
        await first.look()
        assert engines[0]._forecasts._watched == {}
        before = (await person.forecasts(id))[id]

        async def newer() -> bool:
            return (await person.forecasts(id))[id].at > before.at

        await wait_until_async(newer)
        await run_on(engines[0], tmp_path, id)
        await second.look()
        assert engines[1]._forecasts._watched == {}
        assert {one.execution for one in await person.forecast_outcomes("told")} == {id}
