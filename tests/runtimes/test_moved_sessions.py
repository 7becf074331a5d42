"""Sessions of runtimes that keep them in folders of their own, on another machine (J2, K1)."""

from __future__ import annotations

from pathlib import Path

import pytest
from claude_fixtures import claude_world
from hosts import FakeHost, deps
from opencode_fixtures import Bench, needs_opencode, prepare_user

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


@needs_opencode
@pytest.mark.asyncio(loop_scope="session")
async def test_k1_opencode_goes_on_in_a_session_as_another_machine_left_it(bench: Bench) -> None:
    work = bench.folder()
    script = [Reply.say("The word is heron."), Reply.say("The word is gull."), Reply.say("heron")]
    with bench.model(*script) as model:
        first = await bench.runner.run(bench.request("Choose a word.", workdir=work), FakeHost())
        assert first.session is not None
        request = bench.request("Which word?", session=first.session, workdir=work)
        place = SessionPlace(first.session, request.workdir, request.scratch, request.env)
        await bench.runner.keep_session(place)
        await bench.runner.run(bench.request("Another one.", session=first.session, workdir=work), FakeHost())
        assert not await bench.runner.bring_session(place, current=False)
        assert not await bench.runner.bring_session(place._replace(session="ses_unknown"), current=True)
        assert await bench.runner.bring_session(place, current=True)
        assert (await bench.runner.run(request, FakeHost())).output == "heron"
        assert "The word is heron." in model.requests[-1].text
        assert "gull" not in model.requests[-1].text, "this machine's own state of the session was older"


@pytest.mark.soak
@needs_opencode
async def test_k1_an_opencode_session_moves_to_another_user_and_back(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    here, there = bench.user, tmp_path / "other"
    script = [Reply.say("The word is heron."), Reply.say("The number is 7."), Reply.say("heron 7")]
    with bench.model(*script) as model:
        first = await bench.runner.run(bench.request("Choose a word.", workdir=tmp_path), FakeHost())
        assert first.session is not None
        request = bench.request("Choose a number.", session=first.session, workdir=tmp_path)
        place = SessionPlace(first.session, request.workdir, request.scratch, request.env)
        await bench.runner.keep_session(place)
        for user, known in ((there, "The word is heron."), (here, "The number is 7.")):
            bench.user = user
            prepare_user(user)
            bench.configure()
            runner = bench.another_runner()
            assert await runner.bring_session(place, current=True)
            assert (await runner.run(request, FakeHost())).success
            assert known in model.requests[-1].text
            await runner.keep_session(place)
            await runner.close()
    await bench.close()
