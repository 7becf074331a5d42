"""K9: an agent drafts a plan; nothing of it runs before a person agrees."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Served, Windlass

PLAN = """\
name: notes
steps:
  - id: a
    run: echo a >> ran
  - id: b
    needs: a
    run: echo b >> ran; test ! -e fail
"""
QUIET = ("--progress", "quiet")
TASK = ("--task", "Write a and b.", "--strategy", "plan", *QUIET)


def fenced(plan: str) -> Reply:
    return Reply.say(f"Here it is.\n\n```yaml\n{plan}```\n")


def test_k9_problems_go_back_to_the_agent_and_the_plan_alone_is_printed(
    project: Project, windlass: Windlass, served: Served
) -> None:
    wrong = "steps:\n  - {id: a, rn: echo}\n  - {id: b, agent: nobody, prompt: p}\n"
    unsafe = "steps:\n  - {id: a, run: echo}\n  - {id: b, run: 'echo {{ steps.a.output.stdout }}'}\n"
    model, env = served(fenced(wrong), fenced(unsafe), fenced(PLAN))
    ran = windlass("plan", "draft", "Write a and b.", "--budget", "2", **env)
    model.check()
    assert ran.out == PLAN
    first, second, third = (request.last_user_text for request in model.requests)
    assert "Write a and b." in first
    assert "may cost $2.00" in first
    assert "- files.write(" in first
    assert "- reviewer: " in first
    assert "claude-code" in first
    assert "unknown key `rn` (did you mean `run`?)" in second
    assert "nobody" in second
    assert "as code" in third, "a probable mistake is one, too"
    assert "b: shell ← a" in ran.err
    assert project.lines("ran") == [], "nothing of it runs"
    (execution,) = project.ids()
    again = windlass("plan", "draft", "--from", execution, **env)
    assert again.out == PLAN
    assert len(model.requests) == 3, "it is asked for once"
    file = project.home / "drafts" / f"{execution}.yaml"
    file.write_text(PLAN.replace("echo b", "echo edited"))
    assert "echo edited" in windlass("plan", "draft", "--from", execution, **env).out, "what a person edited stays"
    windlass("run", file, *QUIET)
    assert project.lines("ran") == ["a", "edited"]


def test_k9_after_four_drafts_that_cannot_run_the_text_is_kept(
    project: Project, windlass: Windlass, served: Served
) -> None:
    model, env = served(*[Reply.say("I cannot.")] * 4)
    ran = windlass("plan", "draft", "Write.", code=1, **env)
    model.check()
    assert ran.out == ""
    assert "checked 4 times" in ran.err
    (execution,) = project.ids()
    assert "I cannot." in windlass("transcript", execution, "draft").out


def test_k9_a_draft_that_was_cut_off_goes_on(project: Project, windlass: Windlass, served: Served) -> None:
    model, env = served(fenced("steps: []\n"), fenced(PLAN))
    windlass("plan", "draft", "Write.", code=-9, WINDLASS_FAULT="journal.after_commit:2", **env)
    (execution,) = project.ids()
    ran = windlass("plan", "draft", "--from", execution, **env)
    model.check()
    assert ran.out == PLAN


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "Nothing ran."),
        (("--yes",), "only within a budget"),
    ],
)
def test_k9_without_a_persons_word_nothing_runs(
    project: Project, windlass: Windlass, served: Served, options: tuple[str, ...], said: str
) -> None:
    _, env = served(Reply.say(PLAN, tokens_in=1, tokens_out=1))
    ran = windlass("run", *TASK, *options, code=3, **env)
    assert said in ran.err
    assert "windlass run " in ran.err
    assert project.lines("ran") == []


def test_k9_yes_does_not_agree_to_a_plan_that_may_cost_more_than_is_left(
    project: Project, windlass: Windlass, served: Served
) -> None:
    costly = "name: costly\nsteps: [{id: a, agent: developer, prompt: Think.}]\n"
    project.plan(costly)
    _, env = served(Reply.say("Done.", tokens_in=1, tokens_out=200_000), Reply.say(costly))
    windlass("run", "plan.yaml", *QUIET, **env)
    ran = windlass("run", *TASK, "--yes", "--budget", "1", code=3, **env)
    assert "--yes agrees only within the budget" in ran.err


def test_k9_yes_agrees_within_the_budget_and_what_the_draft_cost_is_gone(
    project: Project, windlass: Windlass, served: Served
) -> None:
    _, env = served(Reply.say(PLAN, tokens_in=100_000, tokens_out=10))
    told = windlass("run", *TASK, "--yes", "--budget", "5", "--json", **env).json
    assert told["status"] == "completed"
    assert project.lines("ran") == ["a", "b"]
    drafting, run = project.ids()
    spent = windlass("status", drafting, "--json").json["cost"]["usd"]
    limit: Any = project.state(run).plan.budget
    assert limit.usd == pytest.approx(5 - spent)


def test_k9_a_person_edits_the_draft_and_agrees(
    project: Project, windlass: Windlass, served: Served, until: Any
) -> None:
    _, env = served(Reply.say(PLAN))
    editor = project.file("editor", "#!/bin/sh\nsed -i 's/echo b/echo edited/' \"$1\"\n")
    editor.chmod(0o755)
    terminal = windlass.terminal("run", *TASK, EDITOR=str(editor), VISUAL="", **env)
    terminal.expect("Run it?")
    terminal.type("e\n")
    until(lambda: terminal.shown.count("Run it?") == 2)
    terminal.type("y\n")
    ran = terminal.ended()
    assert ran.code == 0, ran
    assert project.lines("ran") == ["a", "edited"]


def test_k9_the_rest_of_a_failed_execution_is_drafted_anew(
    project: Project, windlass: Windlass, served: Served
) -> None:
    project.file("fail", "")
    project.plan(PLAN)
    windlass("run", "plan.yaml", *QUIET, code=1)
    (execution,) = project.ids()
    anew = PLAN[: PLAN.index("  - id: b")] + "  - id: c\n    needs: a\n    run: echo c >> ran\n"
    model, env = served(fenced(anew))
    ran = windlass("plan", "redraft", execution, "Leave b out.", **env)
    assert ran.out == anew
    asked = model.requests[0].last_user_text
    assert "- a: completed" in asked
    assert "- b: failed" in asked
    assert "Leave b out." in asked
    assert "kept with their results: a" in ran.err
    assert "no longer in the plan: b" in ran.err
    windlass.shell(f"{ran.command('fork')} --progress quiet")
    assert project.lines("ran") == ["a", "b", "c"]
    told = windlass("plan", "redraft", execution, "--json", **served(fenced(anew))[1]).json
    assert (told["kept"], told["new"], told["dropped"]) == (["a"], ["c"], ["b"])


def test_k9_bad_input_is_refused_before_a_model_is_asked(project: Project, windlass: Windlass, served: Served) -> None:
    model, env = served()
    project.plan("steps: [{id: a, run: 'true'}]")
    windlass("run", "plan.yaml", *QUIET)
    (execution,) = project.ids()
    assert "nothing to draft anew" in windlass("plan", "redraft", execution, code=2, **env).err
    assert "drafts no plan" in windlass("plan", "draft", "--from", execution, code=2, **env).err
    assert "name one thing" in windlass("plan", "draft", code=2, **env).err
    assert "empty" in windlass("plan", "draft", " ", code=2, **env).err
    assert "needs your approval" in windlass("run", *TASK, "--detach", code=2, **env).err
    project.plan("steps: [{id: a, agent: planner, prompt: p, output: code}]")
    assert "output" in windlass("plan", "check", "plan.yaml", code=2, **env).err
    assert model.requests == []
