"""A worker that lies is ended, the engine lives, and the program goes on in the next worker (G1, G2)."""

from __future__ import annotations

import math
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from lying_worker import LIES
from sandbox_runs import finish, program

from windlass.errors import Trouble
from windlass.ports import ProgramError, ProgramLimits
from windlass.process import Supervisor
from windlass.sandbox import frames
from windlass.sandbox.programs import Run
from windlass.sandbox.workers import WorkerLost, WorkerPool, WorkerProcess, attended, start

LIAR = str(Path(__file__).with_name("lying_worker.py"))
LIMITS = ProgramLimits(cpu=1.0)
SOURCE = "return [1, (await tools.echo({ n: 2 })).n]"

Workers = Callable[..., WorkerPool]


@pytest.fixture
async def workers(compiled_cache: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Workers]:
    """A pool of one, whose workers lie in this way, one after the other; after them come honest ones."""
    monkeypatch.setattr("windlass.sandbox.workers.PATIENCE", 5.0)  # one that says nothing is not waited for for long
    pools: list[WorkerPool] = []
    async with Supervisor() as supervisor:

        def made(*commands: list[str]) -> WorkerPool:
            left = list(commands)

            def another() -> Awaitable[WorkerProcess]:
                return attended(supervisor, left.pop(0)) if left else start(supervisor, compiled_cache)

            pools.append(WorkerPool(another, most=1))
            return pools[-1]

        yield made
        for pool in pools:
            await pool.close()


def lying(lie: str) -> list[str]:
    return [sys.executable, LIAR, lie]


@pytest.mark.parametrize("lie", LIES)
async def test_g2_a_worker_that_lies_is_ended_and_the_next_one_is_used(workers: Workers, lie: str) -> None:
    pool = workers(lying(lie))
    async with pool.lease() as liar:
        assert liar.layers == ("lies",)
    run = Run(pool, 1, program(SOURCE, LIMITS))
    assert (await finish(run, await run.begin())).value == [1, 2]
    await run.close()
    assert not liar.alive
    assert not Path(f"/proc/{liar.pid}").exists()
    assert [worker.layers for worker in pool.workers] != [("lies",)]


@pytest.mark.parametrize("lie", ["garbage", "a tool that was not granted", "another run's number", "its end"])
async def test_g2_a_program_whose_workers_all_lie_ends_with_a_typed_error(workers: Workers, lie: str) -> None:
    pool = workers(lying(lie), lying(lie))
    run = Run(pool, 1, program(SOURCE, LIMITS))
    with pytest.raises(ProgramError) as raised:
        await run.begin()
    assert raised.value.trouble == "lost"
    await run.close()
    after = Run(pool, 2, program("return 3"))
    assert (await after.begin()).value == 3
    await after.close()


@pytest.mark.parametrize(
    "command",
    [
        ["/nonexistent/worker"],
        ["/bin/sh", "-c", "exit 3"],
        ["/bin/sh", "-c", "printf 'garbage, and much of it'"],
        ["/bin/sh", "-c", r"printf '\377\377\377\377'; exec sleep 1000"],
        [sys.executable, "-c", "raise SystemExit('no room')"],
    ],
)
async def test_g1_a_worker_that_does_not_start_is_a_typed_error(workers: Workers, command: list[str]) -> None:
    pool = workers(command, command)
    run = Run(pool, 1, program("return 1"))
    with pytest.raises(ProgramError) as raised:
        await run.begin()
    assert raised.value.trouble == "lost"
    assert pool.workers == []
    assert (await Run(pool, 2, program("return 1")).begin()).value == 1


async def test_g2_figures_that_are_none_do_not_get_through(workers: Workers) -> None:
    """How long it computed is the worker's word; it is at least a number, and none that breaks a sum."""
    pool = workers()
    for said in (math.nan, -1.0, math.inf, 1e300):
        run = Run(pool, 1, program("return 1", LIMITS))
        state = b'{"calls":[],"log":"","breach":"","finished":"done","call":0}'
        turn = run._understood(frames.Turned(1, state, b"1", 0, said, 0), 0)
        assert 0 <= turn.cpu <= 2 * LIMITS.cpu


async def test_g2_what_a_worker_calls_a_message_is_cut_short(workers: Workers) -> None:
    trouble: Trouble = "thrown"
    run = Run(workers(), 1, program("return 1"))
    with pytest.raises(ProgramError) as raised:
        run._understood(frames.Broke(1, trouble, "x" * 10_000_000, 77), 0)
    assert len(raised.value.message) <= 16 * 1024
    assert raised.value.call is None, "no call of that number failed"


async def test_g1_a_worker_can_be_asked_again_after_a_question_that_it_could_not_be_asked(workers: Workers) -> None:
    pool = workers()
    async with pool.lease() as worker:
        answer = await worker.ask(frames.Deliver(99, b"[]", 0), 1.0)
        assert isinstance(answer, frames.Broke)
        assert isinstance(await worker.ask(frames.CloseRun(99), 1.0), frames.RunClosed)
        assert await worker.ask(frames.Check("return 1", "x.js"), 1.0) == frames.SyntaxChecked(None)
        await worker.end()
        with pytest.raises(WorkerLost):
            await worker.ask(frames.Check("return 1", "x.js"), 1.0)
