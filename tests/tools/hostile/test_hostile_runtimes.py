"""A runtime that fails again and again (C4, A7): the other of its family takes over, and everybody can see why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import windlass as library
from windlass import Plan, Step
from windlass.core import events as ev
from windlass.core.breaker import FAILURES
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project, Windlass
    from server_process import Server


async def test_c4_a_runtime_that_fails_again_and_again_is_left_alone_and_the_other_works_instead(
    project: Project, windlass: Windlass, server: Server, long_rest: None
) -> None:
    broken = ScriptedRunner([Turn(repeat=True).fail("overloaded", category="transient")], name="claude-code")
    instead = ScriptedRunner([Turn(repeat=True).say("by the other")], name="open-code")
    names = [f"s{number}" for number in range(FAILURES + 2)]
    steps = [
        Step(id=n, agent="developer", prompt="work", retry={"max": 0}, importance="optional", needs=names[i - 1 : i])
        for i, n in enumerate(names)
    ]
    async with library.open(runners=[broken, instead]) as engine:
        running = await engine.start(Plan(steps=steps, runtime="claude-code"))
        result = await running.result()
        statuses = [step["status"] for step in result["steps"]]
        assert statuses == ["failed"] * FAILURES + ["completed"] * 2
        assert len(broken.requests) == FAILURES, "while its breaker is open, it is asked for nothing"
        assert result["steps"][-1]["agent"]["runtime"] == "open-code"
    told = [event for event in project.events(running.id) if isinstance(event, ev.RuntimeFellBack)]
    assert len(told) == 2
    assert "circuit open after 5 failures (last: overloaded)" in told[0].because
    assert "! runtime claude-code: open, next probe at " in windlass("status").out
    breakers = server.api.get("/api/health").json["breakers"]
    assert (breakers["runtime claude-code"]["circuit"], list(breakers)) == ("open", ["runtime claude-code"])
    assert windlass("tools", "check", "--json", code=1).json["breakers"] == breakers
