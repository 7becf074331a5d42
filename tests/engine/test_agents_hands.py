"""The engine's tools in an agent's hands: asked about, kept apart, and whatever goes wrong is told to the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, plan

import windlass
from windlass import Call
from windlass.core import events as ev
from windlass.core.state import State
from windlass.engine.agents.agent_tools import AgentTools
from windlass.errors import ApprovalOutdated, Category
from windlass.ports import Permissions, PersonAnswer, Tool, ToolReturn
from windlass.process import Supervisor
from windlass.testing import ScriptedRunner, Turn
from windlass.tools.built_in import Registry
from windlass.tools.files.tools import file_tools
from windlass.tools.shell import Shell

if TYPE_CHECKING:
    from conftest import Project

WRITE = {"path": "a.txt", "content": "hello\n"}


async def use(world_of: Project, *calls: tuple[str, dict[str, Any]], **more: Any) -> tuple[State, list[ToolReturn]]:
    """One agent that makes these calls, with nobody there to be asked."""
    turn = Turn(repeat=True)
    for tool, arguments in calls:
        turn = turn.call(tool, arguments)
    runner = ScriptedRunner([turn.say("done")], name="cli")
    tools, step = more.pop("tools", ()), more.pop("step", {})
    world = AgentWorld(world_of, runner, tools=tools, **more)
    return await world.run(plan(agent(**step))), runner.returns


def failure(returned: ToolReturn) -> tuple[Category, str]:
    assert returned.failure is not None
    return returned.failure.category, returned.failure.message


async def test_c6_what_only_looks_is_not_asked_about(project: Project) -> None:
    project.file("a.txt", "hello\n")
    for settings in ({}, {"permissions": {"mode": "deny"}}):
        state, (read,) = await use(project, ("files.read", {"path": "a.txt"}), **settings)
        assert state.status == "completed"
        assert read.failure is None
        assert "hello" in str(read.value)


async def test_c6_what_only_looks_can_be_denied_by_name(project: Project) -> None:
    project.file("a.txt", "hello\n")
    _state, (read,) = await use(project, ("files.read", {"path": "a.txt"}), permissions={"deny": ["files.*"]})
    assert failure(read) == (Category.PERMISSION, "denied by its role or the settings")


@pytest.mark.parametrize(("tool", "arguments"), [("files.write", WRITE), ("shell", {"line": "echo hello > a.txt"})])
async def test_c6_what_changes_something_is_asked_about_with_exactly_its_arguments(
    project: Project, tool: str, arguments: dict[str, Any]
) -> None:
    state, returns = await use(project, (tool, arguments))
    assert (state.status, state.paused_for) == ("paused", "approval")
    asked = state.steps["work"].approval
    assert asked is not None
    assert (asked.tool, asked.input) == (tool, arguments)
    assert not (project.path / "a.txt").exists()
    assert returns == []


async def test_c6_allowed_it_is_done_and_denied_it_is_told(project: Project) -> None:
    state, (wrote, ran) = await use(
        project,
        ("files.write", WRITE),
        ("shell", {"line": "echo more >> a.txt"}),
        step={"permissions": {"allow": ["files.write"], "deny": ["shell"]}},
    )
    assert state.status == "completed"
    assert wrote.failure is None
    assert failure(ran) == (Category.PERMISSION, "denied by its role or the settings")
    assert project.lines("a.txt") == ["hello"]


async def test_c6_a_persons_no_is_told_with_the_note(project: Project) -> None:
    runner = ScriptedRunner([Turn(repeat=True).call("files.write", WRITE).say("done")], name="cli")
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan())
        async for event in execution.events():
            if isinstance(event, ev.ApprovalAsked):
                break
        await execution.approve("work", allow=False, note="not there")
        assert (await execution.wait()).status == "completed"
    assert failure(runner.returns[0]) == (Category.PERMISSION, "a person denied it: not there")


async def test_what_is_unknown_or_does_not_fit_is_told_and_nobody_is_asked(project: Project) -> None:
    state, (unknown, misfit, itself) = await use(
        project, ("files.raed", {}), ("files.write", {"pth": "a"}), ("agent", {"role": "developer", "prompt": "x"})
    )
    assert state.status == "completed"
    assert failure(unknown)[0] is Category.LOGIC
    assert "files.read" in failure(unknown)[1], "the nearest name"
    assert failure(misfit)[0] is Category.LOGIC
    assert "pth" in failure(misfit)[1]
    assert "no tool 'agent'" in failure(itself)[1], "agents do not start agents"


async def test_whatever_a_tool_raises_is_read_by_the_agent_and_does_not_end_it(project: Project) -> None:
    @windlass.tool
    async def breaks(how: str) -> None:
        match how:
            case "sum":
                raise ZeroDivisionError("a bug")
            case "exit":
                raise SystemExit(3)
            case "attribute":
                raise AttributeError("another")
            case _:
                raise windlass.ToolError("slow down", category="transient", output="half")

    calls = [("breaks", {"how": how}) for how in ("sum", "exit", "attribute", "own")]
    state, returns = await use(project, *calls, tools=[breaks], permissions={"mode": "allow"})
    assert state.status == "completed"
    assert [failure(returned)[0] for returned in returns] == [Category.LOGIC] * 3 + [Category.TRANSIENT]
    assert "a bug" in failure(returns[0])[1]
    assert returns[3].value == "half"


async def test_each_use_has_a_scratch_of_its_own(project: Project) -> None:
    seen: list[Call] = []

    @windlass.tool
    async def look(call: Call) -> None:
        seen.append(call)

    state, _returns = await use(project, ("look", {}), ("look", {}), tools=[look], permissions={"mode": "allow"})
    first, second = seen
    assert first.scratch != second.scratch
    assert {call.execution for call in seen} == {state.id}
    assert all(call.scratch.is_relative_to(call.folder / "steps") for call in seen)
    assert first.effect_id != second.effect_id
    assert first.contact is None, "a tool in an agent's hands asks nobody itself"


@pytest.mark.parametrize(
    ("tools", "expected"),
    [
        ("Read, Grep", {"files.read", "files.search"}),
        ("Bash", {"shell"}),
        ("Bash(git log:*)", {"shell"}),
        ("Glob", {"files.list"}),
        ("WebSearch", set()),
        ("files.read", {"files.read"}),
    ],
)
async def test_a5_a_roles_tools_are_ours_by_the_names_that_others_use(
    project: Project, tools: str, expected: set[str]
) -> None:
    project.file(".claude/agents/one.md", f"---\nname: one\ndescription: d\ntools: {tools}\n---\nLook.\n")
    offered: list[str] = []

    class Looking(ScriptedRunner):
        async def run(self, request: Any, host: Any) -> Any:
            offered.extend(spec.name for spec in host.tools())
            return await super().run(request, host)

    world = AgentWorld(project, Looking([Turn().say("x")], name="cli"))
    assert (await world.run(plan(agent(agent="one")))).status == "completed"
    assert set(offered) == expected


async def test_c6_a_role_with_one_command_has_no_other(project: Project) -> None:
    project.file(".claude/agents/one.md", "---\nname: one\ndescription: d\ntools: Bash(echo:*), Read\n---\nLook.\n")
    state, (allowed, other, hidden, absent) = await use(
        project,
        ("shell", {"line": "echo hello"}),
        ("shell", {"line": "touch there"}),
        ("shell", {"line": "echo; touch there"}),
        ("files.write", WRITE),
        step={"agent": "one"},
        permissions={"mode": "allow"},
    )
    assert state.status == "completed"
    assert allowed.failure is None
    assert failure(other)[0] is failure(hidden)[0] is Category.PERMISSION
    assert "echo" in failure(other)[1]
    assert failure(absent)[0] is Category.LOGIC
    assert not (project.path / "there").exists()


def hands(box: Registry | None = None, ask: Any = None, use: Any = None, **permissions: Any) -> AgentTools:
    """The tools of an agent of these permissions. `ask` answers for a person, `use` is done in place of every use."""
    contact: Any = SimpleNamespace(ask=ask, use=use)
    folder = Path("/nowhere")
    call = Call(execution="x", step="work", attempt=1, workdir=folder, folder=folder, processes=Supervisor())
    return AgentTools(box or Registry([Shell(), *file_tools()]), call, contact, Permissions(**permissions))


def test_c6_a_program_of_an_agent_knows_what_a_person_is_asked_about() -> None:
    assert hands().asks("files.write", WRITE)
    assert not hands().asks("files.read", {"path": "a.txt"}), "it only looks"
    assert not hands(allow=("files.write",)).asks("files.write", WRITE)
    assert not hands(deny=("files.write",)).asks("files.write", WRITE)
    assert not hands(tools=("files.read",)).asks("files.write", WRITE), "its role has no such tool"

    class Program(Shell):
        name = "program"
        is_program = True

    assert not hands(Registry([Program()])).asks("program", {"line": "true"}), "its calls are asked about one by one"


def test_a_tool_that_only_the_role_lacks_is_not_offered_in_place_of_a_slip_of_the_pen() -> None:
    unknown = asyncio.run(hands().use("files.raed", {}, "c1"))
    assert failure(unknown) == (Category.LOGIC, "there is no tool 'files.raed' here; did you mean files.read?")
    lacking = asyncio.run(hands(tools=("files.list", "shell")).use("files.raed", {}, "c1"))
    assert failure(lacking)[1].partition("; ")[2] in ("there are: files.list, shell", "there are: shell, files.list")


def test_k6_the_tools_that_a_runtime_chooses_are_told_to_its_model() -> None:
    seen: list[str] = []

    def choose(tools: Mapping[str, bool]) -> Collection[str]:
        seen.extend(tools)
        return {"files.read"}

    assert [spec.name for spec in hands(tools=("files.*",)).specs(choose)] == ["files.read"]
    assert "files.write" in seen
    assert "shell" not in seen, "its role has none"


def test_k6_a_server_that_was_not_asked_for_the_tools_that_a_role_names_is_known() -> None:
    class Servers(Registry):
        """Knows a tool of one server, and that there is another server."""

        def names(self) -> list[str]:
            return [*super().names(), "mcp.known.look"]

        def get(self, name: str) -> Tool | None:
            there = name.startswith(("mcp.known.", "mcp.plain."))
            return super().get("shell" if there else name)

    named = ("mcp.plain.read(x:*)", "mcp.plain.*", "mcp.known.look", "mcp.gone.look", "files.read")
    assert hands(Servers([Shell()]), tools=named).unlisted() == ["plain"]


@pytest.mark.parametrize(("bases", "outdated"), [(("one", "two"), 1), (("one", "one"), 2), (("one", "two", "two"), 3)])
async def test_c6_a_person_is_asked_anew_only_while_what_was_allowed_changes(
    bases: tuple[str, ...], outdated: int
) -> None:
    """Of as many answers, each for what was there then, so many come too late."""
    left, versions, used = list(bases), [Shell()], list[Tool]()

    class Changing(Registry):
        def get(self, name: str) -> Tool | None:
            return versions[-1]

    async def ask(*_: Any, **__: Any) -> PersonAnswer:
        return PersonAnswer(True, "", {"program": left.pop(0)})

    async def use(tool: Tool, *_: Any) -> str:
        used.append(tool)
        if len(used) > outdated:
            return "done"
        versions.append(Shell())
        raise ApprovalOutdated(["the program is another one"])

    box = Changing([Shell()])
    returned = await hands(box=box, ask=ask, use=use).use("shell", {"line": "true"}, "c1")
    assert left == []
    assert used == versions[: len(bases)], "each time what is there by then"
    assert (returned.value, returned.failure is None) == (("done", True) if outdated < len(bases) else (None, False))
