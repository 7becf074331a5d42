"""The cli runtime summarises, and what happens when the summary is no good (F2, F3)."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hosts import FakeHost, Used
from model_api_world import PROTOCOLS, SHELL, World, scripted

from windlass.context.limits import ContextRule
from windlass.context.tokens import estimate_tokens
from windlass.ports import ToolReturn
from windlass.runners.model_api.conversation import Conversation
from windlass.testing import Received, Reply

both = pytest.mark.parametrize("protocol", PROTOCOLS)
RULE = ContextRule(window=4_000)
GOOD = "The shell listed the invoices of every step, and each result was noted line by line in the list."
SECRET = "sk-ant-" + "api03-" + "x" * 30


def summarises(received: Received) -> bool:
    return received.system.startswith("You summarise")


def listing(used: Used) -> ToolReturn:
    return ToolReturn(f"invoice {used.arguments['command']}: noted in the list of results\n" * 25)


def script(summary: Reply, turns: int = 12) -> list[Reply]:
    calls = [Reply.use("shell", {"command": f"list {n}"}, text=f"Step {n} follows.") for n in range(turns)]
    return [summary, *calls, Reply.say("All done.")]


def summary(make: Callable[..., Reply], *given: Any, **how: Any) -> Reply:
    return make(*given, when=summarises, repeat=True, **how)


async def work(world: World, **how: Any) -> FakeHost:
    host = FakeHost(tools=[SHELL], tool=listing)
    result = await world.run(host, "Note every invoice of TICKET-77.", **{"context": RULE, **how})
    assert result.output == "All done.", result.failure
    return host


@both
async def test_f2_above_the_threshold_the_older_part_is_replaced_by_a_summary(protocol: str, tmp_path: Path) -> None:
    async with scripted(protocol, tmp_path, script(summary(Reply.say, GOOD, tokens_in=700))) as (world, model):
        host = await work(world)
    first, *_ = host.summaries
    assert (first["by"], first["model"]) == ("model", world.model)
    assert first["tokens_after"] < first["tokens_before"] * 0.7
    assert first["text"] == GOOD
    assert "Note every invoice of TICKET-77." in first["pinned"]
    assert first["usage"].tokens_in == 700
    assert host.usages[-1].tokens_in >= 700 * len(host.summaries), "it counts in the run's usage"
    last = model.requests[-1]
    assert GOOD in last.text
    assert "Note every invoice of TICKET-77." in last.text
    assert "You are careful." in last.system, "the system prompt stays"
    assert max(estimate_tokens(r.text) for r in model.requests if not summarises(r)) < 4_000


@both
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (summary(Reply.say, "Bananas dance merrily; penguins adore tropical sunshine every morning."), "not about"),
        (summary(Reply.say, "word " * 4000), "too long"),
        (summary(Reply.say, "."), "says nothing"),
        (summary(Reply.say, f"The shell listed each invoice in the list of results, with {SECRET}."), "a secret"),
        (summary(Reply.error, 500, "broken"), "could not summarise"),
        (summary(Reply.drop, "The shell li"), "could not summarise"),
        (summary(Reply.garbage), "could not summarise"),
        (summary(Reply.cut_short, "  "), "it is empty"),
    ],
)
async def test_f2_a_useless_summary_gives_way_to_key_points(
    protocol: str, answer: Reply, reason: str, tmp_path: Path
) -> None:
    async with scripted(protocol, tmp_path, script(answer)) as (world, model):
        host = await work(world)
    assert {made["by"] for made in host.summaries} == {"key points"}
    assert any(reason in note for note in host.notes), host.notes
    last = model.requests[-1].text
    assert "- used shell" in last
    assert "Note every invoice of TICKET-77." in last
    assert SECRET not in last
    assert SECRET not in json.dumps(host.summaries, default=str)


async def test_f2_another_model_summarises_if_the_settings_name_it(tmp_path: Path) -> None:
    async with scripted("anthropic", tmp_path, script(summary(Reply.say, GOOD))) as (world, model):
        host = await work(world, context=ContextRule(window=4_000, model="claude-sonnet-4-5"))
    assert {r.model for r in model.requests if summarises(r)} == {"claude-sonnet-4-5"}
    assert {r.model for r in model.requests if not summarises(r)} == {world.model}
    assert host.summaries[0]["model"] == "claude-sonnet-4-5"
    assert host.summaries[0]["usage"].usd > 0


async def test_f1_the_threshold_is_the_rules(tmp_path: Path) -> None:
    async with scripted("anthropic", tmp_path, script(summary(Reply.say, GOOD))) as (world, _):
        host = await work(world, context=ContextRule(window=8_000, threshold=0.4))
    assert 3_200 < host.summaries[0]["tokens_before"] < 4_200


@both
async def test_f3_a_request_that_the_provider_finds_too_long_is_summarised_and_sent_again(
    protocol: str, tmp_path: Path
) -> None:
    """Nobody knows the window here; the provider refuses the sixth request."""
    refusal = Reply.error(400, "prompt is too long: 5000 tokens > 4000 maximum")
    replies = script(summary(Reply.say, GOOD))
    replies.insert(7, refusal)
    async with scripted(protocol, tmp_path, replies) as (world, model):
        host = await work(world, context=ContextRule())
    assert host.summaries[0]["by"] == "model"
    assert any("too long for the model" in note for note in host.notes)
    assert GOOD in model.requests[-1].text


async def test_f3_a_prompt_that_can_never_fit_fails_with_advice(tmp_path: Path) -> None:
    always = Reply.error(400, "prompt is too long", repeat=True)
    async with scripted("anthropic", tmp_path, [always]) as (world, model):
        result = await world.run(FakeHost(), "word " * 20_000)
    assert result.failure is not None
    assert "too long" in result.failure.message
    assert len(model.requests) <= 4


async def test_f3_a_result_larger_than_the_window_is_cut_and_says_where_it_is(tmp_path: Path) -> None:
    replies = [Reply.use("shell", {"command": "cat"}), Reply.say("All done.")]
    async with scripted("anthropic", tmp_path, replies) as (world, model):
        host = FakeHost(tools=[SHELL], tool=lambda used: ToolReturn("row of data\n" * 100_000))
        result = await world.run(host, context=RULE, metadata={"execution": "E1", "step": "load"})
    assert result.success
    (told,) = model.requests[-1].tool_results
    assert estimate_tokens(told) < 1_500
    assert "windlass transcript E1 load" in told


async def test_f3_many_results_of_one_reply_are_cut_until_they_fit(tmp_path: Path) -> None:
    many = Reply.use("shell", {"command": "0"})
    for n in range(1, 12):
        many = many.and_use("shell", {"command": str(n)})
    async with scripted("anthropic", tmp_path, [many, Reply.say("All done.")]) as (world, model):
        host = FakeHost(tools=[SHELL], tool=lambda used: ToolReturn("7a-3f 9c-11\n" * 500))
        result = await world.run(host, context=RULE)
    assert result.success
    assert len(model.requests[-1].tool_results) == 12, "each call has its result"
    assert estimate_tokens(model.requests[-1].text) < 4_000
    assert host.summaries[-1]["by"] == "truncation"


async def test_f3_a_summary_that_a_person_asked_for_is_made_before_the_next_call(tmp_path: Path) -> None:
    async with scripted("anthropic", tmp_path, script(summary(Reply.say, GOOD), turns=8)) as (world, _):
        host = FakeHost(tools=[SHELL], tool=listing)
        host.wants_summary = True
        result = await world.run(host, "Note every invoice of TICKET-77.", context=ContextRule(window=200_000))
    assert result.success
    assert len(host.summaries) == 1
    assert host.summaries[0]["tokens_before"] < 5_000


async def test_f2_an_interrupted_summary_leaves_the_conversation_whole(tmp_path: Path) -> None:
    asked = threading.Event()

    def hangs(received: Received) -> bool:
        if summarises(received):
            asked.set()
        return summarises(received)

    async with scripted("anthropic", tmp_path, script(Reply.hang(when=hangs))) as (world, _):
        runner, host = world.runner(), FakeHost(tools=[SHELL], tool=listing)
        request = world.request("Note every invoice of TICKET-77.", context=RULE)
        running = asyncio.ensure_future(runner.run(request, host))
        await asyncio.to_thread(asked.wait, 300)
        await runner.interrupt(request.id)
        result = await running
    assert result.interrupted
    assert host.summaries == []
    kept = Conversation.load(tmp_path / "scratch", host.sessions[0])
    assert kept.summaries == []
    assert not kept.pending()
    assert len(kept.messages) == 2 * len(host.uses) + 1


async def test_f2_without_budget_for_a_summary_the_run_ends_with_its_conversation(tmp_path: Path) -> None:
    class Poor(FakeHost):
        async def afford(self, prompt: int) -> bool:
            return len(self.uses) < 6

    async with scripted("anthropic", tmp_path, script(summary(Reply.say, GOOD))) as (world, model):
        host = Poor(tools=[SHELL], tool=listing)
        result = await world.run(host, "Note every invoice of TICKET-77.", context=RULE)
    assert result.metadata["budget"]
    assert not any(summarises(r) for r in model.requests[8:])


@pytest.mark.parametrize("megabytes", [5, pytest.param(50, marks=pytest.mark.soak)])
async def test_f3_a_conversation_of_50_mb_goes_on(tmp_path: Path, megabytes: int) -> None:
    """One that an earlier version left behind: every result of it is kept whole in the file."""
    from pydantic_ai.messages import ModelRequest, ModelResponse, ToolCallPart, ToolReturnPart, UserPromptPart

    messages: list[Any] = [ModelRequest(parts=[UserPromptPart("Note every invoice of TICKET-77.")])]
    for n in range(10 * megabytes):
        messages.append(ModelResponse(parts=[ToolCallPart("shell", {"command": f"list {n}"}, f"c{n}")]))
        messages.append(ModelRequest(parts=[ToolReturnPart("shell", f"invoice {n} of the list\n" * 4_500, f"c{n}")]))
    big = Conversation(tmp_path / "scratch", "big")
    big.carry(messages)
    big.keep_now()
    assert big.size > megabytes * 1_000_000
    async with scripted("anthropic", tmp_path, [summary(Reply.say, GOOD), Reply.say("All done.")]) as (world, model):
        host = FakeHost(tools=[SHELL], tool=listing)
        before = time.process_time()
        result = await world.run(
            host, "Go on.", session="big", task="Note every invoice of TICKET-77.", context=ContextRule(window=32_000)
        )
        spent = time.process_time() - before
    assert result.output == "All done.", result.failure
    assert estimate_tokens(model.requests[-1].text) < 26_000
    assert "Note every invoice of TICKET-77." in model.requests[-1].text
    assert spent < 30
