"""What can go wrong between the cli runtime and a model, and what it says about it (A4, A7, C3)."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hosts import FakeHost
from model_api_world import (
    NOW,
    PROTOCOLS,
    SHELL,
    RawModel,
    World,
    anthropic_stream,
    openai_call,
    openai_stream,
    scripted,
)
from waiting import PATIENCE

from windlass.errors import MODEL_API, REFUSED_CONTENT, Category
from windlass.ports import ToolReturn
from windlass.testing import Reply

both = pytest.mark.parametrize("protocol", PROTOCOLS)


def stamp(seconds: float) -> str:
    return datetime.fromtimestamp(NOW + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@both
@pytest.mark.parametrize(
    ("status", "message", "category"),
    [
        (400, "messages: something is wrong", Category.LOGIC),
        (400, "prompt is too long: 250000 tokens > 200000 maximum", Category.LOGIC),
        (400, "Your credit balance is too low", Category.PERMISSION),
        (401, "invalid key", Category.PERMISSION),
        (402, "pay first", Category.PERMISSION),
        (403, "not for you", Category.PERMISSION),
        (404, "model: nope", Category.CONFIGURATION),
        (413, "too large", Category.LOGIC),
        (429, "slow down", Category.TRANSIENT),
        (500, "oops", Category.TRANSIENT),
        (503, "busy", Category.TRANSIENT),
        (529, "overloaded", Category.TRANSIENT),
    ],
)
async def test_c3_every_status_has_its_category_and_is_told_at_once(
    protocol: str, status: int, message: str, category: Category, tmp_path: Path
) -> None:
    async with scripted(protocol, tmp_path, [Reply.error(status, message)]) as (world, model):
        result = await world.run()
    failure = result.failure
    assert failure is not None
    assert failure.category is category
    assert str(status) in failure.message
    assert message in failure.message
    assert not failure.elsewhere  # A7: cli falls back to nothing
    assert (failure.retry_after, failure.resets_at) == (None, None)
    assert len(model.requests) == 1, "whether to try again is the engine's decision"
    assert (result.usage.tokens_in, result.usage.usd) == (0, 0.0), "a refused request costs nothing"
    assert result.session is not None
    assert (failure.kind == REFUSED_CONTENT) is (category is Category.LOGIC)
    assert (failure.kind == MODEL_API) is (category is Category.TRANSIENT)


@both
async def test_c3_a_short_wait_that_the_api_asks_for_is_a_hiccup(protocol: str, tmp_path: Path) -> None:
    script = [Reply.error(429, "slow down", headers={"retry-after": "7"})]
    async with scripted(protocol, tmp_path, script) as (world, _):
        failure = (await world.run()).failure
    assert failure is not None
    assert (failure.retry_after, failure.resets_at) == (7.0, None)


@both
async def test_c3_a_long_wait_that_the_api_asks_for_is_a_quota_that_comes_back(protocol: str, tmp_path: Path) -> None:
    script = [Reply.error(429, "come back", headers={"retry-after": "3600"})]
    async with scripted(protocol, tmp_path, script) as (world, _):
        failure = (await world.run()).failure
    assert failure is not None
    assert failure.resets_at == NOW + 3600


@pytest.mark.parametrize(
    ("headers", "resets_at", "retry_after"),
    [
        ({"anthropic-ratelimit-tokens-reset": stamp(1800)}, NOW + 1800, None),
        ({"anthropic-ratelimit-unified-reset": str(int(NOW) + 18000)}, NOW + 18000, None),
        (
            {
                "anthropic-ratelimit-requests-remaining": "40",
                "anthropic-ratelimit-requests-reset": stamp(9000),
                "anthropic-ratelimit-tokens-remaining": "0",
                "anthropic-ratelimit-tokens-reset": stamp(600),
            },
            NOW + 600,
            None,
        ),
        ({"anthropic-ratelimit-tokens-reset": stamp(20)}, None, 20.0),
        ({"anthropic-ratelimit-tokens-reset": "soon"}, None, None),
    ],
)
async def test_c3_anthropics_headers_say_when_the_quota_that_is_used_up_comes_back(
    headers: dict[str, str], resets_at: float | None, retry_after: float | None, tmp_path: Path
) -> None:
    script = [Reply.error(429, "limit", headers=headers)]
    async with scripted("anthropic", tmp_path, script) as (world, _):
        failure = (await world.run()).failure
    assert failure is not None
    assert (failure.resets_at, failure.retry_after) == (resets_at, retry_after)


@pytest.mark.parametrize(
    ("value", "resets_at", "retry_after"),
    [("6m0s", NOW + 360, None), ("1h30m", NOW + 5400, None), ("120ms", None, 0.12), ("1.5s", None, 1.5)],
)
async def test_c3_openais_headers_say_how_long_the_quota_is_gone(
    value: str, resets_at: float | None, retry_after: float | None, tmp_path: Path
) -> None:
    headers = {"x-ratelimit-reset-tokens": value, "x-ratelimit-remaining-tokens": "0"}
    async with scripted("openai", tmp_path, [Reply.error(429, "limit", headers=headers)]) as (world, _):
        failure = (await world.run()).failure
    assert failure is not None
    assert failure.resets_at == resets_at
    assert failure.retry_after == (None if retry_after is None else pytest.approx(retry_after, abs=1e-3))


async def test_c3_an_empty_account_is_no_quota_that_comes_back(tmp_path: Path) -> None:
    """OpenAI says 429 for both; waiting helps against one of them only."""
    error = {"message": "You exceeded your current quota", "type": "insufficient_quota", "code": "insufficient_quota"}
    model = RawModel([json.dumps({"error": error})], status="429 Too Many Requests", kind="application/json")
    async with model.serve("openai", tmp_path) as world:
        failure = (await world.run()).failure
    assert failure is not None
    assert failure.category is Category.PERMISSION
    assert "cannot pay" in failure.advice[0]


async def test_c3_an_unknown_model_names_the_server_and_the_model(tmp_path: Path) -> None:
    async with scripted("openai", tmp_path, [Reply.error(404, "no such model")]) as (world, _):
        failure = (await world.run(model="homemade-7b")).failure
    assert failure is not None
    assert failure.category is Category.CONFIGURATION
    assert "homemade-7b" in failure.advice[0]
    assert world.url in failure.advice[0]


async def test_c3_the_key_is_never_part_of_a_message(tmp_path: Path) -> None:
    async with scripted("openai", tmp_path, [Reply.error(401, "no such key: key-of-the-test")]) as (world, _):
        result = await world.run()
    assert result.failure is not None
    assert "key-of-the-test" not in repr(result)
    assert "no such key: ***" in result.failure.message


@both
async def test_a4_an_error_inside_a_stream_keeps_what_was_said(protocol: str, tmp_path: Path) -> None:
    async with scripted(protocol, tmp_path, [Reply.error(529, "overloaded", after="half of it")]) as (world, _):
        result = await world.run()
    assert result.failure is not None
    assert result.failure.category is Category.TRANSIENT
    assert result.output == "half of it"
    assert result.usage.usd is None, "the model had begun: nobody knows what it cost"


@both
async def test_a4_an_error_that_comes_first_in_a_stream_may_have_been_paid_for(protocol: str, tmp_path: Path) -> None:
    error = {"type": "overloaded_error", "message": "too many", "code": "server_is_overloaded"}
    body = f"event: error\ndata: {json.dumps({'type': 'error', 'error': error})}\n\n"
    async with RawModel([body]).serve(protocol, tmp_path) as world:
        result = await world.run()
    assert result.failure is not None
    assert result.failure.category is Category.TRANSIENT
    assert "too many" in result.failure.message
    assert (result.usage.usd, result.usage.source) == (None, "unknown")


@both
async def test_a4_a_broken_connection_is_transient_and_keeps_what_was_said(protocol: str, tmp_path: Path) -> None:
    script = [Reply.use("shell", {}, text="First. "), Reply.drop(after="Then I")]
    async with scripted(protocol, tmp_path, script) as (world, _):
        host = FakeHost(tools=[SHELL], tool=lambda used: ToolReturn("ok"))
        result = await world.run(host)
    assert result.failure is not None
    assert result.failure.category is Category.TRANSIENT
    assert not result.failure.elsewhere
    assert result.output == "First. \n\nThen I"
    assert (result.usage.usd, result.usage.source) == (None, "unknown")


@both
async def test_a4_a_connection_that_breaks_before_any_word_is_transient(protocol: str, tmp_path: Path) -> None:
    async with scripted(protocol, tmp_path, [Reply.drop()]) as (world, _):
        result = await world.run()
    assert result.failure is not None
    assert result.failure.category is Category.TRANSIENT
    assert result.usage.usd is None, "the request was sent: it may have been paid for"


@both
async def test_a4_bytes_that_mean_nothing_are_transient(protocol: str, tmp_path: Path) -> None:
    async with scripted(protocol, tmp_path, [Reply.garbage()]) as (world, _):
        result = await world.run()
    assert result.failure is not None
    assert result.failure.category is Category.TRANSIENT


NONSENSE = ["data: {not json\n\n", 'data: {"a": 1}\n\n', 'data: [1, 2]\n\ndata: "x"\n\n', "data: 7\n\n", "", "<html>"]


@both
@pytest.mark.parametrize("body", NONSENSE)
async def test_a4_no_nonsense_in_a_stream_makes_it_raise_or_succeed(protocol: str, body: str, tmp_path: Path) -> None:
    kinds = "".join(f"event: {kind}\n{body}" for kind in ("message_start", "content_block_delta"))
    async with RawModel([kinds if protocol == "anthropic" else body]).serve(protocol, tmp_path) as world:
        result = await world.run()
    assert result.failure is not None
    assert result.failure.category is Category.TRANSIENT
    assert ": )" not in result.failure.message, "a reason is given, or none"


@both
async def test_a4_a_reply_without_counts_of_tokens_is_read_or_refused_with_a_reason(
    protocol: str, tmp_path: Path
) -> None:
    body = anthropic_stream(("text", "done")) if protocol == "anthropic" else openai_stream({"content": "done"})
    body = re.sub(r'"usage": \{[^}]*\}', '"usage": null', body)
    async with RawModel([body]).serve(protocol, tmp_path) as world:
        result = await world.run()
    if protocol == "openai":
        assert (result.failure, result.output) == (None, "done")
    else:
        assert result.failure is not None
        assert "is not in the form of the anthropic API" in result.failure.message
    assert result.usage.usd is None, "nobody counted"


@both
async def test_a4_a_stream_that_just_ends_is_not_taken_for_an_answer(protocol: str, tmp_path: Path) -> None:
    cut = {
        "anthropic": anthropic_stream(("text", "The answer is"), stop=None),
        "openai": openai_stream({"content": "The answer is"}, finish=None, usage=False),
    }
    async with RawModel([cut[protocol]]).serve(protocol, tmp_path) as world:
        result = await world.run()
    assert result.failure is not None
    assert result.failure.category is Category.TRANSIENT
    assert "cut off" in result.failure.message
    assert result.output == "The answer is"
    assert result.usage.usd is None


@both
async def test_a4_a_server_that_does_not_run_is_named_with_what_to_do(protocol: str, tmp_path: Path) -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        result = await World(protocol, url.replace("//", "//ann:canary-1@"), tmp_path).run()
    failure = result.failure
    assert failure is not None
    assert "canary" not in str(failure)
    assert failure.category is Category.TRANSIENT
    assert not failure.elsewhere
    assert "refused" in failure.message
    assert failure.advice[0] == f"start the model server at {url}"
    assert failure.advice[1] == f"or correct {protocol.upper()}_BASE_URL"
    assert result.usage.usd == 0.0
    if protocol == "openai":
        set_up = await World(protocol, "http://127.0.0.1:1/v1", tmp_path, {"base_url": url}).run()
        assert set_up.failure is not None
        assert set_up.failure.advice[:2] == (
            f"start the model server at {url}",
            "or correct the setting runtimes.cli.base_url",
        )


@both
async def test_a4_a_server_that_falls_silent_is_given_up(protocol: str, tmp_path: Path) -> None:
    async with scripted(protocol, tmp_path, [Reply.hang()], silence=0.2) as (world, _):
        result = await world.run()
    assert result.failure is not None
    assert result.failure.category is Category.TRANSIENT
    assert "silent" in result.failure.message
    assert result.usage.usd is None, "it may have thought all the while"


@both
async def test_a4_a_refusal_is_no_answer(protocol: str, tmp_path: Path) -> None:
    async with scripted(protocol, tmp_path, [Reply.refuse("I would rather")]) as (world, _):
        result = await world.run()
    assert result.failure is not None
    assert result.failure.category is Category.LOGIC
    assert "refused" in result.failure.message
    # Anthropic sends it as text, OpenAI as the reason.
    assert "I would rather" in (result.output if protocol == "anthropic" else result.failure.message)
    assert result.usage.usd is not None, "the API counted it"


@pytest.mark.parametrize("count", [10**23, -5])
async def test_e1_a_count_of_tokens_that_cannot_be_is_not_believed(tmp_path: Path, count: int) -> None:
    said = anthropic_stream(("text", "done")).replace('"output_tokens": 3', f'"output_tokens": {count}')
    assert str(count) in said
    async with RawModel([said]).serve("anthropic", tmp_path) as world:
        result = await world.run()
    assert (result.output, result.failure) == ("done", None)
    assert result.usage.usd is None, "nobody knows what it cost"
    assert result.usage.tokens_out == 0


@both
async def test_a4_an_answer_cut_at_its_longest_is_a_failure_that_says_what_to_do(protocol: str, tmp_path: Path) -> None:
    async with scripted(protocol, tmp_path, [Reply.cut_short("a long stor")]) as (world, _):
        result = await world.run()
    assert result.failure is not None
    assert result.failure.category is Category.LOGIC
    assert "split the step" in result.failure.advice[0]
    assert result.output == "a long stor"


@both
async def test_a4_a_tool_call_cut_at_its_longest_goes_back_to_the_model(protocol: str, tmp_path: Path) -> None:
    cut = {
        "anthropic": anthropic_stream(("shell", '{"command": "cat <<'), stop="max_tokens"),
        "openai": openai_stream(openai_call("shell", '{"command": "cat <<'), finish="length"),
    }
    done = {"anthropic": anthropic_stream(("text", "done")), "openai": openai_stream({"content": "done"})}
    async with RawModel([cut[protocol], done[protocol]]).serve(protocol, tmp_path) as world:
        host = FakeHost(tools=[SHELL])
        result = await world.run(host)
    assert result.success
    assert host.uses == []


@both
async def test_a4_an_empty_reply_is_transient(protocol: str, tmp_path: Path) -> None:
    async with scripted(protocol, tmp_path, [Reply.say("")]) as (world, _):
        result = await world.run()
    assert result.failure is not None
    assert result.failure.category is Category.TRANSIENT
    assert "nothing" in result.failure.message


# -- stopping ------------------------------------------------------------------------------------------------


@both
@pytest.mark.parametrize("after", ["", "I was about to"])
async def test_a8_an_interrupt_ends_the_request_at_once_and_keeps_what_there_was(
    protocol: str, after: str, tmp_path: Path
) -> None:
    async with scripted(protocol, tmp_path, [Reply.hang(after=after)]) as (world, model):
        runner, host = world.runner(), FakeHost()
        running = asyncio.ensure_future(runner.run(world.request(), host))
        await model.wait_for_async(1, PATIENCE)
        await host.until(lambda told: told.said == after)
        await runner.interrupt("somebody:else:1")
        await runner.interrupt("x:step:1")
        async with asyncio.timeout(PATIENCE):
            result = await running
    assert result.interrupted
    assert not result.success
    assert result.failure is None
    assert result.output == after
    assert result.usage.usd is None
    assert world.messages[0]["parts"][0]["content"] == "do it"
    assert [m["parts"][0]["content"] for m in world.messages[1:]] == ([after] if after else [])


@both
async def test_a8_an_interrupt_closes_the_connection(protocol: str, tmp_path: Path) -> None:
    """The server is told at once that nobody reads any more: what it goes on writing would be paid for."""
    closed = asyncio.Event()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        begun = {"anthropic": anthropic_stream(("text", "Hm"), stop=None), "openai": openai_stream({"content": "Hm"})}
        writer.write(begun[protocol].split("data: [DONE]")[0].encode())
        while await reader.read(65536):
            pass
        closed.set()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server, asyncio.timeout(300):
        world = World(protocol, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1", tmp_path)
        runner, host = world.runner(), FakeHost()
        running = asyncio.ensure_future(runner.run(world.request(), host))
        await host.until(lambda told: told.said == "Hm")
        assert not closed.is_set()
        await runner.interrupt("x:step:1")
        assert (await running).interrupted
        await closed.wait()


@both
async def test_a8_a_cancelled_run_is_cancelled_and_its_conversation_stays_whole(protocol: str, tmp_path: Path) -> None:
    async with scripted(protocol, tmp_path, [Reply.hang(after="so far"), Reply.say("and on")]) as (world, model):
        host = FakeHost()
        running = asyncio.ensure_future(world.runner().run(world.request(), host))
        await host.until(lambda told: told.said == "so far")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        again = await world.run(prompt="go on", session=host.sessions[0])
    assert again.output == "and on"
    assert "so far" in model.requests[1].text
    assert model.requests[1].last_user_text == "go on"
