"""Servers of the real OpenCode that hang, die or have to be ended, with what their turns left behind (A3, A8).

These come last of all tests on the shared server, by the name of this file: after each of them a server has to start.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hosts import FakeHost
from opencode_fixtures import Bench, needs_opencode

from windlass.errors import Category
from windlass.testing import Reply

pytestmark = [needs_opencode, pytest.mark.asyncio(loop_scope="session")]
Eventually = Callable[..., Awaitable[Any]]

DAEMON = "setsid nohup sh -c 'sleep 1003; true' >/dev/null 2>&1 & sleep 0.2"


def bash(command: str, text: str = "") -> Reply:
    return Reply.use("bash", {"command": command, "description": "a command"}, text=text)


async def test_a3_a_server_that_falls_silent_is_ended_and_said_to_hang(
    bench: Bench, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = bench.request("go")
    monkeypatch.setattr("windlass.runners.opencode.server.SILENCE", 15.0)  # it sends a sign of life every ten
    async with bench.model(bash("sleep 1008")):
        running = asyncio.create_task(bench.runner.run(request, FakeHost()))
        await eventually(lambda: bench.processes("sleep 1008"))
        (server,) = bench.servers
        monkeypatch.setattr("windlass.runners.opencode.serve.SIGN_OF_LIFE", 1.0)
        os.kill(server, signal.SIGSTOP)
        result = await running
    assert result.failure is not None
    assert (result.failure.category, result.failure.elsewhere) == (Category.TRANSIENT, True)
    assert "has not answered" in result.failure.message
    assert bench.processes("sleep 1008") == set()
    assert server not in bench.servers


async def test_a3_a8_after_kill_9_of_the_server_a_new_one_goes_on_and_ends_with_a_daemon_that_its_turn_left(
    bench: Bench, eventually: Eventually
) -> None:
    request = bench.request("remember the word lighthouse")
    host = FakeHost()
    async with bench.model(bash("sleep 1004", "Noted."), bash(DAEMON), Reply.say("it was lighthouse")) as model:
        running = asyncio.create_task(bench.runner.run(request, host))
        await eventually(lambda: bench.processes("sleep 1004"))
        await host.until(lambda h: "Noted." in h.said)
        (server,) = bench.servers
        os.kill(server, signal.SIGKILL)
        first = await running
        assert first.failure is not None
        assert first.failure.category is Category.RESOURCE
        assert first.failure.elsewhere
        assert "died in the middle of the turn" in first.failure.message
        assert first.output == "Noted."
        await eventually(lambda: not bench.processes("sleep 1004"))
        again = bench.request("which word?", workdir=request.workdir, session=first.session)
        second = await bench.runner.run(again, FakeHost())
        model.check()
        assert bench.processes("sleep 1003") == set()
    assert second.success, second
    assert second.output == "it was lighthouse"
    assert "lighthouse" in str(model.requests[1].messages)
    assert bench.servers == set(), "what a turn leaves behind ends with its server"
