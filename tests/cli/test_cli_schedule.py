"""`schedule`: add, list, tick, why, from the command line to the disk (L1)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from due_plans import schedule_due_plan
from waiting import wait_until

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = """
    name: nightly
    triggers:
      - {id: night, cron: "0 3 1 1 *", zone: Europe/Berlin}
    steps:
      - {id: a, run: "true"}
"""


def test_l1_looking_makes_no_home(project: Project, windlass: Windlass) -> None:
    assert windlass("schedule", "list").err == "No scheduled plans.\n"
    assert windlass("schedule", "tick", "--json").json == {"firings": [], "unreadable": []}
    assert "is not scheduled" in windlass("schedule", "why", project.plan(PLAN), code=2).err
    assert not project.home.exists()


def test_l1_a_scheduled_plan_is_listed_with_its_next_time(project: Project, windlass: Windlass) -> None:
    plan = project.plan(PLAN)
    added = windlass("schedule", "add", plan)
    assert "night: 0 3 1 1 * Europe/Berlin, next 20" in added.out
    assert (
        "no tick has come yet: triggers fire only while windlass serve runs, or after windlass schedule install"
        in added.err
    )
    assert windlass("schedule", "tick").out == ""
    listed = windlass("schedule", "list")
    assert listed.out.startswith(f"{project.path / plan} night: 0 3 1 1 * Europe/Berlin, next 20")
    assert listed.out.endswith("-01-01 03:00+01:00; last: nothing has come yet\n")
    assert listed.err == "", "somebody looks"
    told = windlass("schedule", "list", "--json").json
    (trigger,) = told["triggers"]
    assert (trigger["trigger"], trigger["workdir"], trigger["firings"]) == ("night", str(project.path), [])
    assert trigger["next"].endswith("-01-01T02:00:00.000Z")
    assert list(told["ticks"]) == ["tick"]


def test_l1_why_answers_for_one_trigger_and_for_a_broken_plan(project: Project, windlass: Windlass) -> None:
    plan = project.plan(PLAN)
    windlass("schedule", "add", plan)
    assert "nothing has come since it was scheduled" in windlass("schedule", "why", plan, "night").out
    assert "has no trigger 'noon'; it has: night" in windlass("schedule", "why", plan, "noon", code=2).err
    project.plan(PLAN.replace("0 3 1 1 *", "0 99 * * *"))
    assert f"nothing starts {project.path / plan}: " in windlass("schedule", "why", plan).err
    assert "'0 99 * * *' is not a cron expression" in windlass("schedule", "tick", code=1).err
    windlass("schedule", "remove", plan)
    assert windlass("schedule", "list").err == "No scheduled plans.\n"


def test_d9_a_restored_home_says_that_executions_were_running(project: Project, windlass: Windlass) -> None:
    windlass("run", project.plan("steps: [{id: a, run: 'until test -e go; do sleep 0.05; done'}]"), "--detach")
    windlass("backup", "whole.zip")
    project.file("go", "")
    restored = windlass("--home", "other", "restore", "whole.zip").err
    assert "1 execution was running: `windlass serve` in this home, too, resumes those of a server" in restored
    assert f"windlass --home {project.path / 'other'} list --status running" in restored
    left = windlass("--home", "other", "list", "--status", "running", "--json").json[0]["id"]
    windlass("--home", "other", "cancel", left)
    assert not windlass("--home", "other", "list", "--status", "running", "--json").json


def test_d9_a_restored_home_says_that_its_scheduled_plans_start_there_too(project: Project, windlass: Windlass) -> None:
    windlass("schedule", "add", project.plan(PLAN))
    windlass("backup", "whole.zip")
    restored = windlass("--home", "other", "restore", "whole.zip").err
    assert "1 plan is scheduled in it" in restored
    assert f"windlass --home {project.path / 'other'} schedule list" in restored
    windlass("schedule", "remove", "plan.yaml")
    windlass("backup", "none.zip")
    assert "scheduled" not in windlass("--home", "third", "restore", "none.zip").err


def test_l1_triggers_are_paused_and_resumed_by_a_person(project: Project, windlass: Windlass) -> None:
    plan = project.plan(PLAN)
    windlass("schedule", "add", plan)
    assert windlass("schedule", "pause", plan).err == "night is paused\n"
    resume = f"(resume it: windlass schedule resume {project.path / plan} night)"
    for look in (["list"], ["why", plan]):
        shown = windlass("schedule", *look).out
        assert "Europe/Berlin, paused: by " in shown, "its next time will not come"
        assert resume in shown
    (trigger,) = windlass("schedule", "list", "--json").json["triggers"]
    assert (trigger["paused"][:3], trigger["next"]) == ("by ", None)
    assert windlass("schedule", "resume", plan, "night").err == "night is resumed\n"
    assert windlass("schedule", "resume", plan).err == "night is not paused\n"
    listed = windlass("schedule", "list").out
    assert ", paused" not in listed
    assert ", next 20" in listed


def test_l1_a_scheduled_plan_is_found_by_its_name_and_a_mistyped_trigger_names_the_others(
    project: Project, windlass: Windlass
) -> None:
    windlass("schedule", "add", project.plan(PLAN))
    assert "nothing has come since it was scheduled" in windlass("schedule", "why", "nightly").out
    assert "has no trigger 'nigt'; it has: night" in windlass("schedule", "pause", "nightly", "nigt", code=2).err
    assert windlass("schedule", "pause", "nightly").err == "night is paused\n"
    project.file("also.yaml", PLAN)
    windlass("schedule", "add", "also.yaml")
    several = windlass("schedule", "remove", "nightly", code=2).err
    assert str(project.path / "plan.yaml") in several
    assert str(project.path / "also.yaml") in several
    windlass("schedule", "remove", "also.yaml")
    windlass("schedule", "remove", "nightly")
    assert windlass("schedule", "list").err == "No scheduled plans.\n"


def test_l1_a_tick_shows_the_time_of_the_triggers_zone_and_says_on_a_terminal_that_nothing_is_due(
    project: Project, windlass: Windlass
) -> None:
    schedule_due_plan(project, windlass, "Asia/Kolkata")
    due = windlass("schedule", "tick").out
    assert re.search(r"yearly: \d{4}-\d\d-\d\d \d\d:\d\d\+05:30 started", due), due
    (execution,) = project.ids()
    wait_until(lambda: project.state(execution).status.finished, "the execution ends")
    assert windlass("schedule", "tick").err == "", "a system that calls it once a minute reads nothing"
    terminal = windlass.terminal("schedule", "tick")
    terminal.expect("nothing is due")
    assert terminal.ended().code == 0


def test_l1_a_tick_that_takes_up_a_killed_execution_says_that_it_is_continued(
    project: Project, windlass: Windlass
) -> None:
    schedule_due_plan(project, windlass, line="touch begun; until [ -e go ]; do sleep 0.05; done")
    (started,) = windlass("schedule", "tick", "--json").json["firings"]
    assert (started["status"], started["continued"]) == ("started", False)
    wait_until(lambda: (project.path / "begun").exists(), "its step begins")
    windlass.kill(started["execution"])
    project.file("go", "")
    assert f" continued {started['execution']}\n" in windlass("schedule", "tick").out
    status = wait_until(lambda: s if (s := project.state(started["execution"]).status).finished else None, "it ends")
    assert status == "completed"


def test_l1_a_trigger_is_fired_by_hand_and_why_says_so(project: Project, windlass: Windlass) -> None:
    plan = project.plan(PLAN)
    windlass("schedule", "add", plan)
    fired = windlass("schedule", "fire", plan)
    found = re.fullmatch(r"night: \S+ \S+ by hand started (\S+)\n", fired.out)
    assert found, fired.out
    assert f"Follow with: windlass watch {found[1]}" in fired.err
    wait_until(lambda: project.state(found[1]).status.finished, "it ends")
    (firing,) = windlass("schedule", "why", plan, "--json").json["triggers"][0]["firings"]
    assert (firing["by_hand"], firing["status"], firing["execution"]) == (True, "completed", found[1])


def test_l1_a_plan_that_could_not_start_here_is_warned_of_and_why_has_the_advice(
    project: Project, windlass: Windlass
) -> None:
    text = PLAN.replace('run: "true"', "agent: coder, runtime: cli, prompt: work")
    added = windlass("schedule", "add", project.plan(text))
    assert "warning: it could not start now: step a: cli cannot be used: " in added.err
    assert "  → export ANTHROPIC_API_KEY=… or OPENAI_API_KEY=…" in added.err


def test_l1_a_folder_that_is_not_there_is_told_of_as_what_it_is(project: Project, windlass: Windlass) -> None:
    plan = project.plan("""
        name: intake
        inputs: {file: none}
        triggers:
          - {id: inbox, watch: inbox}
        steps:
          - {id: a, run: "true"}
    """)
    for command in (("run",), ("schedule", "add")):
        refused = windlass(*command, plan, "-C", "nowhere", code=2).err
        assert f"the working directory {project.path / 'nowhere'} does not exist" in refused
    assert windlass("schedule", "add", plan).out == "inbox: inbox/*, the folder inbox is not there\n"
    assert windlass("schedule", "tick").err == "", "it may come later"
    project.file("inbox", "no folder")
    trouble = f"the folder inbox cannot be watched: Not a directory ({project.path / 'inbox'})"
    assert windlass("schedule", "tick", code=1).err == f"nothing starts {project.path / plan} by inbox: {trouble}\n"
    assert f"inbox: inbox/*, {trouble}; last: " in windlass("schedule", "list").out
    assert windlass("schedule", "why", plan).out.startswith(f"inbox: inbox/*, {trouble}\n")
    assert windlass("schedule", "why", plan, "--json").json["triggers"][0]["trouble"] == trouble
