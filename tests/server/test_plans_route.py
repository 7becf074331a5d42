"""Plans before they run: `/api/plans` (I4)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from server_process import Server

TEXT = """name: greet
description: Says hello
inputs: {who: world, count: 3, loud: false, rate: 0.5, names: [a], more: {}, since: null}
steps:
  - id: greet
    run: echo {{ inputs.who | quote }}
"""


def test_i4_a_plan_is_checked_and_its_inputs_have_types_and_defaults(server: Server) -> None:
    reply = server.api.post("/api/plans/check", {"plan_text": TEXT})
    assert reply.status == 200, reply.body
    told = reply.json
    assert (told["name"], told["description"], told["steps"], told["agents"]) == ("greet", "Says hello", 1, 0)
    assert [(one["name"], one["type"], one["default"]) for one in told["inputs"]] == [
        ("who", "text", "world"),
        ("count", "whole number", 3),
        ("loud", "yes or no", False),
        ("rate", "number", 0.5),
        ("names", "list", ["a"]),
        ("more", "mapping", {}),
        ("since", "any", None),
    ]
    assert server.api.get("/api/executions").json["executions"] == []


def test_c5_problems_of_a_plan_name_their_lines(server: Server) -> None:
    reply = server.api.post("/api/plans/check", {"plan_text": TEXT.replace("inputs.who", "inputs.whom")})
    assert reply.status == 422
    assert [(found["line"], "whom" in found["message"]) for found in reply.json["problems"]] == [(6, True)]
    assert server.api.post("/api/plans/check", {}).status == 422
    assert server.api.post("/api/plans/check", {"plan_file": "nothing.yaml"}).status in (404, 422)


def test_i4_a_plan_used_before_is_found_by_name_with_its_file_if_that_is_there(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "greet.yaml"
    file.write_text(TEXT)
    first = server.api.post("/api/executions", {"plan_file": str(file), "inputs": {"who": "you"}}).json["id"]
    second = server.api.post("/api/executions", {"plan_text": TEXT}).json["id"]
    assert [(one["name"], one["execution"]) for one in server.api.get("/api/plans").json["plans"]] == [
        ("greet", second)
    ]
    used = server.api.get(f"/api/plans/{first}").json
    assert (used["plan_file"], used["inputs"]["who"], used["plan"]["name"]) == (str(file), "you", "greet")
    file.unlink()
    assert server.api.get(f"/api/plans/{first}").json["plan_file"] is None


def test_i4_executions_are_found_by_text_and_time(server: Server) -> None:
    one = server.api.post("/api/executions?wait=60", {"plan_text": TEXT}).json
    server.api.post("/api/executions?wait=60", {"plan_text": TEXT.replace("name: greet", "name: Other 100%")})

    def names(query: str) -> list[str]:
        return [line["plan"] for line in server.api.get(f"/api/executions?{query}").json["executions"]]

    assert names("text=GRE") == ["greet"]
    assert names("text=100%25") == ["Other 100%"]
    assert names("text=_") == []
    assert names(f"text={one['id'][-8:]}") == ["greet"]
    assert names("since=1000") == ["Other 100%", "greet"]
    assert names("since=99999999999") == []
    page = server.api.get("/api/executions?text=e&since=5&limit=1").json
    assert page["next"].startswith("/api/executions?text=e&since=5.0&limit=1&before=")
    assert len(server.api.get(page["next"]).json["executions"]) == 1
