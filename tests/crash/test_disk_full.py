"""The disk fills up, or fails, at one write after another (D2).

Two real ways to run out: a file system of a few pages, mounted for the test (the errors of a full disk), and a limit
on the size of files (the errors of a failing one). Each leaves a little more room than the last, until the run gets
through. Whenever it does not: a clear error with advice, nothing acknowledged lost, and a resume once there is room.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from crash_cli import Cli, Ended, Home

from windlass.core import events as ev
from windlass.core.state import fold

NewHome = Callable[[str], Home]
WRITE = 'echo "$WINDLASS_STEP $WINDLASS_ATTEMPT" >> {log}'


NO_FLOOR = {"WINDLASS_LOAD": '{"disk_floor": 0}'}
"""These disks are full on purpose; a floor would say so before anything is begun."""


def plan(log: Path, description: str = "") -> str:
    """Four steps, the output of each too large for the pages that are left over."""
    lines = [f"name: full\ndescription: '{description}'\nsteps:"]
    for number in range(4):
        needs = f"[s{number - 1}]" if number else "[]"
        write = WRITE.format(log=log)
        lines.append(f"  - id: s{number}\n    needs: {needs}\n    run: {write}; head -c 3000 /dev/zero | tr '\\0' x")
    return "\n".join(lines)


def check_refusal(ended: Ended) -> None:
    assert ended.code == 1, f"exit code {ended.code}\n{ended.err}"
    assert "Traceback" not in ended.err
    assert "never retrieved" not in ended.err
    said = ("windlass: the disk of", "cannot be created: No space left on device")  # the journal's; a new home's
    assert any(text in ended.err for text in said), ended.err
    assert "  → " in ended.err, "there is advice"


def check_journal(home: Home) -> dict[str, int]:
    """What is on disk makes sense, and the steps did nothing of which it does not know. Gives what is completed."""
    events = home.events()
    if not events:
        assert home.log == []
        return {}
    state = fold(events)
    started = {(event.step, event.attempt) for event in events if isinstance(event, ev.AttemptStarted)}
    assert set(home.log) <= started
    return {step.id: step.attempts for step in state.steps.values() if step.status == "completed"}


def finish_with_room(cli: Cli, home: Home, done: dict[str, int]) -> None:
    """With room again it goes on to its end, or begins if there was not even room to begin."""
    listed = cli.run(home, "list", "--json", env=NO_FLOOR)
    assert listed.code == 0, listed.err
    executions = [(found["id"], found["status"]) for found in listed.json]
    if not executions:
        ended = cli.run(home, "run", str(home.plan), "--json", env=NO_FLOOR)
    elif executions[0][1] == "completed":
        ended = cli.run(home, "status", executions[0][0], "--json")
    else:
        ended = cli.run(home, "resume", executions[0][0], "--json", env=NO_FLOOR)
    assert ended.code == 0, ended.err
    assert {step["status"] for step in ended.json["steps"]} == {"completed"}
    log = home.log
    assert len(set(log)) == len(log)
    assert {step for step, _ in log} == {"s0", "s1", "s2", "s3"}
    again = [(step, attempt) for step, attempt in log if attempt > done.get(step, 99)]
    assert again == [], "what was completed did not run again"


def fill_files(cli: Cli, new_home: NewHome, stride: int) -> int:
    """Let files grow by `stride` bytes more each time. Returns how many executions were refused in their middle."""
    refused, executions = 0, 0
    # Below 32 KiB not even SQLite's shared index fits; the description takes what is above that.
    for limit in (4_096, 20_000, *range(33_000, 240_000, stride)):
        home = new_home("")
        home.plan.write_text(plan(home.folder / "log", "d" * 24_000))
        ended = cli.run(home, "run", str(home.plan), "--json", largest_file=limit)
        if ended.code == 0:
            break
        check_refusal(ended)
        refused += 1
        done = check_journal(home)
        executions += bool(home.events())
        finish_with_room(cli, home, done)
    else:
        pytest.fail("it never got through")
    print(f"{refused} refusals, {executions} of them in the middle of an execution")
    return executions


def test_d2_a_journal_whose_file_may_not_grow_fails_clearly_and_can_be_resumed(cli: Cli, new_home: NewHome) -> None:
    assert fill_files(cli, new_home, 12_000) >= 2


@pytest.mark.soak
def test_d2_a_journal_whose_file_may_not_grow_the_long_form(cli: Cli, new_home: NewHome) -> None:
    assert fill_files(cli, new_home, 500) >= 50, "several at different places of each commit"


@contextmanager
def mounted(folder: Path, pages: int) -> Iterator[None]:
    """A file system of so many pages of 4 KiB."""
    folder.mkdir()
    options = f"size={pages * 4}k,mode=700"
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "windlass-test", folder], capture_output=True)
    if made.returncode != 0:
        pytest.skip(f"a small file system cannot be mounted here: {made.stderr.decode().strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill_disks(cli: Cli, new_home: NewHome, stride: int) -> int:
    """Give the disk `stride` pages more each time. Returns how many executions were refused in their middle."""
    refused, executions = 0, 0
    for pages in range(1, 120, stride):
        home = new_home("")
        home.plan.write_text(plan(home.folder / "log"))
        with mounted(home.path, pages):
            ended = cli.run(home, "run", str(home.plan), "--json", env=NO_FLOOR)
            if ended.code == 0:
                break
            check_refusal(ended)
            refused += 1
            subprocess.run(["mount", "-o", "remount,size=16m", home.path], check=True)
            done = check_journal(home)
            executions += bool(home.events())
            finish_with_room(cli, home, done)
    else:
        pytest.fail("it never got through")
    print(f"{refused} refusals, {executions} of them in the middle of an execution")
    return executions


def test_d2_a_full_disk_fails_clearly_and_can_be_resumed(cli: Cli, new_home: NewHome) -> None:
    assert fill_disks(cli, new_home, 5) >= 1


@pytest.mark.soak
def test_d2_a_full_disk_the_long_form(cli: Cli, new_home: NewHome) -> None:
    assert fill_disks(cli, new_home, 1) >= 8


def test_d2_a_step_that_still_runs_when_the_disk_fills_up_is_stopped(cli: Cli, new_home: NewHome) -> None:
    """Nothing may go on of which nothing can be written down any more."""
    home = new_home("")
    log = home.folder / "log"
    home.plan.write_text(
        f"""
name: full
description: '{"d" * 24_000}'
steps:
  - id: endless
    run: echo $$ > {home.folder}/pid; exec sleep 1000
  - id: flood
    run: |
      {WRITE.format(log=log)}
      while [ ! -s {home.folder}/pid ]; do :; done
      head -c 200000 /dev/zero | tr '\\0' x
"""
    )
    ended = cli.run(home, "run", str(home.plan), largest_file=110_000)
    check_refusal(ended)
    pid = int((home.folder / "pid").read_text())
    assert not Path(f"/proc/{pid}").exists(), "its processes are gone before the command is"
    done = check_journal(home)
    assert done == {}
