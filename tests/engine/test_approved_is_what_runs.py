"""An answer holds for what will happen, and for nothing else (C6): whatever changed since is asked about anew."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Call, Plan, Step, tool
from windlass.core import events as ev
from windlass.core.approval import digest_of
from windlass.core.state import State
from windlass.ports import ComposedTool
from windlass.testing import ScriptedRunner, Turn
from windlass.tools.files import kernel

if TYPE_CHECKING:
    from conftest import Project

PATCH = "--- a/notes.txt\n+++ b/notes.txt\n@@ -1 +1 @@\n-old\n+new\n"
FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "write": ("files.write", {"path": "notes.txt", "content": "new\n"}),
    "append": ("files.write", {"path": "notes.txt", "content": "new\n", "mode": "append"}),
    "edit": ("files.edit", {"path": "notes.txt", "edits": [{"old": "old", "new": "new"}]}),
    "patch": ("files.patch", {"patch": PATCH}),
    "delete": ("files.delete", {"path": "notes.txt"}),
    "move": ("files.move", {"from": "notes.txt", "to": "moved.txt"}),
    "move onto": ("files.move", {"from": "other.txt", "to": "notes.txt", "overwrite": True}),
    "copy": ("files.copy", {"from": "notes.txt", "to": "copied.txt"}),
    "apply": ("files.apply", {"changes": [{"do": "write", "path": "notes.txt", "content": "new\n"}]}),
}


def asking(name: str, arguments: dict[str, Any], **more: Any) -> Plan:
    return Plan(steps=[Step(id="work", tool=name, with_=arguments, approve="always", **more)])


def questions(project: Project, execution: str) -> list[ev.ApprovalAsked]:
    return [event for event in project.events(execution) if isinstance(event, ev.ApprovalAsked)]


async def paused(engine: windlass.Engine, plan: Any, **more: Any) -> State:
    state = await (await engine.start(plan, hold=False, **more)).wait()
    assert (state.status, state.paused_for) == ("paused", "approval"), state.steps["work"].error
    return state


async def resumed(engine: windlass.Engine, execution: str, **how: Any) -> State:
    await engine.approve(execution, "work")
    return await (await engine.resume(execution, hold=False, **how)).wait()


async def asked_anew(engine: windlass.Engine, project: Project, execution: str, why: str, **how: Any) -> None:
    """Answer; nothing happens but a new question that says why; answer that, and it is done."""
    state = await resumed(engine, execution, **how)
    assert (state.status, state.paused_for) == ("paused", "approval"), state.steps["work"].error
    first, second = questions(project, execution)
    assert why in second.question
    assert first.digest != second.digest
    state = await resumed(engine, execution)
    assert state.status == "completed", state.steps["work"].error


@pytest.mark.parametrize("way", FILES)
async def test_c6_a_file_that_changed_under_its_diff_is_asked_about_anew(project: Project, way: str) -> None:
    notes = project.file("notes.txt", "old\n")
    project.file("other.txt", "other\n")
    async with windlass.open() as engine:
        execution = (await paused(engine, asking(*FILES[way]))).id
        notes.write_text("old\nmy own work\n")
        state = await resumed(engine, execution)
        assert (state.status, state.paused_for) == ("paused", "approval"), state.steps["work"].error
        assert notes.read_text() == "old\nmy own work\n", "newer work was overwritten"
        assert "the file notes.txt changed" in questions(project, execution)[1].question
        notes.write_text("old\n")
        assert (await resumed(engine, execution)).paused_for == "approval", (
            "the second answer was for the other content"
        )
        assert (await resumed(engine, execution)).status == "completed"


async def test_c6_a_file_that_is_created_or_deleted_meanwhile_is_asked_about_anew(project: Project) -> None:
    async with windlass.open() as engine:
        execution = (await paused(engine, asking("files.write", {"path": "a.txt", "content": "x"}))).id
        project.file("a.txt", "mine")
        await asked_anew(engine, project, execution, "the file a.txt was created")
        execution = (await paused(engine, asking("files.write", {"path": "a.txt", "content": "y"}))).id
        (project.path / "a.txt").unlink()
        await asked_anew(engine, project, execution, "the file a.txt was deleted")


@pytest.mark.skipif(sys.platform != "linux", reason="needs an exchange of two names")
@pytest.mark.parametrize("way", ["write", "delete", "move onto"])
async def test_c6_a_swap_between_the_last_look_and_the_rename_is_noticed_and_undone(
    project: Project, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    notes = project.file("notes.txt", "old\n")
    project.file("other.txt", "other\n")
    swaps = ["swapped in at the last moment\n"]

    def swapping(real: Callable[..., Any]) -> Callable[..., Any]:
        def rename(old: str, new: str, **fds: int) -> Any:
            if swaps:
                (project.path / "swap").write_text(swaps.pop())
                os.replace(project.path / "swap", notes)
            return real(old, new, **fds)

        return rename

    for name in ("rename_new", "rename_exchange"):
        monkeypatch.setattr(f"windlass.tools.files.undo.{name}", swapping(getattr(kernel, name)))
    async with windlass.open() as engine:
        execution = (await paused(engine, asking(*FILES[way]))).id
        state = await resumed(engine, execution)
        assert (state.status, state.paused_for) == ("paused", "approval"), state.steps["work"].error
        assert notes.read_text() == "swapped in at the last moment\n"
        assert (project.path / "other.txt").read_text() == "other\n"
        assert sorted(path.name for path in project.path.iterdir() if "windlass-" in path.name) == []
        assert (await resumed(engine, execution)).status == "completed"


@pytest.mark.parametrize("limits", [{}, {"timeout": "1m"}], ids=["plain", "with a limit"])
async def test_c6_a_script_that_changed_on_disk_is_asked_about_anew(project: Project, limits: dict[str, str]) -> None:
    script = project.file("deploy.sh", "echo one > out.txt\n")
    async with windlass.open() as engine:
        execution = (await paused(engine, asking("shell", {"line": "sh -e deploy.sh && true"}, **limits))).id
        script.write_text("echo two > out.txt\n")
        await asked_anew(engine, project, execution, "the file deploy.sh changed")
    assert (project.path / "out.txt").read_text() == "two\n"


async def test_c6_the_program_or_grants_of_a_composed_tool_that_changed_are_asked_about_anew(project: Project) -> None:
    async with windlass.open() as engine:
        assert engine.shelf is not None
        one = ComposedTool("report", "return 'one';", {"type": "object"}, grants=("inner",))
        engine.shelf.save(one)
        engine.shelf.save(ComposedTool("inner", "return 1;", {"type": "object"}))
        execution = (await paused(engine, asking("report", {}))).id
        engine.shelf.save(ComposedTool("report", "return 'two';", {"type": "object"}, grants=("inner",)))
        await asked_anew(engine, project, execution, "composed tool report changed")
        execution = (await paused(engine, asking("report", {}))).id
        engine.shelf.save(ComposedTool("inner", "return 2;", {"type": "object"}))
        await asked_anew(engine, project, execution, "composed tool inner changed")


async def test_c6_a_tool_that_describes_itself_otherwise_is_asked_about_anew(project: Project) -> None:
    def made(words: str) -> Any:
        @tool(name="send", description=words)
        async def send(text: str) -> str:
            return text

        return send

    async with windlass.open(tools=[made("Send a text")]) as engine:
        execution = (await paused(engine, asking("send", {"text": "hello"}))).id
    async with windlass.open(tools=[made("Send a text to everyone")]) as engine:
        await asked_anew(engine, project, execution, "the description or the schema of the tool send changed")


async def test_c6_python_code_that_changed_is_asked_about_anew(project: Project) -> None:
    def made(sent: str) -> Any:
        @tool(name="send", description="Send a text")
        async def one(text: str) -> str:
            return text

        @tool(name="send", description="Send a text")
        async def two(text: str) -> str:
            return text * 2

        return one if sent == "one" else two

    async with windlass.open(tools=[made("one")]) as engine:
        execution = (await paused(engine, asking("send", {"text": "hello"}))).id
    async with windlass.open(tools=[made("two")]) as engine:
        await asked_anew(engine, project, execution, "the Python code of the tool send changed")


async def test_c6_a_step_edited_in_the_plan_after_the_answer_is_asked_about_anew(project: Project) -> None:
    """The arguments stay the same; what the program may call does not."""
    text = "steps: [{id: work, code: 'return 1;', grants: [%s], approve: always}]"
    file = project.file("plan.yaml", text % "files.read")
    async with windlass.open() as engine:
        execution = (await paused(engine, engine.read(file))).id
        await engine.approve(execution, "work")
        file.write_text(text % '"files.*"')
        state = await (await engine.resume(execution, hold=False, accept_changes=True)).wait()
        assert (state.status, state.paused_for) == ("paused", "approval")
        assert (await resumed(engine, execution)).status == "completed"


async def test_c6_a_template_that_gives_something_else_by_then_is_asked_about_anew(project: Project) -> None:
    text = 'inputs: {name: %s}\nsteps: [{id: work, run: "echo {{ inputs.name }}", approve: always}]\n'
    file = project.file("plan.yaml", text % "ann")
    async with windlass.open() as engine:
        execution = (await paused(engine, engine.read(file))).id
        await engine.approve(execution, "work")
        file.write_text((text % "ann").replace("echo", "echo to"))
        state = await (await engine.resume(execution, hold=False, accept_changes=True)).wait()
        assert (state.status, state.paused_for) == ("paused", "approval")
    assert [asked.input["line"] for asked in questions(project, execution)] == ["echo ann", "echo to ann"]


async def test_c6_an_attachment_that_changed_is_asked_about_anew(project: Project) -> None:
    """Any tool whose arguments name files: by their shape, whatever the tool is."""
    sent: list[str] = []

    @tool
    async def send(attachments: list[str], call: Call) -> None:
        sent.append((call.workdir / attachments[0]).read_text())

    report = project.file("report.txt", "harmless")
    async with windlass.open(tools=[send]) as engine:
        execution = (await paused(engine, asking("send", {"attachments": ["report.txt"]}))).id
        report.write_text("something else")
        await asked_anew(engine, project, execution, "the file report.txt changed")
    assert sent == ["something else"]


async def test_c6_a_role_that_changed_is_asked_about_anew(project: Project) -> None:
    role = project.file(".windlass/agents/tester.md", "---\nname: tester\ndescription: t\n---\nTest.\n")
    runner = ScriptedRunner([Turn().done("done")], name="claude-code")
    plan = Plan(steps=[Step(id="work", agent="tester", prompt="go", runtime="claude-code", approve="always")])
    async with windlass.open(runners=[runner]) as engine:
        execution = (await paused(engine, plan)).id
        role.write_text(role.read_text() + "Delete everything.\n")
        await asked_anew(engine, project, execution, "the role tester changed")


async def test_c6_a_file_that_changes_while_an_agent_waits_for_the_answer_is_asked_about_anew(project: Project) -> None:
    notes = project.file("notes.txt", "old\n")
    runner = ScriptedRunner(
        [Turn().ask("Write", {"file_path": "notes.txt", "content": "new\n"}).done("written")], name="claude-code"
    )
    plan = Plan(steps=[Step(id="work", agent="developer", prompt="go", runtime="claude-code")])
    async with windlass.open(runners=[runner]) as engine:
        execution = await engine.start(plan, hold=True)
        count = 0
        async for event in execution.events():
            if isinstance(event, ev.ApprovalAsked):
                count += 1
                if count == 1:
                    notes.write_text("newer\n")
                await execution.approve("work")
        assert (await execution.wait()).status == "completed"
    first, second = questions(project, execution.id)
    assert first.question == ""
    assert "the file notes.txt changed" in second.question


async def test_c6_a_file_that_changes_while_a_program_waits_for_the_answer_is_asked_about_anew(
    project: Project,
) -> None:
    notes = project.file("notes.txt", "old\n")
    source = "return await tools.files.write({path: 'notes.txt', content: 'new'});"
    plan = Plan(steps=[Step(id="work", code=source)])
    async with windlass.open(approvals={"always": ["files.write"]}) as engine:
        execution = (await paused(engine, plan)).id
        notes.write_text("newer\n")
        state = await resumed(engine, execution)
        assert (state.status, state.paused_for) == ("paused", "approval"), state.steps["work"].error
        assert notes.read_text() == "newer\n"
        assert "the file notes.txt changed" in questions(project, execution)[1].question
        assert (await resumed(engine, execution)).status == "completed"


async def test_c6_a_question_of_an_earlier_version_is_asked_anew(project: Project) -> None:
    project.file("notes.txt", "old\n")
    async with windlass.open() as engine:
        name, arguments = FILES["write"]
        execution = (await paused(engine, asking(name, arguments))).id
        entries = await engine.journal.read(execution)
        state = await engine.state(execution)
        old = ev.ApprovalAsked(entries[-1].event.at, "work", digest_of("work", name, arguments), name, arguments, 1e12)
        await engine.journal.append(execution, state.seq, [old])
        state = await resumed(engine, execution)
        assert (state.status, state.paused_for) == ("paused", "approval"), state.steps["work"].error
        assert "an earlier version of Windlass" in questions(project, execution)[-1].question
        assert (await resumed(engine, execution)).status == "completed"


def test_c6_the_digest_of_a_request_without_a_basis_is_as_it_was() -> None:
    known = "ed6fb718d5fd91cdc31d586787cea8e950df38dc6a2ee6439d170b186cbff2d3"
    assert digest_of("work", "shell", {"line": "ls"}) == digest_of("work", "shell", {"line": "ls"}, {}) == known


SERVER = """
from pathlib import Path
from mcp.server.mcpserver import MCPServer

server = MCPServer("post")


@server.tool(description=Path("words.txt").read_text())
def send(text: str) -> str:
    return text


server.run("stdio")
"""


async def test_c6_a_tool_of_an_mcp_server_that_is_described_otherwise_is_asked_about_anew(project: Project) -> None:
    words = project.file("words.txt", "Send a text")
    server = project.file("server.py", SERVER)
    mcp = {"post": {"command": sys.executable, "args": [str(server)]}}
    plan = asking("mcp.post.send", {"text": "hello"})
    async with windlass.open(mcp=mcp) as engine:
        assert engine.built_in is not None
        await engine.built_in.check()
        execution = (await paused(engine, plan)).id
    words.write_text("Send a text to everyone")
    async with windlass.open(mcp=mcp) as engine:
        await asked_anew(engine, project, execution, "the description or the schema of the tool mcp.post.send changed")
