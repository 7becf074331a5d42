"""K1: a person's message to the real OpenCode: a further prompt in its session, and once over a crash."""

from __future__ import annotations

import pytest
from hosts import FakeHost
from opencode_fixtures import Bench, needs_opencode

from windlass.runners.opencode.probe import Contract
from windlass.testing import Reply

pytestmark = [needs_opencode, pytest.mark.asyncio(loop_scope="session")]


@pytest.mark.parametrize("contract", ["serve", pytest.param("run", marks=pytest.mark.soak)])
async def test_k1_opencode_goes_on_with_a_message_in_its_session(bench: Bench, contract: Contract) -> None:
    runner = bench.runner if contract == "serve" else bench.another_runner(contract=contract)
    first, later = FakeHost(), FakeHost()
    first.tell("at the beginning")
    async with bench.model(Reply.say("done"), Reply.say("better")) as model:
        request = bench.request("the task")
        begun = await runner.run(request, first)
        later.tell("make it better", "m1")
        result = await runner.run(bench.request("", workdir=request.workdir, session=begun.session), later)
        model.check()
    assert begun.output == "done"
    assert result.output == "better", result
    assert result.session == begun.session
    assert first.heard_ids == [(("m0",), "prompt")]
    assert later.heard_ids == [(("m1",), "follow-up")]
    assert "the task\n\nat the beginning" in str(model.requests[0].messages).replace("\\n", "\n")
    assert model.requests[1].last_user_text.strip() == "make it better"


async def test_k1_a_message_that_opencodes_session_has_is_not_said_again(bench: Bench) -> None:
    first, host = FakeHost(), FakeHost()
    first.tell("the first one")
    async with bench.model(Reply.say("done"), Reply.say("again")) as model:
        request = bench.request("the task")
        begun = await bench.runner.run(request, first)
        for text in ("the first one", "the new one"):  # as after a kill -9 before the journal had it
            host.tell(text)
        again = bench.request("go on", workdir=request.workdir, session=begun.session)
        result = await bench.runner.run(again, host)
        model.check()
    assert result.output == "again", result
    assert host.heard_ids == [(("m0",), "follow-up"), (("m1",), "prompt")]
    said = str(model.requests[1].messages)
    assert [said.count(text) for text in ("the first one", "the new one")] == [1, 1]
