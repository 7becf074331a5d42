"""Agents of the Agent Client Protocol, real ones, against a scripted model (A9)."""

from __future__ import annotations

from pathlib import Path

from acp_world import CODEX_MODEL, GEMINI_MODEL, acp_world, needs_codex, needs_gemini
from claude_fixtures import program
from hosts import Asked, FakeHost

from windlass.errors import Category
from windlass.ports import Answer, Permissions, ToolReturn, ToolSpec
from windlass.testing import Received, Reply

ESCALATED = {"cmd": "touch made.txt", "sandbox_permissions": "require_escalated", "justification": "it is needed"}
LOOK = ToolSpec("look.at", "Look at it", {"type": "object", "properties": {"at": {"type": "string"}}})


def writes(received: Received) -> Reply:
    """Run a command that changes something, once."""
    if received.tool_results or "not allowed" in received.last_user_text:
        return Reply.say("I am done.", tokens_in=200, tokens_out=20)
    if "run_shell_command" in received.tools:
        return Reply.use("run_shell_command", {"command": "touch made.txt"}, tokens_in=150, tokens_out=15)
    return Reply.use("exec_command", ESCALATED)


@needs_codex
async def test_a9_a_request_for_permission_is_a_question_to_a_person(tmp_path: Path) -> None:
    async with acp_world("codex", tmp_path, writes) as world:
        host = FakeHost(lambda asked: Answer(True))
        result = await world.runner.run(world.request(), host)
        assert (result.output, result.failure) == ("I am done.", None)
        assert host.asks == [Asked("execute", {"command": "touch made.txt"})]
        assert [(act.tool, act.summary) for act in host.acts] == [("execute", "touch made.txt")]
        assert (tmp_path / "work/made.txt").exists()


@needs_codex
async def test_a9_an_agent_that_is_denied_something_is_told_why_and_goes_on(tmp_path: Path) -> None:
    async with acp_world("codex", tmp_path, writes) as world:
        host = FakeHost(lambda asked: Answer(False, "not on a Tuesday"))
        result = await world.runner.run(world.request(), host)
        assert (result.output, result.failure) == ("I am done.", None)
        assert result.adjustments == ("execute was denied",)
        assert "not on a Tuesday" in world.model.requests[-1].last_user_text
        assert not (tmp_path / "work/made.txt").exists()


@needs_codex
async def test_a9_a_step_that_is_allowed_everything_asks_nobody(tmp_path: Path) -> None:
    script = [Reply.use("exec_command", {"cmd": "touch made.txt"}), Reply.say("I am done.")]
    async with acp_world("codex", tmp_path, script) as world:
        host = FakeHost()
        result = await world.runner.run(world.request(permissions=Permissions("allow")), host)
        assert (result.output, result.failure, host.asks) == ("I am done.", None, [])
        assert (tmp_path / "work/made.txt").exists()


@needs_codex
async def test_a9_a_tool_that_a_role_does_not_have_is_refused_unasked(tmp_path: Path) -> None:
    async with acp_world("codex", tmp_path, writes) as world:
        host = FakeHost(lambda asked: Answer(True))
        result = await world.runner.run(world.request(permissions=Permissions(tools=("read",))), host)
        assert (result.adjustments, host.asks) == (("execute was denied",), [])
        assert not (tmp_path / "work/made.txt").exists()


@needs_codex
async def test_a9_an_agent_uses_the_engines_tools_and_no_person_is_asked_twice(tmp_path: Path) -> None:
    def looks(received: Received) -> Reply:
        if received.tool_results:
            return Reply.say(f"I saw {received.tool_results[-1]}")
        return Reply.use("mcp__windlass__look__at", {"at": "the sea"})

    async with acp_world("codex", tmp_path, looks) as world:
        host = FakeHost(tools=[LOOK], tool=lambda used: ToolReturn({"seen": used.arguments["at"]}))
        result = await world.runner.run(world.request(), host)
        assert result.failure is None
        assert "the sea" in result.output
        assert [(use.tool, use.arguments) for use in host.uses] == [("look.at", {"at": "the sea"})]
        assert [act.tool for act in host.acts] == ["look.at"]
        assert host.asks == []


@needs_codex
async def test_a9_codex_leaves_the_settings_of_a_folder_out(tmp_path: Path) -> None:
    async with acp_world("codex", tmp_path, [Reply.say("done")]) as world:
        (tmp_path / "work/.codex").mkdir()
        (tmp_path / "work/.codex/config.toml").write_text('model = "of-the-folder"\n')
        result = await world.runner.run(world.request(trusted=False), FakeHost())
        assert (result.output, world.model.requests[-1].model) == ("done", CODEX_MODEL)


@needs_gemini
async def test_a9_gemini_asks_works_and_says_what_it_used(tmp_path: Path) -> None:
    async with acp_world("gemini", tmp_path, writes) as world:
        host = FakeHost(lambda asked: Answer(True))
        result = await world.runner.run(world.request(model=GEMINI_MODEL), host)
        assert (result.output, result.failure) == ("I am done.", None)
        assert host.asks == [Asked("execute", {"command": "touch made.txt"})]
        assert (tmp_path / "work/made.txt").exists()
        usage = result.usage
        assert (usage.tokens_in, usage.tokens_out, usage.model) == (350, 35, GEMINI_MODEL)
        assert (world.model.served.tokens_in, world.model.served.tokens_out) == (350, 35)
        for said in ("and then", "at last"):  # Gemini CLI alone would lose it at the first of them, or the second
            again = world.request(f"This is not allowed, {said}", model=GEMINI_MODEL, session=result.session)
            lost = (await world.runner.run(again, host)).failure
            assert lost is None, lost.message
        assert "and then" in world.model.requests[-1].text


async def test_a9_an_agent_of_ones_own_needs_a_command_and_a_folder_that_is_trusted(tmp_path: Path) -> None:
    async with acp_world("acp", tmp_path / "none", [], command=[]) as world:
        health = await world.runner.available()
        assert not health.ok
        assert "[runtimes.acp] command" in health.advice
    agent = program(tmp_path / "agent", "#!/bin/sh\nexit 1")
    async with acp_world("acp", tmp_path / "some", [], command=[agent]) as world:
        result = await world.runner.run(world.request(trusted=False), FakeHost())
        assert result.failure is not None
        assert result.failure.category is Category.PERMISSION
        assert "windlass trust" in result.failure.advice[0]


async def test_a9_a_program_that_is_no_agent_is_told_apart(tmp_path: Path) -> None:
    agent = program(tmp_path / "agent", "#!/bin/sh\necho hello\necho no such option >&2\nexit 3")
    async with acp_world("acp", tmp_path / "world", [], command=[agent]) as world:
        health = await world.runner.available()
        assert (health.ok, "no such option" in health.detail) == (False, True)
        result = await world.runner.run(world.request(), FakeHost())
        assert result.failure is not None
        assert result.failure.category is Category.TRANSIENT
        assert "exit code 3" in result.failure.message
        assert "no such option" in result.failure.message
