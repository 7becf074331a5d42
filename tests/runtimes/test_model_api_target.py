"""Which model the cli runtime calls, where, with which key, and when it says that it can (A4, A6)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hosts import FakeHost, deps
from model_api_world import scripted
from waiting import PATIENCE

from windlass.errors import Category, Failure
from windlass.ports import AgentRequest, Brief
from windlass.runners.model_api.runner import ModelApiRunner
from windlass.runners.model_api.target import CURRENT, ModelTarget, choose
from windlass.testing import Reply

ANTHROPIC = {"ANTHROPIC_API_KEY": "ka"}
OPENAI = {"OPENAI_API_KEY": "ko"}
LOCAL = {"OPENAI_BASE_URL": "http://localhost:11434/v1"}
CLAUDE, GPT, HERE = "api.anthropic.com", "api.openai.com", "localhost:11434"


def found(name: str | None, env: dict[str, str], **how: str | None) -> ModelTarget | Failure:
    return choose(name, default=how.get("default"), env=env, base_url=how.get("base_url"))


@pytest.mark.parametrize(
    ("name", "env", "host", "model"),
    [
        ("anthropic:claude-x", ANTHROPIC, CLAUDE, "claude-x"),
        ("anthropic/claude-x", ANTHROPIC, CLAUDE, "claude-x"),
        ("openai:gpt-x", OPENAI, GPT, "gpt-x"),
        ("openai/gpt-x", OPENAI, GPT, "gpt-x"),
        ("openai:anything", OPENAI, GPT, "anything"),
        ("claude-x", {**ANTHROPIC, **OPENAI}, CLAUDE, "claude-x"),
        ("gpt-x", {**ANTHROPIC, **OPENAI}, GPT, "gpt-x"),
        ("o3-mini", OPENAI, GPT, "o3-mini"),
        ("sonnet", ANTHROPIC, CLAUDE, CURRENT["sonnet"]),
        ("Opus", ANTHROPIC, CLAUDE, CURRENT["opus"]),
        ("anthropic:haiku", ANTHROPIC, CLAUDE, CURRENT["haiku"]),
        ("qwen3:8b", LOCAL, HERE, "qwen3:8b"),
        ("qwen3:8b", {**LOCAL, **ANTHROPIC}, HERE, "qwen3:8b"),
        ("claude-x", {**LOCAL, **ANTHROPIC}, CLAUDE, "claude-x"),
        ("claude-x", LOCAL, HERE, "claude-x"),
        ("anthropic/claude-x", {**LOCAL, **ANTHROPIC}, HERE, "anthropic/claude-x"),
        ("gpt-oss:20b", LOCAL, HERE, "gpt-oss:20b"),
        (None, ANTHROPIC, CLAUDE, CURRENT["sonnet"]),
        (None, {**ANTHROPIC, **OPENAI}, CLAUDE, CURRENT["sonnet"]),
        (None, OPENAI, GPT, "gpt-5.5"),
        (None, LOCAL, HERE, ""),
    ],
)
def test_a4_a_name_means_one_model_at_one_place(name: str | None, env: dict[str, str], host: str, model: str) -> None:
    target = found(name, env)
    assert isinstance(target, ModelTarget), target
    assert (target.host, target.model) == (host, model)


@pytest.mark.parametrize(
    ("name", "env", "says", "advice"),
    [
        ("claude-x", OPENAI, "no key for Anthropic", "ANTHROPIC_API_KEY"),
        ("gpt-x", ANTHROPIC, "no key for OpenAI", "OPENAI_API_KEY"),
        ("anthropic:x", LOCAL, "no key for Anthropic", "ANTHROPIC_API_KEY"),
        ("qwen3:8b", {**ANTHROPIC, **OPENAI}, "the provider of the model 'qwen3:8b'", "anthropic:ID or openai:ID"),
        (None, {}, "no model to call", "ANTHROPIC_API_KEY"),
        ("claude-x", {"ANTHROPIC_API_KEY": ""}, "no key for Anthropic", "ANTHROPIC_API_KEY"),
    ],
)
def test_a4_a_name_that_cannot_be_called_says_which_variable_to_set(
    name: str | None, env: dict[str, str], says: str, advice: str
) -> None:
    failure = found(name, env)
    assert isinstance(failure, Failure)
    assert failure.category is Category.CONFIGURATION
    assert says in failure.message
    assert advice in failure.advice[0]


def test_a4_the_users_settings_win_over_the_environment_and_the_request_over_both() -> None:
    target = found("m", LOCAL, base_url="http://gpu.local:8000/v1")
    assert isinstance(target, ModelTarget)
    assert target.host == "gpu.local:8000"
    named = found("claude-x", ANTHROPIC, default="claude-y")
    assert isinstance(named, ModelTarget)
    assert named.model == "claude-x"


def test_a4_a_key_wins_over_a_token_and_neither_is_shown() -> None:
    both = found("claude-x", {**ANTHROPIC, "ANTHROPIC_AUTH_TOKEN": "secret-token"})
    assert isinstance(both, ModelTarget)
    assert (both.key, both.token) == ("ka", None)
    token = found("claude-x", {"ANTHROPIC_AUTH_TOKEN": "secret-token"})
    assert isinstance(token, ModelTarget)
    assert (token.key, token.token) == (None, "secret-token")
    assert "secret-token" not in f"{token} {token!r}"


@pytest.mark.parametrize(
    ("name", "env", "priced_as"),
    [
        ("claude-x", ANTHROPIC, "anthropic:claude-x"),
        ("gpt-x", OPENAI, "openai:gpt-x"),
        ("claude-x", LOCAL, "anthropic:claude-x"),
        ("qwen3:8b", LOCAL, "compatible:qwen3:8b"),
    ],
)
def test_e2_what_the_users_own_server_costs_no_list_knows(name: str, env: dict[str, str], priced_as: str) -> None:
    target = found(name, env)
    assert isinstance(target, ModelTarget)
    assert target.priced_as == priced_as


def runner(env: dict[str, str], default: str | None = None) -> ModelApiRunner:
    return ModelApiRunner(deps(env=env, model=default))


@pytest.mark.parametrize(
    ("name", "env", "variable"),
    [
        ("claude-x", {**ANTHROPIC, "ANTHROPIC_BASE_URL": ""}, "ANTHROPIC_BASE_URL"),
        ("anthropic:claude-x", {**ANTHROPIC, "ANTHROPIC_BASE_URL": " "}, "ANTHROPIC_BASE_URL"),
        (None, {**ANTHROPIC, "ANTHROPIC_BASE_URL": ""}, "ANTHROPIC_BASE_URL"),
        (None, {**OPENAI, "ANTHROPIC_BASE_URL": ""}, "ANTHROPIC_BASE_URL"),
        ("claude-x", {**LOCAL, "ANTHROPIC_BASE_URL": ""}, "ANTHROPIC_BASE_URL"),
        ("gpt-x", {**OPENAI, "OPENAI_BASE_URL": ""}, "OPENAI_BASE_URL"),
        ("openai:gpt-x", {**OPENAI, "OPENAI_BASE_URL": ""}, "OPENAI_BASE_URL"),
        ("anthropic/claude-x", {**ANTHROPIC, "OPENAI_BASE_URL": ""}, "OPENAI_BASE_URL"),
        ("qwen3:8b", {"OPENAI_BASE_URL": ""}, "OPENAI_BASE_URL"),
        (None, {**OPENAI, "OPENAI_BASE_URL": ""}, "OPENAI_BASE_URL"),
    ],
)
async def test_a4_an_address_that_is_set_but_empty_is_refused(
    name: str | None, env: dict[str, str], variable: str
) -> None:
    """A script was meant to have put one there; the provider's own server costs money."""
    failure = found(name, env)
    assert isinstance(failure, Failure)
    assert failure.category is Category.CONFIGURATION
    assert f"{variable} is set but empty" in failure.message
    assert f"unset {variable}" in failure.advice[0]
    assert not (await runner(env, name).available()).ok


@pytest.mark.parametrize(
    ("name", "env", "base_url"),
    [
        ("claude-x", {**ANTHROPIC, "OPENAI_BASE_URL": ""}, None),
        (None, {**ANTHROPIC, "OPENAI_BASE_URL": ""}, None),
        ("gpt-x", {**OPENAI, "ANTHROPIC_BASE_URL": ""}, None),
        ("qwen3:8b", {"OPENAI_BASE_URL": ""}, "http://localhost:11434/v1"),
    ],
)
def test_a4_an_empty_address_that_is_not_used_is_no_matter(
    name: str | None, env: dict[str, str], base_url: str | None
) -> None:
    assert isinstance(found(name, env, base_url=base_url), ModelTarget)


async def test_a4_it_is_available_when_a_model_can_be_called_and_says_which() -> None:
    health = await runner(ANTHROPIC, "claude-x").available()
    assert (health.ok, health.detail) == (True, "anthropic at api.anthropic.com, claude-x")
    health = await runner(LOCAL, "qwen3:8b").available()
    assert (health.ok, health.detail) == (True, "openai-compatible at localhost:11434, qwen3:8b")
    health = await runner({"OPENAI_BASE_URL": "http://ann:canary-1@localhost:11434/v1"}, "qwen3:8b").available()
    assert health.detail == "openai-compatible at localhost:11434, qwen3:8b"
    assert runner({}).name == "cli"


async def test_a4_it_is_not_available_without_a_key_and_says_what_to_set() -> None:
    health = await runner({}).available()
    assert not health.ok
    for variable in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        assert variable in health.advice


async def test_a4_a_missing_key_fails_at_once_without_any_call(tmp_path: Path) -> None:
    request = AgentRequest("x", "t", Brief("", "p"), tmp_path, tmp_path / "s", {}, model="claude-x")
    host = FakeHost()
    result = await runner({}).run(request, host)
    assert result.failure is not None
    assert result.failure.category is Category.CONFIGURATION
    assert not result.failure.elsewhere
    assert host.events == []
    assert (result.usage.usd, result.session) == (0.0, None)
    assert not (tmp_path / "s").exists()


async def test_a4_a_server_without_a_named_model_asks_for_one(tmp_path: Path) -> None:
    request = AgentRequest("x", "t", Brief("", "p"), tmp_path, tmp_path / "s", {})
    result = await runner(LOCAL).run(request, FakeHost())
    assert result.failure is not None
    assert result.failure.category is Category.CONFIGURATION
    assert "`model`" in result.failure.advice[0]


async def test_a4_a_local_server_needs_no_key_and_any_model_name_goes(tmp_path: Path) -> None:
    async with scripted("openai", tmp_path, [Reply.say("hello")]) as (world, model):
        local = runner({"OPENAI_BASE_URL": world.url})
        result = await local.run(world.request(model="qwen3:8b"), FakeHost())
    assert result.success
    assert model.requests[0].model == "qwen3:8b"
    assert result.metadata["provider"] == "openai-compatible"


async def test_a4_the_token_and_the_key_reach_the_server(tmp_path: Path) -> None:
    async with scripted("anthropic", tmp_path, [Reply.say("a"), Reply.say("b")]) as (world, model):
        base = {"ANTHROPIC_BASE_URL": world.url}
        request = world.request(model="claude-x")
        assert (await runner({**base, "ANTHROPIC_AUTH_TOKEN": "the-token"}).run(request, FakeHost())).success
        assert (await runner({**base, "ANTHROPIC_API_KEY": "the-key"}).run(request, FakeHost())).success
    sent = [f"{r.headers.get('authorization')} {r.headers.get('x-api-key')}" for r in model.requests]
    assert "the-token" in sent[0]
    assert "the-key" in sent[1]


async def test_a4_the_processs_own_environment_is_not_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys come from the environment that the runner is given, so that one of another account is never used."""
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY"):
        monkeypatch.setenv(name, "of-somebody-else")
    for name in ("ANTHROPIC_BASE_URL", "OPENAI_BASE_URL", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert not (await runner({}).available()).ok
    for protocol in ("anthropic", "openai"):
        async with scripted(protocol, tmp_path, [Reply.say("a")]) as (world, model):
            result = await world.run()
        assert result.success, result.failure
        assert "of-somebody-else" not in str(model.requests[0].headers)


async def test_a4_the_temperature_reaches_the_model(tmp_path: Path) -> None:
    async with scripted("openai", tmp_path, [Reply.say("a")]) as (world, model):
        assert (await world.run(model="qwen3:8b", temperature=0.25)).success
    assert model.requests[0].body["temperature"] == 0.25


@pytest.mark.parametrize(("protocol", "model"), [("anthropic", "claude-opus-5-5"), ("openai", "openai:gpt-5")])
async def test_a4_a_temperature_that_the_model_does_not_take_is_said_to_be_left_out(
    protocol: str, model: str, tmp_path: Path
) -> None:
    async with scripted(protocol, tmp_path, [Reply.say("a"), Reply.say("b")]) as (world, served):
        plain = await world.run(model=model)
        result = await world.run(model=model, temperature=0.25)
    assert plain.adjustments == ()
    assert "temperature" not in served.requests[1].body
    assert result.adjustments == (f"temperature was left out: {model.removeprefix('openai:')} takes none",)


def test_a4_neither_importing_nor_asking_for_health_loads_the_model_clients(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys; from windlass.runners import *; from windlass.runners.model_api.runner import *;"
        "r = ModelApiRunner(RunnerDeps(None, {'ANTHROPIC_API_KEY': 'k'}, lambda: 0.0, None));"
        "assert asyncio.run(r.available()).ok;"
        "heavy = {'pydantic_ai', 'anthropic', 'openai', 'genai_prices', 'httpx2'} & set(sys.modules); assert not heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)
