"""An endpoint that is down, slow, failing or flooded: executions never notice (I6)."""

from __future__ import annotations

import asyncio
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from receiver import Receiver

import windlass
from windlass.core import events as ev
from windlass.core.transitions import ExecutionStatus
from windlass.journal.memory import MemoryJournal
from windlass.ports import Head
from windlass.settings import TelemetrySettings
from windlass.telemetry import MOST_NOTED, Tracing, otlp, send

ONE = "steps: [{id: a, run: 'true'}]"


@pytest.fixture
def nobody(port: int) -> str:
    """An address where nobody listens."""
    return f"http://127.0.0.1:{port}"


async def run(endpoint: str, folder: Path, plan: str = ONE, **telemetry: Any) -> Any:
    async with windlass.open(folder / "home", settings={"telemetry": {"endpoint": endpoint, **telemetry}}) as engine:
        execution = await engine.start(engine.parse(plan), workdir=folder)
        assert (await engine.wait(execution.id)).status == "completed"
    return engine.telemetry


async def test_i6_an_endpoint_that_is_down_costs_the_spans_and_nothing_else(
    project: Any, caplog: pytest.LogCaptureFixture, nobody: str
) -> None:
    with caplog.at_level(logging.DEBUG):
        telemetry = await run(nobody, project.path)
    assert telemetry.counts() == (0, 3)
    assert telemetry.trouble.startswith(f"3 spans were not delivered to {nobody}: ")
    told = [record for record in caplog.records if record.name.startswith(("windlass.telemetry", "opentelemetry"))]
    assert [record.levelname for record in told] == ["WARNING"], "it is said once, and not by the exporter"


@pytest.mark.parametrize("status", [301, 400, 401, 429, 500, 503])
async def test_i6_an_endpoint_that_refuses_costs_the_spans_and_nothing_else(
    status: int, project: Any, receiver: Receiver
) -> None:
    receiver.answer = status
    telemetry = await run(receiver.endpoint, project.path)
    assert telemetry.counts() == (0, 3)
    assert receiver.spans == []


async def test_i6_an_endpoint_that_never_answers_holds_the_end_up_for_seconds_only(
    project: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr("windlass.telemetry.FLUSH", 0.5)
    receiver.hold.clear()
    settings = {"telemetry": {"endpoint": receiver.endpoint, "timeout": 600}}
    async with asyncio.timeout(300):
        async with windlass.open(project.path / "home", settings=settings) as engine:
            await engine.wait((await engine.start(engine.parse(ONE), workdir=project.path)).id)
            await eventually(lambda: receiver.asked, "the spans are on their way")
    assert engine.telemetry is not None
    assert engine.telemetry.counts() == (0, 3)


async def test_i6_an_endpoint_that_is_busy_is_asked_again(
    project: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    monkeypatch.setattr(otlp, "FIRST_WAIT", 0.01)
    receiver.answer = 503
    settings = {"telemetry": {"endpoint": receiver.endpoint, "timeout": 600}}
    async with windlass.open(project.path / "home", settings=settings) as engine:
        await engine.wait((await engine.start(engine.parse(ONE), workdir=project.path)).id)
        await eventually(lambda: receiver.asked >= 3, "it was asked again")
        receiver.answer = 200
        telemetry = engine.telemetry
        assert telemetry is not None
        await eventually(lambda: telemetry.counts() == (3, 0), "the spans are delivered")


async def test_i6_spans_that_the_endpoint_refuses_in_its_answer_are_counted(project: Any, receiver: Receiver) -> None:
    told = ExportTraceServiceResponse()
    told.partial_success.rejected_spans = 2
    receiver.reply = told.SerializeToString()
    telemetry = await run(receiver.endpoint, project.path)
    assert telemetry.counts() == (1, 2)
    receiver.reply = b"thank you very much"
    telemetry = await run(receiver.endpoint, project.path)
    assert telemetry.counts() == (3, 0)


async def test_i6_an_endpoint_that_comes_back_gets_the_following_spans(
    project: Any, receiver: Receiver, eventually: Any
) -> None:
    receiver.answer = 500
    settings = {"telemetry": {"endpoint": receiver.endpoint}}
    async with windlass.open(project.path / "home", settings=settings) as engine:
        first = await engine.start(engine.parse(ONE), workdir=project.path)
        await engine.wait(first.id)
        assert engine.telemetry is not None
        telemetry = engine.telemetry
        await eventually(lambda: telemetry.counts().dropped == 3, "the first spans are lost")
        receiver.answer = 200
        second = await engine.start(engine.parse(ONE), workdir=project.path)
        await engine.wait(second.id)
    assert engine.telemetry.counts() == (3, 3)
    assert {span.trace for span in receiver.spans} == {second.id.replace("-", "")}


async def test_i6_more_spans_than_the_queue_holds_are_dropped_and_counted(
    project: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send, "MOST_WAITING", 10)
    monkeypatch.setattr(send, "ROOM", 0.01)
    monkeypatch.setattr(send, "GATHERED", 60.0)  # nothing is sent before the end
    plan = "steps: [{id: f, foreach: " + json.dumps(list(range(20))) + ", run: 'true'}]"
    telemetry = await run(receiver.endpoint, project.path, plan)
    counts = telemetry.counts()
    assert counts.exported == len(receiver.spans) <= 20
    assert counts.exported + counts.dropped == 42
    assert "slower than the spans come" in telemetry.trouble


async def test_i6_commits_beyond_the_notes_are_read_from_the_journal(
    receiver: Receiver, tmp_path: Path, eventually: Any
) -> None:
    journal = MemoryJournal()
    tracing = Tracing(TelemetrySettings(endpoint=receiver.endpoint), journal)
    created = ev.ExecutionCreated(1.0, id="flood", plan=b'{"name":"flood"}', inputs={}, workdir=str(tmp_path))  # type: ignore[arg-type]
    created = ev.decode(ev.encode(created))  # type: ignore[assignment]
    events: list[ev.Event] = [created, ev.ExecutionStarted(1.0, "x")]
    for number in range(MOST_NOTED):
        events.append(ev.AttemptStarted(2.0, f"s{number}", 1, "shell", {}, "none"))
        events.append(ev.AttemptFinished(3.0, f"s{number}", 1))
    events.append(ev.ExecutionFinished(4.0, "completed"))
    head = Head("flood", "flood", ExecutionStatus.RUNNING, 1.0, 1.0, "x", "", None)
    seq = 0
    for start in range(0, len(events), 100):
        some = events[start : start + 100]
        await journal.append("flood", seq, some, head=None if seq else head)
        seq += len(some)
        tracing.committed("flood", some, seq)
    tracing.committed("flood", (), seq)
    await eventually(lambda: tracing.counts().exported == 2 * MOST_NOTED + 1, "everything is sent")
    await tracing.close()
    assert tracing.counts() == (2 * MOST_NOTED + 1, 0)
    assert len(receiver.unique()) == 2 * MOST_NOTED + 1


async def test_i6_without_the_extra_executions_run_and_the_log_says_what_to_install(
    project: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.proto.collector.trace.v1.trace_service_pb2", None)
    telemetry = await run(receiver.endpoint, project.path)
    assert "pip install 'windlass[telemetry]'" in telemetry.trouble
    assert "pip install 'windlass[telemetry]'" in caplog.text


async def test_i6_headers_and_resource_of_the_standard_variables_count_and_are_hidden(
    project: Any, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=ninety%20nine-secrets, x-other=1")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test,broken")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "winches")
    plan = "steps: [{id: a, run: 'echo ninety nine-secrets'}]"
    await run(receiver.endpoint, project.path, plan, content=True)
    assert receiver.headers[0]["x-team"] == "ninety nine-secrets"
    assert receiver.spans
    told = {"service.name": "winches", "deployment.environment.name": "test"}
    assert receiver.resources[0].items() >= told.items()
    assert b"ninety nine-secrets" not in b"".join(receiver.bodies)


def test_i6_the_command_says_once_that_spans_are_lost(project: Any, windlass: Any, nobody: str) -> None:
    project.plan(ONE)
    ran = windlass("run", "plan.yaml", WINDLASS_TELEMETRY=json.dumps({"endpoint": nobody}))
    (line,) = [line for line in ran.err.splitlines() if "spans" in line]
    assert line.startswith(f"warning: 3 spans were not delivered to {nobody}: ")
    assert ran.err.count("opentelemetry") == 0


def test_i6_headers_come_from_variables_and_are_never_shown(project: Any, windlass: Any, receiver: Receiver) -> None:
    secret = "s3cr3t-header-value"
    project.plan("steps: [{id: a, run: 'env'}]")
    setting = json.dumps({"endpoint": receiver.endpoint, "headers_env": {"X-Api-Key": "OTLP_AUTH"}, "content": True})
    env = {"WINDLASS_TELEMETRY": setting, "OTLP_AUTH": secret}
    ran = windlass("run", "plan.yaml", "-v", **env)
    assert receiver.headers[0]["X-Api-Key"] == secret
    doctor = windlass("doctor", "--json", **env)
    (found,) = [check for check in doctor.json["checks"] if check["name"] == "traces"]
    assert found["ok"], found
    assert found["detail"] == f"{receiver.endpoint} answers"
    for shown in (ran.out, ran.err, doctor.out, doctor.err, project.everything().decode("latin-1")):
        assert secret not in shown
    assert secret.encode() not in b"".join(receiver.bodies)


@pytest.mark.parametrize(
    ("setting", "env", "said"),
    [
        ({}, {}, "cannot be used: "),
        (
            {"headers_env": {"X-Key": "NO_SUCH_VARIABLE"}},
            {},
            "the variable NO_SUCH_VARIABLE of `headers_env` is not set",
        ),
        ({"headers_env": {"X-Key": "BROKEN_KEY"}}, {"BROKEN_KEY": "first-part-secret\nsecond"}, "cannot be used: "),
    ],
)
def test_i6_doctor_tells_why_the_endpoint_cannot_be_used(
    setting: dict[str, Any], env: dict[str, str], said: str, project: Any, windlass: Any, nobody: str
) -> None:
    told = json.dumps({"endpoint": nobody, **setting})
    doctor = windlass("doctor", "--json", code=1, WINDLASS_TELEMETRY=told, **env)
    (found,) = [check for check in doctor.json["checks"] if check["name"] == "traces"]
    assert not found["ok"]
    assert said in found["detail"]
    assert "first-part-secret" not in doctor.out


def test_i6_doctor_tells_what_the_endpoint_answers(project: Any, windlass: Any, receiver: Receiver) -> None:
    receiver.answer = 401
    doctor = windlass("doctor", code=1, WINDLASS_TELEMETRY=json.dumps({"endpoint": receiver.endpoint}))
    assert "it answers 401 Unauthorized" in doctor.out


@pytest.mark.parametrize(
    "endpoint",
    ["localhost:4318", "ftp://localhost", "http://", "http://user:pw@host", "http://h:99999", "http://h?a=b"],
)
def test_i6_a_wrong_endpoint_is_refused_with_what_it_should_be(endpoint: str, project: Any, windlass: Any) -> None:
    project.plan(ONE)
    ran = windlass("run", "plan.yaml", code=2, WINDLASS_TELEMETRY=json.dumps({"endpoint": endpoint}))
    assert "WINDLASS_TELEMETRY: `telemetry`: `endpoint`" in ran.err


def test_i6_a_project_cannot_turn_traces_on(project: Any, windlass: Any) -> None:
    project.file(".windlass/config.toml", "[telemetry]\nendpoint = 'http://127.0.0.1:1'\n")
    project.plan(ONE)
    ran = windlass("run", "plan.yaml", code=2)
    assert "`telemetry` is allowed only in your own settings" in ran.err
