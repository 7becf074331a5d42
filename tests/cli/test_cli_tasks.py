"""Tasks from the command line (B1–B4): the real program and its `cli` runtime, with a script for the model's words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Ran, Served, Windlass


def told(request: Any) -> str:
    return str(request.last_user_text)


# -- what runs -----------------------------------------------------------------------------------


def test_b1_a_task_is_done_by_one_agent_and_its_words_stay_as_they_were_said(
    project: Project, windlass: Windlass, served: Served
) -> None:
    task = "Say {{ steps.x.output }} and {% this %} back"
    model, env = served(Reply.say("Said.", tokens_in=900, tokens_out=30))
    ran = windlass("run", "--task", task, "--progress", "plain", **env)
    assert ran.out == "task: Said.\n"
    assert "strategy single: developer" in ran.err
    assert task in told(model.requests[0])
    model.check()
    (execution,) = project.ids()
    view = windlass("status", execution, "--json").json
    (step,) = view["steps"]
    assert view["cost"]["known"] is True
    assert view["cost"]["usd"] == step["cost_usd"] > 0
    assert (view["cost"]["tokens_in"], view["cost"]["tokens_out"]) == (900, 30)
    agent = step["agent"]
    assert (agent["role"], agent["runtime"]) == ("developer", "cli")
    assert agent["model"]
    assert agent["session"]
    assert agent["cost"] == view["cost"]
    delegated = {"step": "task", "role": "developer", "runtime": "cli", "handed_over_by": []}
    assert view["delegation"] == [{**delegated, "status": "completed", "output": "Said."}]


def test_b2_b4_a_task_about_structure_goes_through_a_chain_and_each_reads_those_before_it(
    project: Project, windlass: Windlass, served: Served
) -> None:
    model, env = served(
        Reply.say("DESIGN: a drum.", when="Do the architect's part"),
        Reply.say("BUILT: drum.py.", when="Do the developer's part"),
        Reply.say("It holds.", when="Do the reviewer's part"),
    )
    ran = windlass("run", "-t", "Refactor the winch.", "--json", **env)
    assert "strategy multi: architect → developer → reviewer" in ran.err
    model.check()
    design, build, review = (told(request) for request in model.requests)
    assert "DESIGN" not in design
    assert "DESIGN: a drum." in build
    assert "DESIGN: a drum." in review
    assert "BUILT: drum.py." in review
    chain = ran.json["delegation"]
    assert [link["step"] for link in chain] == ["architect", "developer", "reviewer"]
    assert [link["handed_over_by"] for link in chain] == [[], ["architect"], ["architect", "developer"]]
    assert [link["output"] for link in chain] == ["DESIGN: a drum.", "BUILT: drum.py.", "It holds."]
    handed = ran.json["steps"][2]["input"]["handoff"]
    assert [(given["step"], given["role"], given["output"]) for given in handed] == [
        ("architect", "architect", "DESIGN: a drum."),
        ("developer", "developer", "BUILT: drum.py."),
    ]


def test_b3_tasks_of_a_file_wait_for_each_other_and_a_failed_one_skips_its_dependents_alone(
    project: Project, windlass: Windlass, served: Served
) -> None:
    project.file(
        "tasks.yaml",
        """
        - {id: calls, task: Name the calls., role: architect}
        - {id: docs, task: Describe them., depends_on: calls}
        - {id: broken, task: Break it.}
        - {id: after, task: Go on., depends_on: [broken, docs]}
        """,
    )
    model, env = served(
        Reply.say("wind, unwind", when="Name the calls."),
        Reply.say("described", when="Describe them."),
        Reply.error(400, "nonsense", when="Break it.", repeat=True),
    )
    ran = windlass("run", "--task-file", "tasks.yaml", "--json", code=1, **env)
    assert "strategy parallel" in ran.err
    steps = {step["id"]: step for step in ran.json["steps"]}
    assert {name: step["status"] for name, step in steps.items()} == {
        "calls": "completed",
        "docs": "completed",
        "broken": "failed",
        "after": "skipped",
    }
    assert steps["after"]["skipped_because"] == "dependency failed: broken"
    assert steps["docs"]["input"]["handoff"][0]["output"] == "wind, unwind"
    assert any("wind, unwind" in told(r) for r in model.requests if "Describe them." in told(r))


def test_a5_what_an_agent_was_told_can_be_read_back_word_for_word(
    project: Project, windlass: Windlass, served: Served
) -> None:
    project.file("notes.md", "the drum squeaks\n")
    model, env = served(Reply.say("one", when="Do the architect's"), Reply.say("two", when="Do the ops's"))
    windlass("run", "-t", "Oil it.", "--chain", "architect, ops", "--file", "notes.md", **env)
    (execution,) = project.ids()
    every = windlass("logs", execution, "--prompt").out
    assert "# architect attempt 1: architect on cli" in every
    assert "# ops attempt 1: ops on cli" in every
    lines = windlass("logs", execution, "--prompt", "--json").out.splitlines()
    first, second = map(json.loads, lines)
    assert (first["type"], first["step"], second["step"]) == ("agent.began", "architect", "ops")
    assert "the drum squeaks" in first["prompt"]
    assert first["prompt"] == told(model.requests[0])
    assert model.requests[0].system.startswith(first["system"]), "a runtime adds what it has to say of itself"
    (only,) = map(json.loads, windlass("logs", execution, "--prompt", "--step", "ops", "--json").out.splitlines())
    assert only == second
    assert "psuh" in windlass("logs", execution, "--prompt", "--step", "psuh", code=2).err


def test_a5_a_plan_without_agents_has_told_nobody_anything(project: Project, windlass: Windlass) -> None:
    windlass("run", project.plan("steps: [{id: a, run: 'true'}]"))
    ran = windlass("logs", project.ids()[0], "--prompt", "--json")
    assert (ran.out, "no agent" in ran.err) == ("", True)


def test_the_json_of_steps_that_are_no_agents_says_so(project: Project, windlass: Windlass) -> None:
    view = windlass("run", project.plan("steps: [{id: a, run: 'true'}]"), "--json").json
    assert view["delegation"] == []
    assert view["cost"] == {"usd": 0.0, "known": True, "tokens_in": 0, "tokens_out": 0, "text": "$0.00"}
    assert view["steps"][0]["agent"] is None
    assert view["steps"][0]["cost_usd"] == 0.0


# -- what is refused -----------------------------------------------------------------------------


def refused(windlass: Windlass, project: Project, *arguments: str, **env: str) -> Ran:
    """Wrong usage: exit code 2, and nothing was started."""
    ran = windlass("run", *arguments, code=2, **env)
    assert project.ids() == []
    return ran


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "name one thing to run"),
        (["plan.yaml", "--task", "x"], "name one thing to run"),
        (["--task", "x", "--task-file", "tasks.yaml"], "name one thing to run"),
        (["plan.yaml", "--strategy", "single"], "--strategy works only with --task"),
        (["plan.yaml", "--chain", "ops"], "--chain works only with --task"),
        (["plan.yaml", "--role", "ops"], "--role works only with --task"),
        (["plan.yaml", "--file", "a"], "--file works only with --task"),
        (["plan.yaml", "--skill", "a"], "--skill works only with --task"),
        (["--task", "x", "--strategy", "single", "--chain", "ops"], "--chain works only with the strategy multi"),
        (["--task", "x", "--strategy", "parallel", "--chain", "ops"], "--chain works only with the strategy multi"),
        (["--task-file", "tasks.yaml", "--strategy", "single"], "2: use parallel"),
        (["--task-file", "tasks.yaml", "--strategy", "multi"], "2: use parallel"),
        (["--task-file", "tasks.yaml", "--chain", "ops"], "2: use parallel"),
        (["--task", "x", "--strategy", "clever"], "clever"),
        (["--task", "  "], "describe the task"),
        (["--task", "x", "--role", "develper"], "developer"),
        (["--task", "x", "--chain", "architect,develper"], "developer"),
        (["--task", "x", "--skill", "nope"], "nope"),
        (["--task", "x", "--runtime", "clade-code"], "did you mean claude-code?"),
        (["agents.yaml"], "did you mean open-code?"),
        (["--task", "x", "--budget", "-1"], "not in the range x>=0"),
        (["--task-file", "missing.yaml"], "missing.yaml"),
        (["--task-file", "."], "cannot be read"),
        (["--task-file", "/dev/zero"], "/dev/zero cannot be read: it is larger than 4 MiB"),
        (["--task-file", "empty.yaml"], "empty"),
        (["--task-file", "empty.txt"], "describe it there"),
        (["--task-file", "broken.yaml"], "broken.yaml:1"),
        (["--task-file", "latin.txt"], "not UTF-8"),
        (["--task-file", "large.txt"], "larger than 4 MiB"),
        (["--task-file", "cycle.json"], "a → b → a"),
        (["--task-file", "twice.yaml"], "same"),
        (["--task-file", "keys.yaml"], "needs"),
        (["--task-file", "cycle.json"], "→ correct the tasks, whose keys are in: windlass docs strategies"),
        (["--task", "x", "--role", "nobody"], "→ see its options: windlass run --help"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_b4_wrong_combinations_are_refused_with_what_to_do(
    project: Project, windlass: Windlass, arguments: list[str], says: str
) -> None:
    project.plan("steps: [{id: a, run: 'true'}]")
    project.plan("runtime: opencode\nsteps: [{id: a, agent: developer, prompt: x}]", "agents.yaml")
    project.file("tasks.yaml", "[one, two]")
    project.file("empty.yaml", "")
    project.file("empty.txt", "\n")
    project.file("broken.yaml", "[one, 'two\n")
    (project.path / "latin.txt").write_bytes("für".encode("latin-1"))
    (project.path / "large.txt").write_text("x" * (4 * 1024 * 1024 + 1))
    cycle = [{"id": "a", "task": "x", "needs": ["b"]}, {"id": "b", "task": "y", "needs": ["a"]}]
    project.file("cycle.json", json.dumps(cycle))
    project.file("twice.yaml", "[{id: same, task: x}, {id: same, task: y}]")
    project.file("keys.yaml", "[{id: a, task: x, nedes: []}]")
    assert says in refused(windlass, project, *arguments).err
