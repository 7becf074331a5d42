"""Executions steered over HTTP: paused, resumed, ended, branched off, answered; whoever drives them (I3, D3, C6)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from windlass.core import events as ev
from windlass.testing import Reply, ScriptedModel

if TYPE_CHECKING:
    from conftest import Project, Serve, Windlass
    from server_process import Server

HELD = "echo {} >> ran; until [ -e go ]; do sleep 0.02; done"
SLOW = {
    "name": "slow",
    "steps": [{"id": "a", "run": HELD.format("a")}, {"id": "b", "run": "echo b >> ran", "needs": ["a"]}],
}
ASKS = {
    "name": "asks",
    "inputs": {"word": "yes"},
    "steps": [{"id": "say", "run": "echo {{ inputs.word | quote }} >> ran", "approve": "always"}],
}


@pytest.fixture
def running(server: Server, project: Project, until: Any) -> str:
    execution: str = server.api.start(SLOW)["id"]
    until(lambda: project.lines("ran") == ["a"])
    return execution


def test_d3_pause_lets_the_step_finish_and_resume_goes_on(server: Server, project: Project, running: str) -> None:
    asked = server.api.post(f"/api/executions/{running}/pause", {"within": 0})
    assert (asked.status, asked.json["status"]) == (202, "running")
    twice = server.api.post(f"/api/executions/{running}/resume")
    assert (twice.status, twice.json["detail"]) == (409, f"execution {running} is running already")
    (project.path / "go").touch()
    paused = server.api.post(f"/api/executions/{running}/pause", {"within": 60})
    assert (paused.status, paused.json["status"], paused.json["reason"]) == (200, "paused", "pause")
    assert project.lines("ran") == ["a"]
    resumed = server.api.post(f"/api/executions/{running}/resume")
    assert resumed.status == 200
    done = server.api.get(f"/api/executions/{running}?wait=60").json
    assert done["status"] == "completed"
    assert project.lines("ran") == ["a", "b"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [("pause", {"now": True}, "paused"), ("interrupt", {}, "paused"), ("cancel", {}, "cancelled")],
)
def test_d3_now_interrupt_and_cancel_stop_it(server: Server, running: str, path: str, body: Any, status: str) -> None:
    reply = server.api.post(f"/api/executions/{running}/{path}", {**body, "within": 60})
    assert (reply.status, reply.json["status"]) == (200, status)


def test_i3_an_execution_of_the_command_line_is_seen_and_steered(
    server: Server, project: Project, windlass: Windlass, until: Any
) -> None:
    execution = windlass.detached(
        project.plan('{name: slow, steps: [{id: a, run: "until [ -e go ]; do sleep 0.02; done"}]}')
    )
    (head,) = server.api.get("/api/executions?status=running").json["executions"]
    assert (head["id"], head["driven"]) == (execution, True)
    assert server.api.get("/api/health").json["driven"] == 0
    paused = server.api.post(f"/api/executions/{execution}/pause", {"now": True, "within": 60})
    assert (paused.status, paused.json["status"]) == (200, "paused")
    (project.path / "go").touch()
    assert server.api.post(f"/api/executions/{execution}/resume").status == 200
    assert server.api.get(f"/api/executions/{execution}?wait=60").json["status"] == "completed"
    assert windlass.pid_of(execution) == server.pid


def test_i1_an_execution_of_the_server_is_steered_from_the_command_line(
    server: Server, windlass: Windlass, running: str
) -> None:
    assert windlass("interrupt", running, "--json").json["status"] == "paused"
    assert server.api.get(f"/api/executions/{running}").json["reason"] == "interrupt"


def test_c6_a_question_is_shown_exactly_and_answered_by_its_id(server: Server, project: Project, until: Any) -> None:
    started = server.api.start(ASKS)
    (asked,) = until(lambda: server.api.get("/api/approvals").json)
    assert (asked["execution"], asked["step"], asked["tool"]) == (started["id"], "say", "shell")
    assert asked["input"] == {"line": "echo yes >> ran"}
    answered = server.api.post(f"/api/approvals/{asked['id']}", {"allow": True, "note": "go on"})
    assert answered.status == 200
    done = server.api.get(f"/api/executions/{started['id']}?wait=60").json
    assert done["status"] == "completed"
    assert project.lines("ran") == ["yes"]
    assert server.api.get("/api/approvals").json == []
    late = server.api.post(f"/api/approvals/{asked['id']}", {"allow": False})
    assert late.status == 404
    assert "GET /api/approvals" in late.json["advice"][0]


def test_c6_an_answer_to_what_was_seen_is_no_answer_to_something_else(server: Server, until: Any) -> None:
    first, second = server.api.start(ASKS)["id"], server.api.start(ASKS)["id"]
    asked = until(lambda: found if len(found := server.api.get("/api/approvals").json) == 2 else None)
    assert asked[0]["digest"] == asked[1]["digest"]
    assert asked[0]["id"] != asked[1]["id"]
    both = server.api.post(f"/api/approvals/{asked[0]['digest']}", {"allow": True})
    assert both.status == 409, "the digest fits both"
    wrong = server.api.post(f"/api/approvals/{first}/say", {"allow": True, "digest": "0" * 64})
    assert (wrong.status, "something else" in wrong.json["detail"]) == (409, True)
    denied = server.api.post(f"/api/approvals/{first}/say", {"allow": False, "digest": asked[0]["digest"]})
    assert denied.status == 200
    assert server.api.get(f"/api/executions/{first}?wait=60").json["status"] == "failed"
    assert server.api.get(f"/api/executions/{second}").json["status"] == "running"


def test_c6_of_two_opposite_answers_at_once_one_is_saved_and_the_other_refused(
    server: Server, project: Project, windlass: Windlass, until: Any
) -> None:
    execution = windlass.detached(project.plan('{steps: [{id: a, run: "echo a >> ran", approve: always}]}'))
    until(lambda: server.api.get("/api/approvals").json)

    def post(allow: bool) -> Any:
        return server.api.post(f"/api/approvals/{execution}/a", {"allow": allow})

    with ThreadPoolExecutor(2) as pool:
        replies = list(pool.map(post, (True, False)))
    assert sorted(reply.status for reply in replies) == [200, 409]
    allowed = replies[0].status == 200
    late = next(reply for reply in replies if reply.status == 409)
    assert f"already {'allowed' if allowed else 'denied'} by http" in late.json["detail"]
    done = server.api.get(f"/api/executions/{execution}?wait=60").json
    assert done["status"] == ("completed" if allowed else "failed")
    assert project.lines("ran") == (["a"] if allowed else [])


def test_d4_a_fork_runs_again_from_a_step_with_other_inputs(server: Server, project: Project, until: Any) -> None:
    plan = {
        "name": "two",
        "inputs": {"word": "old"},
        "steps": [
            {"id": "a", "run": "echo a >> ran"},
            {"id": "b", "run": "echo {{ inputs.word | quote }} >> ran", "needs": ["a"]},
        ],
    }
    origin = server.api.start(plan, wait=60)["id"]
    reply = server.api.post(f"/api/executions/{origin}/fork", {"from_step": "b", "inputs": {"word": "new"}})
    assert reply.status == 201
    assert reply.headers["location"] == f"/api/executions/{reply.json['id']}"
    done = server.api.get(f"{reply.headers['location']}?wait=60").json
    assert done["status"] == "completed"
    assert project.lines("ran") == ["a", "old", "new"]
    held = server.api.post(f"/api/executions/{origin}/fork", {"start": False})
    assert held.json["status"] == "pending"


def test_d8_only_the_conversation_of_an_agent_is_begun_anew(server: Server, windlass: Windlass) -> None:
    origin = server.api.start({"steps": [{"id": "a", "run": "exit 3"}]}, wait=60)["id"]
    said = "step a has no agent, so it has no conversation to begin anew: leave out `fresh`"
    for path, status, asked in (
        ("fork", 422, {"fresh": True, "from_step": "a"}),
        ("steps/a/retry", 409, {"fresh": True}),
    ):
        refused = server.api.post(f"/api/executions/{origin}/{path}", asked)
        assert (refused.status, refused.json["detail"]) == (status, said)
    assert said in windlass("retry", origin, "a", "--fresh", code=2).err
    assert server.api.get(f"/api/executions/{origin}").json["status"] == "failed"


def test_d8_a_fresh_fork_names_its_step(server: Server, windlass: Windlass) -> None:
    origin = server.api.start(ASKS)["id"]
    refused = server.api.post(f"/api/executions/{origin}/fork", {"fresh": True})
    assert (refused.status, refused.json["detail"][:40]) == (422, "`fresh` is about the agent of one step, ")
    assert "`fresh` is about the agent of one step" in windlass("fork", origin, "--fresh", code=2).err


def test_d8_a_fork_of_a_plan_that_was_edited_since_says_which_one_it_runs(server: Server, project: Project) -> None:
    plan = project.path / project.plan("steps: [{id: a, run: echo a}]")
    origin = server.api.post("/api/executions?wait=60", {"plan_file": str(plan)}).json["id"]
    asked = {"from_step": "a", "start": False}
    assert "notes" not in server.api.post(f"/api/executions/{origin}/fork", asked).json
    project.plan("steps: [{id: a, run: echo b}]")
    (note,) = server.api.post(f"/api/executions/{origin}/fork", asked).json["notes"]
    assert note.endswith(f"windlass fork {origin} --plan {plan} --from a")
    changed = server.api.post(f"/api/executions/{origin}/fork", {**asked, "plan_file": str(plan)})
    assert "notes" not in changed.json


def test_d8_the_plan_of_a_fork_is_read_in_the_folder_that_the_execution_works_in(
    server: Server, project: Project
) -> None:
    work = project.file("work/.claude/agents/rigger.md", "---\nname: rigger\ndescription: rigs\n---\nYou rig.\n")
    plan = {"name": "rigged", "steps": [{"id": "a", "agent": "rigger", "prompt": "x", "when": "false"}]}
    started = server.api.start(plan, wait=60, workdir=str(work.parents[2]))
    project.file("work/edited.yaml", "steps: [{id: a, agent: rigger, prompt: y, when: 'false'}]")
    for edited in ({"plan": plan}, {"plan_file": "edited.yaml"}):
        reply = server.api.post(f"/api/executions/{started['id']}/fork", {**edited, "start": False})
        assert reply.status == 201, reply.json


def test_d1_a_checkpoint_is_written_where_it_says(server: Server, windlass: Windlass) -> None:
    execution = server.api.start(ASKS)["id"]
    reply = server.api.post(f"/api/executions/{execution}/checkpoint")
    assert reply.status == 201
    with open(reply.json["path"], "rb") as file:
        assert execution.encode() in file.read()


def test_d2_an_unknown_outcome_is_decided_over_http(server: Server, project: Project, until: Any) -> None:
    once = {"name": "once", "steps": [{"id": "a", "run": HELD.format("a"), "effect": "once"}]}
    execution = server.api.start(once)["id"]
    until(lambda: project.lines("ran") == ["a"])
    server.api.post(f"/api/executions/{execution}/interrupt", {"within": 60})
    decision = {"step": "a", "choice": "done", "output": {"seen": True}}
    resumed = server.api.post(f"/api/executions/{execution}/resume", {"decisions": [decision]})
    assert resumed.status == 200, resumed.body
    done = server.api.get(f"/api/executions/{execution}?wait=60").json
    assert (done["status"], done["steps"][0]["output"]) == ("completed", {"seen": True})
    assert project.lines("ran") == ["a"]
    again = server.api.post(f"/api/executions/{execution}/decisions", decision)
    assert again.status == 409


def test_e3_more_may_be_spent_when_somebody_says_so(server: Server, running: str, project: Project) -> None:
    reply = server.api.post(f"/api/executions/{running}/budget", {"usd": 5, "tokens": 1000})
    assert reply.status == 200
    (project.path / "go").touch()
    assert server.api.get(f"/api/executions/{running}?wait=60").json["status"] == "completed"
    (said,) = [e for e in project.events(running) if type(e).__name__ == "BudgetAnswered"]
    assert (said.usd, said.tokens, said.by) == (5, 1000, "http")
    assert server.api.post(f"/api/executions/{running}/budget", {"usd": 5}).status == 409


def test_e3_a_budget_nobody_asked_about_is_not_denied(server: Server, running: str, project: Project) -> None:
    path = f"/api/executions/{running}/budget"
    denied = server.api.post(path, {"allow": False})
    assert (denied.status, denied.json["detail"]) == (409, f"no step of {running} is waiting for budget")
    assert server.api.post(path, {"allow": True}).status == 409, "there is no limit to lift"
    assert server.api.post(path, {}).status == 422
    (project.path / "go").touch()
    assert server.api.get(f"/api/executions/{running}?wait=60").json["status"] == "completed"


DEAR = {
    "name": "dear",
    "runtime": "cli",
    "model": "anthropic:the-model",
    "steps": [
        {"id": "first", "agent": "developer", "prompt": "Do the first."},
        {"id": "second", "agent": "developer", "prompt": "Do the second.", "needs": ["first"]},
    ],
}


def test_e3_the_limit_that_stopped_it_is_raised_and_the_list_says_what_it_waits_for(
    serve: Serve, project: Project, windlass: Windlass, until: Any
) -> None:
    project.user_file("config.toml", "budget.day = 1\n[prices.'the-model']\ninput = 1.0\noutput = 0.0\n")
    dollar = {"tokens_in": 1_000_000, "tokens_out": 1000}
    with ScriptedModel([Reply.say("1st", **dollar), Reply.say("2nd", **dollar)]) as model:
        server = serve(ANTHROPIC_BASE_URL=model.url, ANTHROPIC_API_KEY="sk-ant-of-the-test-of-budgets")
        execution = server.api.start(DEAR)["id"]
        (line,) = until(lambda: server.api.get("/api/executions?waiting=approval").json["executions"])
        assert (line["status"], line["waiting"], line["reason"], line["eta"]) == ("running", "budget", None, None)
        assert f"(waits for budget: windlass status {execution})" in windlass("list").out
        assert server.api.post(f"/api/executions/{execution}/budget", {"allow": False}).status == 200
        until(lambda: server.api.get(f"/api/executions/{execution}").json["status"] == "paused")
        (line,) = server.api.get("/api/executions?waiting=approval").json["executions"]
        assert (line["reason"], line["waiting"]) == ("budget", "budget")
        assert server.api.post(f"/api/executions/{execution}/resume", {"budget": {}}).status == 422
        assert server.api.post(f"/api/executions/{execution}/resume", {"budget": {"usd": 3}}).status == 200
        assert server.api.get(f"/api/executions/{execution}?wait=60").json["status"] == "completed"
    raised = [event for event in project.events(execution) if isinstance(event, ev.BudgetAnswered)][-1]
    assert (raised.allow, raised.scope, raised.usd) == (True, "day", 3)
    assert server.api.get("/api/executions?waiting=approval").json["executions"] == []


BROKEN = {"name": "broken", "steps": [{"id": "a", "run": "exit 3"}, {"id": "b", "run": "echo b", "needs": ["a"]}]}


def test_d10_a_failed_step_is_retried_with_other_arguments_or_skipped_and_the_execution_goes_on(server: Server) -> None:
    execution = server.api.start(BROKEN)["id"]
    failed = server.api.get(f"/api/executions/{execution}?wait=60").json
    assert failed["status"] == "failed"
    assert any(f"windlass retry {execution} a" in line for line in failed["error"]["advice"])
    wrong = server.api.post(f"/api/executions/{execution}/steps/a/retry", {"with": {"nonsense": 1}})
    assert (wrong.status, "nonsense" in wrong.json["detail"], bool(wrong.json["advice"])) == (409, True, True)
    again = server.api.post(f"/api/executions/{execution}/steps/a/retry", {"with": {"run": "echo mended"}})
    assert (again.status, again.json["id"]) == (200, execution)
    done = server.api.get(f"/api/executions/{execution}?wait=60").json
    assert (done["status"], done["steps"][0]["attempts"]) == ("completed", 2)
    refused = server.api.post(f"/api/executions/{execution}/steps/a/retry")
    assert (refused.status, f"windlass fork {execution} --from a" in refused.json["advice"][0]) == (409, True)

    other = server.api.start(BROKEN)["id"]
    server.api.get(f"/api/executions/{other}?wait=60")
    assert server.api.post(f"/api/executions/{other}/steps/a/skip").status == 200
    done = server.api.get(f"/api/executions/{other}?wait=60").json
    assert (done["status"], done["lacks"]) == ("completed", ["a"])


def test_d5_what_goes_on_over_http_warns_of_values_that_are_not_set(server: Server) -> None:
    plan = {"steps": [{"id": "a", "run": "exit 1", "env": {"TOK": {"from": "NOBODY_SETS_IT"}}, "retry": {"max": 0}}]}
    started = server.api.start(plan, wait=60, anyway=True)
    assert "NOBODY_SETS_IT, which is not set" in started["warnings"][0]
    path = f"/api/executions/{started['id']}"
    retried = server.api.post(f"{path}/steps/a/retry").json
    forked = server.api.post(f"{path}/fork").json
    waits = server.api.post(f"{path}/fork", {"start": False}).json
    assert ("warnings" in waits, waits["reason"]) == (False, "not started")
    resumed = server.api.post(f"/api/executions/{waits['id']}/resume").json
    for one in (retried, forked, resumed):
        assert [line for line in one["warnings"] if "NOBODY_SETS_IT, which is not set" in line] == one["warnings"] != []
    assert "warnings" not in server.api.get(path).json, "they are of the request"
