"""`Idempotency-Key`: done once, answered the same, whatever happens in between (I3)."""

from __future__ import annotations

import asyncio
import http.client
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from windlass.server.idempotency import KEPT_FOR, IdempotencyKeys

if TYPE_CHECKING:
    from pathlib import Path

    from conftest import Project
    from server_process import Reply, Serve, Server

ONE = {"plan": {"name": "one", "steps": [{"id": "a", "run": "echo a >> ran"}]}}
HELD = {"plan": {"name": "held", "steps": [{"id": "a", "run": "echo a >> ran; until [ -e go ]; do sleep 0.02; done"}]}}
ASKS = {"plan": {"name": "asks", "steps": [{"id": "a", "run": "echo a >> ran", "approve": "always"}]}}


def test_i3_the_same_key_and_body_give_the_same_answer_and_it_is_done_once(server: Server, project: Project) -> None:
    first = server.api.post("/api/executions?wait=60", ONE, idempotency_key="k1")
    again = server.api.post("/api/executions?wait=60", ONE, idempotency_key="k1")
    assert first.status == again.status == 201
    assert again.body == first.body
    assert again.headers["location"] == first.headers["location"]
    assert again.headers["idempotency-replayed"] == "true"
    assert "idempotency-replayed" not in first.headers
    assert project.ids() == [first.json["id"]]
    assert project.lines("ran") == ["a"]
    other = server.api.post("/api/executions?wait=60", ONE, idempotency_key="k2")
    assert other.json["id"] != first.json["id"]


def test_i3_the_same_key_with_another_request_is_refused(server: Server, project: Project) -> None:
    execution = server.api.post("/api/executions?wait=60", ONE, idempotency_key="k").json["id"]
    for path, body in (
        ("/api/executions?wait=60", HELD),
        ("/api/executions", ONE),
        (f"/api/executions/{execution}/fork", ONE),
    ):
        refused = server.api.post(path, body, idempotency_key="k")
        assert refused.status == 422
        assert refused.headers["content-type"] == "application/problem+json"
    assert len(project.ids()) == 1


def test_i3_an_error_leaves_the_key_free(server: Server) -> None:
    bad = {"plan": {"name": "one", "steps": []}}
    assert server.api.post("/api/executions", bad, idempotency_key="k").status == 422
    assert server.api.post("/api/executions", ONE, idempotency_key="k").status == 201


def test_i3_a_key_that_is_none_is_refused(server: Server) -> None:
    for key in ("", " ", "x" * 256, "a\x7fb"):
        reply = server.api.post("/api/executions", ONE, idempotency_key=key)
        assert (reply.status, reply.json["title"]) == (400, "not a key"), key


def test_i3_twenty_at_once_with_one_key_are_one_execution(server: Server, project: Project) -> None:
    def ask(_n: int) -> Reply:
        return server.api.post("/api/executions?wait=60", ONE, idempotency_key="k")

    with ThreadPoolExecutor(20) as pool:
        replies = list(pool.map(ask, range(20)))
    assert {reply.status for reply in replies} == {201}
    assert len({reply.body for reply in replies}) == 1
    assert len(project.ids()) == 1
    assert project.lines("ran") == ["a"]


@pytest.mark.parametrize(
    "fault",
    ["request.begun:1", "journal.before_commit:1", "journal.after_commit:1", "request.done:1", "request.kept:1"],
)
def test_i3_a_crash_in_between_neither_loses_nor_doubles_it(serve: Serve, project: Project, fault: str) -> None:
    dying = serve(WINDLASS_FAULT=fault)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        dying.api.post("/api/executions", ONE, idempotency_key="k")
    server = serve()
    reply = server.api.post("/api/executions", ONE, idempotency_key="k")
    assert reply.status == 201
    assert project.ids() == [reply.json["id"]]
    assert server.api.get(f"/api/executions/{reply.json['id']}?wait=60").json["status"] == "completed"
    assert set(project.lines("ran")) == {"a"}, "an attempt that the crash met may be repeated, and nothing else"


@pytest.mark.parametrize(
    "fault", ["request.done:2", *(pytest.param(f"request.{at}:2", marks=pytest.mark.soak) for at in ("begun", "kept"))]
)
def test_i3_a_fork_survives_a_crash_in_between(serve: Serve, project: Project, fault: str) -> None:
    dying = serve(WINDLASS_FAULT=fault)
    origin = dying.api.post("/api/executions?wait=60", ONE, idempotency_key="k0").json["id"]
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        dying.api.post(f"/api/executions/{origin}/fork", {"from_step": "a"}, idempotency_key="k")
    server = serve()
    reply = server.api.post(f"/api/executions/{origin}/fork", {"from_step": "a"}, idempotency_key="k")
    assert reply.status == 201
    assert project.ids() == [origin, reply.json["id"]]
    assert server.api.get(f"/api/executions/{reply.json['id']}?wait=60").json["status"] == "completed"


ONE_OF_EACH = (
    ("cancel", "request.begun:1"),
    ("approve by step", "request.done:1"),
    ("approve by id", "request.kept:1"),
)


@pytest.mark.parametrize(
    ("what", "fault"),
    [
        pytest.param(what, fault, marks=() if (what, fault) in ONE_OF_EACH else pytest.mark.soak)
        for what in ("cancel", "approve by step", "approve by id")
        for fault in ("request.begun:1", "request.done:1", "request.kept:1")
    ],
)
def test_i3_asking_something_of_an_execution_survives_a_crash_in_between(
    serve: Serve, project: Project, until: Any, fault: str, what: str
) -> None:
    dying = serve(WINDLASS_FAULT=fault)
    execution = dying.api.post("/api/executions", HELD if what == "cancel" else ASKS).json["id"]
    if what == "cancel":
        until(lambda: project.lines("ran"))
        path, body = f"/api/executions/{execution}/cancel", {"within": 60}
    else:
        (asked,) = until(lambda: dying.api.get("/api/approvals").json)
        named = asked["id"] if what == "approve by id" else f"{execution}/a"
        path, body = f"/api/approvals/{named}", {"allow": True}
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        dying.api.post(path, body, idempotency_key="k")
    server = serve()
    reply = server.api.post(path, body, idempotency_key="k")
    assert reply.status == 200, reply.body
    assert server.api.post(path, body, idempotency_key="k").body == reply.body
    end = server.api.get(f"/api/executions/{execution}?wait=60").json
    happened = server.api.get(f"/api/executions/{execution}/events").body
    assert end["status"] == ("cancelled" if what == "cancel" else "completed"), (end, happened)
    # The attempt that the crash met, if the answer had let one begin, is repeated: nothing else is.
    assert set(project.lines("ran")) == {"a"}


AGAIN = {"name": "again", "steps": [{"id": "b", "run": "echo b >> ran; exit 1"}]}
ASKS_TWICE = {
    "name": "twice",
    "steps": [{"id": "b", "run": "echo b >> ran; exit 1", "approve": "always"}],
}
IN_DOUBT = {
    "name": "doubt",
    "steps": [{"id": "b", "run": "echo b >> ran; until [ -e go ]; do sleep 0.02; done", "effect": "once"}],
}


@pytest.mark.parametrize("fault", ["request.begun:1", "request.done:1"])
def test_i3_a_second_retry_survives_a_crash_in_between(serve: Serve, project: Project, fault: str) -> None:
    first = serve()
    execution = first.api.start(AGAIN, wait=60)["id"]
    path = f"/api/executions/{execution}/steps/b/retry"
    assert first.api.post(path, idempotency_key="first").status == 200
    assert first.api.get(f"/api/executions/{execution}?wait=60").json["status"] == "failed"
    first.stop()
    dying = serve(WINDLASS_FAULT=fault)
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        dying.api.post(path, idempotency_key="second")
    server = serve()
    assert server.api.post(path, idempotency_key="second").status == 200
    assert server.api.get(f"/api/executions/{execution}?wait=60").json["status"] == "failed"
    assert [type(event).__name__ for event in project.events(execution)].count("StepRetried") == 2
    assert server.api.post(path, idempotency_key="third").status == 200


def test_i3_a_second_answer_to_a_step_survives_a_crash_in_between(serve: Serve, project: Project, until: Any) -> None:
    first = serve()
    execution = first.api.start(ASKS_TWICE)["id"]
    path, body = f"/api/approvals/{execution}/b", {"allow": True}
    until(lambda: first.api.get("/api/approvals").json)
    assert first.api.post(path, body, idempotency_key="first").status == 200
    assert first.api.get(f"/api/executions/{execution}?wait=60").json["status"] == "failed"
    edits = {"with": {"run": "echo mended >> ran"}}
    assert first.api.post(f"/api/executions/{execution}/steps/b/retry", edits).status == 200
    until(lambda: first.api.get("/api/approvals").json)
    first.stop()
    dying = serve(WINDLASS_FAULT="request.begun:1")
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        dying.api.post(path, body, idempotency_key="second")
    server = serve()
    until(lambda: server.api.get("/api/approvals").json)
    assert server.api.post(path, body, idempotency_key="second").status == 200
    assert server.api.get(f"/api/executions/{execution}?wait=60").json["status"] == "completed"
    assert project.lines("ran") == ["b", "mended"]


def test_i3_a_second_decision_on_a_step_survives_a_crash_in_between(serve: Serve, project: Project, until: Any) -> None:
    first = serve()
    execution = first.api.start(IN_DOUBT)["id"]
    path, body = f"/api/executions/{execution}/decisions", {"step": "b", "choice": "again"}
    until(lambda: project.lines("ran") == ["b"])
    first.api.post(f"/api/executions/{execution}/interrupt", {"within": 60})
    assert first.api.post(path, body, idempotency_key="first").status == 200
    assert first.api.post(f"/api/executions/{execution}/resume").status == 200
    until(lambda: project.lines("ran") == ["b", "b"])
    first.api.post(f"/api/executions/{execution}/interrupt", {"within": 60})
    first.stop()
    dying = serve(WINDLASS_FAULT="request.begun:1")
    with pytest.raises((http.client.HTTPException, ConnectionError)):
        dying.api.post(path, body, idempotency_key="second")
    server = serve()
    assert server.api.post(path, body, idempotency_key="second").status == 200
    decided = [event for event in project.events(execution) if type(event).__name__ == "DecisionMade"]
    assert len(decided) == 2


async def test_i3_answers_are_kept_for_a_day(tmp_path: Path) -> None:
    keys = IdempotencyKeys(tmp_path / "windlass.db")
    try:
        first = await keys.begin("k", "d", 1000.0)
        await keys.finish("k", 201, "/there", b"{}")
        kept = await keys.begin("k", "d", 1000.0 + KEPT_FOR - 1)
        assert (kept.execution, kept.status, kept.body, kept.fresh) == (first.execution, 201, b"{}", False)
        later = await keys.begin("k", "other", 1000.0 + KEPT_FOR)
        assert (later.fresh, later.status) == (True, None)
        assert later.execution != first.execution
        await keys.forget_old(1000.0 + 3 * KEPT_FOR)
        assert (await keys.begin("k", "d", 1000.0 + 3 * KEPT_FOR)).fresh
    finally:
        await keys.close()


async def test_i3_two_that_use_the_table_at_once_give_one_row(tmp_path: Path) -> None:
    stores = [IdempotencyKeys(tmp_path / "windlass.db") for _ in range(4)]
    try:
        found = await asyncio.gather(*(store.begin("k", "d", 1.0) for store in stores for _ in range(5)))
        assert len({kept.execution for kept in found}) == 1
        assert sum(kept.fresh for kept in found) == 1
    finally:
        for store in stores:
            await store.close()
