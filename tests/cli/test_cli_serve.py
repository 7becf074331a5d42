"""`windlass serve`: started, stopped, killed and started again in the middle of executions; one for a home (I3, D6)."""

from __future__ import annotations

import json
import re
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from server_process import Api, Serve, serve

if TYPE_CHECKING:
    from conftest import Project, Windlass

__all__ = ["serve"]  # a fixture

HELD = {
    "name": "held",
    "steps": [
        {"id": "a", "run": "echo a >> ran"},
        {
            "id": "b",
            "needs": ["a"],
            "run": "echo b >> ran; sleep 600 & echo $! >> pids; until [ -e go ]; do sleep 0.02; done",
        },
        {"id": "c", "needs": ["b"], "run": "echo c >> ran"},
    ],
}


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_d6_what_a_server_was_driving_goes_on_at_the_next_start(
    serve: Serve, project: Project, until: Any, how: str
) -> None:
    first = serve()
    execution = first.api.start(HELD)["id"]
    until(lambda: project.lines("ran") == ["a", "b"] and project.lines("pids"))
    if how == "stop":
        ended = first.stop()
        assert ended.code == 0, str(ended)
        assert "Traceback" not in ended.err
        state = project.state(execution)
        assert (state.status, state.paused_for) == ("paused", "restart")
    else:
        first.kill()
        assert project.state(execution).status == "running"
    until(lambda: all(gone(int(pid)) for pid in project.lines("pids")), "its processes are gone")
    second = serve()
    until(lambda: project.lines("ran") == ["a", "b", "b"], "it goes on by itself, with the step that was cut off")
    assert second.api.get("/api/health").json["driven"] == 1
    (project.path / "go").touch()
    assert second.api.get(f"/api/executions/{execution}?wait=60").json["status"] == "completed"
    assert project.lines("ran") == ["a", "b", "b", "c"]


def test_d3_what_a_person_paused_stays_paused_over_a_restart(serve: Serve, project: Project, until: Any) -> None:
    first = serve()
    paused = first.api.start(HELD)["id"]
    until(lambda: project.lines("ran") == ["a", "b"])
    first.api.post(f"/api/executions/{paused}/pause", {"now": True, "within": 60})
    asks = first.api.start({"name": "asks", "steps": [{"id": "x", "run": "true", "approve": "always"}]})["id"]
    until(lambda: first.api.get("/api/approvals").json)
    first.stop()
    second = serve()
    until(lambda: project.state(asks).status == "running", "a question goes on being asked")
    assert [q["execution"] for q in second.api.get("/api/approvals").json] == [asks]
    assert (project.state(paused).status, project.state(paused).paused_for) == ("paused", "pause")


def test_d6_orphans_of_other_processes_are_left_alone_unless_asked_for(
    serve: Serve, project: Project, windlass: Windlass, until: Any
) -> None:
    plan = project.plan('{name: held, steps: [{id: a, run: "echo a >> ran; until [ -e go ]; do sleep 0.02; done"}]}')
    execution = windlass.detached(plan)
    until(lambda: project.lines("ran") == ["a"])
    windlass.kill(execution)
    plain = serve()
    (head,) = plain.api.get("/api/executions").json["executions"]
    assert (head["status"], head["driven"]) == ("running", False)
    plain.stop()
    assert project.lines("ran") == ["a"]
    (project.path / "go").touch()
    asked = serve("--resume-orphans")
    until(lambda: project.state(execution).status == "completed")
    assert asked.api.get(f"/api/executions/{execution}").json["status"] == "completed"


def test_i3_two_servers_on_one_home_are_one_too_many(serve: Serve, windlass: Windlass) -> None:
    first = serve()
    refused = windlass("serve", "--port", "0", code=2)
    assert f"pid {first.pid}" in refused.err
    assert first.address in refused.err
    first.stop()
    serve()


def test_i3_a_port_that_is_taken_is_said_so(windlass: Windlass, project: Project) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        refused = windlass("serve", "--port", port, "--json", code=2)
    assert f"port {port}" in refused.json["error"]["message"]
    assert any("--port 0" in line for line in refused.json["error"]["advice"])
    assert not project.home.exists(), "nothing was begun"


def test_i3_beyond_this_machine_only_with_the_names_it_is_reached_by(windlass: Windlass) -> None:
    refused = windlass("serve", "--host", "0.0.0.0", "--port", "0", code=2)
    assert "--allow-host" in refused.err


def test_i3_a_person_is_told_the_address_and_a_login_link_that_works_once(
    project: Project, windlass: Windlass, until: Any
) -> None:
    running = windlass.background("serve", "--port", "0")
    until(lambda: "press Ctrl-C to stop" in running.err)
    # Its stderr is a file that others can read, so the link is in one that they cannot.
    kept = project.home / "server.login"
    assert str(kept) in running.err
    assert "code=" not in running.err
    assert kept.stat().st_mode & 0o777 == 0o600
    (link,) = re.findall(r"(http://127\.0\.0\.1:\d+)(/login\?code=\S+)", kept.read_text())
    stranger = Api(link[0], "")
    token = (project.home / "server.token").read_text().strip()
    assert token not in running.err
    entered = stranger.get(link[1])
    assert entered.status == 200
    cookie = entered.headers["set-cookie"].partition(";")[0]
    assert stranger.get("/api/executions", cookie=cookie).status == 200
    assert stranger.get(link[1]).status == 403
    running.signal(signal.SIGINT)
    ended = running.ended()
    assert ended.code == 0
    assert "continue at the next start" in ended.err
    assert not kept.exists(), "its code ended with the server"
    for line in ended.err.splitlines():
        if line.startswith("{"):
            assert "code=" not in json.loads(line).get("message", "")


def test_i3_ctrl_c_stops_it_in_order_from_the_moment_it_says_where_it_is(windlass: Windlass, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        """
import os, signal, sys

def impatient(frame, event, _argument):
    if event == "return" and frame.f_code.co_name == "_tell":
        sys.setprofile(None)
        os.kill(os.getpid(), signal.SIGINT)

sys.setprofile(impatient)
"""
    )
    ran = windlass("serve", "--port", "0", PYTHONPATH=str(tmp_path))
    assert ran.err.endswith("stopped; running executions continue at the next start\n")


def test_i3_the_login_link_is_shown_on_a_terminal(windlass: Windlass) -> None:
    terminal = windlass.terminal("serve", "--port", "0")
    terminal.expect("press Ctrl-C to stop")
    assert "/login?code=" in terminal.shown
    terminal.type("\x03")
    assert terminal.ended().code == 0


def test_i3_a_request_that_waits_does_not_hold_up_the_stop(serve: Serve, project: Project, until: Any) -> None:
    server = serve()
    execution = server.api.start(HELD)["id"]
    until(lambda: project.lines("ran") == ["a", "b"])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(server.api.get, f"/api/executions/{execution}?wait=300")
        until(lambda: server.api.get("/api/health").json["waiting"] == 1)
        assert server.stop().code == 0
        assert waiting.result().json["status"] == "running"
