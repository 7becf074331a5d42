"""Interrupts, cancellation, kills: nothing of a turn runs on, and its conversation goes on (A3, A8)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hosts import FakeHost
from opencode_fixtures import Bench, needs_opencode, opencode_binary

from windlass.ports import Answer, Permissions, ToolSpec
from windlass.runners.opencode.server import events
from windlass.testing import Reply

pytestmark = [needs_opencode, pytest.mark.asyncio(loop_scope="session")]
Eventually = Callable[..., Awaitable[Any]]


def bash(command: str, text: str = "") -> Reply:
    return Reply.use("bash", {"command": command, "description": "a command"}, text=text)


async def test_a8_an_interrupt_ends_a_running_command_and_the_conversation_goes_on(
    bench: Bench, eventually: Eventually
) -> None:
    request = bench.request("the first words")
    host = FakeHost()
    async with bench.model(bash("sleep 1001", "I will wait."), Reply.say("resumed")) as model:
        running = asyncio.create_task(bench.runner.run(request, host))
        await eventually(lambda: bench.processes("sleep 1001"))
        await host.until(lambda h: "I will wait." in h.said)
        await bench.runner.interrupt(request.id)
        assert bench.processes("sleep 1001") == set()
        first = await running
        assert first.interrupted
        assert first.failure is None
        assert first.output == "I will wait."
        assert first.session == host.sessions[0]
        again = bench.request("go on", workdir=request.workdir, session=first.session)
        second = await bench.runner.run(again, FakeHost())
        model.check()
    assert second.success, second
    assert second.session == first.session
    assert "the first words" in str(model.requests[1].messages)


async def test_a3_a_session_is_continued_in_its_folder_by_whatever_path(bench: Bench, tmp_path: Path) -> None:
    request = bench.request("begin")
    (link := tmp_path / "link").symlink_to(request.workdir)
    async with bench.model(Reply.say("begun"), bash("pwd > here.txt"), Reply.say("done")) as model:
        first = await bench.runner.run(request, FakeHost())
        second = await bench.runner.run(bench.request("go on", workdir=link, session=first.session), FakeHost())
        model.check()
    assert second.success, second
    assert second.session == first.session
    assert (request.workdir / "here.txt").read_text().strip() == str(request.workdir)


async def test_a8_a_cancelled_run_leaves_no_process_and_the_next_one_works(
    bench: Bench, eventually: Eventually
) -> None:
    async with bench.model(bash("sleep 1002"), Reply.say("still here")) as model:
        running = asyncio.create_task(bench.runner.run(bench.request("go"), FakeHost()))
        await eventually(lambda: bench.processes("sleep 1002"))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert bench.processes("sleep 1002") == set()
        assert (await bench.runner.run(bench.request("and you?"), FakeHost())).output == "still here"
        model.check()


async def test_a8_a_server_that_hangs_is_ended_by_an_interrupt_and_replaced(
    bench: Bench, eventually: Eventually
) -> None:
    request = bench.request("go")
    async with bench.model(bash("sleep 1005"), Reply.say("a new one")) as model:
        running = asyncio.create_task(bench.runner.run(request, FakeHost()))
        await eventually(lambda: bench.processes("sleep 1005"))
        (server,) = bench.servers
        os.kill(server, signal.SIGSTOP)
        await bench.runner.interrupt(request.id)
        assert (await running).interrupted
        assert bench.processes("sleep 1005") == set()
        assert server not in bench.servers
        assert (await bench.runner.run(bench.request("next"), FakeHost())).output == "a new one"
        model.check()


async def test_a8_an_interrupted_turn_with_tools_of_the_engine_keeps_its_conversation_when_the_server_hangs(
    bench: Bench, eventually: Eventually
) -> None:
    request, tool = bench.request("go"), ToolSpec("code", "Run a program.", {"type": "object"})
    host = FakeHost(tools=[tool])
    async with bench.model(bash("sleep 1007")):
        running = asyncio.create_task(bench.runner.run(request, host))
        await eventually(lambda: bench.processes("sleep 1007"))
        (server,) = bench.servers
        os.kill(server, signal.SIGSTOP)
        await bench.runner.interrupt(request.id)
        result = await running
    assert (result.interrupted, result.failure, result.session) == (True, None, host.sessions[0])


async def test_a3_an_interrupt_of_a_run_that_is_not_there_does_nothing(bench: Bench) -> None:
    await bench.runner.interrupt("nobody:knows:1")


async def test_a3_four_runs_share_one_server(bench: Bench, eventually: Eventually) -> None:
    script = [Reply.use("write", {"filePath": f"{n}.txt", "content": "x"}, when=f"task {n}") for n in range(4)]
    async with bench.model(*script, *(Reply.say(f"done {n}", when=f"task {n}") for n in range(4))) as model:
        requests = [bench.request(f"task {n}") for n in range(4)]
        results = await asyncio.gather(*(bench.runner.run(request, FakeHost()) for request in requests))
        model.check()
    assert [result.output for result in results] == [f"done {n}" for n in range(4)]
    assert [(r.workdir / f"{n}.txt").exists() for n, r in enumerate(requests)] == [True] * 4
    assert len({result.session for result in results}) == 4
    assert len(bench.servers) == 1


async def test_a8_when_the_engine_is_killed_its_server_and_commands_end(
    bench: Bench, eventually: Eventually, tmp_path: Path
) -> None:
    other = Bench(tmp_path)
    program = Path(__file__).with_name("opencode_engine.py")
    async with other.model(bash("sleep 1006"), Reply.say("never")):
        engine = await asyncio.create_subprocess_exec(
            sys.executable, str(program), str(tmp_path), env={**os.environ, "PYTHONPATH": str(program.parents[1])}
        )
        await eventually(lambda: other.servers)
        await eventually(lambda: other.processes("sleep 1006"))
        engine.kill()
        await engine.wait()
        await eventually(lambda: not other.processes("sleep 1006") and not other.servers)
    await other.close()


async def test_a3_an_interrupt_while_the_server_still_starts_ends_the_run_at_once(
    bench: Bench, eventually: Eventually, tmp_path: Path
) -> None:
    program = tmp_path / "opencode"
    waits = "[ $1 = serve ] && while true; do sleep 0.1; done"
    program.write_text(f'#!/bin/sh\n{waits}\nexec {opencode_binary()} "$@"\n')
    program.chmod(0o755)
    runner = bench.another_runner(path=str(program))
    assert (await runner.available()).ok
    before = bench.servers
    request = bench.request("go")
    try:
        running = asyncio.create_task(runner.run(request, FakeHost()))
        await eventually(lambda: bench.servers - before)
        await runner.interrupt(request.id)
        result = await running
    finally:
        await runner.close()
    assert result.interrupted
    assert result.session is None
    assert not bench.servers - before


async def test_a3_a_stream_of_events_that_breaks_is_taken_up_again(bench: Bench, tmp_path: Path) -> None:
    class Noting(FakeHost):
        def note(self, text: str, *, waits: bool = False) -> None:
            super().note(text, waits=waits)
            if "is taken up again" in text:
                silence.undo()
                (tmp_path / "broken").touch()

    host = Noting(lambda asked: Answer(True))
    command = f"until [ -e {tmp_path / 'broken'} ]; do sleep 0.1; done"
    with pytest.MonkeyPatch.context() as silence:
        silence.setattr("windlass.runners.opencode.server.SILENCE", 2.0)  # signs of life come every ten seconds
        async with bench.model(bash(command), Reply.say("all of it")) as model:
            result = await bench.runner.run(bench.request("go", permissions=Permissions("ask")), host)
            model.check()
    assert result.success, result
    assert result.output == "all of it"
    assert len(host.asks) == 1
    assert any("is taken up again" in note for note in host.notes)


async def test_a3_words_that_were_said_while_the_stream_was_broken_are_read_at_the_end(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broke = []

    async def lossy(server: Any, directory: str) -> AsyncIterator[Any]:
        """Breaks at the command, and has no message after it; the command ends once the stream is taken up again."""
        async for event in events(server, directory):
            if broke and str(event.get("type")).startswith("message."):
                continue
            if ((event.get("properties") or {}).get("part") or {}).get("type") == "tool":
                broke.append(event)
                raise httpx2.ReadError("broken")
            yield event
            if broke:
                (tmp_path / "go").touch()

    monkeypatch.setattr("windlass.runners.opencode.serve.events", lossy)
    command = f"until [ -e {tmp_path / 'go'} ]; do sleep 0.1; done"
    async with bench.model(bash(command), Reply.say("all of it")) as model:
        result = await bench.runner.run(bench.request("go", permissions=Permissions("allow")), FakeHost())
        model.check()
    assert (result.output, result.failure) == ("all of it", None)
    assert len(broke) == 1
