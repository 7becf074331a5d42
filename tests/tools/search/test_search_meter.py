"""What a search takes: all services that were asked, those that failed too (H1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from loopback import call_in, reply, serve
from search_world import searxng, tavily, tool_for

from windlass.errors import ToolError


async def test_h1_every_service_that_was_asked_counts(tmp_path: Path) -> None:
    found = [(f"t{n}", f"https://x.test/{n}", "s" * 500) for n in range(20)]
    refusal, answer = reply(b"n" * 30_000, 503), tavily(found)
    async with serve({"*": refusal}) as first, serve({"*": answer}) as second:
        call, tool = call_in(tmp_path), tool_for(("searxng", first), ("tavily", second))
        assert (await tool.execute({"query": "q"}, call))["provider"] == "tavily"
        await tool.close()
    used = call.meter.used
    assert used is not None
    head = len(refusal) - 30_000
    assert used.received is not None
    assert len(answer) + head <= used.received <= len(answer) + len(refusal)
    assert 200 < (used.sent or 0) < 2_000


async def test_h1_a_search_that_fails_has_told_what_it_took(tmp_path: Path) -> None:
    broken = searxng([])[:-1] + b"x"
    async with serve({"*": broken}) as server:
        call, tool = call_in(tmp_path), tool_for(("searxng", server))
        with pytest.raises(ToolError):
            await tool.execute({"query": "q"}, call)
        await tool.close()
    assert call.meter.used is not None
    assert call.meter.used.received == len(broken)
