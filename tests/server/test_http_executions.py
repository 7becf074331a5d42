"""Executions over HTTP: started, listed, looked at, page by page (I3)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Project, Windlass
    from server_process import Server

ONE = {"name": "one", "steps": [{"id": "a", "run": "echo hi"}]}


def test_i3_an_execution_is_started_waited_for_and_looked_at(server: Server, project: Project) -> None:
    reply = server.api.post("/api/executions?wait=60", {"plan": ONE})
    assert reply.status == 201
    told = reply.json
    assert told["status"] == "completed"
    assert told["steps"][0]["output"]["stdout"] == "hi\n"
    assert reply.headers["location"] == f"/api/executions/{told['id']}"
    assert server.api.get(reply.headers["location"]).json == told
    assert project.ids() == [told["id"]]


def test_i3_the_snapshot_is_the_same_as_the_command_lines(server: Server, windlass: Windlass) -> None:
    told = server.api.start(ONE, wait=60)
    assert windlass("status", told["id"], "--json").json == told


@pytest.mark.parametrize(
    ("body", "stdout"),
    [
        ({"plan_text": "name: t\nsteps:\n  - {id: a, run: echo yaml}\n"}, "yaml\n"),
        ({"plan_text": '{"name": "t", "steps": [{"id": "a", "run": "echo json"}]}'}, "json\n"),
        ({"plan_file": "plans/p.yaml", "inputs": {"word": "file"}}, "file\n"),
        ({"plan_file": "p.yaml", "workdir": "plans", "inputs": {"word": "there"}}, "there\n"),
    ],
    ids=["yaml text", "json text", "file", "file in workdir"],
)
def test_i3_a_plan_can_be_text_or_a_file(server: Server, project: Project, body: dict[str, Any], stdout: str) -> None:
    project.file(
        "plans/p.yaml", "name: p\ninputs: {word: x}\nsteps: [{id: a, run: 'echo {{ inputs.word | quote }}'}]\n"
    )
    reply = server.api.post("/api/executions?wait=60", body)
    assert reply.status == 201, reply.body
    assert reply.json["steps"][0]["output"]["stdout"] == stdout


@pytest.mark.parametrize("way", ["start", "check", "fork"])
def test_i3_a_plan_file_that_would_be_waited_for_is_refused(server: Server, project: Project, way: str) -> None:
    fork = f"/api/executions/{server.api.start(ONE, wait=60)['id']}/fork"
    path = {"start": "/api/executions", "check": "/api/plans/check", "fork": fork}[way]
    os.mkfifo(project.path / "pipe")
    for file in ("/dev/null", str(project.path / "pipe")):
        refused = server.api.post(path, {"plan_file": file})
        assert (refused.status, refused.json["detail"]) == (
            422,
            f"{file} is not a regular file, as a plan file must be here",
        )


def test_i3_the_list_goes_page_by_page_newest_first(server: Server) -> None:
    made = [server.api.start({**ONE, "name": f"n{n % 2}"}, wait=60)["id"] for n in range(5)]
    pages, path = [], "/api/executions?limit=2"
    while path:
        reply = server.api.get(path)
        pages.append([one["id"] for one in reply.json["executions"]])
        path = reply.json["next"]
        assert (f'<{path}>; rel="next"' == reply.headers.get("link")) == bool(path)
    assert pages == [[made[4], made[3]], [made[2], made[1]], [made[0]]]
    named = server.api.get("/api/executions?name=n1").json
    assert [one["id"] for one in named["executions"]] == [made[3], made[1]]
    assert server.api.get("/api/executions?status=running&status=paused").json == {"executions": [], "next": None}
    head = server.api.get("/api/executions?status=completed&limit=1").json["executions"][0]
    assert (head["plan"], head["status"], head["driven"]) == ("n0", "completed", False)


def test_i3_events_are_given_in_order_without_gaps(server: Server, project: Project) -> None:
    execution = server.api.start(ONE, wait=60)["id"]
    seen: list[dict[str, Any]] = []
    path = f"/api/executions/{execution}/events?limit=2"
    while path:
        page = server.api.get(path).json
        assert page["execution"] == execution
        seen += page["events"]
        path = page["next"]
    assert [event["seq"] for event in seen] == list(range(1, len(project.events(execution)) + 1))
    assert [event["position"] for event in seen] == sorted(event["position"] for event in seen)
    assert seen[0]["type"] == "execution.created"
    assert seen[-1]["type"] == "execution.finished"
    after = server.api.get(f"/api/executions/{execution}/events?after={len(seen) - 1}").json
    assert after["events"] == seen[-1:]


def test_an_id_may_be_shortened_to_a_unique_beginning(server: Server) -> None:
    first, second = server.api.start(ONE, wait=60)["id"], server.api.start(ONE, wait=60)["id"]
    assert server.api.get(f"/api/executions/{second}").json["id"] == second
    common = next(n for n in range(1, 37) if first[:n] != second[:n]) - 1
    assert server.api.get(f"/api/executions/{first[: common + 1]}").json["id"] == first
    ambiguous = server.api.get(f"/api/executions/{first[:common]}")
    assert ambiguous.status == 409
    assert first in ambiguous.json["detail"]
    assert second in ambiguous.json["detail"]


def test_i6_health_is_public_and_tells_more_to_those_who_are_known(server: Server, project: Project) -> None:
    stranger = type(server.api)(server.address, "")
    assert stranger.get("/health").json == {"ok": True}
    assert stranger.get("/api/health").status == 401
    for path in ("/health", "/api/health"):
        told = server.api.get(path).json
        assert (told["home"], told["pid"], told["journal"]) == (str(project.home), server.pid, "ok")
        assert told["driven"] == 0
