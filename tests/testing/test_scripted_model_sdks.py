"""The scripted model as the vendors' own Python clients see it."""

from __future__ import annotations

import json
from typing import Any

import anthropic
import openai
import pytest

from windlass.testing import Reply, ScriptedModel

SCRIPT = [
    Reply.use("add", {"a": 2, "b": 40}, text="I add."),
    Reply.say("it is 42", tokens_in=100, tokens_out=20, cache_read=60),
]
QUESTION: Any = {"role": "user", "content": "what is 2 + 40?"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}


def claude(model: ScriptedModel, retries: int = 0) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=model.url, api_key="none", max_retries=retries)


def gpt(model: ScriptedModel, retries: int = 0) -> openai.OpenAI:
    return openai.OpenAI(base_url=model.openai_url, api_key="none", max_retries=retries)


# -- anthropic ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_the_anthropic_client_works_through_a_loop_of_tools(stream: bool) -> None:
    tools: Any = [{"name": "add", "description": "adds", "input_schema": SCHEMA}]
    pieces = []

    def turn(client: anthropic.Anthropic, messages: list[Any]) -> Any:
        asked: Any = {"model": "claude-x", "max_tokens": 50, "messages": messages, "tools": tools, "system": "be right"}
        if not stream:
            return client.messages.create(**asked)
        with client.messages.stream(**asked) as events:
            pieces.extend(events.text_stream)
            return events.get_final_message()

    with ScriptedModel(SCRIPT) as model:
        client = claude(model)
        first = turn(client, [QUESTION])
        text, use = first.content
        assert (text.text, use.name, use.input, first.stop_reason) == ("I add.", "add", {"a": 2, "b": 40}, "tool_use")
        result = {"type": "tool_result", "tool_use_id": use.id, "content": str(use.input["a"] + use.input["b"])}
        told = [QUESTION, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        last = turn(client, told)
    model.check()
    assert (last.content[0].text, last.stop_reason) == ("it is 42", "end_turn")
    assert pieces == (["I", " add.", "it", " is", " 42"] if stream else [])
    assert (last.usage.input_tokens, last.usage.cache_read_input_tokens, last.usage.output_tokens) == (40, 60, 20)
    second = model.requests[1]
    assert (second.protocol, second.model, second.system, second.tools) == (
        "anthropic",
        "claude-x",
        "be right",
        ("add",),
    )
    assert (second.last_user_text, second.tool_results) == ("what is 2 + 40?", ("42",))
    assert second.headers["user-agent"].startswith("Anthropic/Python")
    assert model.asides == []


def test_the_anthropic_client_raises_its_own_errors_and_sees_the_headers() -> None:
    script = [Reply.error(429, "slow down", headers={"retry-after": "7"}), Reply.error(529, "full", after="so")]
    asked: Any = {"model": "m", "max_tokens": 5, "messages": [QUESTION]}
    with ScriptedModel(script) as model:
        client = claude(model)
        with pytest.raises(anthropic.RateLimitError) as limited:
            client.messages.create(**asked)
        with pytest.raises(anthropic.APIStatusError, match="full"), client.messages.stream(**asked) as events:
            events.get_final_message()
    assert limited.value.response.headers["retry-after"] == "7"
    assert limited.value.body == {
        "type": "error",
        "error": {"type": "rate_limit_error", "message": "slow down"},
        "request_id": "req_0001",
    }
    assert limited.value.request_id == "req_0001"


def test_a_client_that_retries_uses_one_reply_for_each_try() -> None:
    script = [Reply.error(529, "full", headers={"retry-after-ms": "1"}, times=2), Reply.say("at last")]
    with ScriptedModel(script) as model:
        message = claude(model, retries=2).messages.create(model="m", max_tokens=5, messages=[QUESTION])
    assert message.content[0].text == "at last"  # type: ignore[union-attr]
    assert len(model.requests) == 3
    model.check()


@pytest.mark.parametrize("reply", [Reply.drop(), Reply.drop(after="half of"), Reply.garbage()], ids=str)
def test_the_anthropic_client_cannot_make_a_message_of_a_broken_stream(reply: Reply) -> None:
    with ScriptedModel([reply]) as model:
        with pytest.raises(Exception, match=r".*") as broken:
            with claude(model).messages.stream(model="m", max_tokens=5, messages=[QUESTION]) as events:
                events.get_final_message()
    assert not isinstance(broken.value, anthropic.APIStatusError)
    assert model.served.replies == 0


def test_the_anthropic_client_counts_tokens_and_lists_models() -> None:
    with ScriptedModel([], models=("claude-x", "claude-y")) as model:
        assert claude(model).messages.count_tokens(model="m", messages=[QUESTION]).input_tokens > 0
        assert [listed.id for listed in claude(model).models.list()] == ["claude-x", "claude-y"]
    assert len(model.count_tokens_calls) == 1


def test_a_refusal_and_an_answer_cut_short_reach_the_anthropic_client_as_such() -> None:
    with ScriptedModel([Reply.refuse(), Reply.cut_short("and then")]) as model:
        ends = [claude(model).messages.create(model="m", max_tokens=5, messages=[QUESTION]) for _ in range(2)]
    assert [end.stop_reason for end in ends] == ["refusal", "max_tokens"]
    assert [end.stop_details and end.stop_details.type for end in ends] == ["refusal", None]


# -- openai ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("stream", [True, False])
def test_the_openai_client_works_through_a_loop_of_tools(stream: bool) -> None:
    tools: Any = [{"type": "function", "function": {"name": "add", "description": "adds", "parameters": SCHEMA}}]
    contents = []

    def turn(client: openai.OpenAI, messages: list[Any]) -> Any:
        asked: Any = {
            "model": "gpt-x",
            "messages": [{"role": "system", "content": "be right"}, *messages],
            "tools": tools,
        }
        if not stream:
            return client.chat.completions.create(**asked)
        with client.chat.completions.stream(**asked, stream_options={"include_usage": True}) as events:
            contents.extend(event.delta for event in events if event.type == "content.delta" and event.delta)
            return events.get_final_completion()

    with ScriptedModel(SCRIPT) as model:
        client = gpt(model)
        first = turn(client, [QUESTION]).choices[0]
        (call,) = first.message.tool_calls
        given = json.loads(call.function.arguments)
        assert (first.message.content, first.finish_reason) == ("I add.", "tool_calls")
        assert (call.function.name, given) == ("add", {"a": 2, "b": 40})
        result = {"role": "tool", "tool_call_id": call.id, "content": str(given["a"] + given["b"])}
        said = {"role": "assistant", "content": first.message.content, "tool_calls": [call.model_dump()]}
        last = turn(client, [QUESTION, said, result])
    model.check()
    assert (last.choices[0].message.content, last.choices[0].finish_reason) == ("it is 42", "stop")
    assert contents == (["I", " add.", "it", " is", " 42"] if stream else [])
    assert (last.usage.prompt_tokens, last.usage.completion_tokens, last.usage.total_tokens) == (100, 20, 120)
    assert last.usage.prompt_tokens_details.cached_tokens == 60
    second = model.requests[1]
    assert (second.protocol, second.model, second.system, second.tools) == ("openai", "gpt-x", "be right", ("add",))
    assert (second.last_user_text, second.tool_results) == ("what is 2 + 40?", ("42",))


def test_the_openai_client_raises_its_own_errors() -> None:
    script = [Reply.error(401, "who are you"), Reply.error(429, "slow down"), Reply.error(500, "broken", after="so")]
    asked: Any = {"model": "m", "messages": [QUESTION]}
    with ScriptedModel(script) as model:
        client = gpt(model)
        with pytest.raises(openai.AuthenticationError, match="who are you"):
            client.chat.completions.create(**asked)
        with pytest.raises(openai.RateLimitError) as limited:
            client.chat.completions.create(**asked)
        with pytest.raises(openai.APIError, match="broken"):
            list(client.chat.completions.create(**asked, stream=True))
    assert limited.value.code == "rate_limit_exceeded"


@pytest.mark.parametrize("reply", [Reply.drop(), Reply.drop(after="half of"), Reply.garbage()], ids=str)
def test_the_openai_client_cannot_read_a_broken_stream(reply: Reply) -> None:
    with ScriptedModel([reply]) as model:
        with pytest.raises(Exception, match=r".*") as broken:
            list(gpt(model).chat.completions.create(model="m", messages=[QUESTION], stream=True))
    assert not isinstance(broken.value, openai.APIStatusError)


async def test_async_clients_are_served_in_the_tests_own_loop() -> None:
    async with ScriptedModel([Reply.say("a", when="one"), Reply.say("b", when="two")]) as model:
        client = anthropic.AsyncAnthropic(base_url=model.url, api_key="none")
        for word, answer in (("two", "b"), ("one", "a")):
            message = await client.messages.create(
                model="m", max_tokens=5, messages=[{"role": "user", "content": word}]
            )
            assert message.content[0].text == answer  # type: ignore[union-attr]
        await client.close()
    model.check()
