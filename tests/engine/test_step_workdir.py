"""`workdir`: a step works in the folder that it names (B5)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, occurred, plan
from code_worlds import CodeWorld, code
from git_repositories import repository

from windlass import Step
from windlass.core import events as ev
from windlass.engine.preview import asked_change
from windlass.errors import Category
from windlass.ports import AgentRequest, Sandbox
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def writer() -> ScriptedRunner:
    """An agent that writes `made` where it works."""

    def turn(request: AgentRequest) -> Turn:
        (request.workdir / "made").write_text("x\n")
        return Turn().say("done").spend(tokens_in=1, tokens_out=1, usd=0.0)

    return ScriptedRunner(turn, name="cli")


async def test_b5_a_command_works_in_the_folder_that_its_step_names(project: Project) -> None:
    for name in ("a", "b"):
        project.file(f"sub/{name}/here", "")
    each = Step(id="each", foreach=["a", "b"], workdir="sub/{{ item }}", run="ls; echo {{ item | quote }}")
    gone = Step(id="gone", workdir="missing", run="true", importance="optional", retry=0)
    state = await AgentWorld(project, writer()).run(plan(each, gone))
    assert [item["stdout"] for item in state.steps["each"].output] == ["here\na\n", "here\nb\n"]
    error = state.steps["gone"].error
    assert error is not None
    assert (error.category, "missing does not exist" in error.message) == (Category.CONFIGURATION, True)


async def test_b5_an_agent_and_its_checks_work_in_the_folder_that_its_step_names(project: Project) -> None:
    project.file("sub/here", "")
    runner = writer()
    world = AgentWorld(project, runner)
    work = agent("work", workdir="{{ inputs.folder }}", check="test -e here && test -e made")
    state = await world.run(plan(work, inputs={"folder": "sub"}))
    assert state.status == "completed", state.steps["work"].error
    assert [request.workdir for request in runner.requests] == [Path(project.path) / "sub"]
    async with world.engine() as engine:
        checked = (await engine.verify(state.id)).steps["work"].agent
    assert checked is not None
    assert (checked.verdict, checked.checks) == ("verified", 1)


@pytest.mark.parametrize("workdir", ["missing", "../missing"])
async def test_b5_an_agent_is_not_asked_to_work_in_a_folder_that_is_not_there(project: Project, workdir: str) -> None:
    runner = writer()
    state = await AgentWorld(project, runner).run(plan(agent("work", workdir=workdir, retry=0)))
    error = state.steps["work"].error
    assert error is not None
    assert (error.category, runner.requests) == (Category.CONFIGURATION, [])
    assert "`workdir`: the folder" in error.message


async def test_k4_a_worktree_has_the_same_folder_and_a_later_agent_may_work_in_it(project: Project) -> None:
    project.file("sub/here", "")
    folder = repository(project)
    runner = writer()
    first = agent("first", workdir="sub", workspace="worktree", check="test -e here")
    second = agent("second", workdir="{{ steps.first.workdir }}", needs=("first",))
    third = Step(id="third", workdir="{{ steps.first.workdir }}", run="ls")
    state = await AgentWorld(project, runner).run(plan(first, second, third))
    assert state.status == "completed", [step.error for step in state.steps.values()]
    one, two = (request.workdir for request in runner.requests)
    assert one == two
    assert (one.name, one.is_relative_to(folder)) == ("sub", False)
    assert state.steps["third"].output["stdout"].split() == ["here", "made"]
    assert not (folder / "sub" / "made").exists()


async def test_b5_paths_of_file_tools_are_in_the_folder_and_can_be_taken_back(project: Project) -> None:
    project.file("sub/a/old", "old\n")
    world = AgentWorld(project, writer())
    made = [{"do": "write", "path": "two", "content": "2"}, {"do": "move", "from": "old", "to": "older"}]
    tools = [
        Step(id="read", tool="files.read", workdir="sub/{{ inputs.which }}", with_={"path": "old"}),
        Step(id="write", tool="files.write", workdir="sub/new", with_={"path": "one", "content": "1"}, needs=("read",)),
        Step(id="apply", tool="files.apply", workdir="sub/a", with_={"changes": made}, needs=("write",)),
        Step(id="list", tool="files.list", workdir="sub/a", needs=("apply",)),
    ]
    state = await world.run(plan(*tools, inputs={"which": "a"}))
    assert state.status == "completed", [step.error for step in state.steps.values()]
    assert state.steps["read"].output["content"] == "old\n"
    assert state.steps["write"].output["path"] == "sub/new/one"
    assert [entry["path"] for entry in state.steps["list"].output["entries"]] == ["sub/a/older", "sub/a/two"]
    async with world.engine() as engine:
        await engine.undo(state.id, "apply")
        await engine.undo(state.id, "write")
    assert sorted(path.name for path in (project.path / "sub/a").iterdir()) == ["old"]
    assert not (project.path / "sub/new/one").exists()


async def test_b5_calls_of_a_program_are_in_the_folder(project: Project, sandbox: Sandbox) -> None:
    project.file("sub/here", "x")
    source = """
        await tools.files.write({path: "made", content: "y"});
        const listed = await tools.shell({argv: ["ls"]});
        const above = await tools.shell({argv: ["ls"], cwd: ".."});
        return [listed.stdout, above.stdout.includes("sub"), (await tools.files.list({})).entries.map(e => e.path)];
    """
    world = CodeWorld(project, sandbox)
    state = await world.run(plan(code(source, workdir="{{ inputs.folder }}"), inputs={"folder": "sub"}))
    work = state.steps["work"]
    assert work.output == ["here\nmade\n", True, ["here", "made"]], work.error


async def test_b5_paths_in_results_can_be_given_to_the_next_call_of_a_program(
    project: Project, sandbox: Sandbox
) -> None:
    project.file("sub/a/here", "x")
    project.file("above", "y")
    source = """
        const {entries} = await tools.files.list({path: "a"});
        const found = await tools.files.search({pattern: "x"});
        const moved = await tools.files.move({from: entries[0].path, to: "there"});
        const made = await tools.files.apply({changes: [{do: "write", path: moved.to, content: "z"}]});
        const above = await tools.files.read({path: "../above"});
        const again = await tools.files.read({path: above.path});
        const top = await tools.files.list({path: ".."});
        return [entries[0].path, found.path, found.matches[0].path, moved, made.changes[0].path, above.path,
                again.content, (await tools.files.list({path: top.path})).entries.length, top.entries.length];
    """
    for folder in ("sub", str(project.path / "sub")):
        project.file("sub/a/here", "x")
        (project.path / "sub/there").unlink(missing_ok=True)
        state = await CodeWorld(project, sandbox).run(plan(code(source, workdir=folder)))
        work = state.steps["work"]
        moved = {"from": "a/here", "to": "there", "type": "file", "replaced": False}
        above, count = str(project.path / "above"), len(list(project.path.iterdir())) - 1
        assert work.output == ["a/here", ".", "a/here", moved, "there", above, "y", count, count], work.error


async def test_b5_a_program_in_a_folder_cannot_patch_the_files_outside(project: Project, sandbox: Sandbox) -> None:
    project.file("a.txt", "one\n")
    project.file("sub/a.txt", "one\n")
    patch = "--- a/a.txt\\n+++ b/a.txt\\n@@ -1 +1 @@\\n-one\\n+two\\n"
    source = f'return await tools.files.patch({{patch: "{patch}"}})'
    state = await CodeWorld(project, sandbox).run(plan(code(source, workdir="sub", retry=0)))
    error = state.steps["work"].error
    assert error is not None
    assert "`workdir` does not change the paths of a patch: they are in its text" in error.message
    assert [(project.path / name).read_text() for name in ("a.txt", "sub/a.txt")] == ["one\n"] * 2


async def test_b5_a_file_tool_stays_in_the_working_directory_whatever_the_folder(project: Project) -> None:
    step = Step(id="read", tool="files.read", workdir="/etc", with_={"path": "hostname"}, retry=0)
    state = await AgentWorld(project, writer()).run(plan(step))
    error = state.steps["read"].error
    assert error is not None
    assert "not inside the working directory" in error.message


@pytest.mark.parametrize(("given", "found"), [(None, "nothing"), ("", "the text ''"), (["a", "b"], "a list")])
async def test_b5_a_workdir_that_gives_no_folder_fails_every_kind_of_step(
    project: Project, sandbox: Sandbox, given: object, found: str
) -> None:
    how: dict[str, Any] = {"workdir": "{{ inputs.folder }}", "retry": 0, "importance": "optional"}
    steps = [
        Step(id="command", run="touch made", **how),
        Step(id="file", tool="files.write", with_={"path": "made", "content": ""}, **how),
        agent("agent", **how),
    ]
    program = code("return await tools.shell({argv: ['touch', 'made']})", **how)
    runner, inputs = writer(), {"folder": given}
    states = [
        await AgentWorld(project, runner).run(plan(*steps, inputs=inputs)),
        await CodeWorld(project, sandbox).run(plan(program, inputs=inputs)),
    ]
    errors = [step.error for state in states for step in state.steps.values()]
    assert {error and (error.category, error.message) for error in errors} == {
        (Category.CONFIGURATION, f"`workdir` must be the path of a folder, but '{{{{ inputs.folder }}}}' gives {found}")
    }
    assert (runner.requests, list(project.path.rglob("made"))) == ([], [])


async def test_d10_paths_of_an_edited_step_are_in_its_folder(project: Project) -> None:
    project.file("sub/a", "1")
    project.file("sub/b/here", "")
    new = {"path": "a", "content": "2", "mode": "create"}
    write = Step(id="write", tool="files.write", workdir="{{ inputs.folder }}", with_=new, retry=0)
    look = Step(id="look", tool="files.list", workdir="sub", with_={"path": "b", "glob": "{{ inputs.glob }}"}, retry=0)
    world = AgentWorld(project, writer())
    state = await world.run(plan(write, look, inputs={"folder": "sub", "glob": "*/here"}))
    async with world.engine() as engine:
        await engine.retry(state.id, "write", edits={"path": "c"})
        await engine.retry(state.id, "look", edits={"recursive": True})
        state = await (await engine.resume(state.id, hold=False)).wait()
    assert state.steps["write"].output["path"] == "sub/c"
    assert (project.path / "sub/c").read_text() == "2"
    assert state.steps["look"].output["path"] == "sub/b"


def noting(*contents: str) -> ScriptedRunner:
    """An agent that writes each of these into NOTES.md with the engine's own tool."""
    turn = Turn()
    for content in contents:
        turn = turn.call("files.write", {"path": "NOTES.md", "content": content})
    return ScriptedRunner([turn.say("done")], name="cli")


@pytest.mark.parametrize("workspace", ["shared", "worktree"])
async def test_c6_a_question_of_an_agent_is_about_the_file_in_the_folder_that_it_works_in(
    project: Project, workspace: str
) -> None:
    project.file("sub/NOTES.md", "of the folder\n")
    folder = repository(project, **{"NOTES.md": "of the project\n"})
    runner = noting("first\n", "second\n")
    async with AgentWorld(project, runner).engine() as engine:
        execution = await engine.start(plan(agent("work", workdir="sub", workspace=workspace)))
        for number, before in enumerate(("of the folder", "first"), 1):
            asked = await occurred(execution, ev.ApprovalAsked, number)
            assert f"\n-{before}\n" in (asked_change(asked, folder) or "")
            await execution.approve("work")
        state = await execution.wait()
    assert [returned.failure for returned in runner.returns] == [None, None]
    assert state.status == "completed"
    assert (runner.requests[0].workdir / "NOTES.md").read_text() == "second\n"
    assert (folder / "NOTES.md").read_text() == "of the project\n"


async def test_c6_the_role_of_an_agent_that_is_asked_about_is_the_one_of_its_folder(project: Project) -> None:
    repository(project)
    for folder in (".windlass", "sub/.windlass"):
        role = project.file(f"{folder}/agents/tidier.md", "---\ndescription: tidies\n---\nTidy.\n")
    async with AgentWorld(project, writer()).engine() as engine:
        step = agent("work", agent="tidier", workdir="sub", approve="always")
        state = await (await engine.start(plan(step), hold=False)).wait()
        role.write_text("---\ndescription: tidies\n---\nDelete all.\n")
        await engine.approve(state.id, "work")
        state = await (await engine.resume(state.id, hold=False)).wait()
    assert (state.paused_for, "the role tidier changed" in state.steps["work"].question) == ("approval", True)
