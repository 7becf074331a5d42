"""What the server counts and lists besides executions: metrics, stats, budget, tools, roles (I6)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from waiting import wait_until

from windlass.core.forecast.scores import BucketScore
from windlass.server.metrics import Metrics

if TYPE_CHECKING:
    from conftest import Project
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
    assert (history["of"], history["total"]["runs"]) == ("steps", 2), "the skipped one did not run"
    assert server.api.get("/api/history?failed=true&by=plan").json["total"]["statuses"] == {"partial": 1}
    assert set(server.api.get("/api/history?slow=true").json) >= {"bottlenecks", "changes", "looked_at"}
    for beside in ("by=tool", "until=today", "failed=true"):
        assert "goes with" in server.api.get(f"/api/history?slow=true&{beside}").json["detail"]
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


SLOW = {"name": "slow", "steps": [{"id": "a", "run": "until [ -e go ]; do sleep 0.02; done"}]}


def test_d7_lists_have_the_time_to_the_end_and_metrics_the_coverage_of_forecasts(
    project: Project, server: Server
) -> None:
    project.file("go", "")
    first = server.api.start(SLOW, wait=60)["id"]
    (project.path / "go").unlink()
    assert "windlass_forecast_coverage{" not in server.api.get("/metrics").body.decode(), "nothing is scored yet"
    second = server.api.start(SLOW)["id"]

    def etas() -> dict[str, float | None]:
        return {one["id"]: one["eta"] for one in server.api.get("/api/executions").json["executions"]}

    wait_until(lambda: etas()[second] is not None, "its first forecast")
    assert etas()[first] is None
    assert (etas()[second] or 0) >= 0
    project.file("go", "")
    assert server.api.get(f"/api/executions/{second}?wait=60").json["status"] == "completed"
    assert etas()[second] is None


def test_d7_metrics_have_the_coverage_of_the_forecasts() -> None:
    scores = {"time": [BucketScore(0, 20, 0.8, 0.1, 0.0), BucketScore(None, 25, 0.84, 0.1, 0.0)], "cost": []}
    page = (
        Metrics()
        .page(
            counts={},
            spent=[],
            models=[],
            questions=0,
            scores=scores,
            spans=None,
            circuits={},
            waiting=0,
            driven=0,
            clients=0,
            dropped=0,
        )
        .decode()
    )
    assert figure(page, 'windlass_forecast_coverage{done_percent="0-25",of="time"}') == 0.8
    assert figure(page, 'windlass_forecasts{done_percent="all",of="time"}') == 25
    assert figure(page, 'windlass_forecast_median_error{done_percent="all",of="time"}') == 0.1


def test_h1_a_plan_is_estimated_before_it_starts(project: Project, server: Server) -> None:
    quick = {"name": "quick", "steps": [{"id": "a", "run": "true"}, {"id": "b", "run": "true", "needs": ["a"]}]}
    nothing = server.api.post("/api/plans/estimate", {"plan": quick}).json
    assert (nothing["expected_s"], nothing["unknown"], nothing["usd"]) == (None, ["a", "b"], None)
    started = server.api.start(quick, wait=60)["id"]
    for order in ({"plan": quick}, {"plan_text": json.dumps(quick)}):
        told = server.api.post("/api/plans/estimate", order).json
        assert 0 <= told["low_s"] <= told["expected_s"] <= told["high_s"] < 60
        assert (told["unknown"], told["forecast"]["runs"]) == ([], 1)
        assert told["forecast"]["low_confidence"]
    agents = server.api.post("/api/plans/estimate", {"task": "Do it", "model": "some-model"}).json
    assert agents["forecast"]["unknown_cost"] == ["task"]
    wrong = server.api.post("/api/plans/estimate", {"plan": {"steps": [{"id": "a"}]}})
    assert wrong.status == 422
    assert [one["id"] for one in server.api.get("/api/executions").json["executions"]] == [started], "nothing began"
