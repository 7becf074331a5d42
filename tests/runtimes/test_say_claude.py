"""K1: a person's message to the real `claude`: after the running tool call, after the turn, and once over a crash."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from claude_fixtures import claude_world
from hosts import FakeHost

from windlass.core.events import AgentTold
from windlass.runners.claude.session_file import known_uuids, uuid_of
from windlass.testing.scripted_model import Reply


class Speaks(FakeHost):
    """Says something once the agent uses a tool, which goes on until Claude Code has the message in its session."""

    def __init__(self, folder: Path, text: str) -> None:
        super().__init__()
        self._sessions, self._text = folder / "config" / "projects", text

    @property
    def tool_use(self) -> Reply:
        queued = f'"content":"{self._text}"'.replace(" ", ".")  # for grep, and not the text itself
        return Reply.use("Bash", {"command": f"until grep -rqs '{queued}' {self._sessions}; do sleep 0.05; done"})

    def acted(self, *what: Any, **more: Any) -> None:
        super().acted(*what, **more)
        self.tell(self._text)


async def test_k1_claude_gets_a_message_after_the_running_tool_call(tmp_path: Path) -> None:
    host = Speaks(tmp_path, "also the changelog")
    script = [host.tool_use, Reply.say("both done")]
    async with claude_world(tmp_path, script) as world:
        result = await world.runner.run(world.request(), host)
        assert world.left() == []
    world.model.check()
    assert result.output == "both done"
    assert host.heard_ids == [(("m0",), "steer")]
    assert "also the changelog" in str(world.model.requests[1].body["messages"][-1])
    usage, served = result.usage, world.model.served
    assert (usage.tokens_in, usage.tokens_out) == (served.tokens_in, served.tokens_out)


async def test_k1_claude_goes_on_with_a_message_that_came_at_the_end_of_its_turn(tmp_path: Path) -> None:
    class Late(FakeHost):
        def text(self, text: str) -> None:
            super().text(text)
            if not self.heard_ids and not self.messages:
                self.tell("one more thing")

        def told(self) -> list[AgentTold]:
            if self.messages:
                taken.set()  # the runner sends it now, and the model has not ended its turn
            return super().told()

    host, taken = Late(), threading.Event()
    script = [Reply.say("done", hold=taken, hold_at="middle"), Reply.say("now it is")]
    async with claude_world(tmp_path, script) as world:
        result = await world.runner.run(world.request(), host)
    world.model.check()
    assert result.output == "now it is"
    assert host.heard_ids == [(("m0",), "follow-up")]
    usage, served = result.usage, world.model.served
    assert (usage.tokens_in, usage.tokens_out) == (served.tokens_in, served.tokens_out)


async def test_k1_a_message_that_claudes_session_has_is_not_said_again(tmp_path: Path) -> None:
    first = Speaks(tmp_path, "the steered one")
    first.tell("the first one")
    script = [first.tool_use, Reply.say("done"), Reply.say("again")]
    async with claude_world(tmp_path, script) as world:
        begun = await world.runner.run(world.request(), first)
        assert first.heard_ids == [(("m0",), "prompt"), (("m1",), "steer")]
        known = known_uuids({"CLAUDE_CONFIG_DIR": str(world.home.config)}, begun.session or "")
        assert {uuid_of("m0"), uuid_of("m1")} <= known
        host = FakeHost()  # as after a kill -9 before the journal had it
        for text in ("the first one", "the steered one", "the new one"):
            host.tell(text)
        result = await world.runner.run(world.request("go on", session=begun.session), host)
    assert result.output == "again"
    assert host.heard_ids == [(("m0", "m1"), "steer"), (("m2",), "prompt")]
    said = str(world.model.requests[-1].body["messages"])
    assert [said.count(text) for text in ("the first one", "the steered one", "the new one")] == [1, 1, 1]
