"""The tools in the hands of the real Claude Code, which a scripted model tells to use them (I2)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agent_project import BUNDLED, MODEL, serving
from mcp_server import mcp_over_http

from windlass.core import events as ev
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Windlass

TOOL = "mcp__windlass__engine_"
HELLO = {"name": "greet", "steps": [{"id": "hello", "run": "printf hi-from-windlass"}]}


def ask(project: Project, windlass: Windlass, *allowed: str) -> list[dict[str, Any]]:
    """`claude -p`, with this server as `windlass mcp install` has written it. Gives its stream of events."""
    windlass("mcp", "install", "claude-code", "--yes")
    return prompt(project, project.path / ".mcp.json", *allowed)


def prompt(project: Project, servers: Path, *allowed: str) -> list[dict[str, Any]]:
    command = [str(BUNDLED), "-p", "use windlass", "--output-format", "stream-json", "--verbose", "--model", MODEL]
    command += [
        "--mcp-config",
        str(servers),
        "--strict-mcp-config",
        "--allowedTools",
        *(TOOL + name for name in allowed),
    ]
    done = claude(project, *command[1:])
    return [json.loads(line) for line in done.splitlines()]


def claude(project: Project, *arguments: str) -> str:
    done = subprocess.run(
        [str(BUNDLED), *arguments],
        env=project.env,
        cwd=project.path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def results(stream: list[dict[str, Any]]) -> list[Any]:
    """What tools gave back to the model."""
    found = []
    for event in stream:
        if event["type"] == "user":
            found += [block for block in event["message"]["content"] if block["type"] == "tool_result"]
    return found


def texts(result: Any) -> str:
    content = result["content"]
    return content if isinstance(content, str) else "".join(block.get("text", "") for block in content)


def test_i2_a6_c6_e3_claude_code_gets_results_its_agents_run_on_it_and_it_shows_warnings_and_questions(
    project: Project, windlass: Windlass
) -> None:
    """Three executions of one conversation. The question of the last one is shown, and what is answered there holds:

    without a person, a hook of the user's sees what a person would see, and answers in their place.
    """
    deploy = {"steps": [{"id": "deploy", "run": "printf live > live.txt", "approve": "always"}]}
    says = {"hookEventName": "Elicitation", "action": "accept", "content": {"allow": True, "note": "by a hook"}}
    hook = project.file("hook.sh", f"#!/bin/sh\ncat > asked.json\necho '{json.dumps({'hookSpecificOutput': says})}'\n")
    hook.chmod(0o755)
    settings = {"hooks": {"Elicitation": [{"hooks": [{"type": "command", "command": str(hook)}]}]}}
    project.file(".claude/settings.json", json.dumps(settings))
    script = [
        Reply.use(f"{TOOL}execute", {"plan": HELLO, "wait_s": 120}),
        Reply.use(f"{TOOL}execute", {"task": "greet", "budget": 0.1, "wait_s": 120}),
        Reply.say("greeted", tokens_in=100_000),
        Reply.use(f"{TOOL}execute", {"plan": deploy, "wait_s": 120}),
        Reply.say("windlass has done it, over budget"),
    ]
    with serving(project, script) as model:
        stream = ask(project, windlass, "execute")
        model.check()
    (server,) = stream[0]["mcp_servers"]
    assert (server["name"], server["status"]) == ("windlass", "connected")
    hello, greeted, deployed = (json.loads(texts(result)) for result in results(stream))
    assert project.ids() == [seen["execution"] for seen in (hello, greeted, deployed)]
    assert (hello["status"], hello["steps"][0]["output"]["stdout"]) == ("completed", "hi-from-windlass")
    assert project.state(hello["execution"]).status == "completed"
    assert greeted["status"] == "completed"
    assert [(step["runtime"], step["output"]) for step in greeted["steps"]] == [("claude-code", "greeted")]
    warning = "the limit of $0.10 for this execution is exceeded ($0.30 spent)"
    assert any(warning in line for line in greeted["warnings"])
    assert deployed["status"] == "completed"
    assert "printf live > live.txt" in json.loads((project.path / "asked.json").read_text())["message"]
    events = project.events(deployed["execution"])
    (answer,) = [event for event in events if isinstance(event, ev.ApprovalAnswered)]
    assert (answer.allow, answer.by, answer.note) == (True, "mcp:claude-code", "by a hook")


def test_i2_claude_code_has_the_tools_over_http_as_the_docs_say(
    project: Project, windlass: Windlass, until: Any
) -> None:
    script = [Reply.use(f"{TOOL}execute", {"plan": HELLO, "wait_s": 120}), Reply.say("it said hi")]
    with serving(project, script) as model, mcp_over_http(windlass, until) as address:
        token = (project.home / "server.token").read_text().strip()
        header = f"Authorization: Bearer {token}"
        claude(
            project, "mcp", "add", "--scope", "project", "--transport", "http", "windlass", address, "--header", header
        )
        stream = prompt(project, project.path / ".mcp.json", "execute")
        model.check()
    (result,) = results(stream)
    assert "hi-from-windlass" in texts(result)


def test_i2_what_is_installed_is_what_claude_code_would_have_written_itself(
    project: Project, windlass: Windlass
) -> None:
    with serving(project):
        claude(project, "mcp", "add", "--scope", "project", "windlass", "--", "windlass", "mcp")
    assert "already has this entry" in windlass("mcp", "install", "claude-code").err


def test_c6_a_question_that_nobody_answers_stays_open_until_engine_approve(
    project: Project, windlass: Windlass
) -> None:
    plan = {"steps": [{"id": "deploy", "run": "printf live > live.txt", "approve": "always"}]}

    def script(request: Any) -> Reply:
        """The model reads what it was told, as a model does."""
        said = told(request)
        if not said:
            return Reply.use(f"{TOOL}execute", {"plan": plan, "wait_s": 120})
        if len(said) == 1:
            (question,) = said[0]["questions"]
            answer = {"step": "deploy", "allow": True, "digest": question["digest"], "note": "the user said yes"}
            return Reply.use(f"{TOOL}approve", {"execution": said[0]["execution"], **answer})
        if len(said) == 2:
            return Reply.use(f"{TOOL}status", {"execution": said[0]["execution"], "wait_s": 120})
        return Reply.say(f"it is {said[2]['status']}")

    with serving(project, script):
        stream = ask(project, windlass, "execute", "approve", "status")
    assert stream[-1]["result"] == "it is completed"
    (execution,) = project.ids()
    (answer,) = [event for event in project.events(execution) if isinstance(event, ev.ApprovalAnswered)]
    assert (answer.allow, answer.by, answer.note) == (True, "mcp:claude-code", "the user said yes")
    assert (project.path / "live.txt").read_text() == "live"


def test_i2_an_execution_goes_on_when_claude_code_has_ended(project: Project, windlass: Windlass, until: Any) -> None:
    gate = {"steps": [{"id": "gate", "run": "until [ -e open ]; do sleep 0.02; done; printf open"}]}
    with serving(project, [Reply.use(f"{TOOL}execute", {"plan": gate}), Reply.say("started")]):
        ask(project, windlass, "execute")
    (execution,) = project.ids()
    assert project.state(execution).status == "running"
    project.file("open", "")
    until(lambda: project.state(execution).status == "completed", "it ends")


def test_c5_claude_code_is_told_what_is_wrong_and_what_to_do(project: Project, windlass: Windlass) -> None:
    script = [Reply.use(f"{TOOL}status", {"execution": "0198"}), Reply.say("there is none")]
    with serving(project, script):
        stream = ask(project, windlass, "status")
    (result,) = results(stream)
    assert result["is_error"]
    assert "no executions here yet" in texts(result)
    assert "start one: windlass run PLAN" in texts(result)


def told(request: Any) -> list[dict[str, Any]]:
    """What tools have told the model so far in this conversation; Claude Code adds remarks of its own behind it."""
    found = []
    for message in request.body["messages"]:
        if isinstance(message["content"], list):
            results = [block for block in message["content"] if block["type"] == "tool_result"]
            found += [json.JSONDecoder().raw_decode(texts(block))[0] for block in results]
    return found
