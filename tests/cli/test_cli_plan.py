"""`plan check|show|schema|estimate`: looking at a plan without running it (B5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from windlass.cli.plan_text import IN_LINE, MARKS, NOT_SHOWN, plan_lines
from windlass.plan.model import Plan, Step

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = """
name: shown
inputs: {who: you}
steps:
  - {id: last, run: "true", needs: [left, right], importance: critical}
  - {id: left, run: "echo {{ steps.root.output.stdout | quote }}"}
  - {id: right, run: "true", needs: root, approve: always}
  - {id: root, run: "echo {{ inputs.who | quote }}"}
"""


def test_b5_check_finds_every_problem_at_once_with_its_place(project: Project, windlass: Windlass) -> None:
    bad = project.plan(
        """
        name: bad
        steps:
          - {id: a, rum: x}
          - {id: b, run: "true", needs: [c]}
          - {id: b, run: "{{ steps.d.output }}"}
        """,
        "bad.yaml",
    )
    ran = windlass("plan", "check", bad, code=2)
    assert ran.out == ""
    for said in ("bad.yaml:3", "rum", "did you mean `run`", "bad.yaml:4", "`c`", "bad.yaml:5", "steps.d"):
        assert said in ran.err
    told = windlass("plan", "check", bad, "--json", code=2).json
    assert told["ok"] is False
    assert {p["line"] for p in told["problems"]} == {3, 4, 5}
    assert all(p["file"] == "bad.yaml" and p["message"] for p in told["problems"])


def test_b5_check_passes_a_good_plan_and_warns_of_unquoted_values(project: Project, windlass: Windlass) -> None:
    told = windlass("plan", "check", project.plan(PLAN), "--json").json
    assert told == {"ok": True, "problems": [], "warnings": []}
    risky = project.plan("{inputs: {x: 1}, steps: [{id: a, run: 'echo {{ inputs.x }}'}]}", "risky.yaml")
    ran = windlass("plan", "check", risky, "--json")
    assert "quote" in ran.json["warnings"][0]
    assert "warning:" in ran.err
    assert "warning:" in windlass("run", risky).err


REFUSED = {
    "{id: a, agent: develper, prompt: x}": "did you mean 'developer'?",
    "{id: a, prompt: x, skills: [nosuch]}": "there is no skill 'nosuch'",
    "{id: a, prompt: x, output: {type: objekt}}": "its `output` is not a schema that can be used",
    "{id: a, prompt: x, runtime: claude}": "did you mean claude-code?",
    "{id: a, prompt: x, foreach: [cli], runtime: '{{ item }}'}": "`runtime` takes no template: its names are looked up",
    "{id: a, prompt: x, foreach: [senior], agent: '{{ item }}'}": "`agent` takes no template",
    "{id: a, prompt: x, skills: ['{{ inputs.x }}']}": "`skills` takes no template",
    "{id: a, prompt: x, model: '{{ inputs.x }}'}": "`model` refers to `inputs.x`, which is not an input",
    "{id: a, prompt: x, workspace: {kind: worktree, files: ['{{ steps.b.output }}']}}": "refers to `steps.b`",
    "{id: a, prompt: x}]\nruntime: claude\ntools: [": "plan.yaml:2:1: `runtime`: there is no runtime 'claude'",
}
"""Plans of one step that cannot run, and the reason."""


@pytest.mark.parametrize("step", REFUSED)
def test_b5_check_refuses_the_agents_that_run_refuses(project: Project, windlass: Windlass, step: str) -> None:
    plan = project.plan(f"steps: [{step}]")
    for command in (["run"], ["plan", "check"], ["plan", "show"], ["run", "--dry-run"]):
        assert REFUSED[step] in windlass(*command, plan, code=2).err, command


def test_b5_check_refuses_a_runtime_of_the_settings_that_does_not_exist(project: Project, windlass: Windlass) -> None:
    project.user_file("config.toml", 'runtime = "claude"')
    plan = project.plan("steps: [{id: a, prompt: x}]")
    for command in (["run"], ["plan", "check"]):
        assert "there is no runtime 'claude'; did you mean `claude-code`?" in windlass(*command, plan, code=2).err


def test_b5_every_key_of_a_step_is_shown_or_left_out_on_purpose() -> None:
    groups = [set(MARKS), set(IN_LINE), set(NOT_SHOWN)]
    assert set.union(*groups) == set(Step.model_fields), "say in plan_text how a new key is shown"
    assert sum(map(len, groups)) == len(Step.model_fields), "each key is in one of them"


def test_b5_show_has_the_keys_of_agents_and_services_in_brief() -> None:
    steps = [
        {"id": "plain", "run": "true"},
        {"id": "db", "run": "sleep 9", "service": {"command": "true"}, "timeout": "10m", "retry": 0},
        {
            "id": "build",
            "agent": "developer",
            "prompt": "Do it.",
            "model": "m",
            "check": ["make test", "make lint"],
            "tries": 5,
            "workspace": "worktree",
            "budget": 2,
            "permissions": {"mode": "deny", "allow": ["files.read"]},
        },
    ]
    lines = list(plan_lines(Plan.model_validate({"name": "p", "steps": steps})))
    assert lines == [
        "plain: shell",
        "db: shell  (service; no retry; timeout 10 min)",
        "build: agent  (role developer; model m; permissions: deny, allow files.read; 2 checks; at most 5 tries; "
        "worktree; budget $2.00)",
    ]


def test_b5_show_gives_the_order_and_what_each_waits_for(project: Project, windlass: Windlass) -> None:
    shown = windlass("plan", "show", project.plan(PLAN)).out.splitlines()
    assert shown[0] == "root: shell"
    assert "  left: shell ← root" in shown
    assert "  right: shell ← root  (needs approval)" in shown
    assert shown[-1] == "    last: shell ← left, right  (critical)"
    told = windlass("plan", "show", "plan.yaml", "--json").json
    assert told["order"] == ["root", "left", "right", "last"]
    assert told["name"] == "shown"


def test_b5_schema_is_json_schema(project: Project, windlass: Windlass) -> None:
    schema = windlass("plan", "schema").json
    assert schema["type"] == "object"
    assert set(schema["properties"]) >= {"name", "inputs", "tools", "limits", "steps"}
    assert not project.home.exists()


def test_c7_estimate_says_what_it_knows_and_names_what_it_does_not(project: Project, windlass: Windlass) -> None:
    plan = project.plan("{name: timed, steps: [{id: a, run: 'true'}, {id: b, tool: files.read, with: {path: x}}]}")
    unknown = windlass("plan", "estimate", plan)
    assert unknown.out == ""
    assert "a, b" in unknown.err
    told = windlass("plan", "estimate", plan, "--json").json
    nothing = {"expected_s": None, "low_s": None, "high_s": None, "samples": 0, "by_tools": [], "usd": None}
    assert {key: told[key] for key in nothing} == nothing
    assert told["unknown"] == ["a", "b"]
    assert told["forecast"]["left_s"] is None
    assert not project.home.exists(), "looking makes no home"
    windlass("run", plan, code=1)
    told = windlass("plan", "estimate", plan, "--json").json
    assert told["samples"] == 1
    assert 0 < told["low_s"] <= told["expected_s"] <= told["high_s"]
    assert told["unknown"] == ["b"], "a failed attempt says nothing about how long it takes"
    assert windlass("plan", "estimate", plan).out.startswith("at least ")
    assert "low confidence: fewer than 15 runs of this plan" in windlass("plan", "estimate", plan).out
