"""Turns of the real OpenCode on a warm server, and the questions it asks in them (A3)."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hosts import Asked, FakeHost
from opencode_fixtures import Bench, needs_opencode

from windlass.ports import Answer, Permissions
from windlass.testing import Reply

pytestmark = [needs_opencode, pytest.mark.asyncio(loop_scope="session")]


def bash(command: str) -> Reply:
    return Reply.use("bash", {"command": command, "description": "a command"})


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


async def test_a3_a_yes_lets_the_tool_run_with_exactly_what_was_shown(bench: Bench) -> None:
    request = bench.request("go", permissions=Permissions("ask"))
    host = FakeHost(lambda asked: Answer(True))
    async with bench.model(bash("echo yes > asked.txt"), Reply.say("done")) as model:
        result = await bench.runner.run(request, host)
        model.check()
    assert result.success, result
    assert host.asks == [Asked("bash", {"command": "echo yes > asked.txt", "description": "a command"})]
    assert (request.workdir / "asked.txt").read_text() == "yes\n"


async def test_a3_a_no_reaches_the_agent_which_goes_on(bench: Bench) -> None:
    request = bench.request("go", permissions=Permissions("ask"))
    host = FakeHost(lambda asked: Answer(False, "not on a Friday"))
    async with bench.model(bash("echo no > asked.txt"), Reply.say("then not")) as model:
        result = await bench.runner.run(request, host)
        model.check()
    assert result.success, result
    assert result.output == "then not"
    assert "bash was denied" in result.adjustments
    assert "not on a Friday" in model.requests[1].tool_results[0]
    assert not (request.workdir / "asked.txt").exists()


async def test_a3_a_question_waits_for_a_person_while_the_server_serves_others(bench: Bench) -> None:
    answered = asyncio.Event()

    async def later(asked: Asked) -> Answer:
        await answered.wait()
        return Answer(True)

    host = FakeHost(later)
    script = (
        Reply.use("bash", {"command": "true", "description": "x"}, when="slow one"),
        Reply.say("quick", when="quick one"),
        Reply.say("slow"),
    )
    async with bench.model(*script) as model:
        slow = asyncio.create_task(bench.runner.run(bench.request("slow one", permissions=Permissions("ask")), host))
        await host.until(lambda h: h.asks)
        quick = await bench.runner.run(bench.request("quick one"), FakeHost())
        assert not slow.done()
        answered.set()
        assert (await slow).output == "slow"
        model.check()
    assert quick.output == "quick"


async def test_a3_what_is_listed_as_allowed_is_not_asked_and_what_is_denied_never_runs(bench: Bench) -> None:
    lists = Permissions("ask", allow=("Bash(echo:*)", "edit"), deny=("Bash(echo secret:*)",))
    request = bench.request("go", permissions=lists)
    host = FakeHost(lambda asked: Answer(asked.tool == "bash"))
    files = (str(request.workdir / name) for name in ("d.txt", ".git/hooks/pre-commit"))
    writes = [Reply.use("write", {"filePath": file, "content": "x"}) for file in files]
    script = (bash("echo a > a.txt"), bash("echo secret > b.txt"), bash("touch c.txt"), *writes, Reply.say("done"))
    async with bench.model(*script) as model:
        result = await bench.runner.run(request, host)
        model.check()
    assert result.success, result
    assert [asked.tool for asked in host.asks] == ["bash", "write"]
    assert host.asks[0].input["command"] == "touch c.txt"
    assert host.asks[1].input["filePath"].endswith(".git/hooks/pre-commit")
    assert sorted(path.name for path in request.workdir.iterdir()) == ["a.txt", "c.txt", "d.txt"]


async def test_a3_looking_is_not_asked_but_secrets_and_other_folders_are(bench: Bench, tmp_path: Path) -> None:
    folder = bench.folder({"plain.txt": "plain", ".env": "KEY=1"})
    elsewhere = tmp_path / "elsewhere.txt"
    elsewhere.write_text("far")
    host = FakeHost(lambda asked: Answer(False))
    reads = [Reply.use("read", {"filePath": str(path)}) for path in (folder / "plain.txt", folder / ".env", elsewhere)]
    async with bench.model(*reads, Reply.say("done")) as model:
        request = bench.request("go", workdir=folder, permissions=Permissions("ask"))
        result = await bench.runner.run(request, host)
        model.check()
    assert result.success, result
    assert [asked.tool for asked in host.asks] == ["read", "external_directory"]
    assert "plain" in model.requests[1].tool_results[0]
    assert "KEY=1" not in str(model.requests[2].tool_results)
    assert "far" not in str(model.requests[3].tool_results)


async def test_a3_mode_deny_takes_away_what_is_not_allowed(bench: Bench) -> None:
    async with bench.model(Reply.say("done")) as model:
        await bench.runner.run(bench.request("go", permissions=Permissions("deny", allow=("Edit",))), FakeHost())
        offered = set(model.requests[0].tools)
    assert "bash" not in offered
    assert {"read", "edit", "write"} <= offered


async def test_a3_a_role_with_few_tools_is_offered_only_those(bench: Bench) -> None:
    async with bench.model(Reply.say("done")) as model:
        permissions = Permissions("allow", tools=("Read", "Grep"))
        await bench.runner.run(bench.request("go", permissions=permissions), FakeHost())
        offered = set(model.requests[0].tools)
    assert offered - {"invalid"} == {"read", "grep"}


async def test_a3_a_subagent_asks_as_its_agent_does(bench: Bench) -> None:
    request = bench.request("main task", permissions=Permissions("ask", allow=("Task",)))
    host = FakeHost(lambda asked: Answer(True))
    task = {"description": "sub", "prompt": "subtask words", "subagent_type": "general"}
    script = (
        Reply.use("task", task, when=lambda r: r.last_user_text == "main task" and not r.tool_results, tokens_in=100),
        Reply.use(
            "bash",
            {"command": "echo sub > sub.txt", "description": "x"},
            when=lambda r: "subtask words" in r.last_user_text and not r.tool_results,
            tokens_in=200,
        ),
        Reply.say("sub done", when=lambda r: "subtask words" in r.last_user_text, tokens_in=300),
        Reply.say("all done", tokens_in=400),
    )
    async with bench.model(*script) as model:
        result = await bench.runner.run(request, host)
        model.check()
    assert result.success, result
    assert [asked.tool for asked in host.asks] == ["bash"]
    assert (request.workdir / "sub.txt").read_text() == "sub\n"
    assert result.output == host.said == "all done"
    assert result.usage.tokens_in == 1000
    assert [act.tool for act in host.acts] == ["task", "bash"]


async def test_k1_a_fork_goes_on_in_a_copy_of_the_session(bench: Bench) -> None:
    request = bench.request("the first words")
    async with bench.model(Reply.say("one"), Reply.say("two"), Reply.say("three")) as model:
        first = await bench.runner.run(request, FakeHost())
        again = bench.request("go on", workdir=request.workdir, session=first.session, inherited=request.scratch)
        copied = await bench.runner.run(again, FakeHost())
        more = bench.request("and you?", workdir=request.workdir, session=first.session)
        own = await bench.runner.run(more, FakeHost())
        model.check()
    assert (copied.output, own.output, own.session) == ("two", "three", first.session)
    assert copied.session != first.session
    assert "the first words" in str(model.requests[1].messages)
    assert "go on" not in str(model.requests[2].messages), "the original stays as it was"


async def test_a3_what_the_users_own_settings_deny_stays_denied(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    bench.configure(permission={"bash": {"*": "allow", "rm *": "deny"}})
    try:
        folder = bench.folder({"keep.txt": ""})
        async with bench.model(bash("rm keep.txt"), bash("touch new.txt"), Reply.say("done")) as model:
            result = await bench.runner.run(bench.request("go", workdir=folder), FakeHost())
            model.check()
        assert result.success, result
        assert sorted(path.name for path in folder.iterdir()) == ["keep.txt", "new.txt"]
    finally:
        await bench.close()
