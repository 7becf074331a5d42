"""Twelve secrets, printed by steps in every spelling, and none of them in anything that leaves (TRUST: secrets)."""

from __future__ import annotations

import base64
import io
import json
import logging
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_clients import shown
from waiting import PATIENCE
from websockets.asyncio.client import connect

from windlass.redact import Redactor
from windlass.server.logs import log_to

if TYPE_CHECKING:
    from conftest import Project
    from server_process import Serve

CANARIES = {
    "ANTHROPIC_API_KEY": "canary-01-anthropic",
    "GITHUB_TOKEN": "canary-02-github",
    "GITHUB_PAT": "canary-03-pat",
    "PGPASSWORD": "canary-04-pg",
    "SMTP_PASS": "canary/05+smtp?",
    "AWS_SECRET_ACCESS_KEY": "canary/06+aws",
    "SENTRY_DSN": "https://canary07canary07@sentry.test/1",
    "GCP_CREDS": '{"canary": "08"}',
    "MY_AUTH": "canary-09-auth",
    "SESSION_COOKIE": "canary-10-cookie",
    "SIGNING_SECRET": "canary-11-ümläut",
}
PASSWORD = "canary-12-password"
ADDRESS = {"DATABASE_URL": f"postgres://app:{PASSWORD}@db.test/x"}


def _spellings() -> list[str]:
    found = []
    for value in (*CANARIES.values(), *ADDRESS.values(), PASSWORD):
        raw = value.encode()
        found += [value, quote(value, safe=""), raw.hex(), base64.b64encode(raw).decode()]
        found += [base64.b64encode(b"user:" + raw).decode(), json.dumps(value)[1:-1]]
    return found


def _check(where: str, text: str) -> None:
    assert "canary" not in text.lower(), f"{where}: {text[max(0, text.lower().index('canary') - 200) :][:300]}"
    for spelled in _spellings():
        assert spelled not in text, where


async def test_i6_twelve_secrets_leave_in_no_answer_stream_page_result_or_log(serve: Serve, project: Project) -> None:
    server = serve(**CANARIES, **ADDRESS)
    said = "\n".join(_spellings())
    steps = [
        {"id": "print", "run": ["printf", "%s\n", said]},
        {"id": "fail", "run": ["sh", "-c", 'printf "%s" "$1" >&2; exit 1', "sh", said], "importance": "optional"},
        {"id": "ask", "run": ["echo", *_spellings()], "approve": "always", "needs": ["print"]},
    ]
    plan = {"name": PASSWORD, "steps": steps}
    execution = server.api.start(plan, wait=60, hold=False)["id"]
    (asked,) = server.api.get("/api/approvals").json
    _check("the question", json.dumps(asked, ensure_ascii=False))
    paths = ["", "/events?limit=1000", "/prompts"]
    for path in ["/api/executions", "/api/approvals", "/api/health", "/metrics", asked["link"]] + [
        f"/api/executions/{execution}{path}" for path in paths
    ]:
        _check(path, server.api.get(path).body.decode())
    whole = server.api.get(f"/api/executions/{execution}").json
    assert whole["workdir"] == str(project.path), "the working directory is no secret"
    for body in (
        {"plan_text": f"{PASSWORD}: {said!r}"},
        {"plan": {"steps": PASSWORD}},
        {"plan_file": f"{PASSWORD}.yaml"},
    ):
        _check("an error", server.api.post("/api/executions", body).body.decode())
    _check("not found", server.api.get(f"/api/executions/{PASSWORD}").body.decode())
    socket = f"ws://{urlsplit(server.address).netloc}/api/stream?after=0"
    headers = {"Authorization": f"Bearer {server.token}"}
    async with connect(socket, additional_headers=headers, open_timeout=PATIENCE) as stream:
        texts = []
        while not texts or json.loads(texts[-1]).get("type") != "execution.paused":
            texts.append(str(await stream.recv()))
    _check("the stream", "\n".join(texts))
    async with httpx2.AsyncClient(headers=headers, timeout=PATIENCE) as http:
        async with Client(streamable_http_client(f"{server.address}/mcp", http_client=http)) as mcp:
            _check("MCP", json.dumps(shown(await mcp.call_tool("engine_status", {"execution": execution}))))
    assert server.stop().code == 0
    _check("the log", server.err)


def test_i6_a_key_that_the_settings_hold_for_an_mcp_server_leaves_in_no_answer_and_no_log(serve: Serve) -> None:
    key = "canary-13-of-the-settings"
    server = serve(WINDLASS_MCP=json.dumps({"notes": {"command": "true", "env": {"NOTES_API_KEY": key}}}))
    steps = [{"id": "say", "run": ["echo", key]}, {"id": "ask", "run": ["echo", key], "approve": "always"}]
    execution = server.api.start({"steps": steps}, wait=60, hold=False)["id"]
    (asked,) = server.api.get("/api/approvals").json
    whole = server.api.get(f"/api/executions/{execution}").body.decode()
    assert "[mcp.notes.NOTES_API_KEY]" in whole
    for path in (asked["link"], "/api/approvals", "/api/settings", f"/api/executions/{execution}/events"):
        _check(path, server.api.get(path).body.decode())
    _check("the execution", whole)
    assert server.stop().code == 0
    _check("the log", server.err)


def test_i6_a_traceback_in_the_log_has_no_secret() -> None:
    written = io.StringIO()
    log = logging.getLogger("windlass.server.test")
    parent = logging.getLogger("windlass")
    before = (parent.handlers, parent.propagate, parent.level)
    log_to(written, Redactor({**CANARIES, **ADDRESS}))
    try:
        raise ValueError("\n".join(_spellings()))
    except ValueError:
        log.exception("with %s", PASSWORD)
    finally:
        parent.handlers, parent.propagate = before[:2]
        parent.setLevel(before[2])
    told = json.loads(written.getvalue())
    assert "ValueError" in told["error"]
    told["error"] = told["error"].replace('"\\n".join(_spellings())', "")
    _check("the traceback", json.dumps(told).replace(__file__, "").replace("test_canaries", ""))
