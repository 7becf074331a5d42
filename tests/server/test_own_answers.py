"""A step, its agent and its programs cannot answer what only a person may (C6): refused on every way, and on record."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from server_process import Serve, Server

import windlass as library
from windlass import Plan, Step
from windlass.core import events as ev
from windlass.core.state import State
from windlass.process.supervisor import containment
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project, Windlass

pytestmark = pytest.mark.skipif(containment().mechanism != "subreaper", reason="needs /proc and subreapers")
PROGRAM = Path(sys.executable).with_name("windlass")
NESTED = "steps: [{id: inner, run: touch nested, approve: always}]"

WAYS = {
    "directly": f"{PROGRAM} approve $WINDLASS_EXECUTION risky",
    "to deny": f"{PROGRAM} approve --deny $WINDLASS_EXECUTION risky",
    "with another environment, session and parent": (
        f"(setsid nohup env -i HOME=$HOME PATH=$PATH {PROGRAM} --home .windlass approve $WINDLASS_EXECUTION risky "
        "|| echo $? > code) > said 2>&1 & until [ -s code ]; do sleep 0.05; done; cat said >&2; exit $(cat code)"
    ),
    "by raising the budget": f"{PROGRAM} resume $WINDLASS_EXECUTION --budget 100",
    "by trusting a folder": f"{PROGRAM} trust .",
    "from Python": f"{sys.executable} answer.py",
    "over MCP": f"{sys.executable} over_mcp.py",
}
ANSWER = """
import asyncio, os, sys
import windlass

async def main():
    async with windlass.open() as engine:
        await engine.approve(os.environ["WINDLASS_EXECUTION"], "risky", by="a person, honestly")

try:
    asyncio.run(main())
except windlass.WindlassError as error:
    sys.exit(f"{error}") if error.exit_code != 4 else (print(error, file=sys.stderr), sys.exit(4))
"""
OVER_MCP = f"""
import json, os, subprocess, sys

server = subprocess.Popen(["{PROGRAM}", "mcp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(number, method, **params):
    server.stdin.write(json.dumps({{"jsonrpc": "2.0", "id": number, "method": method, "params": params}}) + "\\n")
    server.stdin.flush()
    while (answer := json.loads(server.stdout.readline())).get("id") != number:
        pass
    return answer["result"]


info = {{"name": "step", "version": "1"}}
ask(1, "initialize", protocolVersion="2025-06-18", capabilities={{}}, clientInfo=info)
server.stdin.write('{{"jsonrpc": "2.0", "method": "notifications/initialized"}}\\n')
about = {{"execution": os.environ["WINDLASS_EXECUTION"]}}
seen = ask(2, "tools/call", name="engine_status", arguments=about)["structuredContent"]
digest = seen["questions"][0]["digest"]
told = ask(3, "tools/call", name="engine_approve", arguments=dict(about, step="risky", allow=True, digest=digest))
print(told["content"][0]["text"], file=sys.stderr)
server.stdin.close()
server.wait()
sys.exit(4 if told["isError"] else 0)
"""


def attacked(attack: Step) -> Plan:
    risky = Step(id="risky", run="touch harm", approve="always")
    return Plan(steps=[risky, attack])


def refused(project: Project, execution: str) -> list[ev.AnswerRefused]:
    return [event for event in project.events(execution) if isinstance(event, ev.AnswerRefused)]


def check_refused(project: Project, state: State, *, recorded: bool = True) -> None:
    assert (state.status, state.paused_for) == ("paused", "approval")
    assert list(state.questions) == ["risky"], "its question is still open"
    assert not (project.path / "harm").exists()
    if recorded:
        assert {event.by for event in refused(project, state.id)} == {f"step attack of execution {state.id}"}


@pytest.mark.parametrize("way", WAYS)
async def test_c6_a_command_of_a_step_answers_nothing(project: Project, way: str) -> None:
    project.file("answer.py", ANSWER)
    project.file("over_mcp.py", OVER_MCP)
    attack = Step(id="attack", tool="shell", with_={"line": WAYS[way], "ok": [4]})
    async with library.open() as engine:
        state = await (await engine.start(attacked(attack), hold=False)).wait()
        assert state.steps["attack"].status == "completed", state.steps["attack"].error
        assert "from inside step attack" in state.steps["attack"].output["stderr"]
        check_refused(project, state, recorded=way != "by trusting a folder")
        await engine.approve(state.id, "risky")
        assert (await (await engine.resume(state.id, hold=False)).wait()).status == "completed", "a person can"


async def test_c6_a_command_of_an_agent_answers_nothing(project: Project) -> None:
    command: dict[str, Any] = {"ok": [4]}
    runner = ScriptedRunner(lambda request: Turn().call("shell", command).done("tried"), name="claude-code")
    async with library.open(runners=[runner], permissions={"mode": "allow"}) as engine:
        plan = attacked(Step(id="attack", agent="developer", prompt="go", runtime="claude-code"))
        execution = await engine.create(plan)
        command["argv"] = [str(PROGRAM), "approve", execution, "risky"]
        state = await (await engine.resume(execution, hold=False)).wait()
        (returned,) = runner.returns
        assert returned.failure is None, returned
        assert returned.value["exit_code"] == 4
        check_refused(project, state, recorded=False)
        assert refused(project, execution)


async def test_c6_what_a_step_starts_is_not_answered_from_inside_either(project: Project, windlass: Windlass) -> None:
    project.file("nested.yaml", NESTED)
    line = f"{PROGRAM} run nested.yaml --yes --progress quiet|| test $? = 3"
    async with library.open() as engine:
        state = await (await engine.start(Plan(steps=[Step(id="outer", run=line)]), hold=False)).wait()
        assert state.status == "completed", state.steps["outer"].error
        assert "--yes has no effect here" in state.steps["outer"].output["stderr"]
    assert not (project.path / "nested").exists()


OVER_HTTP = """
import json, os, socket, sys, urllib.error, urllib.request
from pathlib import Path

address, execution = sys.argv[1], os.environ["WINDLASS_EXECUTION"]
token = Path(".windlass/server.token").read_text().strip()
headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}


def post(path, body, **more):
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {**headers, **more})
    try:
        with urllib.request.urlopen(request) as answer:
            headers["Mcp-Session-Id"] = answer.headers.get("mcp-session-id", "")
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


asked = json.load(urllib.request.urlopen(urllib.request.Request(address + "/api/approvals", headers=headers)))
asked = asked["approvals"] if isinstance(asked, dict) else asked
(question,) = [one for one in asked if one["execution"] == execution]
allow = {"allow": True}
told = {
    "by id": post(f"/api/approvals/{question['id']}", allow),
    "by step": post(f"/api/approvals/{execution}/risky", allow),
    "forwarded": post(f"/api/approvals/{execution}/risky", allow, **{"X-Forwarded-For": "8.8.8.8"}),
    "budget": post(f"/api/executions/{execution}/budget", {"usd": 100}),
    "by link": post(question["link"], b"answer=allow", **{"Content-Type": "application/x-www-form-urlencoded"}),
}
call = {"name": "engine_approve", "arguments": {**allow, "execution": execution, "step": "risky",
        "digest": question["digest"]}}
mcp = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
accept = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-06-18"}
status, said = post("/mcp", {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
    "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "step", "version": "1"}}}, **accept)
told["mcp begun"] = status, said
told["mcp"] = post("/mcp", mcp, **accept)
# Say it and be gone before anybody can look.
host, port = address.removeprefix("http://").split(":")
body = json.dumps(allow).encode()
lines = [f"POST /api/approvals/{execution}/risky HTTP/1.1", f"Host: {host}:{port}", f"Authorization: Bearer {token}",
         "Content-Type: application/json", f"Content-Length: {len(body)}", "", ""]
with socket.create_connection((host, int(port))) as gone:
    gone.sendall("\\r\\n".join(lines).encode() + body)
Path("told.json").write_text(json.dumps(told))
"""


async def test_c6_a_step_with_the_token_of_the_server_answers_nothing(project: Project, server: Server) -> None:
    project.file("over_http.py", OVER_HTTP)
    attack = {"id": "attack", "run": f"{sys.executable} over_http.py {server.address}"}
    plan = {"steps": [{"id": "risky", "run": "touch harm", "approve": "always"}, attack]}
    ended = await asyncio.to_thread(server.api.start, plan, wait=60, hold=False, workdir=str(project.path))
    attacking = next(step for step in ended["steps"] if step["id"] == "attack")
    assert attacking["status"] == "completed", attacking["error"]
    told = json.loads((project.path / "told.json").read_text())
    for way in ("by id", "by step", "forwarded", "budget"):
        status, said = told[way]
        assert status == 403, (way, said)
        assert "from inside step attack" in json.loads(said)["detail"]
    assert told["by link"][0] in (403, 410)
    assert "from inside step attack" in told["mcp"][1], told
    state = project.state(ended["id"])
    assert list(state.questions) == ["risky"]
    assert not (project.path / "harm").exists()
    assert len(refused(project, ended["id"])) >= 5
    assert ended["refused_answers"][0]["by"] == f"step attack of execution {ended['id']}"
    answered = server.api.post(f"/api/approvals/{ended['id']}/risky", {"allow": True})
    assert answered.status == 200, answered.body


async def test_c6_a_question_names_the_secrets_that_it_does_not_show(project: Project, serve: Serve) -> None:
    server = serve(GITHUB_TOKEN="canary-0123456789")
    plan = {"steps": [{"id": "push", "run": "curl -H 'X: canary-0123456789' x", "approve": "always"}]}
    started = server.api.start(plan, wait=60, hold=False)
    (question,) = server.api.get("/api/approvals").json
    assert question["execution"] == started["id"]
    assert question["input"] == {"line": "curl -H 'X: [GITHUB_TOKEN]' x"}
    assert question["hidden"] == ["GITHUB_TOKEN"]
    page = server.api.get(question["link"]).body.decode()
    assert "Not shown, because they are secrets: GITHUB_TOKEN" in page
    assert "canary" not in page
