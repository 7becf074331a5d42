"""Webhooks: a signed request starts its plan once, and whatever else comes starts nothing (L1)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import http.client
import json
import signal
import socket
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
import uvicorn
from server_process import Api, Reply, Serve, Server, serve
from waiting import wait_until, wait_until_async

from windlass.assembly import open_engine
from windlass.server.app import create_app
from windlass.server.hooks import MAX_DELIVERY
from windlass.server.service import Service

if TYPE_CHECKING:
    from conftest import Project, Windlass

__all__ = ["serve"]  # a fixture

SECRET = "a secret that only the sender has"
PLAN = """
    name: deploy
    inputs: {body: {}}
    triggers:
      - {id: push, webhook: {secret: {from: PUSH_SECRET}, events: [push]}}
    steps:
      - {id: a, run: ["tee", "-a", "ran.txt"], with: {stdin: "{{ inputs.body.ref }}\\n"}}
"""


def signed(body: Any, secret: str) -> tuple[bytes, dict[str, str]]:
    """A delivery as GitHub makes it: its bytes and its headers."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    made = "sha256=" + hmac.new(secret.encode(), raw, hashlib.sha256).hexdigest()
    return raw, {"X-Hub-Signature-256": made, "X-GitHub-Event": "push"}


class Hook:
    """A server with a scheduled plan, and whoever sends it deliveries."""

    def __init__(self, project: Project, windlass: Windlass, serve: Serve, **env: str) -> None:
        self.project, self.windlass, self.plan = project, windlass, project.plan(PLAN)
        windlass("schedule", "add", self.plan)
        self.path = windlass("schedule", "list", "--json").json["triggers"][0]["webhook"]
        self.server: Server = serve(PUSH_SECRET=SECRET, **env)

    def send(self, body: Any, delivery: str = "", *, secret: str = SECRET, path: str = "", **headers: str) -> Reply:
        raw, sent = signed(body, secret)
        sent |= {"Authorization": ""}
        sent |= {"X-GitHub-Delivery": delivery} if delivery else {}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        return self.server.api("POST", path or self.path, headers=sent, raw=raw)

    def why(self) -> str:
        return self.windlass("schedule", "why", self.plan).out

    def wait_for(self, *lines: str) -> None:
        """Wait until the plan has run for these, in this order, and all its executions have ended."""
        wait_until(lambda: self.project.lines("ran.txt") == [*lines], "it has run")
        states = [self.project.state(one) for one in self.project.ids()]
        assert len(states) == len(lines)


@pytest.fixture
def hook(project: Project, windlass: Windlass, serve: Serve) -> Hook:
    return Hook(project, windlass, serve)


def test_l1_a_signed_delivery_starts_the_plan_once_with_its_body(hook: Hook) -> None:
    answer = hook.send({"ref": "main"}, "d-1")
    assert (answer.status, answer.json["status"]) == (202, "accepted")
    hook.wait_for("main")
    assert hook.project.ids() == [answer.json["execution"]]
    for repeated in (hook.send({"ref": "main"}, "d-1"), hook.send({"ref": "main"}, "d-2"), hook.send({"ref": "main"})):
        assert (repeated.status, repeated.json) == (200, {"status": "duplicate", "execution": answer.json["execution"]})
    assert hook.send({"ref": "other body"}, "d-1").json["status"] == "duplicate"
    assert hook.send({"ref": "next"}, "d-3").json["status"] == "accepted"
    hook.wait_for("main", "next")
    wait_until(lambda: "d-3 completed" in hook.why() or "d-3 started" in hook.why(), "why knows of it")
    assert "d-1 completed" in hook.why()


async def test_l1_deliveries_that_wait_for_each_other_are_worked_off_without_a_tick_in_between(
    project: Project, windlass: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUSH_SECRET", SECRET)
    monkeypatch.setattr("windlass.server.service.TICK_EVERY", 86_400.0)
    windlass("schedule", "add", project.plan(PLAN))
    path = windlass("schedule", "list", "--json").json["triggers"][0]["webhook"]
    refs = [f"r{number}" for number in range(5)]
    async with open_engine(project.home) as engine:
        listening = socket.create_server(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(create_app(Service(engine)), log_level="warning"))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        api = Api(f"http://127.0.0.1:{listening.getsockname()[1]}", token="")
        try:
            for ref in refs:
                raw, headers = signed({"ref": ref}, SECRET)
                answer = await asyncio.to_thread(api, "POST", path, headers=headers, raw=raw)
                assert answer.json["status"] == "accepted"
            await wait_until_async(lambda: project.lines("ran.txt") == refs, "all have run")
        finally:
            server.should_exit = True
            await serving


def test_l1_what_is_no_signed_delivery_is_refused_and_why_has_the_reason(hook: Hook) -> None:
    wrong = hook.send({"ref": "main"}, secret="another secret of another sender")
    unsigned = hook.send({"ref": "main"}, X_Hub_Signature_256="")
    odd = hook.send({"ref": "main"}, X_Hub_Signature_256="sha256=\xe4\xf6")
    assert [one.status for one in (wrong, unsigned, odd)] == [401] * 3
    assert wrong.json == unsigned.json == odd.json
    assert "PUSH_SECRET" not in wrong.body.decode()
    wait_until(lambda: "requests that were refused: 3" in hook.why(), "all are written without another request")
    assert "its signature is not that of the secret in PUSH_SECRET" in hook.why()

    # and so is what is signed, or asked for elsewhere, but no delivery
    assert hook.send({}, path="/hooks/000000000000000000000000").status == 404
    assert hook.send({}, path="/hooks/../api/executions").status in (401, 404)
    assert hook.send(b'"' + b"a" * MAX_DELIVERY + b'"').status == 413
    assert hook.send(b"{").status == 400
    assert hook.send(b"[" * 1000 + b"]" * 1000).status == 400
    assert hook.send(b"payload=1", Content_Type="application/x-www-form-urlencoded").status == 415
    assert hook.send({}, Origin="https://elsewhere.example").status == 403
    assert hook.server.api("GET", hook.path, headers={"Authorization": ""}).status == 401
    assert hook.project.ids() == []


def test_l1_refused_requests_are_counted_over_the_end_of_the_server(hook: Hook) -> None:
    for _ in range(8):
        assert hook.send({"ref": "main"}, secret="another secret of another sender").status == 401
    assert hook.send(b"{", "d-1").status == 400
    hook.server.stop()
    assert "requests that were refused: 9" in hook.why()
    assert "its body is not sound JSON" in hook.why()


def test_l1_other_events_and_deliveries_during_a_pause_are_skipped_and_why_says_so(hook: Hook) -> None:
    assert hook.send({"zen": "calm"}, "p-1", X_GitHub_Event="ping").status == 202
    wait_until(lambda: "p-1 skipped: its event 'ping' is none of push (events)" in hook.why(), "it is decided on")
    hook.windlass("schedule", "pause", hook.plan)
    answer = hook.send({"ref": "main"}, "d-1")
    assert (answer.status, answer.json["status"]) == (200, "paused")
    wait_until(lambda: "d-1 skipped: paused: by " in hook.why(), "it is decided on")
    hook.windlass("schedule", "resume", hook.plan)
    assert hook.send({"ref": "later"}, "d-2").json["status"] == "accepted"
    hook.wait_for("later")


def test_l1_a_delivery_that_started_nothing_is_accepted_when_it_is_sent_again(hook: Hook) -> None:
    hook.windlass("schedule", "pause", hook.plan)
    assert hook.send({"ref": "main"}, "d-1").json["status"] == "paused"
    wait_until(lambda: "d-1 skipped" in hook.why(), "it is decided on")
    hook.windlass("schedule", "resume", hook.plan)
    hook.project.plan(PLAN.replace("{body: {}}", "{body: a text}"))
    assert hook.send({"ref": "main"}, "d-1").json["status"] == "accepted"
    wait_until(lambda: "d-1 refused" in hook.why(), "it could not start")
    hook.project.plan(PLAN)
    assert hook.send({"ref": "main"}, "d-1").json["status"] == "accepted"
    hook.wait_for("main")
    assert hook.send({"ref": "main"}, "d-1").json["status"] == "duplicate"


def test_l1_a_recorded_body_starts_nothing_by_another_id_or_event(hook: Hook) -> None:
    hook.send({"ref": "ping"}, "p-1", X_GitHub_Event="ping")
    wait_until(lambda: "p-1 skipped" in hook.why(), "it is decided on")
    answer = hook.send({"ref": "main"}, "d-1").json
    hook.wait_for("main")
    for repeated in (hook.send({"ref": "main"}, "p-1"), hook.send({"ref": "ping"}, "d-1", X_GitHub_Event="ping")):
        assert (repeated.status, repeated.json) == (200, {"status": "duplicate", "execution": answer["execution"]})
    assert hook.send({"ref": "ping"}, "p-2").json["status"] == "duplicate"
    assert hook.project.ids() == [answer["execution"]]


def test_l1_one_delivery_that_cannot_start_pauses_its_trigger_when_it_is_sent_again(hook: Hook) -> None:
    hook.project.plan(PLAN.replace("{body: {}}", "{body: a text}").replace("{id: push,", "{id: push, pause_after: 2,"))
    for number in (1, 2):
        assert hook.send({"ref": "main"}, "d-1").json["status"] == "accepted"
        wait_until(lambda number=number: hook.why().count("d-1 refused") == number, "it could not start")
    hook.send({"ref": "next"}, "d-2")
    wait_until(lambda: "d-2 skipped: paused: none of the last 2 executions completed" in hook.why(), "it is paused")


@pytest.mark.parametrize("point", ["delivered", "created"])
def test_l1_d2_a_server_that_is_killed_over_a_delivery_leaves_it_to_the_next(
    project: Project, windlass: Windlass, serve: Serve, point: str
) -> None:
    hook = Hook(project, windlass, serve, WINDLASS_FAULT=f"trigger.{point}")
    with suppress(OSError, http.client.HTTPException):  # it may die before it answers: the delivery is on disk
        hook.send({"ref": "main"}, "d-1")
    assert hook.server.ended().code == -signal.SIGKILL
    hook.server = serve(PUSH_SECRET=SECRET)
    assert hook.send({"ref": "main"}, "d-1").json["status"] == "duplicate"
    hook.wait_for("main")
