"""Errors over HTTP say what happened, where, why and what to do, and never show the server's innards (C5)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from windlass.redact import Redactor
from windlass.server.bodies import DEEPEST, trouble_with
from windlass.server.logs import JsonLines, RequestLog

if TYPE_CHECKING:
    from conftest import Project
    from server_process import Reply, Server

ONE = {"name": "one", "steps": [{"id": "a", "run": "echo hi"}]}


def check(reply: Reply, status: int) -> dict[str, Any]:
    """A problem of that status, whole."""
    assert reply.status == status, reply.body
    assert reply.headers["content-type"] == "application/problem+json"
    told: dict[str, Any] = reply.json
    assert told["status"] == status
    assert set(told) >= {"type", "title", "status", "detail", "category", "advice", "where"}
    assert told["category"] in ("transient", "configuration", "permission", "resource", "logic")
    assert b"Traceback" not in reply.body
    return told


def test_c5_a_plans_problems_come_with_their_lines(server: Server) -> None:
    text = "name: x\nsteps:\n  - id: a\n    run: echo\n    nedds: [b]\n  - id: a\n    tool: shel\n"
    told = check(server.api.post("/api/executions", {"plan_text": text}), 422)
    found = [(one["line"], one.get("hint", "")) for one in told["problems"]]
    assert (5, "did you mean `needs`?") in found
    assert {line for line, _ in found} >= {5, 6}
    told = check(
        server.api.post("/api/executions", {"plan": {"name": "x", "steps": [{"id": "a", "tool": "shel"}]}}), 422
    )
    assert "line" not in told["problems"][0], "an object has no lines"
    assert "shell" in json.dumps(told["problems"])


MISTAKES: list[tuple[str, str, Any, int, str]] = [
    ("GET", "/api/executions/nosuch", None, 404, "no execution"),
    ("GET", "/api/executions/nosuch/events", None, 404, "no execution"),
    ("POST", "/api/executions/nosuch/pause", None, 404, "no execution"),
    ("POST", "/api/executions/nosuch/fork", {}, 404, "no execution"),
    ("POST", "/api/approvals/nosuch", {"allow": True}, 404, "nosuch"),
    ("POST", "/api/approvals/nosuch/a", {"allow": True}, 404, "no execution"),
    ("GET", "/api/nothing", None, 404, "/api/nothing"),
    ("DELETE", "/api/executions", None, 405, "DELETE"),
    ("POST", "/api/executions", {}, 422, "one thing to run"),
    ("POST", "/api/executions", {"plan": ONE, "task": "x"}, 422, "`plan` and `task`"),
    ("POST", "/api/executions", {"plan": ONE, "role": "developer"}, 422, "`role` works only with"),
    ("POST", "/api/executions", {"plan": ONE, "wat": 1}, 422, "body.wat"),
    ("POST", "/api/executions", {"plan": ONE, "hold": "yes"}, 422, "body.hold"),
    ("POST", "/api/executions", {"plan": ONE, "workdir": "/no/such/place"}, 422, "/no/such/place"),
    ("POST", "/api/executions", {"plan": ONE, "inputs": {"nope": 1}}, 422, "nope"),
    ("POST", "/api/executions", {"plan_file": "missing.yaml"}, 422, "missing.yaml"),
    ("POST", "/api/executions", {"task": " "}, 422, "empty"),
    ("POST", "/api/executions", [], 422, "body"),
    ("GET", "/api/executions?limit=0", None, 422, "limit"),
    ("GET", "/api/executions?status=nearly", None, 422, "status"),
    ("GET", "/api/agents?workdir=/no/such/place", None, 422, "/no/such/place"),
    ("GET", "/api/budget?by=weather", None, 422, "by"),
    ("GET", "/api/history?by=modle", None, 422, "did you mean 'model'?"),
    ("GET", "/api/history?since=soon", None, 422, "is not a day"),
]


def test_c5_every_error_is_a_problem_with_a_way_out(server: Server) -> None:
    for method, path, body, status, says in MISTAKES:
        assert says in check(server.api(method, path, body), status)["detail"], (method, path, body)


def test_c5_an_id_that_is_none_is_told_the_newest_there_are(server: Server) -> None:
    execution = server.api.start(ONE, wait=60)["id"]
    told = check(server.api.get("/api/executions/nosuch"), 404)
    assert "'nosuch'" in told["detail"]
    assert execution in told["detail"]


def test_c5_what_does_not_fit_where_it_stands_is_a_conflict(server: Server, project: Project) -> None:
    execution = server.api.start(ONE, wait=60)["id"]
    for path, body in (
        ("pause", None),
        ("interrupt", {}),
        ("cancel", {}),
        ("resume", {}),
        ("budget", {"usd": 1}),
        ("decisions", {"step": "a", "choice": "again"}),
    ):
        told = check(server.api.post(f"/api/executions/{execution}/{path}", body), 409)
        assert "a" in told["detail"]
    told = check(server.api.post(f"/api/approvals/{execution}/a", {"allow": True}), 409)
    assert "is not waiting for approval" in told["detail"]
    told = check(server.api.post(f"/api/approvals/{execution}/b", {"allow": True}), 404)
    assert "has no step 'b'; it has a" in told["detail"]


def test_c5_a_plan_that_changed_since_is_a_conflict_with_its_reasons(server: Server, project: Project) -> None:
    project.file("p.yaml", "name: p\nsteps: [{id: a, run: echo a, approve: always}]\n")
    execution = server.api.post("/api/executions", {"plan_file": "p.yaml"}).json["id"]
    server.api.post(f"/api/executions/{execution}/pause", {"within": 60})
    project.file("p.yaml", "name: p\nsteps: [{id: a, run: echo b, approve: always}]\n")
    told = check(server.api.post(f"/api/executions/{execution}/resume"), 409)
    assert "has changed since" in told["reasons"][0]
    assert any("--accept-changes" in line for line in told["advice"])
    assert server.api.post(f"/api/executions/{execution}/resume", {"keep_plan": True}).status == 200


@pytest.mark.parametrize("request_of", ["retry", "skip"])
def test_c5_a_step_of_a_changed_plan_is_left_as_it_was(server: Server, project: Project, request_of: str) -> None:
    project.file("p.yaml", "name: p\nsteps: [{id: a, run: 'false'}]\n")
    execution = server.api.post("/api/executions?wait=60", {"plan_file": "p.yaml"}).json["id"]
    before = server.api.get(f"/api/executions/{execution}").json
    project.file("p.yaml", "name: p\nsteps: [{id: a, run: 'true'}]\n")
    told = check(server.api.post(f"/api/executions/{execution}/steps/a/{request_of}"), 409)
    assert "has changed since" in told["reasons"][0]
    assert any(f"windlass {request_of} {execution} a" in line for line in told["advice"])
    assert server.api.get(f"/api/executions/{execution}").json == before
    kept = server.api.post(f"/api/executions/{execution}/steps/a/{request_of}", {"keep_plan": True})
    assert kept.status == 200


def test_c5_a_plans_own_code_needs_trust(server: Server, project: Project) -> None:
    project.file("mine.py", "from windlass import tool\n\n@tool\ndef mine() -> int:\n    return 1\n")
    project.file("p.yaml", "name: p\ntools: mine.py\nsteps: [{id: a, tool: mine}]\n")
    assert check(server.api.post("/api/executions", {"plan_file": "p.yaml"}), 403)["category"] == "permission"
    plan = {"name": "p", "tools": ["mine.py"], "steps": [{"id": "a", "run": "true"}]}
    assert "in a file" in check(server.api.post("/api/executions", {"plan": plan}), 422)["detail"]


def test_i3_a_body_that_is_not_sound_is_refused(server: Server) -> None:
    deep = [b'{"inputs": ' + b"[" * levels + b"]" * levels + b"}" for levels in (DEEPEST, 100_000)]
    texts = [b"{", b"\xff\xfe", b'{"plan": NaN}', b'{"task": "\\ud800"}', b'{"inputs": {"n": 1e999}}', *deep]
    for raw in texts:
        assert check(server.api("POST", "/api/executions", raw=raw), 400)["title"] == "not valid JSON"


def test_i3_a_body_of_another_type_is_refused(server: Server) -> None:
    told = check(server.api("POST", "/api/executions", {"plan": ONE}, {"Content-Type": "text/plain"}), 415)
    assert "application/json" in told["advice"][0]


def test_a_body_may_be_nested_up_to_the_limit() -> None:
    assert trouble_with(b"[" * DEEPEST + b"]" * DEEPEST) is None
    assert "deeper" in str(trouble_with(b"[" * (DEEPEST + 1) + b"]" * (DEEPEST + 1)))


def test_b5_a_plan_of_too_many_steps_is_refused_while_others_are_served(server: Server) -> None:
    steps = ",".join(f'{{"id":"s{n}","run":"true"}}' for n in range(100_001))
    told = check(
        server.api("POST", "/api/executions", raw=f'{{"plan":{{"name":"x","steps":[{steps}]}}}}'.encode()), 422
    )
    assert "at most 20,000 steps" in told["detail"]


def test_i6_the_log_has_a_line_for_each_request_and_no_secrets(server: Server, until: Any) -> None:
    server.api.get("/api/executions?name=hidden-query")
    type(server.api)(server.address, "").get("/api/executions")
    server.api.get("/login?code=hidden-code")
    reply = server.api.get("/api/executions/hidden-id")
    lines = until(lambda: found if len(found := [x for x in server.log if x["message"] == "request"]) >= 4 else None)
    assert [(line["method"], line["route"], line["status"]) for line in lines[:4]] == [
        ("GET", "/api/executions", 200),
        ("GET", "(none)", 401),
        ("GET", "/login", 403),
        ("GET", "/api/executions/{execution}", 404),
    ]
    assert lines[3]["request"] == reply.headers["x-request-id"]
    assert all(line["ms"] >= 0 for line in lines)
    steps = [{"id": "a", "run": "exit 3", "importance": "critical"}]
    execution = server.api.start({"name": "fails", "steps": steps}, wait=60)["id"]
    (ended,) = until(lambda: [line for line in server.log if line["message"] == "execution ended"])
    assert (ended["level"], ended["execution"], ended["status"]) == ("warning", execution, "failed")
    assert "exit code 3" in ended["error"]
    for secret in (server.token, "hidden-query", "hidden-code"):
        assert secret not in server.err


async def test_c5_what_nobody_foresaw_shows_no_innards_and_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def broken(_scope: Any, _receive: Any, _send: Any) -> None:
        raise ZeroDivisionError("the innards")

    seen: list[int] = []
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def receive() -> Any:
        raise AssertionError("nobody reads")

    log = RequestLog(broken, lambda _method, _route, status, _seconds: seen.append(status))
    with caplog.at_level("INFO", "windlass.server"):
        await log({"type": "http", "method": "GET", "path": "/x", "headers": []}, receive, send)
    assert seen == [500]
    number = dict(sent[0]["headers"])[b"x-request-id"].decode()
    told = json.loads(sent[1]["body"])
    assert number in told["detail"]
    assert b"innards" not in sent[1]["body"]
    (record,) = [one for one in caplog.records if one.levelname == "ERROR"]
    line = JsonLines(Redactor(more={"x": "the innards"})).format(record)
    assert json.loads(line)["request"] == number
    assert "ZeroDivisionError: [x]" in json.loads(line)["error"]


def test_c5_a_home_that_is_gone_is_trouble_with_the_journal(server: Server, project: Project) -> None:
    away = project.home.with_name("away")
    project.home.rename(away)
    try:
        check(server.api.post("/api/executions", {"plan": ONE}), 503)
        check(server.api.post("/api/executions", {"plan": ONE}, idempotency_key="k"), 503)
    finally:
        away.rename(project.home)


def test_c5_a_checkpoint_that_cannot_be_written_is_trouble_with_the_journal(server: Server, project: Project) -> None:
    execution = server.api.start(ONE, wait=60)["id"]
    path = f"/api/executions/{execution}/checkpoint"
    folder = Path(server.api.post(path).json["path"]).parent
    shutil.rmtree(folder)
    folder.write_text("in the way")
    check(server.api.post(path), 503)
