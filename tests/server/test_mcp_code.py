"""Programs and single tools for MCP clients, by the real client library, over HTTP and stdio (G1, G2, G3)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mcp_clients import BOTH_ERAS, Ear, client, error_of, hosted, shown
from mcp_types import ElicitResult, TextContent

from windlass.ports import ComposedTool

if TYPE_CHECKING:
    from conftest import Project, Windlass
    from mcp import Client
    from mcp_clients import Hosted

SUM = """
const texts = await Promise.all(args.paths.map(path => tools.files.read({path})));
console.log("read", texts.length);
return texts.reduce((sum, text) => sum + Number(text.content), 0);
"""
GATE = "until [ -e open ]; do sleep 0.02; done; printf open"
YES = ElicitResult(action="accept", content={"allow": True})
NO = ElicitResult(action="accept", content={"allow": False})


def keep(server: Hosted, source: str, name: str = "shout", **more: Any) -> None:
    """A composed tool, as `windlass tools save` keeps it."""
    assert server.engine.shelf is not None
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    server.engine.shelf.save(ComposedTool(name, source, schema, description="Say it loud", **more))


async def text_of(mcp: Client, query: str, **more: Any) -> str:
    (content,) = (await mcp.call_tool("code_search", {"query": query, **more})).content
    assert isinstance(content, TextContent)
    return content.text


@BOTH_ERAS
async def test_g1_a_program_calls_tools_and_its_result_and_log_come_back(project: Project, mode: str) -> None:
    project.file("a", "1")
    project.file("b", "2")
    async with hosted(project) as server, server.client(mode) as mcp:
        seen = shown(await mcp.call_tool("code", {"source": SUM, "args": {"paths": ["a", "b"]}}))
    (step,) = seen["steps"]
    assert (seen["status"], step["output"], step["log"]) == ("completed", 3, "read 2\n")
    assert project.state(seen["execution"]).status == "completed", "it is an execution like any other"


@BOTH_ERAS
async def test_g1_a_program_runs_over_stdio_in_the_folder_it_is_told(
    project: Project, windlass: Windlass, mode: str
) -> None:
    project.file("deep/a", "5")
    workdir = str(project.path / "deep")
    async with client(project, mode) as mcp:
        seen = shown(await mcp.call_tool("code", {"source": SUM, "args": {"paths": ["a"]}, "workdir": workdir}))
    assert (seen["steps"][0]["output"], seen["steps"][0]["log"]) == (5, "read 1\n")
    assert windlass("status", seen["execution"], "--json").json["workdir"] == workdir


async def test_g1_a_program_goes_on_when_the_client_goes_away(project: Project, windlass: Windlass, until: Any) -> None:
    source = "return (await tools.shell({line: args.line})).stdout"
    async with client(project) as mcp:
        started = shown(await mcp.call_tool("code", {"source": source, "args": {"line": GATE}, "wait_s": 0}))
    assert started["status"] == "running"
    project.file("open", "")
    until(lambda: project.state(started["execution"]).status == "completed", "it ends though nobody waits for it")
    assert project.state(started["execution"]).steps["program"].output == "open"


async def test_g1_a_cancelled_call_does_not_stop_the_program(project: Project, eventually: Any) -> None:
    source = f"return (await tools.shell({{line: '{GATE}'}})).stdout"
    async with hosted(project) as server, server.client() as mcp:
        call = asyncio.create_task(mcp.call_tool("code", {"source": source}))
        await eventually(project.ids, "it has begun")
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        project.file("open", "")
        (execution,) = project.ids()
        await eventually(lambda: project.state(execution).status == "completed")


@BOTH_ERAS
async def test_g2_what_a_program_may_do_only_after_a_question_is_put_to_the_person_at_the_client(
    project: Project, mode: str
) -> None:
    project.file(".windlass/config.toml", '[approvals]\nalways = ["files.delete"]\n')
    project.file("a", "1")
    project.file("b", "2")
    ear = Ear(answers=[YES, NO])
    source = """
    const gone = [];
    for (const path of ["a", "b"]) {
      try { await tools.files.delete({path}); gone.push(path); } catch (error) { gone.push(error.category); }
    }
    return gone;
    """
    async with hosted(project) as server, server.client(mode, ear=ear, asks=True) as mcp:
        seen = shown(await mcp.call_tool("code", {"source": source}))
    assert seen["steps"][0]["output"] == ["a", "permission"]
    assert ['"path": "a"' in ear.asked[0], '"path": "b"' in ear.asked[1]] == [True, True]
    assert not (project.path / "a").exists()
    assert (project.path / "b").exists()


async def test_g2_a_program_has_the_grants_and_limits_that_it_is_given(project: Project) -> None:
    source = "try { await tools.shell({line: 'true'}) } catch (error) { return error.constructor.name }"
    async with hosted(project) as server, server.client() as mcp:
        granted = shown(await mcp.call_tool("code", {"source": source, "grants": ["files.*"]}))
        assert granted["steps"][0]["output"] == "TypeError", "what is not granted is not there"
        spins = shown(await mcp.call_tool("code", {"source": "for (;;);", "limits": {"cpu": "100ms"}}))
        assert (spins["status"], spins["steps"][0]["error"]["category"]) == ("failed", "resource")
        _error, text = error_of(await mcp.call_tool("code", {"source": "return 1", "limits": {"cpus": 1}}))
        assert "cpus" in text
        _error, text = error_of(await mcp.call_tool("code", {"source": "return 1", "grants": ["file.read"]}))
        assert "which is not a tool" in text


async def test_g1_a_program_that_is_none_or_throws_says_where(project: Project) -> None:
    async with hosted(project) as server, server.client() as mcp:
        _error, text = error_of(await mcp.call_tool("code", {"source": "const a = 1;\nreturn tools.(;"}))
        assert "line 2" in text
        _error, text = error_of(await mcp.call_tool("code", {"source": "  "}))
        assert "empty" in text
        source = "console.log('so far');\nawait tools.files.list({});\nthrow new Error('no')"
        throws = shown(await mcp.call_tool("code", {"source": source}))
    assert (throws["status"], throws["steps"][0]["log"]) == ("failed", "so far\n")
    assert "no" in throws["steps"][0]["error"]["message"]


async def test_g1_arguments_are_no_templates(project: Project) -> None:
    args = {"text": '{{ inputs.x }} {% raw %} {# }} "\\\r\n\u00fc', "more": [{"deep": "{{"}]}
    async with hosted(project) as server, server.client() as mcp:
        seen = shown(await mcp.call_tool("code", {"source": "return args", "args": args}))
        assert seen["steps"][0]["output"] == args
        write = {"path": "page.html", "content": "<p>{{ user }}</p>"}
        shown(await mcp.call_tool("engine_tool", {"name": "files.write", "args": write}))
    assert (project.path / "page.html").read_text() == write["content"]


async def test_g2_code_search_gives_the_types_of_what_fits_composed_tools_included(project: Project) -> None:
    async with hosted(project) as server, server.client() as mcp:
        keep(server, "return args.text.toUpperCase()")
        loud = await text_of(mcp, "loud")
        assert "shout: (args: { text: string }) => Promise<any>" in loud
        assert "/** Say it loud */" in loud
        assert "files" not in loud
        assert "read: (args: { " in await text_of(mcp, "files.read", limit=1)
        assert "shell" in await text_of(mcp, "", limit=50)
        assert "no tool matches; there are: " in await text_of(mcp, "zeppelin")
    assert project.ids() == [], "looking starts nothing"


async def test_g2_searching_makes_no_home(project: Project) -> None:
    async with client(project) as mcp:
        assert "declare const tools" in await text_of(mcp, "read a file")
    assert not project.home.exists()


@BOTH_ERAS
async def test_g3_a_composed_tool_is_used_by_its_name_and_from_programs(project: Project, mode: str) -> None:
    async with hosted(project) as server, server.client(mode) as mcp:
        keep(server, "console.log('once'); return args.text.toUpperCase()")
        seen = shown(await mcp.call_tool("engine_tool", {"name": "shout", "args": {"text": "hi"}}))
        assert (seen["plan"], seen["steps"][0]["output"], seen["steps"][0]["log"]) == ("shout", "HI", "once\n")
        source = "return await tools.shout({text: 'from a program'})"
        seen = shown(await mcp.call_tool("code", {"source": source}))
        assert seen["steps"][0]["output"] == "FROM A PROGRAM"
        assert server.engine.shelf is not None
        (kept,) = server.engine.shelf.all()
        assert server.engine.shelf.uses(kept)[:2] == (2, 0)


async def test_g3_a_tool_that_was_saved_on_the_command_line_is_there_over_stdio(
    project: Project, windlass: Windlass
) -> None:
    program = project.file("twice.js", "return 2 * args.n")
    async with client(project) as mcp:
        windlass("tools", "save", "twice", program)
        assert (
            shown(await mcp.call_tool("engine_tool", {"name": "twice", "args": {"n": 21}}))["steps"][0]["output"] == 42
        )
        assert "twice" in await text_of(mcp, "twice")


async def test_c5_a_tool_that_is_not_there_or_is_given_nonsense_is_an_error_with_advice(project: Project) -> None:
    async with hosted(project) as server, server.client() as mcp:
        error, _text = error_of(await mcp.call_tool("engine_tool", {"name": "files.raed"}))
        assert error["advice"] == ["did you mean 'files.read'?"]
        error, text = error_of(await mcp.call_tool("engine_tool", {"name": "files.read", "args": {"pat": "x"}}))
        assert "did you mean path?" in text
        assert error["advice"] == ["see its arguments: windlass tools show files.read"]
        error, _text = error_of(await mcp.call_tool("engine_tool", {"name": "agent", "args": {"prompt": "x"}}))
        assert "cannot be run as a tool" in error["message"]
    assert project.ids() == []


async def test_g2_a_client_is_told_of_code_what_an_agent_is_told(project: Project) -> None:
    async with hosted(project) as server, server.client() as mcp:
        told = {tool.name: tool.description or "" for tool in (await mcp.list_tools()).tools}
        tool = server.engine.attempt_runner.tools.get("code")
    words = tool.briefed([], server.engine.attempt_runner.tools).partition("\ndeclare const")[0]  # type: ignore[union-attr]
    assert told["code"].startswith(words)
    assert "code_search" in told["code"]
    assert all(0 < len(text) < 2_000 for text in told.values()), "clients cut off what is longer"


async def test_i6_secrets_do_not_reach_the_client_by_a_programs_log_or_a_tools_words(
    project: Project, windlass: Windlass
) -> None:
    secret = "pa55-of-the-deploy"
    project.env["DEPLOY_TOKEN"] = secret
    program = project.file("leak.js", "console.log(args.text); return args.text")
    windlass("tools", "save", "leak", program, "--description", f"Tells {secret}")
    async with client(project) as mcp:
        seen = shown(await mcp.call_tool("engine_tool", {"name": "leak", "args": {"text": f"it is {secret}"}}))
        found = await text_of(mcp, "leak")
    assert (seen["steps"][0]["output"], seen["steps"][0]["log"]) == ("it is [DEPLOY_TOKEN]", "it is [DEPLOY_TOKEN]\n")
    assert "[DEPLOY_TOKEN]" in found
    assert secret not in found
