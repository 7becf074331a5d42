"""An engine belongs to the process that opened it and to one event loop (I5)."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Engine, Plan, Step, tool
from windlass.engine.owner import Owner
from windlass.errors import JournalError, UsageError

if TYPE_CHECKING:
    from conftest import Project

# From Python 3.12 on, a process with threads is warned when it forks; what its child can do is tried here.
pytestmark = pytest.mark.filterwarnings("ignore:.*use of fork\\(\\):DeprecationWarning")


@tool
def shout(text: str) -> str:
    return text.upper()


SHOUT = Plan(steps=[Step(id="a", tool="shout", with_={"text": "hey"})])
LONG = Plan(steps=[Step(id="a", run="sleep 60")])


async def run(engine: Engine) -> str:
    return str((await (await engine.start(SHOUT)).result())["status"])


def test_i5_an_engine_is_refused_in_a_second_event_loop_and_can_still_be_closed(project: Project) -> None:
    engine = windlass.open(tools=[shout])
    assert asyncio.run(run(engine)) == "completed"
    with pytest.raises(UsageError, match="belongs to an event loop that has ended: nothing was done"):
        asyncio.run(engine.start(SHOUT))
    assert len(project.ids()) == 1
    asyncio.run(engine.close())
    assert engine.closed


def test_i5_after_the_end_of_its_event_loop_an_engine_can_be_closed_and_nothing_else() -> None:
    owner = Owner()

    async def call(*, ended: bool) -> None:
        owner.require(ended=ended) if ended else owner.require()

    asyncio.run(call(ended=False))
    asyncio.run(call(ended=True))
    with pytest.raises(UsageError, match="belongs to an event loop that has ended: nothing was done"):
        asyncio.run(call(ended=False))


def test_i5_an_engine_whose_loop_ended_lets_go_of_what_it_drove(project: Project) -> None:
    engine = windlass.open()
    execution = asyncio.run(engine.start(LONG))
    asyncio.run(engine.close())

    async def cancel() -> str:
        async with windlass.open() as another:
            resumed = await another.resume(execution.id)
            return str((await resumed.cancel()).status)

    assert asyncio.run(cancel()) == "cancelled"


async def test_i5_an_engine_is_refused_in_another_threads_loop(project: Project) -> None:
    async with windlass.open(tools=[shout]) as engine:
        assert await run(engine) == "completed"
        execution = await engine.start(LONG)
        refused: list[str] = []

        def elsewhere() -> None:
            for act in (run(engine), execution.wait(), execution.cancel(), engine.close()):
                try:
                    asyncio.run(act)  # type: ignore[arg-type]
                except UsageError as error:
                    refused.append(error.message)

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert refused == ["this engine belongs to another event loop: nothing was done"] * 4
        assert (await execution.cancel()).status == "cancelled"


async def in_fork(act: Callable[[], Awaitable[Any]]) -> str:
    """The result of the function in a forked process, or the error's text."""
    context = multiprocessing.get_context("fork")
    receive, send = context.Pipe(duplex=False)

    def child() -> None:
        try:
            send.send(str(asyncio.run(asyncio.wait_for(act(), 20))))  # type: ignore[arg-type]
        except BaseException as error:
            send.send(f"{type(error).__name__}: {error}")

    process = context.Process(target=child)
    process.start()
    told = await asyncio.to_thread(receive.recv)
    await asyncio.to_thread(process.join)
    return str(told)


async def test_i5_a_forked_process_can_neither_use_nor_close_its_parents_engine(project: Project) -> None:
    async with windlass.open(tools=[shout]) as engine:
        assert await run(engine) == "completed"
        assert "opened in another process: nothing was done" in await in_fork(lambda: run(engine))
        assert await in_fork(engine.close) == "None"
        assert os.listdir(engine.home / "drivers") == [engine.driver]
        assert await run(engine) == "completed"


async def open_and_run(home: Path) -> str:
    async with windlass.open(home, tools=[shout]) as engine:
        return await run(engine)


async def test_i5_a_forked_process_uses_tools_in_a_home_of_its_own(project: Project, tmp_path: Path) -> None:
    async with windlass.open(tools=[shout]) as engine:
        assert await run(engine) == "completed"  # its thread waits for the next function, and the child has no thread
        assert await in_fork(lambda: open_and_run(tmp_path / "another")) == "completed"


async def test_d9_a_forked_process_cannot_open_the_home_that_its_parent_has_open(project: Project) -> None:
    async with windlass.open(tools=[shout]) as engine:
        assert await run(engine) == "completed"
        told = await in_fork(lambda: open_and_run(engine.home))
        assert told.startswith(JournalError.__name__)
        assert "is open in the process that this one was forked from" in told
    assert await in_fork(lambda: open_and_run(engine.home)) == "completed"


async def test_i5_a_start_while_the_engine_closes_is_refused(project: Project) -> None:
    engine = windlass.open()
    await engine.start(LONG)
    closing = asyncio.create_task(engine.close())
    with pytest.raises(UsageError, match="this engine is closed: nothing was done"):
        await asyncio.create_task(engine.start(LONG))
    await closing
    assert len(project.ids()) == 1


async def test_i5_an_engine_closed_twice_at_once_is_closed_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = windlass.open()
    closed: list[str] = []
    close = engine.attempt_runner.processes.close

    async def counted() -> None:
        closed.append("processes")
        await close()

    monkeypatch.setattr(engine.attempt_runner.processes, "close", counted)
    await engine.start(LONG)
    await asyncio.gather(engine.close(), engine.close())
    assert closed == ["processes"]


async def test_i5_an_engine_closes_to_the_end_though_who_waits_is_cancelled(project: Project) -> None:
    engine = windlass.open()
    execution = await engine.start(LONG)
    closing = asyncio.create_task(engine.close())
    await asyncio.sleep(0)  # it has begun
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await engine.close()
    async with windlass.open() as another:
        assert (await another.state(execution.id)).paused_for == "interrupt"


def test_i5_a_loop_that_ends_while_the_engine_closes_leaves_the_home_free(project: Project) -> None:
    async def leave() -> str:
        engine = windlass.open()
        execution = await engine.start(LONG)
        closing = asyncio.create_task(engine.close())
        await asyncio.sleep(0)  # it has begun
        closing.cancel()  # as a cancelled scope of anyio does
        return execution.id

    async def cancel(execution: str) -> str:
        async with windlass.open() as another:
            return str((await (await another.resume(execution)).cancel()).status)

    assert asyncio.run(cancel(asyncio.run(leave()))) == "cancelled"


def test_i5_an_engine_below_another_library_than_asyncio_says_so(project: Project) -> None:
    engine = windlass.open()
    with pytest.raises(UsageError, match="no event loop of asyncio runs here"):
        engine.start(LONG).send(None)
    asyncio.run(engine.close())
    assert project.ids() == []
