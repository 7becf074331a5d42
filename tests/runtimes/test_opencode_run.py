"""`opencode run --format json`: a process for each turn (A3, A8)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hosts import FakeHost
from opencode_fixtures import Bench, needs_opencode

from windlass.ports import Answer, Permissions
from windlass.testing import Reply

Eventually = Callable[..., Awaitable[Any]]


@pytest_asyncio.fixture
async def by_run(tmp_path: Path) -> AsyncIterator[Bench]:
    made = Bench(tmp_path, contract="run")
    yield made
    await made.close()


def bash(command: str, text: str = "", **how: Any) -> Reply:
    return Reply.use("bash", {"command": command, "description": "a command"}, text=text, **how)


@needs_opencode
@pytest.mark.asyncio(loop_scope="session")
async def test_a3_a_turn_that_continues_a_session_of_a_server(bench: Bench) -> None:
    """A server has begun the session, which costs a start less. Those of the tests in `make soak` begin by `run`."""
    runner, host = bench.another_runner(contract="run"), FakeHost()
    script = (
        Reply.say("I remember."),
        bash("echo by the agent > made.txt", tokens_in=120, tokens_out=30, cache_read=20),
        Reply.say("It is written.", tokens_in=150, tokens_out=7),
    )
    async with bench.model(*script) as model:
        request = bench.request("the first words")
        first = await bench.runner.run(request, FakeHost())
        again = bench.request("go on", workdir=request.workdir, session=first.session, system="You are the tester.")
        second = await runner.run(again, host)
        model.check()
    assert second.success, second
    assert second.session == first.session
    assert second.metadata["directory"] == str(request.workdir)
    assert (request.workdir / "made.txt").read_text() == "by the agent\n"
    assert second.output == host.said == "It is written."
    assert [(act.tool, act.summary) for act in host.acts] == [("bash", "echo by the agent > made.txt")]
    assert host.sessions == [second.session]
    assert (second.usage.tokens_in, second.usage.tokens_out, second.usage.cache_read) == (270, 37, 20)
    assert (second.usage.usd, second.usage.source) == (None, "unknown")
    assert "You are the tester." in model.requests[1].system
    assert model.requests[1].last_user_text.strip() == "go on"
    assert "the first words" in str(model.requests[1].messages)


@pytest.mark.soak  # test_opencode_rules.py has the rules that it is given
@needs_opencode
async def test_a3_what_needs_a_question_is_refused_and_what_is_listed_is_not(by_run: Bench) -> None:
    bench, host = by_run, FakeHost(lambda asked: Answer(True))
    permissions = Permissions("ask", allow=("Bash(echo:*)",), deny=("Bash(echo secret:*)",))
    script = (bash("echo a > a.txt"), bash("echo secret > b.txt"), bash("touch c.txt"), Reply.say("done"))
    async with bench.model(*script) as model:
        request = bench.request("go", permissions=permissions)
        result = await bench.runner.run(request, host)
        model.check()
    assert result.success, result
    assert host.asks == []
    assert [path.name for path in request.workdir.iterdir()] == ["a.txt"]
    assert "bash was denied" in result.adjustments
    assert any("cannot ask" in line for line in result.adjustments)


@needs_opencode
@pytest.mark.parametrize("how", ["interrupt", pytest.param("cancel", marks=pytest.mark.soak)])
async def test_a8_nothing_of_a_stopped_turn_runs_on(by_run: Bench, eventually: Eventually, how: str) -> None:
    bench = by_run
    request, host = bench.request("go"), FakeHost()
    async with bench.model(bash("sleep 1011", "I will wait.")):
        running = asyncio.create_task(bench.runner.run(request, host))
        await eventually(lambda: bench.processes("opencode"))
        await eventually(lambda: bench.processes("sleep 1011"))
        if how == "interrupt":
            await bench.runner.interrupt(request.id)
            result = await running
            assert result.interrupted
            assert result.session is not None
        else:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        assert bench.processes("sleep 1011") == set()
        assert bench.processes("opencode") == set()


HELP = "echo '  opencode run [message..]  run opencode with a message'"
FAKE = f"#!/bin/sh\ncase $1 in --version) echo 1.0.0; exit 0;; --help) {HELP}; exit 0;; esac\n"
EVENT = """echo '{"type":"text","sessionID":"ses_1","part":{"id":"p","messageID":"m","type":"text","text":"hi"}}'"""
MISBEHAVIOUR: dict[str, tuple[str, str]] = {
    "exits 0 with nothing": ("true", "ended without an answer (exit code 0)"),
    "exits 5 after an answer": (f"{EVENT}; exit 5", "exit code 5"),
    "is killed after an answer": (f"{EVENT}; kill -9 $$", "killed by signal 9"),
    "says garbage": ("head -c 300000 /dev/urandom", "ended without an answer"),
    "floods one line": ("yes | tr -d '\\n' | head -c 60000000", "ended without an answer"),
}


@pytest.mark.parametrize("case", MISBEHAVIOUR)
async def test_a7_whatever_the_process_does_its_exit_code_decides(tmp_path: Path, case: str) -> None:
    deed, words = MISBEHAVIOUR[case]
    result = await _misbehaving(tmp_path, deed)
    assert result.failure is not None
    assert result.failure.elsewhere
    assert words in result.failure.message, result.failure.message
    assert result.output == ("hi" if "after an answer" in case else "")


async def test_a3_garbage_between_events_is_passed_over(tmp_path: Path) -> None:
    result = await _misbehaving(tmp_path, f"echo a banner; echo '[1'; echo 'null'; {EVENT}; printf '{{\"type\":'")
    assert result.success, result
    assert (result.output, result.session) == ("hi", "ses_1")


async def _misbehaving(base: Path, deed: str) -> Any:
    program = base / "opencode"
    program.write_text(f"{FAKE}cat > /dev/null\n{deed}\n")
    program.chmod(0o755)
    bench = Bench(base / "bench", binary=str(program))
    runner = bench.another_runner(path=str(program))
    try:
        assert "by run" in (await runner.available()).detail
        return await runner.run(bench.request("go"), FakeHost())
    finally:
        await bench.close()
