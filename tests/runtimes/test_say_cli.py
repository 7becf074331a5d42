"""K1: a person's message to a `cli` agent: within its turn, after it, and once, whatever is killed in between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hosts import FakeHost, Used
from model_api_world import PROTOCOLS, READ, scripted

from windlass.ports import ToolReturn
from windlass.testing import Reply


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_k1_a_message_during_a_tool_call_is_in_the_next_request(tmp_path: Path, protocol: str) -> None:
    def read(used: Used) -> ToolReturn:
        host.tell("also the changelog")
        return ToolReturn("text")

    host = FakeHost(tools=[READ], tool=read)
    script = [Reply.use("files__read", {"path": "a"}), Reply.say("both done")]
    async with scripted(protocol, tmp_path, script) as (world, model):
        result = await world.run(host)
        model.check()
    assert result.output == "both done"
    assert "also the changelog" in str(model.requests[1].body["messages"][-1])
    assert host.heard_ids == [(("m0",), "steer")]


@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_k1_a_message_after_the_last_reply_is_answered_before_the_run_ends(tmp_path: Path, protocol: str) -> None:
    class Late(FakeHost):
        def spoke(self, text: str, *more: Any, **named: Any) -> None:
            super().spoke(text, *more, **named)
            if len(self.replies) == 1:
                self.tell("one more thing")
                self.tell("one more thing")

    host = Late()
    async with scripted(protocol, tmp_path, [Reply.say("done"), Reply.say("now it is")]) as (world, model):
        result = await world.run(host)
        model.check()
    assert result.output == "now it is"
    assert host.heard_ids == [(("m0", "m1"), "follow-up")]
    assert str(model.requests[1].body["messages"]).count("one more thing") == 2, "said twice, given twice"


async def test_k1_a_message_that_the_file_has_is_reported_and_not_said_again(tmp_path: Path) -> None:
    class Dies(FakeHost):
        async def heard(self, ids: Any, how: str) -> None:
            raise RuntimeError("killed between the file and the journal")

    host = Dies()
    host.tell("the first")
    script = [Reply.say("done"), Reply.say("again")]
    async with scripted("anthropic", tmp_path, script) as (world, model):
        with pytest.raises(RuntimeError, match="killed"):
            await world.run(host)
        later = FakeHost()
        later.messages = list(host.messages)
        later.tell("the second")
        result = await world.run(later, "go on", session=world.session)
    assert result.success
    assert later.heard_ids == [(("m0", "m1"), "prompt")]
    said = str(model.requests[0].body["messages"])
    assert (said.count("the first"), said.count("the second")) == (1, 1)
    assert said.index("the first") < said.index("the second")


async def test_k1_a_run_for_a_message_alone_has_no_prompt_of_its_own(tmp_path: Path) -> None:
    async with scripted("anthropic", tmp_path, [Reply.say("one"), Reply.say("two")]) as (world, model):
        first = await world.run(FakeHost())
        host = FakeHost()
        host.tell("and now?")
        result = await world.run(host, "", session=first.session)
    assert result.output == "two"
    assert [message["role"] for message in model.requests[1].body["messages"]] == ["user", "assistant", "user"]
    assert host.heard_ids == [(("m0",), "follow-up")]
