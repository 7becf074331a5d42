"""What the server counts and lists besides executions: metrics, stats, budget, tools, roles (I6)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from server_process import Server

PLAN = {
    "name": "p",
    "steps": [{"id": "a", "run": "true"}, {"id": "b", "run": "false"}, {"id": "c", "run": "true", "when": False}],
}


def figure(page: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    assert found, f"there is no {name} in\n{page}"
    return float(found[1])


def test_i6_metrics_count_executions_steps_attempts_events_and_requests(server: Server) -> None:
    execution = server.api.start(PLAN, wait=60)["id"]
    events = len(server.api.get(f"/api/executions/{execution}/events").json["events"])
    server.api.get("/api/executions/nosuch")
    reply = server.api.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    page = reply.body.decode()
    assert figure(page, 'windlass_executions{status="partial"}') == 1
    assert figure(page, 'windlass_executions{status="running"}') == 0
    for outcome in ("completed", "failed", "skipped"):
        assert figure(page, f'windlass_steps_total{{outcome="{outcome}"}}') == 1
    assert figure(page, 'windlass_attempts_total{outcome="completed"}') == 1
    assert figure(page, 'windlass_attempts_total{outcome="failed"}') >= 1
    appended = re.findall(r'^windlass_events_appended_total\{type="[^"]+"\} (\S+)$', page, re.MULTILINE)
    assert sum(map(float, appended)) == events
    route = '{method="GET",route="/api/executions/{execution}",status="404"}'
    assert figure(page, f"windlass_http_requests_total{route}") == 1
    assert figure(page, 'windlass_http_request_seconds_count{route="/api/executions"}') == 1
    for name in ("windlass_stream_clients", "windlass_stream_clients_dropped_total", "windlass_executions_driven"):
        assert figure(page, name) == 0
    samples = [line.partition("{")[0].partition(" ")[0] for line in page.splitlines() if not line.startswith("#")]
    assert all(name.startswith("windlass_") for name in samples)


def test_i3_stats_budget_tools_and_roles_are_listed(server: Server) -> None:
    server.api.start(PLAN, wait=60)
    stats = server.api.get("/api/stats").json
    assert stats["executions"]["partial"] == 1
    assert stats["executions"]["running"] == 0
    assert stats["spent"] == {"day": [], "model": [], "runtime": []}
    assert (stats["history"]["complete"], stats["history"]["total"]["runs"]) == (True, 1)
    history = server.api.get("/api/history?by=step&since=1d").json
    assert (history["of"], history["total"]["runs"]) == ("steps", 3)
    assert server.api.get("/api/history?failed=true&by=plan").json["total"]["statuses"] == {"partial": 1}
    assert set(server.api.get("/api/history?slow=true").json) >= {"bottlenecks", "changes", "looked_at"}
    assert set(server.api.get("/api/budget?by=model").json) == {"day", "month", "limits", "by"}
    tools = {tool["name"]: tool for tool in server.api.get("/api/tools").json}
    assert {"shell", "files.write", "agent"} <= set(tools)
    assert tools["files.write"]["schema"]["type"] == "object"
    roles = {role["name"] for role in server.api.get("/api/agents").json["roles"]}
    assert {"architect", "developer", "reviewer"} <= roles


def test_h1_metrics_count_what_attempts_used(server: Server) -> None:
    write = {"id": "a", "tool": "files.write", "with": {"path": "a.txt", "content": "x" * 5000}}
    told = server.api.start({"name": "p", "steps": [write, {"id": "b", "run": "echo hello"}]}, wait=60)
    page = server.api.get("/metrics").body.decode()
    assert figure(page, 'windlass_used_bytes_total{direction="sent"}') == 5000
    assert figure(page, 'windlass_used_bytes_total{direction="received"}') == len("hello\n")
    computed = server.api.get(f"/api/executions/{told['id']}").json["resources"]["cpu_s"]
    assert abs(figure(page, "windlass_used_cpu_seconds_total") - computed) < 1e-6
    assert computed > 0
