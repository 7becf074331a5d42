"""Detached runs, dead drivers, outcomes that nobody saw, and what a resume checks (D2, D5, D6)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from windlass import Plan, Step
from windlass import open as open_engine

if TYPE_CHECKING:
    from conftest import Project, Windlass

STEPS = """
name: long
steps:
  - {id: first, run: echo first >> ran}
  - {id: wait, needs: [first], run: "echo wait >> ran; until [ -e go ]; do sleep 0.02; done"}
  - {id: last, run: echo last >> ran, needs: [wait]}
"""


def test_d6_a_detached_run_prints_only_its_id_and_goes_on_after_its_parent(
    project: Project, windlass: Windlass, until: Any
) -> None:
    # A variable of Python's has all start from nothing: the driver, too, which is a fork in other tests.
    ran = windlass("run", "--detach", project.plan(STEPS), PYTHONNOUSERSITE="1")
    (execution,) = project.ids()
    assert ran.out == f"{execution}\n"
    assert f"windlass watch {execution}" in ran.err
    until(lambda: "wait" in project.lines("ran"))
    driver = windlass.pid_of(execution)
    assert b"_drive" in Path(f"/proc/{driver}/cmdline").read_bytes()
    assert os.getsid(driver) == driver, "a session of its own: closing the terminal does not reach it"
    told = windlass("run", "--detach", "--json", project.plan("steps: [{id: a, run: 'true'}]", "other.yaml")).json
    assert set(told) == {"id", "log"}
    (project.path / "go").touch()
    until(lambda: project.state(execution).status == "completed")
    until(lambda: project.state(told["id"]).status == "completed")
    log = project.home / "executions" / execution / "driver.log"
    until(lambda: "completed" in log.read_text(), "the driver's own last words")


def test_d6_a_detached_run_is_driven_when_its_command_ends(project: Project, windlass: Windlass) -> None:
    windlass("run", "--detach", project.plan(STEPS))
    assert "gone" not in windlass("status").out
    assert "cut off" not in windlass("run", project.plan("steps: [{id: a, run: 'true'}]", "other.yaml")).err
    (project.path / "go").touch()


def test_d6_a_detached_run_whose_process_cannot_begin_is_not_said_to_run(project: Project, windlass: Windlass) -> None:
    project.file(
        "broken/sitecustomize.py",
        "import os, sys\nif '_drive' in sys.orig_argv:\n    os.write(2, b'out of memory\\n')\n    os._exit(1)\n",
    )
    ran = windlass("run", "--detach", project.plan(STEPS), PYTHONPATH=str(project.path / "broken"), code=1)
    (execution,) = project.ids()
    assert ran.out == ""
    assert f"execution {execution} is saved, but its process did not start: out of memory" in ran.err
    assert f"windlass resume {execution}" in ran.err
    assert "in the background" not in ran.err
    assert project.state(execution).status == "pending"


async def test_d6_what_nobody_asked_to_start_is_not_said_to_be_cut_off(project: Project, windlass: Windlass) -> None:
    plan = Plan(name="later", steps=[Step(id="a", run="echo a >> ran")])
    async with open_engine() as engine:
        created = await engine.create(plan)
        forked = await engine.fork(created)
        begun = await engine.create(plan, to_start=True)
        assert [head.id for head in await engine.orphans()] == [begun], "its driver died before it began"
        await (await engine.resume(begun)).wait()
        (project.path / "ran").unlink()
    listed = windlass("list").out
    for execution in (created, forked):
        assert f"pending    later (not started: windlass resume {execution})" in listed
    assert "later  pending (not started): 1 pending" in windlass("status", created).out
    assert windlass("status", created, "--json").json["reason"] == "not started"
    assert "cut off" not in windlass("run", project.plan("steps: [{id: b, run: 'true'}]", "other.yaml")).err
    assert windlass("resume", "--all").err == "nothing to resume\n"
    assert project.lines("ran") == []
    windlass("resume", created)
    assert project.lines("ran") == ["a"]
    assert windlass("status", created, "--json").json["reason"] is None


def test_d6_what_a_killed_driver_left_behind_is_told_and_resumed(
    project: Project, windlass: Windlass, until: Any
) -> None:
    execution = windlass.detached(project.plan(STEPS))
    until(lambda: "wait" in project.lines("ran"))
    windlass.kill(execution)
    assert f"its process is gone: windlass resume {execution}" in windlass("list").out
    (head,) = windlass("list", "--json").json
    assert (head["status"], head["driven"]) == ("running", False)
    status = windlass("status", execution).out
    assert "running (its process is gone): 1 completed, 1 cut off" in status
    assert "‖ wait  cut off" in status
    assert "forecast" not in status, "it does not move"
    assert f"next: windlass resume {execution}" in status
    windlass("watch", execution, "--exit-status", code=3)
    offered = windlass("run", project.plan("steps: [{id: a, run: 'true'}]", "other.yaml"))
    assert f"was cut off when its process died: windlass resume {execution}" in offered.err
    (project.path / "go").touch()
    told = windlass("resume", execution, "--json").json
    assert told["status"] == "completed"
    assert [s["attempts"] for s in told["steps"]] == [1, 2, 1]
    assert project.lines("ran") == ["first", "wait", "wait", "last"], "what was completed did not run again"


def test_d6_resume_all_goes_on_with_every_one_that_can(project: Project, windlass: Windlass, until: Any) -> None:
    """One that cannot go on does not hold up the others."""
    plans = [project.plan(STEPS.replace("ran;", f"ran{n};"), f"plan{n}.yaml") for n in range(3)]
    executions = [windlass.detached(plan) for plan in plans]
    until(lambda: all(project.lines(f"ran{n}") for n in range(3)))
    for execution in executions:
        windlass.kill(execution)
    project.plan(STEPS + "\n", "plan2.yaml")
    (project.path / "go").touch()
    told = windlass("resume").err
    assert " was cut off; continue it with: windlass resume " in told, "without a terminal nothing is resumed unasked"
    ran = windlass("resume", "--all", code=2)
    assert "plan2.yaml has changed" in ran.err
    assert [str(project.state(e).status) for e in executions] == ["completed", "completed", "running"]
    windlass("resume", executions[2], "--keep-plan")
    assert "nothing to resume" in windlass("resume").err


def test_d6_a_folder_named_windlass_is_not_taken_for_the_program(
    project: Project, windlass: Windlass, until: Any
) -> None:
    """A repository one merely cloned must not get its code run by `--detach`."""
    project.file("windlass/__main__.py", "open('pwned', 'w')\n")
    project.file("windlass/__init__.py", "open('pwned', 'w')\n")
    execution = windlass.detached(project.plan("steps: [{id: a, run: 'true'}]"))
    until(lambda: project.state(execution).status == "completed")
    assert not (project.path / "pwned").exists()


def test_d3_a_pause_that_comes_before_the_detached_driver_begins_is_not_undone_by_it(
    project: Project, windlass: Windlass
) -> None:
    """The driver is told what it was started for, and finds that somebody acted meanwhile."""
    windlass("run", project.plan("steps: [{id: a, run: 'true', approve: always}]"), code=3)
    (execution,) = project.ids()
    windlass("_drive", execution, "--since", str(len(project.events(execution)) - 1), code=3)
    assert project.state(execution).status == "paused"
    assert "paused or ended" in windlass("_drive", execution, "--since", "1", code=3).err


# ── outcomes that nobody saw ─────────────────────────────────────────────────────────────────────────

ONCE = """
name: payment
steps:
  - id: pay
    effect: once
    run: "echo paid >> ran; until [ -e go ]; do sleep 0.02; done; echo receipt"
  - {id: thank, run: ["echo", "thanks for {{ steps.pay.output }}"], needs: [pay]}
"""


@pytest.mark.parametrize(
    ("decision", "paid", "status", "code"),
    [
        (["--again", "pay"], 2, "completed", 0),
        (["--done", 'pay={"receipt": 7}'], 1, "completed", 0),
        (["--done", "pay"], 1, "completed", 0),
        (["--fail", "pay"], 1, "failed", 1),
    ],
    ids=lambda value: value[0] + ("=" if "=" in value[1] else "") if isinstance(value, list) else "",
)
def test_d2_an_attempt_marked_once_is_not_repeated_unasked(
    project: Project, windlass: Windlass, until: Any, decision: list[str], paid: int, status: str, code: int
) -> None:
    execution = windlass.detached(project.plan(ONCE))
    until(lambda: project.lines("ran"))
    windlass.kill(execution)
    (project.path / "go").touch()
    ran = windlass("resume", execution, code=3)
    assert project.lines("ran") == ["paid"]
    assert "may or may not have taken effect" in ran.err
    for option in ("--again pay", "--done pay", "--fail pay"):
        assert f"windlass resume {execution} {option}" in ran.err
    listed = windlass("approvals").err
    assert "payment: pay waits for a decision, not for approval: " in listed
    assert f"windlass resume {execution} --again pay" in listed
    if decision == ["--again", "pay"]:
        windlass.shell(ran.command("--again"), code)
    else:
        windlass("resume", execution, *decision, code=code)
    told = windlass("status", execution, "--json").json
    assert told["status"] == status
    assert len(project.lines("ran")) == paid
    if "=" in decision[1]:
        assert told["steps"][0]["output"] == {"receipt": 7}
        assert told["steps"][1]["output"]["stdout"] == 'thanks for {"receipt": 7}\n'


def test_d2_a_wrong_decision_is_refused_and_approvals_do_not_list_it(
    project: Project, windlass: Windlass, until: Any
) -> None:
    execution = windlass.detached(project.plan(ONCE.replace("effect: once", "effect: once\n    approve: always")))
    until(lambda: project.state(execution).questions)
    windlass("approve", execution, "pay")
    until(lambda: project.lines("ran"))
    windlass.kill(execution)
    windlass("resume", execution, code=3)
    assert windlass("approvals", "--json").json == [], "it was approved; what is open is another question"
    for wrong, said in (
        (["--again", "thank"], "no unknown outcome"),
        (["--done", "pay=not json"], "not JSON"),
        (["--again", "pya"], "pay"),
        (["--detach", "--again", "pay"], "--detach"),
        (["--done", "pay=7", "--again", "pay"], "choose one of --again, --done and --fail for pay"),
        (["--done", "pay=7", "--done", "pay=8"], "--done pay is given twice, with different outputs: give one"),
        (["--fail", "pay", "--again", "pay"], "choose one of --again, --done and --fail for pay"),
        (["--accept-changes", "--keep-plan"], "choose one of --accept-changes and --keep-plan"),
    ):
        assert said in windlass("resume", execution, *wrong, code=2).err
    (status,) = [s for s in windlass("status", execution, "--json").json["steps"] if s["id"] == "pay"]
    assert status["question"]["kind"] == "outcome"
    assert project.lines("ran") == ["paid"]


def test_d3_interrupting_an_attempt_marked_once_asks_too(project: Project, windlass: Windlass, until: Any) -> None:
    run = windlass.background("run", project.plan(ONCE))
    until(lambda: project.lines("ran"))
    run.signal(signal.SIGINT)
    ran = run.ended()
    assert ran.code == 130
    assert "--again pay" in ran.err
    (execution,) = project.ids()
    (project.path / "go").touch()
    windlass("resume", execution, code=3)
    assert project.lines("ran") == ["paid"]


# ── what a resume checks ─────────────────────────────────────────────────────────────────────────────


def test_d5_every_reason_is_told_at_once_and_the_ways_out_work(project: Project, windlass: Windlass) -> None:
    project.file("tools.py", "from windlass import tool\n\n@tool\ndef greet() -> str:\n    return 'old'\n")
    text = "{tools: tools.py, steps: [{id: ask, run: 'true', approve: always}, {id: h, tool: greet, needs: [ask]}]}"
    (project.path / "work").mkdir()
    windlass("run", project.plan(text), "--yes", code=0)
    ran = windlass("run", "plan.yaml", "--workdir", "work", code=3)
    execution = project.ids()[-1]
    assert execution in ran.err
    (project.path / "work").rmdir()
    project.plan(text + "\n")
    project.file("tools.py", "from windlass import tool\n\n@tool\ndef greeting() -> str:\n    return 'new'\n")
    refused = windlass("resume", execution, "--json", code=2)
    reasons = refused.json["error"]["message"]
    for reason in ("working directory", "'greet'", "'greeting'", "plan.yaml has changed", "tools.py have changed"):
        assert reason in reasons
    assert reasons.count("\n  - ") == 4
    for option in ("--accept-changes", "--keep-plan", "fork"):
        assert any(option in advice for advice in refused.json["error"]["advice"])
    assert windlass("resume", execution, "--detach", code=2).err.count("\n  - ") == 4
    project.file("tools.py", "from windlass import tool\n\n@tool\ndef greet() -> str:\n    return 'new'\n")
    windlass("approve", execution, "ask")
    told = windlass("resume", execution, "--accept-changes", "--workdir", ".", "--json").json
    assert told["steps"][1]["output"] == "new"
    assert told["workdir"] == str(project.path)


def test_d5_what_runs_cannot_be_resumed_elsewhere_unless_taken_over(
    project: Project, windlass: Windlass, until: Any
) -> None:
    execution = windlass.detached(project.plan(STEPS))
    until(lambda: "wait" in project.lines("ran"))
    pid = windlass.pid_of(execution)
    refused = windlass("resume", execution, code=2)
    assert f"windlass watch {execution}" in refused.err
    assert "--take-over" in refused.err
    os.kill(pid, signal.SIGSTOP)
    try:
        (project.path / "go").touch()
        assert windlass("resume", execution, "--take-over", "--json").json["status"] == "completed"
    finally:
        os.kill(pid, signal.SIGCONT)
    log = project.home / "executions" / execution / "driver.log"
    until(lambda: "another process took over" in log.read_text(), "the old one finds out and writes nothing")
    events = project.events(execution)
    assert project.state(execution).status == "completed"
    until(lambda: not os.path.exists(f"/proc/{pid}"))
    assert project.events(execution) == events


def test_d2_secrets_of_the_environment_reach_no_step_and_no_file(project: Project, windlass: Windlass) -> None:
    plan = project.plan("steps: [{id: a, run: env}, {id: b, run: 'false', approve: always}]")
    ran = windlass("run", plan, "--yes", "--json", code=1, API_TOKEN="canary-0815", ALLOWED="seen")
    seen = ran.json["steps"][0]["output"]["stdout"]
    assert "canary-0815" not in json.dumps(ran.json)
    assert "ALLOWED" not in seen
    assert "PATH=" in seen
    windlass("checkpoint", ran.json["id"], API_TOKEN="canary-0815")
    assert b"canary-0815" not in project.everything()
