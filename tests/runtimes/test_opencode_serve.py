"""A turn of the real OpenCode on a warm server, with a scripted model (A3)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from hosts import FakeHost
from opencode_fixtures import Bench, needs_opencode

from windlass.testing import Reply

pytestmark = [needs_opencode, pytest.mark.asyncio(loop_scope="module")]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bench(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("opencode"))
    yield made
    await made.close()


async def test_a3_a_turn_writes_a_real_file_and_says_so(bench: Bench) -> None:
    request = bench.request("write it", system="You are the tester.")
    target = request.workdir / "made.txt"
    host = FakeHost()
    write = Reply.use("write", {"filePath": str(target), "content": "by the agent\n"}, tokens_in=120, tokens_out=30)
    async with bench.model(write, Reply.say("It is written.", tokens_in=150, tokens_out=7)) as model:
        result = await bench.runner.run(request, host)
        model.check()
    assert result.success, result
    assert target.read_text() == "by the agent\n"
    assert result.output == "It is written."
    assert host.said == "It is written."
    assert [(act.tool, act.summary) for act in host.acts] == [("write", str(target))]
    assert host.sessions == [result.session]
    assert (result.usage.tokens_in, result.usage.tokens_out) == (270, 37)
    assert (model.served.tokens_in, model.served.tokens_out) == (270, 37)
    assert (result.usage.usd, result.usage.source) == (None, "unknown")
    assert "You are the tester." in model.requests[0].system
    assert model.requests[0].last_user_text == "write it"
