"""Scripts: who gets which reply, what is noted, and what `check` finds."""

from __future__ import annotations

import asyncio
import json
import threading
from typing import Any

import pytest
from wire_client import say

import windlass.testing
from windlass.testing import Received, Reply, ScriptedModel, Served
from windlass.testing.scripted.conversation import SideQuestions
from windlass.testing.scripted.reply import MOST_PIECES, pieces

# -- who gets which reply ----------------------------------------------------------------------------


def test_replies_are_taken_in_order() -> None:
    with ScriptedModel([Reply.say("one"), Reply.say("two")]) as model:
        assert [say(model, "x"), say(model, "x")] == ["one", "two"]
    model.check()


def test_a_condition_comes_before_the_order_and_is_used_up() -> None:
    script = [Reply.say("first"), Reply.say("tea", when="kettle"), Reply.say("more tea", when="kettle")]
    with ScriptedModel(script) as model:
        said = [say(model, "a kettle"), say(model, "a kettle"), say(model, "a kettle")]
    assert said == ["tea", "more tea", "first"]
    model.check()


def test_a_condition_sees_system_prompt_conversation_and_results_of_tools_but_no_schemas() -> None:
    def seen(body: dict[str, Any]) -> bool:
        with ScriptedModel([Reply.say("yes", when="needle"), Reply.say("no", repeat=True)]) as model:
            return say(model, body.pop("text", ""), **body) == "yes"

    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "needle"}]}
    assert seen({"system": [{"type": "text", "text": "a needle"}]})
    assert seen({"messages": [{"role": "user", "content": [result]}]})
    assert seen({"messages": [{"role": "assistant", "content": [{"type": "tool_use", "input": {"a": "needle"}}]}]})
    assert not seen({"text": "hay", "tools": [{"name": "needle", "description": "needle"}]})


def test_a_condition_may_be_a_function() -> None:
    script = [Reply.say("short", when=lambda r: len(r.text) < 3, repeat=True), Reply.say("long", repeat=True)]
    with ScriptedModel(script) as model:
        assert [say(model, "xxx"), say(model, "x"), say(model, "xxx")] == ["long", "short", "long"]


def test_times_and_repeat() -> None:
    with ScriptedModel([Reply.error(529, "full", times=2), Reply.say("ok", repeat=True)]) as model:
        assert [say(model, "x") for _ in range(4)] == ["529: full", "529: full", "ok", "ok"]
    model.check()


def test_a_function_decides_by_the_request() -> None:
    with ScriptedModel(lambda received: Reply.say(received.last_user_text.upper())) as model:
        assert [say(model, "a"), say(model, "b")] == ["A", "B"]
    model.check()


def test_a_single_reply_is_a_script() -> None:
    with ScriptedModel(Reply.say("once")) as model:
        assert say(model, "x") == "once"


# -- what goes wrong ---------------------------------------------------------------------------------


def test_a_script_that_ran_out_is_an_error_for_the_client_and_for_check() -> None:
    with ScriptedModel([Reply.say("only")]) as model:
        say(model, "x")
        assert say(model, "and now?") == "400: the script has no reply left for this request"
    (error,) = model.errors
    assert "request 2 (/v1/messages, 1 messages, last: 'and now?'): the script has no reply left" in error
    with pytest.raises(AssertionError, match=r"no reply left"):
        model.check()


def test_check_names_the_replies_that_nobody_asked_for() -> None:
    with ScriptedModel(
        [Reply.say("one"), Reply.error(429, times=3, when="never"), Reply.say("x", repeat=True)]
    ) as model:
        say(model, "x")
    with pytest.raises(AssertionError) as unhappy:
        model.check()
    assert "entry 2 of the script (429 scripted 429 when 'never') served 0 of 3 requests" in str(unhappy.value)
    assert "entry 1 " not in str(unhappy.value)
    assert "entry 3 " not in str(unhappy.value)


def test_a_tool_that_the_request_does_not_offer_is_an_error_unless_it_is_invented() -> None:
    offers: Any = {"tools": [{"name": "Write"}, {"name": "Read"}]}
    script = [Reply.use("Write").and_use("Raed"), Reply.use("Raed", invented=True), Reply.use("Later")]
    with ScriptedModel(script) as model:
        say(model, "x", **offers)
        say(model, "x", **offers)
        say(model, "you may search for Later", **offers)
    (error,) = model.errors
    assert error.endswith("the reply uses 'Raed'; the tools on offer are Write, Read")


@pytest.mark.parametrize("wrong", [lambda r: 1 / 0, lambda r: "text"], ids=["raises", "gives no reply"])
def test_a_function_that_fails_is_told_to_both_sides(wrong: Any) -> None:
    with ScriptedModel(wrong) as model:
        assert say(model, "x").startswith("500: ")
    (error,) = model.errors
    assert "the script raised" in error


def test_a_reply_that_no_protocol_can_word_is_an_error_of_the_script() -> None:
    with ScriptedModel([Reply.use("t", {"a": object()}, invented=True)]) as model, pytest.raises(OSError, match=r"."):
        say(model, "x")
    (error,) = model.errors
    assert "the scripted model itself failed: TypeError" in error


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Reply.error(200),
        lambda: Reply.say("x", times=0),
        lambda: Reply.say("x", tokens_in=5, cache_read=6),
        lambda: Reply.say("x").and_use("Write"),
        lambda: ScriptedModel(["text"]),  # type: ignore[list-item]
    ],
)
def test_a_reply_that_cannot_be_is_refused_when_it_is_written(wrong: Any) -> None:
    with pytest.raises((ValueError, TypeError)):
        wrong()


def test_it_is_served_once_and_has_no_address_before() -> None:
    model = ScriptedModel([])
    with pytest.raises(RuntimeError, match="not served yet"):
        _ = model.url
    with model, pytest.raises(RuntimeError, match="started before"):
        model.start()
    model.stop()  # a second time is nothing


def test_a_port_that_is_taken_is_an_error_at_once() -> None:
    with ScriptedModel([]) as model, pytest.raises(OSError, match=r"."):
        ScriptedModel([], port=int(model.url.rpartition(":")[2])).start()


# -- what is noted -----------------------------------------------------------------------------------


def test_what_was_received_can_be_asked_for_in_plain_words_whichever_the_protocol() -> None:
    common = {"path": "/", "headers": {}, "number": 1}
    use = {"type": "tool_use", "id": "t", "name": "Write", "input": {"path": "a"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": "written"}
    anthropic = Received(
        "anthropic",
        body={
            "model": "m",
            "system": [{"type": "text", "text": "be kind"}],
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "please"}]},
                {"role": "assistant", "content": [{"type": "text", "text": "I do"}, use]},
                {"role": "user", "content": [result]},
            ],
            "tools": [{"name": "Write"}],
        },
        **common,  # type: ignore[arg-type]
    )
    call = {"id": "t", "type": "function", "function": {"name": "Write", "arguments": '{"path": "a"}'}}
    openai = Received(
        "openai",
        body={
            "model": "m",
            "messages": [
                {"role": "system", "content": "be kind"},
                {"role": "user", "content": "please"},
                {"role": "assistant", "content": "I do", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "t", "content": "written"},
            ],
            "tools": [{"type": "function", "function": {"name": "Write"}}],
        },
        **common,  # type: ignore[arg-type]
    )
    for received in (anthropic, openai):
        assert (received.model, received.system, received.tools) == ("m", "be kind", ("Write",))
        assert (received.last_user_text, received.tool_results) == ("please", ("written",))
        assert len(received.messages) == 3
        for told in ("be kind", "please", "I do", '{"path": "a"}', "written"):
            assert told in received.text


def test_served_is_the_sum_of_what_was_said_and_nothing_else() -> None:
    script = [
        Reply.say("a"),
        Reply.error(500),
        Reply.say("b", tokens_in=100, tokens_out=20, cache_read=60, cache_write=30),
        Reply.say("c", cache_read=7),
    ]
    with ScriptedModel(script) as model:
        for _ in script:
            say(model, "x")
    assert model.served == Served(replies=3, tokens_in=10 + 100 + 17, tokens_out=30, cache_read=67, cache_write=30)
    assert len(model.requests) == 4


def test_wait_for_waits_for_requests_that_come_later() -> None:
    with ScriptedModel([Reply.hang(), Reply.say("x")]) as model:
        hanging = threading.Thread(target=ask_in_vain, args=(model,), daemon=True)
        later = threading.Thread(target=say, args=(model, "x"), daemon=True)
        hanging.start()
        assert len(model.wait_for(1)) == 1
        with pytest.raises(TimeoutError, match="1 of 2 requests came"):
            model.wait_for(2, timeout=0.01)
        later.start()
        assert [received.number for received in model.wait_for(2)] == [1, 2]
        later.join(30)
    hanging.join(30)


def ask_in_vain(model: ScriptedModel) -> None:
    """Ask, and be content with a connection that ends with the server."""
    try:
        say(model, "hang")
    except OSError:
        return


async def test_a_plain_with_block_is_good_in_async_code_too() -> None:
    with ScriptedModel([Reply.say("hello")]) as model:
        assert await asyncio.to_thread(say, model, "x") == "hello"


async def test_in_async_tests_it_is_an_async_context_and_waits_without_blocking() -> None:
    async with ScriptedModel([Reply.say("hello")]) as model:
        with pytest.raises(TimeoutError, match="0 of 1 requests came"):
            await model.wait_for_async(1, timeout=0.01)
        answer, received = await asyncio.gather(asyncio.to_thread(say, model, "x"), model.wait_for_async(1))
    assert answer == "hello"
    assert received == model.requests


def test_pieces_put_together_are_the_text() -> None:
    for text in ("", "one", " one  two\n", "\n", "word " * 5000):
        assert "".join(pieces(text)) == text
        assert len(pieces(text)) <= MOST_PIECES


# -- asides ------------------------------------------------------------------------------------------

CLAUDE, OPENCODE = "claude-cli/2.1 (external, cli)", "opencode/1.18 ai-sdk"


@pytest.mark.parametrize(
    ("agent", "body"),
    [
        (CLAUDE, {"system": "You are Claude Code.\nYou are naming a coding session so that …"}),
        (CLAUDE, {"max_tokens": 1}),
        (OPENCODE, {"system": "You are a title generator. You output ONLY a thread title."}),
    ],
)
def test_a_side_call_of_a_runtime_gets_a_short_answer_and_uses_up_nothing(agent: str, body: dict[str, Any]) -> None:
    with ScriptedModel([Reply.say("the script")]) as model:
        assert say(model, "x", agent, **body) == "Scripted"
        assert (len(model.asides), model.requests, model.served) == (1, [], Served())
        assert say(model, "x", "python/3", **body) == "the script"
    model.check()


def test_a_session_that_offers_tools_has_only_asides_without_them() -> None:
    asides = SideQuestions()

    def is_aside(session: str, *tools: str, agent: str = CLAUDE) -> bool:
        offered = [{"name": tool} for tool in tools]
        headers = {"user-agent": agent, "x-claude-code-session-id": session}
        return asides(Received("anthropic", "/v1/messages", headers, {"tools": offered}))

    assert not is_aside("talks only")
    assert not is_aside("works", "Write")
    assert is_aside("works")
    assert not is_aside("talks only")
    assert not is_aside("works", agent="anthropic-sdk")


def test_an_aside_that_must_follow_a_schema_does() -> None:
    properties = {"title": {"type": "string"}, "n": {"type": "integer"}, "more": {"type": "array"}}
    schema = {"type": "object", "properties": properties, "required": ["title", "n", "more"]}
    with ScriptedModel([]) as model:
        said = say(
            model, "x", CLAUDE, max_tokens=1, output_config={"format": {"type": "json_schema", "schema": schema}}
        )
    assert json.loads(said) == {"title": "Scripted", "n": 0, "more": []}


def test_the_rule_for_asides_can_be_replaced() -> None:
    def aside(received: Received) -> bool | Reply:
        return Reply.say("psst") if "whisper" in received.text else "hum" in received.text

    with ScriptedModel([Reply.say("script")], aside=aside) as model:
        assert [say(model, "whisper"), say(model, "hum"), say(model, "x", CLAUDE, max_tokens=1)] == [
            "psst",
            "Scripted",
            "script",
        ]
    assert len(model.asides) == 2


def test_every_public_name_can_be_imported_and_no_other() -> None:
    for name in windlass.testing.__all__:
        assert getattr(windlass.testing, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'ScriptedMole'"):
        _ = windlass.testing.ScriptedMole  # type: ignore[attr-defined]
