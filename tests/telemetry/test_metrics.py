"""Metrics of what executions took, waited and cost (I6)."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from receiver import Receiver
from waiting import wait_until

from windlass.ports import Spending
from windlass.server.metrics import MOST_NAMES, LabelLimit, Metrics

if TYPE_CHECKING:
    from server_process import Server

PLAN = {
    "name": "private-plan",
    "steps": [
        {"id": "private-step", "run": "true"},
        {"id": "items", "foreach": [1, 2], "run": ["true"]},
        {"id": "again", "run": "test -e flag || { touch flag; exit 75; }", "retry": {"max": 2, "delay": 0.01}},
        {"id": "bad", "run": "exit 3"},
        {"id": "write", "tool": "files.write", "with": {"path": "a.txt", "content": "x"}},
    ],
}


def figure(page: str, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", page, re.MULTILINE)
    assert found, f"there is no {name} in\n{page}"
    return float(found[1])


def metrics(server: Server) -> str:
    return str(server.api.get("/metrics").body.decode())


def test_i6_metrics_tell_durations_by_tool_and_status_failures_by_category_and_retries(server: Server) -> None:
    server.api.start(PLAN, wait=60)
    page = metrics(server)
    assert figure(page, 'windlass_executions_finished_total{status="partial"}') == 1
    assert figure(page, 'windlass_execution_seconds_count{status="partial"}') == 1
    assert figure(page, 'windlass_step_seconds_count{status="completed",tool="shell"}') == 4, (
        "items count, not their sum"
    )
    assert figure(page, 'windlass_step_seconds_count{status="failed",tool="shell"}') == 1
    assert figure(page, 'windlass_step_seconds_count{status="completed",tool="files.write"}') == 1
    assert figure(page, 'windlass_attempt_failures_total{category="transient",tool="shell"}') == 1
    assert figure(page, 'windlass_attempt_failures_total{category="logic",tool="shell"}') == 1
    assert figure(page, 'windlass_retries_total{category="transient"}') == 1
    assert figure(page, 'windlass_step_phase_seconds_total{phase="worked",tool="shell"}') > 0
    assert figure(page, 'windlass_step_phase_seconds_total{phase="waited",tool="shell"}') > 0
    assert "private" not in page, "no name of a plan or step is a label"
    assert "windlass_spans" not in page, "there are no traces"


def test_i6_metrics_tell_open_and_answered_approvals(server: Server) -> None:
    asked = server.api.start({"name": "p", "steps": [{"id": "a", "run": "true", "approve": "always"}]}, wait=0)
    execution = asked["id"]
    wait_until(lambda: figure(metrics(server), "windlass_approvals_open") == 1, "the question is open")
    assert server.api.post(f"/api/approvals/{execution}/a", {"allow": True}).status == 200
    server.api.get(f"/api/executions/{execution}?wait=60")
    page = metrics(server)
    assert figure(page, "windlass_approvals_open") == 0
    assert figure(page, 'windlass_approvals_answered_total{answer="allowed"}') == 1
    assert figure(page, "windlass_approval_wait_seconds_count") == 1
    assert figure(page, 'windlass_step_phase_seconds_total{phase="person",tool="shell"}') > 0


def test_i6_labels_are_bounded() -> None:
    limit = LabelLimit(3)
    assert [limit(str(number)) for number in (1, 2, 3, 4, 1, 5)] == ["1", "2", "3", "other", "1", "other"]
    models = [Spending(f"model-{number}", 1.0, 0, 10, 1, 1) for number in range(MOST_NAMES + 20)]
    page = (
        Metrics()
        .page(
            counts={},
            spent=[],
            models=models,
            questions=0,
            scores={},
            spans=None,
            circuits={f"host {number}": "closed" for number in range(1000)},
            waiting=0,
            driven=0,
            clients=0,
            dropped=0,
        )
        .decode()
    )
    assert figure(page, 'windlass_model_cost_usd_total{model="other"}') == 20
    assert figure(page, 'windlass_model_tokens_total{direction="in",model="model-0"}') == 10
    assert len(re.findall("^windlass_model_cost_usd_total", page, re.MULTILINE)) == MOST_NAMES + 1
    assert len(re.findall("^windlass_breaker_open", page, re.MULTILINE)) == 200


def test_i6_the_log_the_metrics_and_the_request_know_the_trace(serve: Any, receiver: Receiver) -> None:
    setting = json.dumps({"endpoint": receiver.endpoint})
    server = serve(WINDLASS_TELEMETRY=setting, TRACEPARENT="00-11111111111111111111111111111111-2222222222222222-01")
    outer = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    plan = {"name": "p", "steps": [{"id": "a", "run": "true"}]}
    linked = server.api.post("/api/executions?wait=60", {"plan": plan}, traceparent=outer).json["id"]
    alone = server.api.start(plan, wait=60)["id"]
    wait_until(lambda: len(receiver.spans) == 6, "both traces have come")
    roots = {span.trace: span.links for span in receiver.spans if not span.parent}
    assert roots == {
        linked.replace("-", ""): (("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"),),
        alone.replace("-", ""): (),
    }, "the server's own variable is not the caller of a request"
    wait_until(lambda: figure(metrics(server), "windlass_spans_exported_total") == 6, "it has the answers, too")
    assert figure(metrics(server), "windlass_spans_dropped_total") == 0
    (ended,) = [line for line in server.log if line["message"] == "execution ended" and line["execution"] == alone]
    (root,) = [span for span in receiver.spans if span.trace == alone.replace("-", "") and not span.parent]
    assert (ended["trace_id"], ended["span_id"]) == (root.trace, root.id)
