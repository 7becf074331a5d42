"""`pause`, `interrupt`, `cancel`, Ctrl-C: from another process and from the terminal, and back with `resume` (D3)."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Project, Windlass

STEPS = """
name: slow
steps:
  - {id: first, run: echo first >> ran}
  - id: wait
    needs: [first]
    run: "echo wait >> ran; (echo $$; exec sleep 600) >> pids & echo $$ >> pids; until [ -e go ]; do sleep 0.02; done"
  - {id: last, run: echo last >> ran, needs: [wait]}
"""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def running(project: Project, windlass: Windlass, until: Any) -> str:
    """A detached execution inside its second step."""
    execution = windlass.detached(project.plan(STEPS), WINDLASS_GRACE="0.5")
    until(lambda: len(project.lines("pids")) == 2)
    return execution


def test_d3_pause_from_another_process_lets_the_step_finish_and_resume_goes_on(
    project: Project, windlass: Windlass, running: str, until: Any
) -> None:
    asked = windlass("pause", running, "--wait", "0", "--json")
    assert asked.json["status"] == "running"
    assert "still finishing" in asked.err
    until(lambda: project.state(running).wanted)
    (project.path / "go").touch()
    until(lambda: project.state(running).status == "paused")
    state = project.state(running)
    assert [str(step.status) for step in state.steps.values()] == ["completed", "completed", "pending"]
    paused = windlass("pause", running)
    assert "slow is paused" in paused.err
    windlass.shell(paused.command("resume"))
    assert project.lines("ran") == ["first", "wait", "last"]


@pytest.mark.parametrize("command", [["pause", "--now"], ["interrupt"]], ids=" ".join)
def test_d3_now_stops_the_step_and_all_its_processes(
    project: Project, windlass: Windlass, running: str, command: list[str], until: Any
) -> None:
    told = windlass(*command, running, "--wait", "60", "--json").json
    assert told["status"] == "paused"
    assert told["reason"] == command[0]
    assert [s["status"] for s in told["steps"]] == ["completed", "paused", "pending"]
    until(lambda: not any(alive(int(pid)) for pid in project.lines("pids")))
    until(lambda: not alive(windlass.pid_of(running)), "the detached driver ends, too")
    (project.path / "go").touch()
    assert windlass("resume", running, "--json").json["status"] == "completed"
    assert project.lines("ran") == ["first", "wait", "wait", "last"]


def test_d3_cancel_from_another_process_ends_it_for_good(
    project: Project, windlass: Windlass, running: str, until: Any
) -> None:
    told = windlass("cancel", running, "--wait", "60", "--json").json
    assert told["status"] == "cancelled"
    assert [s["skipped_because"] for s in told["steps"][1:]] == ["execution cancelled"] * 2
    until(lambda: not any(alive(int(pid)) for pid in project.lines("pids")))
    refused = windlass("resume", running, code=2)
    assert f"windlass fork {running}" in refused.err
    assert "already cancelled" in windlass("pause", running, code=2).err
    for how in ([], ["--detach"]):
        assert "nothing to resume" in windlass("resume", running, *how, code=2).err


def test_d3_a_foreground_run_that_is_paused_elsewhere_exits_3_and_prints_what_goes_on_with_it(
    project: Project, windlass: Windlass, until: Any
) -> None:
    run = windlass.background("run", project.plan(STEPS))
    until(lambda: len(project.lines("pids")) == 2)
    (execution,) = project.ids()
    assert windlass("pause", execution, "--now", "--wait", "60").code == 0
    ran = run.ended()
    assert ran.code == 3
    (project.path / "go").touch()
    assert "completed" in windlass.shell(ran.command("resume")).err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_d3_a_signal_interrupts_a_foreground_run_and_leaves_no_process(
    project: Project, windlass: Windlass, until: Any, number: int
) -> None:
    run = windlass.background("run", project.plan(STEPS), WINDLASS_GRACE="0.5")
    until(lambda: len(project.lines("pids")) == 2)
    run.signal(number)
    ran = run.ended()
    assert ran.code == 130
    assert "Traceback" not in ran.err
    assert "slow  paused (interrupt)" in ran.err
    assert not any(alive(int(pid)) for pid in project.lines("pids"))
    (project.path / "go").touch()
    windlass.shell(ran.command("resume"))
    assert project.lines("ran") == ["first", "wait", "wait", "last"]


@pytest.mark.parametrize("module", ["windlass.cli.app", "windlass.assembly", "windlass.journal.sqlite"])
def test_i1_ctrl_c_while_it_starts_exits_130_without_a_word_of_python(
    project: Project, windlass: Windlass, tmp_path: Path, module: str
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f"""
import os, signal, sys

class Impatient:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Impatient())
"""
    )
    ran = windlass("run", project.plan(STEPS), code=130, PYTHONPATH=str(tmp_path))
    assert ran.out == ""
    assert project.lines("ran") == []


def test_d3_ctrl_c_in_the_terminal_interrupts_and_twice_leaves_at_once(
    project: Project, windlass: Windlass, until: Any
) -> None:
    """The step is deaf to the polite signal, so that the first Ctrl-C takes its grace."""
    project.file(
        "deaf.py",
        """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("pids", "a").write(str(os.getpid()))
        time.sleep(600)
        """,
    )
    plan = project.plan(f"steps: [{{id: a, run: [{sys.executable}, deaf.py]}}]")
    terminal = windlass.terminal("run", plan, WINDLASS_GRACE="600")
    until(lambda: project.lines("pids"))
    terminal.type("\x03")
    terminal.expect("press Ctrl-C again to quit now")
    terminal.type("\x03")
    ran = terminal.ended()
    assert ran.code == 130
    until(lambda: not alive(int(project.lines("pids")[0])), "the warden ends what the engine left")
    (execution,) = project.ids()
    assert "its process is gone" in windlass("list").out
    assert windlass("cancel", execution, "--json").json["status"] == "cancelled"


@pytest.mark.parametrize("times", [1, 2])
def test_d3_ctrl_c_is_heeded_before_the_first_step_is_shown(
    project: Project, windlass: Windlass, tmp_path: Path, times: int
) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        f"""
import asyncio, os, signal
from pathlib import Path
from windlass.engine.run_request import RunRequest

start = RunRequest.start

async def interrupted(self, engine, loaded):
    begun = await start(self, engine, loaded)
    while not Path("pids").exists():
        await asyncio.sleep(0)
    for _ in range({times}):
        os.kill(os.getpid(), signal.SIGINT)
        await asyncio.sleep(0)
    return begun

RunRequest.start = interrupted
"""
    )
    ran = windlass("run", project.plan(STEPS), code=130, PYTHONPATH=str(tmp_path), WINDLASS_GRACE="0.5")
    assert "press Ctrl-C again to quit now" in ran.err
    assert ("slow  paused (interrupt)" in ran.err) == (times == 1)


def test_d3_a_tool_that_never_returns_does_not_keep_the_process(
    project: Project, windlass: Windlass, until: Any
) -> None:
    project.file(
        "tools.py",
        """
        import time
        from pathlib import Path
        from windlass import tool

        @tool
        def hang() -> None:
            Path("began").touch()
            time.sleep(3600)
        """,
    )
    plan = project.plan("{tools: tools.py, steps: [{id: a, tool: hang}]}")
    run = windlass.background("run", plan, "--yes", WINDLASS_GRACE="0.2")
    until(lambda: (project.path / "began").exists())
    run.signal(signal.SIGINT)
    assert run.ended().code == 130


@pytest.mark.parametrize("how", ["resume", "cancel"])
def test_d3_clean_deals_with_what_was_paused_for_too_long(
    project: Project, windlass: Windlass, until: Any, how: str
) -> None:
    project.user_file("config.toml", f'pause_expiry = "1ms"\non_pause_expiry = "{how}"\n')
    plan = project.plan("steps: [{id: a, run: 'echo a >> ran; touch began; until [ -e go ]; do sleep 0.02; done'}]")
    run = windlass.background("run", plan)
    until(lambda: (project.path / "began").exists())
    (execution,) = project.ids()
    windlass("pause", execution, "--now", "--wait", "60")
    run.ended()
    (project.path / "go").touch()
    cleaned = windlass("clean", "--json").json
    assert cleaned["expired"] == [execution]
    ended = {"resume": "completed", "cancel": "cancelled"}[how]
    until(lambda: project.state(execution).status == ended)
    assert len(project.lines("ran")) == {"resume": 2, "cancel": 1}[how]


def test_d3_a_run_that_finds_an_expired_pause_still_prints_its_own_result_only(
    project: Project, windlass: Windlass, until: Any
) -> None:
    project.user_file("config.toml", 'pause_expiry = "1ms"\non_pause_expiry = "resume"\n')
    paused = windlass("run", project.plan("steps: [{id: a, run: 'true', approve: always}]"), code=3)
    assert "paused" in paused.err
    told = windlass("run", project.plan("steps: [{id: b, run: 'true'}]", "other.yaml"), "--json")
    assert told.json["status"] == "completed", "stdout holds one JSON object"
    (execution,) = [i for i in project.ids() if i != told.json["id"]]
    until(lambda: project.state(execution).status == "running", "the other one goes on by itself")
    os.kill(windlass.pid_of(execution), signal.SIGTERM)


def test_d3_the_steps_of_a_paused_execution_are_paused_and_none_is_forecast(
    project: Project, windlass: Windlass, until: Any
) -> None:
    plan = project.plan(
        "steps: [{id: each, foreach: [a, b], run: 'touch {{ item }}; until [ -e go ]; do sleep 1; done'}]"
    )
    execution = windlass.detached(plan)
    until(lambda: (project.path / "b").exists())
    windlass("interrupt", execution)
    status = windlass("status", execution).out
    assert "paused (interrupt): 1 paused" in status
    assert "‖ each  paused  0 of 2 items" in status
    assert "running" not in status
    assert "forecast" not in status
    assert windlass("status", execution, "--json").json["steps"][0]["status"] == "running", "as it is in the journal"
