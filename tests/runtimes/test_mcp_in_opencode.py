"""The tools in the hands of the real OpenCode, which a scripted model tells to use them (I2)."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
from agent_project import serving
from mcp_server import mcp_over_http
from opencode_fixtures import MODEL, needs_opencode, opencode_binary

from windlass.core import events as ev
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Windlass

pytestmark = needs_opencode

TOOL = "windlass_engine_"
HELLO = {"name": "greet", "steps": [{"id": "hello", "run": "printf hi-from-windlass"}]}


def ask(project: Project, windlass: Windlass) -> list[dict[str, Any]]:
    """`opencode run`, with this server as `windlass mcp install` has written it. Gives the tools that were used."""
    windlass("mcp", "install", "opencode", "--yes")
    return prompt(project)


def prompt(project: Project) -> list[dict[str, Any]]:
    done = subprocess.run(
        [str(opencode_binary()), "run", "use windlass", "--format", "json", "-m", MODEL, "--auto"],
        env=project.env,
        cwd=project.path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    return [event["part"] for event in events if event["type"] == "tool_use"]


def test_i2_c6_opencode_gets_a_result_and_a_question_stays_open_until_engine_approve(
    project: Project, windlass: Windlass
) -> None:
    """It cannot show a question to its user, so the model is told of it and answers with a tool."""
    deploy = {"steps": [{"id": "deploy", "run": "printf live | tee live.txt", "approve": "always"}]}

    def script(request: Any) -> Reply:
        said = told(request)
        if not said:
            return Reply.use(f"{TOOL}execute", {"plan": deploy, "wait_s": 120})
        if len(said) == 1:
            (question,) = said[0]["questions"]
            answer = {"step": "deploy", "allow": True, "digest": question["digest"], "note": "the user said yes"}
            return Reply.use(f"{TOOL}approve", {"execution": said[0]["execution"], **answer})
        if len(said) == 2:
            return Reply.use(f"{TOOL}status", {"execution": said[0]["execution"], "wait_s": 120})
        return Reply.say("done")

    with serving(project, script):
        used = ask(project, windlass)
    assert [part["tool"].removeprefix(TOOL) for part in used] == ["execute", "approve", "status"]
    assert {part["state"]["status"] for part in used} == {"completed"}
    question, _, deployed = (json.loads(part["state"]["output"]) for part in used)
    assert (deployed["status"], deployed["steps"][0]["output"]["stdout"]) == ("completed", "live")
    assert project.state(question["execution"]).status == "completed"
    assert (project.path / "live.txt").read_text() == "live"
    events = project.events(question["execution"])
    (answer,) = [event for event in events if isinstance(event, ev.ApprovalAnswered)]
    assert (answer.allow, answer.by, answer.note) == (True, "mcp:opencode", "the user said yes")


@pytest.mark.soak  # test_mcp_in_claude.py has the tools over HTTP in every run
def test_i2_opencode_has_the_tools_over_http_as_the_docs_say(project: Project, windlass: Windlass, until: Any) -> None:
    script = [Reply.use(f"{TOOL}execute", {"plan": HELLO, "wait_s": 120}), Reply.say("it said hi")]
    with serving(project, script) as model, mcp_over_http(windlass, until) as address:
        header = {"Authorization": "Bearer {file:.windlass/server.token}"}
        server = {"type": "remote", "url": address, "headers": header}
        project.file("opencode.json", json.dumps({"mcp": {"windlass": server}}))
        (used,) = prompt(project)
        model.check()
    assert json.loads(used["state"]["output"])["steps"][0]["output"]["stdout"] == "hi-from-windlass"


@pytest.mark.soak  # test_mcp_in_claude.py has the same of Claude Code in every run
def test_a6_e3_agents_of_opencode_run_on_opencode_and_it_is_warned_of_the_budget(
    project: Project, windlass: Windlass
) -> None:
    asked = {"task": "greet", "chain": ["architect", "developer"], "budget": 0.1}

    def script(request: Any) -> Reply:
        said = told(request)
        offered = "windlass_engine_execute" in json.dumps(request.body.get("tools", []))
        if "You work in a chain" in json.dumps(request.body["messages"][-3:]) or not offered:
            return Reply.say("my part is done", tokens_in=100_000)
        if not said:
            return Reply.use(f"{TOOL}execute", asked)
        if said[-1]["status"] == "running":
            return Reply.use(f"{TOOL}status", {"execution": said[0]["execution"], "wait_s": 120})
        return Reply.say("done")

    with serving(project, script):
        used = ask(project, windlass)
    seen = json.loads(used[-1]["state"]["output"])
    assert seen["status"] == "completed"
    assert [(step["runtime"], step["output"]) for step in seen["steps"]] == [("open-code", "my part is done")] * 2
    assert any("the limit of $0.10 for this execution is exceeded ($0.30 spent)" in line for line in seen["warnings"])


def told(request: Any) -> list[dict[str, Any]]:
    """What tools have told the model so far in this conversation."""
    results = [message["content"] for message in request.body["messages"] if message["role"] == "tool"]
    return [json.loads(content if isinstance(content, str) else content[0]["text"]) for content in results]
