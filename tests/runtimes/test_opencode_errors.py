"""What can go wrong with the model behind OpenCode, by both of today's contracts: a clear failure each (A3, A7, C3)."""

from __future__ import annotations

import asyncio
import time

import pytest
from hosts import FakeHost
from opencode_fixtures import PRICE, PRICED, Bench, needs_opencode

from windlass.errors import Category
from windlass.runners.opencode.runner import OpenCodeRunner
from windlass.testing import Reply

pytestmark = [needs_opencode, pytest.mark.asyncio(loop_scope="session")]

LOGIC, TRANSIENT = Category.LOGIC, Category.TRANSIENT
PERMISSION, CONFIGURATION = Category.PERMISSION, Category.CONFIGURATION
CASES = {
    "400": (Reply.error(400, repeat=True), LOGIC, False, "answered 400: scripted 400"),
    "401": (Reply.error(401, repeat=True), PERMISSION, True, "answered 401: scripted 401"),
    "404": (Reply.error(404, repeat=True), CONFIGURATION, True, "answered 404: scripted 404"),
    "429": (Reply.error(429, repeat=True), TRANSIENT, True, "scripted 429"),
    "500": (Reply.error(500, repeat=True), TRANSIENT, True, "scripted 500"),
    "529": (Reply.error(529, repeat=True), TRANSIENT, True, "scripted 529"),
    "a dropped stream": (Reply.drop("half an ans", repeat=True), TRANSIENT, True, ""),
    "garbage": (Reply.garbage(repeat=True), TRANSIENT, True, "JSON"),
    "a refusal": (Reply.refuse("I would rather not"), LOGIC, False, "the model declined"),
    "an answer cut short": (Reply.cut_short("half an ans"), LOGIC, False, "longer than the model may give"),
    "an empty answer": (Reply.say(""), TRANSIENT, True, "ended without an answer"),
}


@pytest.fixture(scope="module")
def by_run(bench: Bench) -> OpenCodeRunner:
    return bench.another_runner(contract="run")


@pytest.fixture(params=["serve", pytest.param("run", marks=pytest.mark.soak)])
def runner(bench: Bench, by_run: OpenCodeRunner, request: pytest.FixtureRequest) -> OpenCodeRunner:
    return bench.runner if request.param == "serve" else by_run


BY_RUN = ("a dropped stream",)
"""A process for each takes seconds. `serve` has every ending in test_runner_endings.py."""


@pytest.mark.parametrize(
    ("contract", "case"),
    [
        pytest.param(contract, case, marks=() if contract == "run" and case in BY_RUN else pytest.mark.soak)
        for contract in ("serve", "run")
        for case in CASES
    ],
)
async def test_c3_the_model_apis_trouble_is_a_failure_of_its_kind(
    bench: Bench, by_run: OpenCodeRunner, contract: str, case: str
) -> None:
    runner = bench.runner if contract == "serve" else by_run
    reply, category, elsewhere, words = CASES[case]
    async with bench.model(reply) as model:
        result = await runner.run(bench.request("go"), FakeHost())
        assert model.errors == []
    assert result.failure is not None, result
    assert (result.failure.category, result.failure.elsewhere) == (category, elsewhere), result.failure
    assert words in result.failure.message
    assert result.failure.message.startswith("open-code: ")
    assert result.session is not None
    assert result.usage.usd is None


async def test_a7_a_model_that_is_not_there_is_named(bench: Bench, runner: OpenCodeRunner) -> None:
    model = "scripted/nothing-like-it"
    async with bench.model(Reply.say("never")) as scripted:
        result = await runner.run(bench.request("go", model=model), FakeHost())
        assert scripted.requests == []
    assert result.failure is not None
    assert (result.failure.category, result.failure.elsewhere) == (CONFIGURATION, True), result.failure
    assert any("opencode models" in line for line in result.failure.advice)


async def test_a3_a_lost_session_says_so(bench: Bench, runner: OpenCodeRunner) -> None:
    async with bench.model():
        request = bench.request("go", session="ses_000000000000aaaaaaaaaaaaaa")
        result = await runner.run(request, FakeHost())
    assert result.failure is not None
    assert result.failure.category is TRANSIENT
    assert result.metadata["session_lost"] is True
    assert result.session is None


@pytest.mark.parametrize("contract", ["serve", "run"])
async def test_a3_a_prompt_of_two_megabytes_arrives_whole(bench: Bench, by_run: OpenCodeRunner, contract: str) -> None:
    runner = bench.runner if contract == "serve" else by_run
    prompt = "word " * 400_000 + "the end"
    async with bench.model(Reply.say("long")) as model:
        result = await runner.run(bench.request(prompt), FakeHost())
        model.check()
    assert result.output == "long"
    assert model.requests[0].last_user_text.strip() == prompt


async def test_c3_a_quota_says_when_it_comes_back(bench: Bench) -> None:
    async with bench.model(Reply.error(429, headers={"retry-after": "3600"}, repeat=True)):
        before = time.time()
        result = await bench.runner.run(bench.request("go"), FakeHost())
    assert result.failure is not None
    assert result.failure.retry_after == pytest.approx(3600, abs=60)
    assert result.failure.resets_at is not None
    assert before + 3599 <= result.failure.resets_at <= time.time() + 3601


async def test_a3_what_was_said_before_the_model_hung_survives_an_interrupt(bench: Bench) -> None:
    request, host = bench.request("go"), FakeHost()
    async with bench.model(Reply.hang("so far so good")):
        running = asyncio.create_task(bench.runner.run(request, host))
        await host.until(lambda h: h.said == "so far so good")
        await bench.runner.interrupt(request.id)
        result = await running
    assert result.interrupted
    assert result.output == "so far so good"
    assert result.usage.usd is None


class Ours:
    def cost(self, model: str, usage: object) -> float:
        assert model == "scripted/scripted"
        return 1.25


async def test_e2_the_cost_that_opencode_reports_is_taken_and_ours_only_where_it_has_none(bench: Bench) -> None:
    patient, host = bench.runner_beside(prices=Ours(), retries=2), FakeHost()
    script = (Reply.error(529, "overloaded"), *[Reply.say("got over it", tokens_in=100, tokens_out=10)] * 2)
    async with bench.model(*script) as model:
        theirs = await patient.run(bench.request("go", model=PRICED), host)
        ours = await patient.run(bench.request("go"), FakeHost())
        model.check()
    assert (ours.usage.usd, ours.usage.source) == (1.25, "prices")
    assert (theirs.output, theirs.usage.source) == ("got over it", "runtime")
    assert theirs.usage.usd == pytest.approx((100 * PRICE["input"] + 10 * PRICE["output"]) / 1e6)
    assert len(host.notes) == 1, "a hiccup that OpenCode gets over by itself is told"
    assert "overloaded" in host.notes[0]
