"""kill -9 between a retry or a skip and its effect: what was acknowledged holds, and nothing runs twice (D10, D2)."""

from __future__ import annotations

import signal
from collections import Counter

import pytest
from crash_cli import Cli, Home
from test_kill_points import NewHome, the_id

from windlass.core.state import fold

WRITE = 'echo "$WINDLASS_STEP $WINDLASS_ATTEMPT" >> log'
PLAN = f"""
steps:
  - {{id: done, run: '{WRITE}'}}
  - {{id: bad, run: '{WRITE}; [ "$WINDLASS_ATTEMPT" -gt 1 ]'}}
  - {{id: after, needs: [bad], run: '{WRITE}'}}
"""


@pytest.mark.parametrize("command", ["retry", "skip"])
def test_d10_a_kill_at_any_write_of_a_request_loses_nothing(cli: Cli, new_home: NewHome, command: str) -> None:
    point = 0
    while True:
        point += 1
        home = new_home(PLAN)
        assert cli.run(home, "run", str(home.plan), "--json").code == 1
        execution = the_id(cli, home)
        ended = cli.run(home, command, execution, "bad", "--json", env={"WINDLASS_FAULT": f"*:{point}"})
        if ended.code == 0:
            break
        assert ended.code == -signal.SIGKILL, ended.err
        finish(cli, home, execution, command)
    assert point > 6, "a request, a resume and what follows are several writes"


def finish(cli: Cli, home: Home, execution: str, command: str) -> None:
    """Whatever was killed: type what the state asks for, and everything is done once."""
    state = fold(home.events())
    if state.status in ("failed", "partial"):
        last = cli.run(home, command, execution, "bad", "--json")
    elif not state.status.finished:
        last = cli.run(home, "resume", execution, "--json")
    else:
        last = cli.run(home, "status", execution, "--json")
    assert last.json["status"] == "completed", last.err
    times = Counter(step for step, _attempt in home.log)
    assert times["done"] == 1
    assert times["bad"] == (1 if command == "skip" else times["bad"])
    assert fold(home.events()).steps["after"].status == "completed"
