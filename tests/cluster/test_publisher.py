"""One worker is told of what all write, so that traces and checkpoint files are made (D4, I6, J2)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

import windlass
from windlass.core import events as ev
from windlass.core.state import fold
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


async def run_on(engine: Engine, workdir: Path) -> str:
    """Have a worker do an execution from its beginning to its end."""
    worker = engine.shared(DRIVER, "one")
    id = await engine.create(PLAN, workdir=workdir)
    begun = fold([(await engine.journal.read(id))[0].event])
    begun.apply(started := ev.ExecutionStarted(engine.clock.now(), DRIVER))
    await engine.journal.append(id, 1, [started], head=head_of(begun))
    while not (turn := await worker.turn(id, hold=False)).over:
        for due in turn.active:
            await worker.attempt(id, due.step, due.attempt)
    return id


async def test_d4_the_first_worker_is_told_of_all_events_and_the_next_one_after_it(
    tmp_path: Path, postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("_LIST", "_FORGET"):  # nobody renews the lines of these workers, and the machine may be slow
        longer = getattr(postgres_workers, name).replace(f"{LEASE:g} seconds", "1 hour")
        monkeypatch.setattr(postgres_workers, name, longer)
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
        assert first.wanted
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
