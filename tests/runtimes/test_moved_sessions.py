"""Sessions of runtimes that keep them in folders of their own, on another machine (J2, K1)."""

from __future__ import annotations

from pathlib import Path

from claude_fixtures import claude_world
from hosts import FakeHost, deps

from windlass.ports import SessionPlace
from windlass.runners.claude.runner import ClaudeCodeRunner
from windlass.testing import Reply


async def test_k1_claude_code_goes_on_in_a_session_of_another_machine(tmp_path: Path) -> None:
    script = [Reply.say("The word is heron."), Reply.say("heron")]
    async with claude_world(tmp_path, script) as world:
        first = await world.runner.run(world.request("Choose a word."), FakeHost())
        assert first.session is not None
        request = world.request("Which word?", session=first.session)
        here = SessionPlace(first.session, request.workdir, request.scratch, request.env)
        await world.runner.keep_session(here)
        moved = here._replace(scratch=tmp_path / "there")
        request.scratch.rename(moved.scratch)
        # The other machine: the same folder to work in, and a configuration that knows nothing of it.
        other = tmp_path / "other"
        other.mkdir()
        env = {**world.home.engine(world.model.url), "CLAUDE_CONFIG_DIR": str(other)}
        elsewhere = ClaudeCodeRunner(deps(world.supervisor, env=env))
        assert not await elsewhere.bring_session(moved, current=False)
        assert not list(other.rglob("*.jsonl"))
        assert await elsewhere.bring_session(moved, current=True)
        assert (await elsewhere.run(request, FakeHost())).output == "heron"
        assert "The word is heron." in world.model.requests[-1].text
        assert not await elsewhere.bring_session(moved._replace(session="unknown"), current=True)
