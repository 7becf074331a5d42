"""Claude Code and OpenCode summarise their conversations themselves: it is noticed, and can be asked for (F2, F3)."""

from __future__ import annotations

from pathlib import Path

import pytest
from claude_fixtures import claude_world
from hosts import FakeHost
from opencode_fixtures import Bench, needs_opencode
from test_claude_messages import DONE, INIT, told

from windlass.testing import Received, Reply, ScriptedModel
from windlass.testing.scripted.conversation import SideQuestions

BOUNDARY = {
    "type": "system",
    "subtype": "compact_boundary",
    "compact_metadata": {"trigger": "auto", "pre_tokens": 150_000},
}


_side_question = SideQuestions()


def _aside(received: Received) -> bool | Reply:
    """As usual; but OpenCode's summary has words and a cost."""
    if "context summarization agent" in received.system:
        return Reply.say("We looked for the heron.", tokens_in=500, tokens_out=20)
    return _side_question(received)


async def test_f2_claude_codes_own_compaction_is_noticed(tmp_path: Path) -> None:
    compacting = {"type": "system", "subtype": "status", "status": "compacting"}
    result, host = await told(tmp_path, INIT, compacting, BOUNDARY, DONE)
    assert result.success
    assert host.summaries == [{"by": "runtime", "tokens_before": 150_000, "tokens_after": None}]
    assert "Claude Code summarises its conversation" in host.notes


async def test_f2_a_compaction_without_figures_is_noticed_too(tmp_path: Path) -> None:
    odd = {"type": "system", "subtype": "compact_boundary", "compact_metadata": {"pre_tokens": "many"}}
    result, host = await told(tmp_path, INIT, odd, {"type": "system", "subtype": "compact_boundary"}, DONE)
    assert result.success
    assert [made["tokens_before"] for made in host.summaries] == [None, None], "unknown is not 0"


async def test_f3_a_summary_on_request_is_claude_codes_own_before_the_next_prompt(tmp_path: Path) -> None:
    summary = Reply.say("<summary>We looked for the heron.</summary>", when="summary of the conversation", repeat=True)
    script = [summary, Reply.say("I looked for the heron."), Reply.say("It is here.")]
    async with claude_world(tmp_path, script) as world:
        first = await world.runner.run(world.request(), FakeHost())
        host = FakeHost()
        host.wants_summary = True
        second = await world.runner.run(world.request(session=first.session), host)
        asked = world.model.requests
    assert second.output == "It is here.", second
    assert [made["by"] for made in host.summaries] == ["runtime"]
    assert len(asked) == 3, "the summary is one call, and the prompt follows it"
    assert "We looked for the heron." in asked[2].text


@needs_opencode
@pytest.mark.asyncio(loop_scope="session")
async def test_f3_a_summary_on_request_is_opencodes_own_before_the_next_prompt(bench: Bench) -> None:
    host = FakeHost()
    host.wants_summary = True
    script = [Reply.say("I looked for the heron."), Reply.say("It is here.")]
    async with ScriptedModel(script, port=bench.port, aside=_aside) as model:
        request = bench.request("look for the heron")
        first = await bench.runner.run(request, FakeHost())
        again = bench.request("go on", workdir=request.workdir, session=first.session)
        second = await bench.runner.run(again, host)
        asides = [received.system for received in model.asides]
    assert first.success, first
    assert second.output == "It is here.", second
    (made,) = host.summaries
    assert made["by"] == "runtime"
    assert made["tokens_after"] is None, "OpenCode does not tell: the next reply does"
    assert (made["tokens_before"], made["text"]) == (500, "We looked for the heron.")
    assert (made["usage"].tokens_in, made["usage"].tokens_out) == (500, 20), "what it took"
    assert [reply.usage is not None for reply in host.replies].count(True) == 1, "a summary is no reply of the agent"
    assert second.metadata["turns"] == 1, "and no turn"
    assert any("summariz" in system for system in asides), "OpenCode asked the model for a summary"
