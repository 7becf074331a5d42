"""A8: however a turn of the real `claude` ends, nothing of it goes on running, and the conversation can be resumed."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from begun_programs import without_forks
from claude_fixtures import MARK, World, bearing, claude_world, command_line
from hosts import FakeHost
from waiting import PATIENCE, wait_promised, wait_until_async

from windlass.errors import Category
from windlass.ports import AgentResult, Answer, Permissions
from windlass.testing.scripted_model import Reply, ScriptedModel

ENGINE = Path(__file__).with_name("claude_engine.py")


def busy(folder: Path, command: str = "tail -f /dev/null", text: str = "") -> Reply:
    """Bash runs for ever; the file tells that it does."""
    line = f"touch {folder / 'running'}; {command}"
    return Reply.use("Bash", {"command": line, "description": "wait"}, text=text)


async def start(world: World, host: FakeHost, running: Path | None = None, **more: object) -> asyncio.Task[AgentResult]:
    """A run that is in the middle of something: its command runs, or it has begun to speak."""
    run = asyncio.create_task(world.runner.run(world.request("begin", **more), host))
    if running is None:
        await host.until(lambda host: host.said)
    else:
        await wait_until_async(lambda: running.exists() or run.done())
    assert not run.done()
    return run


def written(folder: Path) -> str:
    """What `claude` has on disk of its conversations."""
    return "".join(path.read_text() for path in (folder / "config" / "projects").rglob("*.jsonl"))


async def test_a8_an_interrupt_ends_the_command_it_runs_and_the_conversation_goes_on(tmp_path: Path) -> None:
    script = [busy(tmp_path, text="I wait."), Reply.say("I went on")]
    host = FakeHost()
    async with claude_world(tmp_path, script) as world:
        run = await start(world, host, tmp_path / "running")
        assert any("tail -f" in line for line in world.left())
        await world.runner.interrupt("run:step:1")
        result = await run
        assert world.left() == []
        second = await world.runner.run(world.request("go on", session=result.session), FakeHost())
    world.model.check()
    assert (result.interrupted, result.failure, result.success) == (True, None, False)
    assert result.output == "I wait."
    assert (result.usage.tokens_in, result.usage.source) == (10, "runtime")  # its one call had ended: known
    assert second.output == "I went on"
    told = world.model.requests[-1].text
    assert told.index("begin") < told.index("I wait.") < told.index("go on")


async def test_a8_an_answer_cut_off_by_an_interrupt_is_kept_and_its_cost_is_unknown_not_zero(tmp_path: Path) -> None:
    host = FakeHost()
    async with claude_world(tmp_path, [Reply.hang(after="half an answer", tokens_in=500)]) as world:
        run = await start(world, host)
        await host.until(lambda host: host.said == "half an answer")
        await world.runner.interrupt("run:step:1")
        result = await run
        assert world.left() == []
    assert (result.interrupted, result.output) == (True, "half an answer")
    assert (result.usage.tokens_in, result.usage.usd, result.usage.source) == (500, None, "unknown")


async def test_a8_an_interrupt_takes_an_open_question_back(tmp_path: Path) -> None:
    taken_back = asyncio.Event()

    async def never(asked: object) -> Answer:
        try:
            await asyncio.Event().wait()
        finally:
            taken_back.set()
        raise AssertionError("nothing sets it")

    host = FakeHost(never)
    async with claude_world(tmp_path, [busy(tmp_path)]) as world:
        request = world.request(permissions=Permissions(mode="ask"))
        run = asyncio.create_task(world.runner.run(request, host))
        await host.until(lambda host: host.asks)
        await world.runner.interrupt(request.id)
        result = await run
        assert world.left() == []
        await asyncio.wait_for(taken_back.wait(), PATIENCE)
    assert result.interrupted


async def test_a8_an_interrupt_of_a_turn_that_has_not_begun_or_is_unknown_is_harmless(tmp_path: Path) -> None:
    async with claude_world(tmp_path, [Reply.say("never asked for")]) as world:
        await world.runner.interrupt("nobody")
        request = world.request()
        host = FakeHost()
        run = asyncio.create_task(world.runner.run(request, host))
        await host.until(lambda host: host.sessions)
        await world.runner.interrupt(request.id)
        result = await run
        assert world.left() == []
    assert (result.interrupted, result.output) == (True, "")


async def test_a8_a_runtime_that_does_not_heed_an_interrupt_is_killed_after_the_grace(tmp_path: Path) -> None:
    """It is stopped (SIGSTOP), so that it cannot answer."""
    host = FakeHost()
    async with claude_world(tmp_path, [busy(tmp_path)]) as world:
        run = await start(world, host, tmp_path / "running", grace=0.3)
        (main,) = without_forks(pid for pid in bearing(world.mark) if "--session-id" in command_line(pid))
        os.kill(main, signal.SIGSTOP)
        await world.runner.interrupt("run:step:1")
        result = await run
        assert world.left() == []
    assert result.interrupted


@pytest.mark.soak  # at another moment than the next one
@pytest.mark.parametrize("moment", ["in an answer", "at the start"])
async def test_a8_a_cancelled_run_leaves_nothing_running(tmp_path: Path, moment: str) -> None:
    host = FakeHost()
    async with claude_world(tmp_path, [Reply.hang(after="half")]) as world:
        if moment == "at the start":
            run = asyncio.create_task(world.runner.run(world.request(), host))
            await host.until(lambda host: host.sessions)
            await wait_until_async(world.left)
        else:
            run = await start(world, host)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert world.left() == []
    doing = {"in an answer": "writing an answer", "at the start": "before its first output"}
    assert doing[moment] in host.notes[-1]


async def test_a8_a_cancelled_run_leaves_nothing_running_and_is_taken_up_again_where_it_stood(tmp_path: Path) -> None:
    script = [busy(tmp_path, text="I wait."), Reply.say("I know what I did")]
    host = FakeHost()
    async with claude_world(tmp_path, script) as world:
        run = await start(world, host, tmp_path / "running")
        await wait_until_async(lambda: "I wait." in written(tmp_path))
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert world.left() == []
        second = await world.runner.run(world.request("go on", session=host.sessions[0]), FakeHost())
    world.model.check()
    assert "using Bash touch" in host.notes[-1]
    assert second.success
    told = world.model.requests[-1].text
    assert told.index("begin") < told.index("I wait.") < told.index("go on")


async def test_a8_a_runtime_killed_from_outside_is_a_failure_that_keeps_all_and_resumes(tmp_path: Path) -> None:
    script = [busy(tmp_path, text="I wait."), Reply.say("I know what I did")]
    host = FakeHost()
    async with claude_world(tmp_path, script) as world:
        run = await start(world, host, tmp_path / "running")
        await wait_until_async(lambda: "I wait." in written(tmp_path))  # it writes its session down a moment later
        (main,) = without_forks(pid for pid in bearing(world.mark) if "--session-id" in command_line(pid))
        os.kill(main, signal.SIGKILL)
        result = await run
        assert world.left() == []  # its Bash child, which leads a session of its own, too
        second = await world.runner.run(world.request("go on", session=result.session), FakeHost())
    world.model.check()
    failure = result.failure
    assert failure is not None
    assert (failure.category, failure.elsewhere) == (Category.RESOURCE, True)
    assert "SIGKILL while it was using Bash touch" in failure.message
    assert "memory" in failure.advice[0]
    assert result.output == "I wait."
    assert (result.usage.tokens_in, result.usage.usd) == (10, None)
    assert second.success
    told = world.model.requests[-1].text
    assert told.index("begin") < told.index("I wait.") < told.index("go on")


async def test_a8_what_runs_in_the_background_ends_with_the_step_and_that_is_said(tmp_path: Path) -> None:
    background = {"command": "tail -f /dev/null", "description": "a server", "run_in_background": True}
    host = FakeHost()
    async with claude_world(tmp_path, [Reply.use("Bash", background), Reply.say("it serves")]) as world:
        result = await world.runner.run(world.request(), host)
        assert world.left() == []
    assert (result.success, result.output) == (True, "it serves")
    assert host.notes[-1] == "commands in the background end with the step: a server"


async def test_a8_nothing_outlives_an_engine_that_is_killed_but_the_conversation(tmp_path: Path) -> None:
    mark = os.urandom(8).hex()
    async with ScriptedModel([busy(tmp_path, text="I wait.")]) as model:
        arguments = [str(ENGINE), str(tmp_path), model.url]
        engine = await asyncio.create_subprocess_exec(sys.executable, *arguments, env={**os.environ, MARK: mark})
        try:
            await wait_until_async((tmp_path / "running").exists)
            assert any("tail -f" in command_line(pid) for pid in bearing(mark))
            await wait_until_async(lambda: "I wait." in written(tmp_path))
        finally:
            engine.kill()
            await engine.wait()
        wait_promised(lambda: not bearing(mark), "nothing of it is left", 2)
    session = (tmp_path / "session").read_text()
    async with claude_world(tmp_path, [Reply.say("I went on")]) as world:
        result = await world.runner.run(world.request("go on", session=session), FakeHost())
    assert (result.output, result.session) == ("I went on", session)
    assert "I wait." in world.model.requests[-1].text
