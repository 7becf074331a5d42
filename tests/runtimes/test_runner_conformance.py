"""One suite for every runner: what `ports.Runner` promises, on the real runtimes (A1). A new one is one more world."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from acp_world import GEMINI_MODEL, acp_world, needs_codex, needs_gemini
from claude_fixtures import claude_world
from hosts import FakeHost
from model_api_world import scripted
from opencode_fixtures import Bench, needs_opencode
from waiting import PATIENCE

from windlass.errors import Category
from windlass.ports import AgentRequest, Runner
from windlass.testing import Received, Reply, ScriptedModel

UNKNOWN = {
    "claude-code": "00000000-0000-7000-8000-000000000000",
    "open-code": "ses_00000000000000000000000000",
    "cli": "never-held",
    "codex": "00000000-0000-7000-8000-000000000000",
    "gemini": "00000000-0000-7000-8000-000000000000",
    "acp": "00000000-0000-7000-8000-000000000000",
}
USED = {"codex": (110, 0), "acp": (110, 0)}
"""Tokens in and out that a runtime tells; codex-acp 0.16 adds them up. The others tell what the model did."""


class World(NamedTuple):
    runner: Runner
    model: ScriptedModel
    ask: Callable[..., AgentRequest]


def reply(received: Received) -> Reply:
    """What the model says depends on what it was asked last."""
    asked = received.last_user_text
    if "STAY-SILENT" in asked:
        return Reply.hang()
    if "TURN-AWAY" in asked:
        return Reply.error(401, "invalid x-api-key")
    return Reply.say(f"answer to {asked.split()[-1]}", tokens_in=100, tokens_out=10)


@asynccontextmanager
async def claude_code(folder: Path) -> AsyncIterator[World]:
    async with claude_world(folder, reply) as world:
        yield World(world.runner, world.model, world.request)


@asynccontextmanager
async def cli(folder: Path) -> AsyncIterator[World]:
    async with scripted("anthropic", folder, reply) as (world, model):
        yield World(world.runner(), model, world.request)


@asynccontextmanager
async def codex(folder: Path) -> AsyncIterator[World]:
    async with acp_world("codex", folder, reply) as world:
        yield World(world.runner, world.model, world.request)


@asynccontextmanager
async def gemini(folder: Path) -> AsyncIterator[World]:
    async with acp_world("gemini", folder, reply) as world:
        yield World(world.runner, world.model, partial(world.request, model=GEMINI_MODEL))


@asynccontextmanager
async def acp(folder: Path) -> AsyncIterator[World]:
    async with acp_world("acp", folder, reply) as world:
        yield World(world.runner, world.model, world.request)


WORLDS: dict[str, Callable[[Path], AbstractAsyncContextManager[World]]] = {
    "claude-code": claude_code,
    "cli": cli,
    "codex": codex,
    "gemini": gemini,
    "acp": acp,
}
MARKS = {"codex": [needs_codex], "gemini": [needs_gemini], "acp": [needs_codex]}


@pytest.mark.parametrize("name", [pytest.param(name, marks=MARKS.get(name, [])) for name in WORLDS])
async def test_a1_every_runner_keeps_the_promises_of_its_port(name: str, tmp_path: Path) -> None:
    async with WORLDS[name](tmp_path) as (runner, model, ask):
        assert runner.name == name
        await _keeps_its_promises(runner, model, ask)
        await runner.close()


@needs_opencode
@pytest.mark.asyncio(loop_scope="session")
async def test_a1_the_runner_of_opencode_keeps_them_on_a_warm_server(bench: Bench) -> None:
    """It closes its runner when the last test of it has ended."""
    work = bench.folder()
    async with ScriptedModel(reply, port=bench.port) as model:
        await _keeps_its_promises(bench.runner, model, partial(bench.request, workdir=work))


async def _keeps_its_promises(runner: Runner, model: ScriptedModel, ask: Callable[..., AgentRequest]) -> None:
    health = await runner.available()
    assert (health.ok, bool(health.detail)) == (True, True)
    await runner.interrupt("of nobody")
    session = await _answers(runner, model, ask("say one"))
    await _goes_on(runner, model, ask("say two", session=session), session)
    await _ends_when_interrupted(runner, model, ask("STAY-SILENT"))
    await _gives_failures_and_raises_none(runner, ask)
    await _says_when_a_conversation_is_lost(runner, ask("say three", session=UNKNOWN[runner.name]))


async def _answers(runner: Runner, model: ScriptedModel, request: AgentRequest) -> str:
    host = FakeHost()
    result = await runner.run(request, host)
    assert (result.success, result.failure, result.interrupted) == (True, None, False)
    assert result.output == "answer to one"
    assert "answer to one" in host.said
    assert result.session
    assert host.sessions[-1] == result.session
    tokens = USED.get(runner.name, (100, 10))
    assert (result.usage.tokens_in, result.usage.tokens_out) == tokens
    assert (model.served.tokens_in, model.served.tokens_out) == (100, 10)
    assert host.usages[-1].tokens_in == tokens[0]
    assert result.duration >= 0
    return result.session


async def _goes_on(runner: Runner, model: ScriptedModel, request: AgentRequest, session: str) -> None:
    result = await runner.run(request, FakeHost())
    assert (result.output, result.session) == ("answer to two", session)
    assert "answer to one" in model.requests[-1].text, "it is the same conversation"
    assert result.usage.tokens_in == USED.get(runner.name, (100, 10))[0], "what the first run used is not counted again"


async def _ends_when_interrupted(runner: Runner, model: ScriptedModel, request: AgentRequest) -> None:
    before = len(model.requests)
    run = asyncio.create_task(runner.run(request, FakeHost()))
    await model.wait_for_async(before + 1, PATIENCE)
    await runner.interrupt(request.id)
    result = await run
    assert (result.interrupted, result.success) == (True, False)
    assert result.session


async def _gives_failures_and_raises_none(runner: Runner, ask: Callable[..., Any]) -> None:
    result = await runner.run(ask("TURN-AWAY"), FakeHost())
    assert result.failure is not None
    assert result.failure.category is Category.PERMISSION
    assert result.failure.advice
    assert not result.success
    assert result.failure.elsewhere is (runner.name != "cli")


async def _says_when_a_conversation_is_lost(runner: Runner, request: AgentRequest) -> None:
    result = await runner.run(request, FakeHost())
    assert result.failure is not None
    assert result.metadata.get("session_lost") is True
