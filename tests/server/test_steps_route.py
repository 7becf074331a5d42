"""I4: the steps of an execution for a page: light, with the stretches of their time, at any moment of the past."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conftest import Project
    from server_process import Server

PLAN: dict[str, Any] = {
    "name": "page",
    "steps": [
        {"id": "a", "run": "echo one; echo two"},
        {"id": "many", "foreach": [1, 2, 3], "needs": ["a"], "run": "test {{ item }} != 2"},
        {"id": "after", "needs": ["many"], "run": "echo never"},
    ],
}


def test_i4_rows_have_order_states_and_stretches_and_no_outputs(server: Server) -> None:
    execution = server.api.start(PLAN, wait=60)["id"]
    told = server.api.get(f"/api/executions/{execution}/steps").json
    assert (told["execution"], told["plan"], told["status"], told["progress"]) == (execution, "page", "partial", 100.0)
    first, many, after = told["steps"]
    assert [row["id"] for row in told["steps"]] == ["a", "many", "after"]
    assert (first["status"], first["last_output"], first["needs"]) == ("completed", "two", [])
    assert (many["status"], many["items"]["failed"], many["needs"]) == ("failed", 1, ["a"])
    assert (after["status"], after["stretches"]) == ("skipped", [])
    ((kind, start, end, attempt, outcome),) = [one for one in first["stretches"] if one[0] == "work"]
    assert (kind, attempt, outcome) == ("work", 1, "completed")
    assert told["created"] <= start <= end <= told["finished"]
    assert "output" not in first
    items = server.api.get(f"/api/executions/{execution}/steps?items=many").json["steps"]
    assert [(row["id"], row["status"]) for row in items] == [
        ("many[0]", "completed"),
        ("many[1]", "failed"),
        ("many[2]", "completed"),
    ]
    assert items[1]["category"]
    assert items[1]["error"]


def test_i4_every_moment_of_the_past_can_be_asked_for(server: Server) -> None:
    execution = server.api.start(PLAN, wait=60)["id"]
    path = f"/api/executions/{execution}/steps"
    last = server.api.get(path).json
    seen = []
    for seq in [*range(1, last["seq"] + 1), 3, 2]:
        told = server.api.get(f"{path}?at={seq}").json
        assert told["seq"] == seq
        seen.append([row["status"] for row in told["steps"]])
    assert seen[0] == ["pending"] * 3
    assert seen[last["seq"] - 1] == [row["status"] for row in last["steps"]]
    assert seen[-2:] == [seen[2], seen[1]]
    assert ["running", "pending", "pending"] in seen


def test_i4_one_step_has_everything_at_that_moment(server: Server) -> None:
    execution = server.api.start(PLAN, wait=60)["id"]
    whole = server.api.get(f"/api/executions/{execution}/steps/a").json
    assert whole["output"]["stdout"] == "one\ntwo\n"
    assert whole["stretches"]
    assert server.api.get(f"/api/executions/{execution}/steps/many%5B1%5D").json["status"] == "failed"
    before = server.api.get(f"/api/executions/{execution}/steps/a?at=1").json
    assert (before["status"], before["output"], before["stretches"]) == ("pending", None, [])


def test_i4_a_moment_or_a_step_that_is_not_there_is_named(server: Server) -> None:
    execution = server.api.start(PLAN, wait=60)["id"]
    beyond = server.api.get(f"/api/executions/{execution}/steps?at=100000")
    assert beyond.status in (400, 409, 422)
    assert "events, not 100000" in beyond.json["detail"]
    assert server.api.get(f"/api/executions/{execution}/steps?at=0").status == 422
    missing = server.api.get(f"/api/executions/{execution}/steps/aftr")
    assert (missing.status, "after" in missing.json["detail"]) == (404, True)
    assert server.api.get(f"/api/executions/{execution}/steps?items=nothing").status == 404
    assert server.api.get(f"/api/executions/{execution}/steps?items=a").json["steps"] == []


def test_i4_a_summary_has_everything_but_the_steps(server: Server) -> None:
    execution = server.api.start(PLAN, wait=60)["id"]
    whole = server.api.get(f"/api/executions/{execution}").json
    told = server.api.get(f"/api/executions/{execution}/summary").json
    for key in ("id", "plan", "status", "reason", "progress", "cost", "budget", "inputs", "error", "lacks"):
        assert told[key] == whole[key]
    assert (told["steps"], told["counts"]) == (3, {"completed": 1, "failed": 1, "skipped": 1})
    assert (told["driven"], told["questions"], told["forecast"]) == (False, [], None)
    assert server.api.get(f"/api/executions/{execution}/summary?at=1").json["counts"] == {"pending": 3}


def test_i4_a_summary_names_what_is_asked_and_one_step_has_the_diff(
    server: Server, project: Project, until: Any
) -> None:
    (project.path / "NOTES.md").write_text("old\n")
    step = {"id": "write", "tool": "files.write", "with": {"path": "NOTES.md", "content": "new\n"}, "approve": "always"}
    execution = server.api.start({"steps": [step]}, workdir=str(project.path))["id"]

    def asked() -> Any:
        return server.api.get(f"/api/executions/{execution}/summary").json["questions"]

    (question,) = until(asked, "it asks")
    assert (question["step"], question["kind"], question["tool"]) == ("write", "approval", "files.write")
    seen = server.api.get(f"/api/executions/{execution}/steps/write").json["question"]
    assert seen["digest"] == question["digest"]
    assert ("-old\n" in seen["diff"], "+new\n" in seen["diff"]) == (True, True)


def test_i4_the_events_of_one_step_come_page_by_page(server: Server) -> None:
    execution = server.api.start(PLAN, wait=60)["id"]
    every = server.api.get(f"/api/executions/{execution}/events").json["events"]
    for name in ("a", "many", "many[1]", "after"):
        wanted = [event["seq"] for event in every if event.get("step") == name]
        path: str | None = f"/api/executions/{execution}/steps/{name}/events?limit=2".replace("[", "%5B")
        found: list[int] = []
        while path:
            page = server.api.get(path).json
            found += [event["seq"] for event in page["events"]]
            path = page["next"]
        assert found == wanted != []


def test_i4_artifacts_are_listed_and_only_pictures_are_shown(server: Server, project: Project) -> None:
    execution = server.api.start(PLAN, wait=60)["id"]
    folder = project.home / "artifacts" / execution / "a"
    (folder / "sub").mkdir(parents=True)
    (folder / "page.html").write_text("<script>alert(1)</script>")
    (folder / "sub" / "shot.png").write_bytes(b"\x89PNG\r\n\x1a\n and so on")
    (folder / "link").symlink_to(project.home / "server.token")
    listed = server.api.get(f"/api/executions/{execution}/artifacts?step=a").json["artifacts"]
    assert [(one["path"], one["image"]) for one in listed] == [("a/page.html", False), ("a/sub/shot.png", True)]
    page = server.api.get(f"/api/executions/{execution}/artifacts/a/page.html")
    assert page.headers["content-type"] == "application/octet-stream"
    assert page.headers["content-disposition"].startswith("attachment")
    assert "sandbox" in page.headers["content-security-policy"]
    assert page.headers["x-content-type-options"] == "nosniff"
    picture = server.api.get(f"/api/executions/{execution}/artifacts/a/sub/shot.png")
    assert (picture.status, picture.headers["content-type"]) == (200, "image/png")
    for path in ("a/link", "../../server.token", "a/%2e%2e/%2e%2e/%2e%2e/server.token", "a", "nothing"):
        assert server.api.get(f"/api/executions/{execution}/artifacts/{path}").status == 404
    assert server.api.get(f"/api/executions/{execution}/artifacts?step=nothing").status == 404
    assert server.api.get(f"/api/executions/{execution}/artifacts?step=many").json["artifacts"] == []


def test_i4_watchers_share_a_summary_unless_they_have_seen_more_than_it_has(server: Server, until: Any) -> None:
    execution = server.api.start({"steps": [{"id": "a", "run": "true", "approve": "always"}]})["id"]
    path = f"/api/executions/{execution}/summary"
    until(lambda: server.api.get(path).json["questions"], "it asks")
    seq = server.api.get(path).json["seq"]
    assert server.api.get(f"{path}?seen=0").json["seq"] <= seq
    assert server.api.get(f"{path}?seen={seq}").json["seq"] == seq
    server.api.post(f"/api/executions/{execution}/cancel", {})
    ended = until(lambda: (told := server.api.get(path).json)["status"] == "cancelled" and told, "it is cancelled")
    assert ended["seq"] > seq
    assert server.api.get(f"{path}?seen={ended['seq']}").json["seq"] == ended["seq"]


def test_c7_the_forecast_by_step_is_simulated_when_it_is_asked_for(server: Server, project: Project) -> None:
    hold = {"id": "hold", "run": "while ! test -e go; do sleep 0.05; done"}
    plan = {"name": "ahead", "steps": [hold, {"id": "then", "needs": ["hold"], "run": "true"}]}
    (project.path / "go").touch()
    first = server.api.start(plan, wait=60)["id"]
    over = server.api.get(f"/api/executions/{first}/forecast").json
    assert (over["execution"], over["steps"]) == (first, [])
    (project.path / "go").unlink()
    execution = server.api.start(plan)["id"]
    told = server.api.get(f"/api/executions/{execution}/forecast").json
    holding, then = told["steps"]
    assert [holding["id"], then["id"]] == ["hold", "then"]
    assert 0 <= holding["begins_s"] <= holding["ends_s"] <= holding["late_s"]
    assert holding["ends_s"] <= then["begins_s"] <= then["ends_s"] <= then["late_s"]
    (project.path / "go").touch()
    assert server.api.get(f"/api/executions/{execution}?wait=60").json["status"] == "completed"
    assert server.api.get(f"/api/executions/{execution}/forecast").json["steps"] == []
    assert server.api.get("/api/executions/nothing/forecast").status == 404
