"""A2: the real `claude` does a step: it streams, uses tools, asks, spends, and goes on in the same conversation."""

from __future__ import annotations

from pathlib import Path

import pytest
from claude_fixtures import MODEL, claude_world
from hosts import FakeHost

from windlass.testing.scripted_model import Reply


async def test_a2_a_turn_writes_a_real_file_and_tells_all_of_it_as_it_happens(tmp_path: Path) -> None:
    target = tmp_path / "work" / "greeting.txt"
    script = [
        Reply.use("Write", {"file_path": str(target), "content": "hello\n"}, text="I write it.", tokens_in=100),
        Reply.say("It is written.", tokens_in=120, tokens_out=7, cache_read=50, cache_write=20),
    ]
    host = FakeHost()
    async with claude_world(tmp_path, script) as world:
        result = await world.runner.run(world.request("write a greeting"), host)
        assert world.left() == []
    world.model.check()
    assert (result.failure, result.interrupted, result.success) == (None, False, True)
    assert target.read_text() == "hello\n"
    assert result.output == "It is written."
    assert host.said == "I write it.\nIt is written."
    assert [(act.tool, act.summary) for act in host.acts] == [("Write", str(target))]
    assert host.sessions == [result.session]
    assert host.events[0] == ("session", result.session)
    served = world.model.served
    usage = result.usage
    assert (usage.tokens_in, usage.tokens_out) == (served.tokens_in, served.tokens_out)
    assert (usage.cache_read, usage.cache_write) == (served.cache_read, served.cache_write)
    # $3 and $15 a million; 0.1 of that for what a cache gave, 1.25 for what it took
    assert usage.usd == pytest.approx((150 * 3 + 12 * 15 + 50 * 0.3 + 20 * 3.75) / 1e6)
    assert (usage.source, usage.model) == ("runtime", MODEL)
    assert (host.usages[-1].tokens_in, host.usages[-1].tokens_out) == (served.tokens_in, served.tokens_out)
    assert "You are a tester." in world.model.requests[0].system
