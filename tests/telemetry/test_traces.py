"""Traces as a real OTLP receiver gets them: the tree of a plan, agents, questions, content, links (I6)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from receiver import ReceivedSpan, Receiver, tree

import windlass
from windlass.core.events import type_of
from windlass.telemetry.ids import attempt_span, root_span
from windlass.testing import Reply, ScriptedModel

PLAN = """
name: survey
steps:
  - {id: first, run: "echo hello"}
  - {id: each, foreach: [1, 2], run: "echo {{ item }}", needs: [first]}
  - {id: again, run: "test -e flag || { touch flag; exit 75; }", retry: {max: 3, delay: 0.01}, needs: [each]}
  - {id: never, run: "true", when: false, needs: [each]}
  - {id: bad, run: "echo something went wrong >&2; exit 3", needs: [again]}
"""
OUTER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def run(plan: str, folder: Path, receiver: Receiver, *, answer: bool = False, **telemetry: Any) -> str:
    """Run a plan to its end, with everything sent; gives the execution's id."""
    settings = {"telemetry": {"endpoint": receiver.endpoint, **telemetry}}
    async with windlass.open(folder / "home", settings=settings, runtime="cli") as engine:
        execution = await engine.start(engine.parse(plan, workdir=folder), workdir=folder)
        if answer:
            async for entry in engine.follow(execution.id):
                if type_of(entry.event) == "approval.asked":
                    await engine.approve(execution.id, entry.event.step, by="ana")
        await engine.wait(execution.id)
    assert engine.telemetry is not None
    assert engine.telemetry.counts().dropped == 0
    assert engine.telemetry.counts().exported == len(
        [one for one in receiver.spans if one.trace == execution.id.replace("-", "")]
    )
    return execution.id


async def test_i6_a_plan_is_one_trace_of_execution_steps_and_attempts(project: Any, receiver: Receiver) -> None:
    execution = await run(PLAN, project.path, receiver)
    spans = receiver.unique()
    assert {span.trace for span in spans.values()} == {execution.replace("-", "")}

    def shown(span: ReceivedSpan) -> str:
        said = span.attributes.get("windlass.status") or span.attributes.get("windlass.attempt")
        return f"{span.name} {said}" + (f" ! {span.attributes['error.type']}: {span.error}" if span.error else "")

    assert tree(spans, shown) == [
        "invoke_workflow survey partial ! logic: exit code 3: something went wrong",
        "  step first completed",
        "    execute_tool shell 1",
        "  step each completed",
        "    step each[0] completed",
        "      execute_tool shell 1",
        "    step each[1] completed",
        "      execute_tool shell 1",
        "  step again completed",
        "    execute_tool shell 1 ! transient: exit code 75",
        "    execute_tool shell 2",
        "  step never skipped",
        "  step bad failed ! logic: exit code 3: something went wrong",
        "    execute_tool shell 1 ! logic: exit code 3: something went wrong",
    ]
    (again,) = receiver.named("step again")
    assert again.event("windlass.retry")["windlass.reason"] == "retry"
    (root,) = [span for span in spans.values() if not span.parent]
    assert root.attributes["gen_ai.operation.name"] == "invoke_workflow"
    assert root.attributes["gen_ai.workflow.name"] == "survey"
    assert root.attributes["windlass.execution"] == execution
    shell = receiver.named("execute_tool shell")[0]
    assert shell.attributes["gen_ai.tool.name"] == "shell"
    assert shell.attributes["gen_ai.operation.name"] == "execute_tool"
    assert int(shell.id, 16) == attempt_span(execution, "first", 1)
    assert receiver.resources[0]["service.name"] == "windlass"


async def test_i6_times_are_those_of_the_journal(project: Any, receiver: Receiver) -> None:
    execution = await run("steps: [{id: a, run: 'true'}]", project.path, receiver)
    events = await journal(project.path, execution)
    at = {type_of(event): event.at for event in events}
    (attempt,) = receiver.named("execute_tool shell")
    (root,) = [span for span in receiver.unique().values() if not span.parent]
    for told, meant in [
        (attempt.start, at["attempt.started"]),
        (attempt.end, at["attempt.finished"]),
        (root.start, at["execution.created"]),
        (root.end, at["execution.finished"]),
    ]:
        assert abs(told - meant * 1e9) < 1_000


async def journal(folder: Path, execution: str) -> list[Any]:
    async with windlass.open(folder / "home") as engine:
        return [entry.event for entry in await engine.journal.read(execution)]


async def test_i6_an_agent_is_a_span_with_its_model_calls_and_tool_calls(
    project: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = [
        Reply.use("files__write", {"path": "WINCH.md", "content": "A drum.\n"}, tokens_in=900, tokens_out=12),
        Reply.say("Written.", tokens_in=950, tokens_out=7),
    ]
    plan = "steps: [{id: build, agent: developer, prompt: Write WINCH.md, permissions: {allow: ['files.write']}}]"
    with ScriptedModel(script) as model:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "none")
        await run(plan, project.path, receiver)
    spans = receiver.unique()
    (agent,) = receiver.named("invoke_agent developer")
    beneath = sorted((span for span in spans.values() if span.parent == agent.id), key=lambda span: span.start)
    assert [span.name.partition(" ")[0] for span in beneath] == ["chat", "execute_tool", "chat"]
    first, tool, second = beneath
    assert first.end <= tool.start <= tool.end <= second.start + 1
    assert agent.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert agent.attributes["gen_ai.agent.name"] == "developer"
    assert agent.attributes["gen_ai.provider.name"] == "anthropic"
    assert agent.attributes["gen_ai.usage.input_tokens"] == 900 + 950
    assert agent.attributes["gen_ai.usage.output_tokens"] == 12 + 7
    assert agent.attributes["windlass.runtime"] == "cli"
    assert first.kind == "SPAN_KIND_CLIENT"
    assert first.name == f"chat {first.attributes['gen_ai.request.model']}"
    assert (first.attributes["gen_ai.usage.input_tokens"], second.attributes["gen_ai.usage.output_tokens"]) == (900, 7)
    assert tool.name == "execute_tool files.write"
    assert tool.attributes["gen_ai.tool.call.id"]
    assert b"WINCH" not in b"".join(receiver.bodies), "arguments and prompts are content"


async def test_i6_an_approval_tells_who_answered_and_how_long_it_waited(project: Any, receiver: Receiver) -> None:
    await run("steps: [{id: gate, run: echo, approve: always}]", project.path, receiver, answer=True)
    (step,) = receiver.named("step gate")
    assert step.event("windlass.approval_asked") == {"windlass.tool": "shell"}
    answered = step.event("windlass.approval_answered")
    assert answered["windlass.allow"] is True
    assert answered["windlass.by"] == "ana"
    assert answered["windlass.waited_s"] >= 0
    (attempt,) = receiver.named("execute_tool shell")
    assert attempt.start >= max(at for _name, at, _told in step.events)


async def test_i6_content_is_sent_only_where_it_is_asked_for_and_never_with_a_secret(
    project: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "hunter2-and-then-some"
    monkeypatch.setenv("MY_PASSWORD", secret)
    plan = f"steps: [{{id: a, run: 'echo marked; echo {secret}'}}, {{id: b, run: 'echo {secret} >&2; exit 4'}}]"
    await run(plan, project.path, receiver)
    sent = b"".join(receiver.bodies)
    assert b"marked" not in sent
    assert secret.encode() not in sent
    receiver.bodies.clear()
    await run(plan, project.path, receiver, content=True)
    sent = b"".join(receiver.bodies)
    assert secret.encode() not in sent
    attempt = next(span for span in receiver.named("execute_tool shell") if span.attributes["windlass.step"] == "a")
    assert "echo marked; echo [MY_PASSWORD]" in attempt.attributes["gen_ai.tool.call.arguments"]
    assert json.loads(attempt.attributes["gen_ai.tool.call.result"])["stdout"] == "marked\n[MY_PASSWORD]\n"
    failed = next(span for span in receiver.named("execute_tool shell") if span.attributes["windlass.step"] == "b")
    assert failed.error == "exit code 4: [MY_PASSWORD]"


async def test_i6_a_key_that_the_settings_hold_for_an_mcp_server_is_in_no_trace(
    project: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = "the-key-of-the-notes"
    monkeypatch.setenv("WINDLASS_MCP", json.dumps({"notes": {"command": "true", "env": {"NOTES_API_KEY": key}}}))
    await run(f"steps: [{{id: a, run: 'echo {key} >&2; exit 4'}}]", project.path, receiver, content=True)
    sent = b"".join(receiver.bodies)
    assert key.encode() not in sent
    assert b"[mcp.notes.NOTES_API_KEY]" in sent


async def test_i6_a_program_has_its_calls_beneath_it(project: Any, receiver: Receiver) -> None:
    plan = """
    steps:
      - id: work
        code: |
          await tools.files.write({path: "a.txt", content: "1"})
          return (await tools.files.read({path: "a.txt"})).content
    """
    await run(plan, project.path, receiver)
    assert tree(receiver.unique())[1:] == [
        "  step work",
        "    execute_tool code",
        "      execute_tool files.write",
        "      execute_tool files.read",
    ]


async def test_i6_processes_get_the_span_of_their_attempt_unless_they_are_not_to(
    project: Any, receiver: Receiver
) -> None:
    plan = "steps: [{id: a, run: 'printf %s \"$TRACEPARENT\" > parent.txt'}]"
    execution = await run(plan, project.path, receiver)
    expected = f"00-{execution.replace('-', '')}-{attempt_span(execution, 'a', 1):016x}-01"
    assert (project.path / "parent.txt").read_text() == expected
    await run(plan, project.path, receiver, propagate=False)
    assert (project.path / "parent.txt").read_text() == ""


async def test_i6_the_caller_is_linked_and_the_link_is_journalled(
    project: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEPARENT", OUTER)
    execution = await run("steps: [{id: a, run: 'true'}]", project.path, receiver)
    (root,) = [span for span in receiver.unique().values() if not span.parent]
    assert root.links == (("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"),)
    assert (await journal(project.path, execution))[0].traceparent == OUTER
    monkeypatch.setenv("TRACEPARENT", "00-nonsense\x1b[31m")
    execution = await run("steps: [{id: a, run: 'true'}]", project.path, receiver)
    assert (await journal(project.path, execution))[0].traceparent == ""


async def test_i6_an_execution_that_is_paused_and_resumed_elsewhere_is_one_trace(
    project: Any, receiver: Receiver
) -> None:
    settings = {"telemetry": {"endpoint": receiver.endpoint}}
    plan = "name: two\nsteps: [{id: a, run: 'true'}, {id: gate, run: 'true', approve: always, needs: [a]}]"
    async with windlass.open(project.path / "home", settings=settings) as engine:
        started = await engine.start(engine.parse(plan), workdir=project.path, hold=False)
        await engine.wait(started.id)
    assert [span.name for span in receiver.spans] == ["execute_tool shell", "step a"]
    async with windlass.open(project.path / "home", settings=settings) as engine:
        await engine.approve(started.id, "gate", by="ana")
        await engine.wait((await engine.resume(started.id)).id)
    assert tree(receiver.unique()) == [
        "invoke_workflow two",
        "  step a",
        "    execute_tool shell",
        "  step gate",
        "    execute_tool shell",
    ]
    assert len(receiver.spans) == 5, "nothing is sent twice after a clean pause"
    (root,) = receiver.named("invoke_workflow two")
    assert [name for name, _at, _told in root.events] == ["windlass.started", "windlass.paused", "windlass.resumed"]
    assert int(root.id, 16) == root_span(started.id)
    (gate,) = receiver.named("step gate")
    assert gate.event("windlass.approval_answered")["windlass.by"] == "ana", "written while nobody drove it"


def test_i6_without_an_endpoint_nothing_of_it_is_imported(project: Any) -> None:
    script = """
import asyncio, os, sys
import windlass
async def main():
    async with windlass.open("home") as engine:
        execution = await engine.start(engine.parse("steps: [{id: a, run: 'true'}]"))
        assert (await engine.wait(execution.id)).status == "completed"
        print(len(engine.commits._subscribers), engine.telemetry, engine.attempt_runner.span_variables)
asyncio.run(main())
print([name for name in sys.modules if name.startswith(("opentelemetry", "windlass.telemetry", "google.protobuf"))])
"""
    env = {**project.env, "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "TRACEPARENT": OUTER}
    done = subprocess.run([sys.executable, "-c", script], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "1 None None\n[]\n"), done.stderr
