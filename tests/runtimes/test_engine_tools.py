"""The engine's own tools in the hands of the real Claude Code and the real OpenCode (K6, G1, G2, G3)."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_project import CLAUDE, CLAUDE_AND_SOAK, OPEN, living, serving, told, wait_for
from claude_fixtures import claude_world
from hosts import FakeHost, Used
from opencode_fixtures import Bench, needs_opencode

from windlass.core import events as ev
from windlass.plan.model import Effect
from windlass.ports import Answer, Permissions, ToolReturn, ToolSpec
from windlass.runners.toolbox import UNKNOWN_OUTCOME
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = """
steps:
  - {id: work, agent: developer, prompt: do the work, permissions: %s}
"""


def ours(runtime: str, tool: str, input: dict[str, Any] | None = None, **how: Any) -> Reply:
    """The model uses a tool of the engine's, by the name that the runtime has for it."""
    prefix = "mcp__windlass__" if runtime == CLAUDE else "windlass_"
    return Reply.use(prefix + tool.replace(".", "__"), input or {}, **how)


def names(received: Any) -> set[str]:
    """The tools that a model was told of, of the engine's."""
    found = (tool.get("name") or tool["function"]["name"] for tool in received.body["tools"])
    return {name for name in found if "windlass" in name}


def all_tools(project: Project) -> None:
    """The user's settings offer every tool by itself."""
    runtimes = json.loads(project.env["WINDLASS_RUNTIMES"])
    project.env["WINDLASS_RUNTIMES"] = json.dumps(
        {name: {**row, "engine_tools": "all"} for name, row in runtimes.items()}
    )


# -- through the whole engine ------------------------------------------------------------------------


def test_k6_an_agent_is_told_that_a_server_whose_tools_its_role_names_was_not_asked(
    project: Project, windlass: Windlass
) -> None:
    program = Path(__file__).parents[1] / "tools" / "mcp" / "raw_server.py"
    server = {"command": sys.executable, "args": [str(program), "plain"]}
    project.file(".claude/agents/looker.md", "---\nname: looker\ntools: mcp.plain.*, files.read\n---\nLook.\n")
    plan = project.plan("name: look\nsteps: [{id: look, agent: looker, prompt: look, runtime: cli}]\n")
    with serving(project, [Reply.say("done", times=2)], mcp={"plain": server}) as model:
        before = windlass("run", plan)
        windlass("tools", "check")
        after = windlass("run", plan)
        first, second = model.requests
    said = "the MCP server plain was not asked for its tools"
    assert (said in before.err, first.tools) == (True, ("files__read",))
    assert "windlass tools check" in before.err
    assert said not in after.err
    assert "mcp__plain__ok" in second.tools


PROGRAM = """
await tools.files.write({path: "made.txt", content: "by a program"});
try { await tools.shell({line: "touch escaped"}); } catch (error) { return "refused: " + error.message; }
"""


@CLAUDE_AND_SOAK
def test_k6_g2_g3_programs_and_composed_tools_run_under_the_steps_permissions_and_are_undone(
    project: Project, windlass: Windlass, runtime: str
) -> None:
    project.file("shout.js", "return args.text.toUpperCase() + (await tools.files.read({path: 'made.txt'})).content;")
    script = [
        ours(runtime, "code", {"source": PROGRAM}, text="I write a program."),
        ours(runtime, "shout", {"text": "so "}, text="I shout."),
        Reply.say("Done."),
    ]
    with serving(project, script) as model:
        schema = json.dumps({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]})
        project.file("shout.json", schema)
        windlass(
            "tools",
            "save",
            "shout",
            "shout.js",
            "--description",
            "Shouts.",
            "--schema",
            "shout.json",
            "--grants",
            "files.read",
        )
        ran = windlass("run", project.plan(PLAN % "{mode: allow, deny: [Bash]}"), "--runtime", runtime)
    model.check()
    prefix = "mcp__windlass__" if runtime == CLAUDE else "windlass_"
    assert names(model.requests[0]) == {prefix + name for name in ("code", "code__search", "shout")}
    assert "refused: " in model.requests[1].tool_results[-1]
    assert "SO by a program" in model.requests[2].tool_results[-1]
    assert not (project.path / "escaped").exists()
    assert (project.path / "made.txt").read_text() == "by a program"
    acts = [event.tool for event in told(project, ev.AgentActed)]
    assert acts == ["code", "shout"], "each use shows once, by the engine's name"
    assert [event.tool for event in told(project, ev.CallStarted)][:1] == ["files.write"]
    assert "Done." in ran.out
    (execution,) = project.ids()
    windlass("undo", execution, "work")
    assert not (project.path / "made.txt").exists()


@CLAUDE_AND_SOAK
def test_k6_an_approval_may_come_later_and_elsewhere_and_the_agent_goes_on(
    project: Project, windlass: Windlass, runtime: str
) -> None:
    wanted = {"path": "made.txt", "content": "agreed"}
    script = [
        ours(runtime, "files.write", wanted, text="I would write."),
        ours(runtime, "files.write", wanted, text="Then I write."),
        ours(runtime, "files.write", {**wanted, "path": "other.txt"}, text="And another."),
        Reply.say("Done."),
    ]
    with serving(project, script) as model:
        all_tools(project)
        plan = project.plan(PLAN % "{deny: ['files.write(other*)']}")
        stopped = windlass("run", plan, "--runtime", runtime, code=3)
        assert living(project) == []
        assert not (project.path / "made.txt").exists()
        (asked,) = windlass("approvals", "--json").json
        assert (asked["tool"], asked["input"]) == ("files.write", wanted)
        windlass.shell(stopped.command("approve"))
        ran = windlass.shell(stopped.command("resume"))
    model.check()
    assert (project.path / "made.txt").read_text() == "agreed"
    assert not (project.path / "other.txt").exists()
    assert len(told(project, ev.ApprovalAsked)) == 1
    assert "request to use files.write was allowed" in model.requests[1].last_user_text
    assert "denied by" in model.requests[3].tool_results[-1]
    assert "files.write was refused" in ran.err
    windlass("undo", project.ids()[0], "work")
    assert not (project.path / "made.txt").exists()


@pytest.mark.parametrize(
    ("runtime", "lost"),
    [(CLAUDE, False), (CLAUDE, True), pytest.param(OPEN, False, marks=[needs_opencode, pytest.mark.soak])],
)
def test_k6_a_once_only_use_that_kill_9_cut_off_is_told_to_the_agent_and_not_repeated(
    project: Project, windlass: Windlass, until: Any, runtime: str, lost: bool
) -> None:
    line = "echo once >> ran; sleep 1000"
    script = [ours(runtime, "shell", {"line": line}, text="I run it."), Reply.say("I looked: it ran.")]
    with serving(project, script) as model:
        all_tools(project)
        run = windlass.background("run", project.plan(PLAN % "{mode: allow}"), "--runtime", runtime)
        wait_for(model, 1, run)
        until(lambda: project.lines("ran"))
        run.signal(signal.SIGKILL)
        run.ended()
        until(lambda: living(project) == [])
        if lost:  # as if the runtime had not written its conversation down yet
            shutil.rmtree(project.user / "config/projects")
        ran = windlass("resume", project.ids()[0])
    model.check()
    assert f"shell {line}: {UNKNOWN_OUTCOME}" in model.requests[1].last_user_text
    assert UNKNOWN_OUTCOME in ran.err
    assert project.lines("ran") == ["once"]


# -- the runner alone --------------------------------------------------------------------------------


CODE = ToolSpec("code", "Runs a program.", {"type": "object", "properties": {"source": {"type": "string"}}})
NOTES = ToolSpec("notes.add", "Adds a note.", {"type": "object", "properties": {}})


class Busy(FakeHost):
    """Its tool never ends by itself; `called_off` counts the uses that were ended."""

    def __init__(self) -> None:
        super().__init__(lambda _: Answer(True), tools=[CODE], tool=self._wait, effects={"code": Effect.ONCE})
        self.called_off = 0

    async def _wait(self, used: Used) -> ToolReturn:
        try:
            await asyncio.Event().wait()
        finally:
            self.called_off += 1
        raise AssertionError


async def test_k6_claude_code_is_asked_by_nobody_but_us_and_an_interrupt_ends_a_use(tmp_path: Path) -> None:
    """A role that has two tools of its own: only they and ours are there, and no server of the user's."""
    script = [ours(CLAUDE, "notes.add"), ours(CLAUDE, "code", {"source": "wait"}), Reply.say("went on")]
    host = Busy()
    host._tools.append(NOTES)
    async with claude_world(tmp_path, script) as world:
        (world.home.workdir / ".mcp.json").write_text('{"mcpServers": {"other": {"command": "false"}}}')
        permissions = Permissions(tools=("Read", "code", "notes.*"))
        request = world.request("go", permissions=permissions, trusted=True)
        host._tool = lambda used: ToolReturn("noted") if used.tool == "notes.add" else Busy._wait(host, used)
        running = asyncio.create_task(world.runner.run(request, host))
        await host.until(lambda told: len(told.uses) == 2)
        await world.runner.interrupt(request.id)
        result = await running
        assert result.interrupted
        assert host.called_off == 1
        assert [act.tool for act in host.acts] == ["notes.add", "code"]
        assert [asked.tool for asked in host.asks] == ["code"]
        assert names(world.model.requests[0]) == {"mcp__windlass__code", "mcp__windlass__notes__add"}
        assert not world.left()
        after = FakeHost(tools=[CODE])
        more = await world.runner.run(world.request("go on", session=result.session), after)
        assert more.output == "went on"
        assert UNKNOWN_OUTCOME in world.model.requests[-1].last_user_text


@needs_opencode
@pytest.mark.asyncio(loop_scope="session")
async def test_k6_two_attempts_in_one_folder_of_one_opencode_do_not_see_each_others_tools(bench: Bench) -> None:
    """And an interrupt of one of them ends its use and its token, while the other goes on."""
    folder = bench.folder()
    busy, brief = Busy(), FakeHost(tools=[CODE], tool=lambda used: ToolReturn("done"))
    first, second = bench.request("alpha", workdir=folder), bench.request("beta", workdir=folder)
    script = (
        Reply.use("windlass_code", {"source": "wait"}, when="alpha"),
        Reply.use("windlass2_code", {"source": "one"}, when="beta"),
        Reply.say("second is done", when="beta"),
    )
    async with bench.model(*script) as model:
        running = asyncio.create_task(bench.runner.run(first, busy))
        await busy.until(lambda told: told.uses)
        done = await bench.runner.run(second, brief)
        assert done.output == "second is done"
        await bench.runner.interrupt(first.id)
        stopped = await running
        model.check()
    assert stopped.interrupted
    assert busy.called_off == 1
    assert [used.arguments for used in busy.uses] == [{"source": "wait"}]
    assert [used.arguments for used in brief.uses] == [{"source": "one"}]
    assert [act.tool for act in brief.acts] == ["code"]
    told_of = {received.last_user_text: names(received) for received in model.requests}
    assert told_of["alpha"] == {"windlass_code"}
    assert told_of["beta"] == {"windlass2_code"}
    async with bench.model(Reply.say("nothing")) as model:
        await bench.runner.run(bench.request("gamma", workdir=folder), FakeHost())
        assert names(model.requests[0]) == set(), "an attempt without such tools sees none of an earlier one"
