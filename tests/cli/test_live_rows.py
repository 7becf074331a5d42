"""Progress of many items: what runs is in sight on a small screen, and a log folds failures that are alike (I1)."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

import windlass as wl
from windlass.cli.text import describe_agent
from windlass.cli.view import LiveView
from windlass.core import events as ev
from windlass.core.transitions import ExecutionStatus, StepStatus

if TYPE_CHECKING:
    from conftest import Project, Windlass


@wl.tool
async def quick(number: int) -> int:
    return number


def drawn(view: LiveView, width: int, height: int) -> list[str]:
    screen = io.StringIO()
    view._live = Live(console=Console(file=screen, width=width, height=height))
    view._live.console.print(view._draw())
    return screen.getvalue().splitlines()


async def test_i1_of_200_items_those_that_run_are_in_sight_in_24_rows_of_60_columns(project: Project) -> None:
    each = wl.Step(id="each", tool="quick", with_={"number": "{{ item }}"}, foreach=list(range(200)))
    before = [wl.Step(id=f"before{number}", tool="quick", with_={"number": number}) for number in range(30)]
    async with wl.open(tools=[quick]) as engine:
        execution = await engine.start(wl.Plan(name="a name that is rather long for it", steps=[*before, each]))
        await execution.result()
        state = await engine.state(execution.id)
    state.status, state.steps["each"].status = ExecutionStatus.RUNNING, StepStatus.RUNNING
    running = [f"each[{number}]" for number in (0, 99, 150, 199)]
    for name in running:
        state.steps[name].status, state.steps[name].finished_at = StepStatus.RUNNING, None
    view = LiveView()
    view.state = state
    rows = drawn(view, 60, 24)
    assert len(rows) < 24
    assert max(map(len, rows)) <= 60
    for name in ("each", *running):
        assert any(row.strip().startswith(f"▶ {name} ") for row in rows), name
    assert any("of 200 items" in row for row in rows)
    assert "more steps" in rows[-1]
    assert execution.id in drawn(view, 160, 24)[0]


def test_i1_a_log_folds_the_failures_of_items_that_are_alike(project: Project, windlass: Windlass) -> None:
    plan = project.plan("""
        steps:
          - {id: each, foreach: [1, 2, 3, 4, 5, 6, 7], retry: 0, run: exit 1}
          - {id: other, foreach: [1, 2, 3, 4], retry: 0, run: exit 2}
    """)
    told = windlass("run", plan, "--progress", "plain", code=1).err
    assert sum("failed: exit code 1" in line and "each[" in line for line in told.splitlines()) == 3
    assert "✗ 4 more items failed with: exit code 1\n" in told
    assert "✗ 1 more item failed with: exit code 2\n" in told


def test_i1_a_long_message_to_an_agent_is_cut_with_an_ellipsis() -> None:
    told = ev.AgentTold(1.0, "fix", "1", "Mend it. " * 50, "check")
    line = describe_agent(told)
    assert line is not None
    assert line.startswith("› fix: check: Mend it. Mend it.")
    assert line.endswith("…")
    assert describe_agent(ev.AgentTold(1.0, "fix", "1", "Mend\nit.", "check")) == "› fix: check: Mend it."
