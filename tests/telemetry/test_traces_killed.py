"""Traces of executions whose processes are killed: one trace, each span once or the same again (I6, D2)."""

from __future__ import annotations

from typing import Any

import pytest
from receiver import Receiver, tree

PLAN = """
name: hard-life
steps:
  - {id: a, run: "true"}
  - {id: b, run: "echo $WINDLASS_ATTEMPT >> b.txt; test $(wc -l < b.txt) -gt 3 || exec sleep 600", needs: [a]}
  - {id: c, run: "true", needs: [b]}
"""


def telemetry(receiver: Receiver) -> dict[str, str]:
    return {"WINDLASS_TELEMETRY": f'{{"endpoint": "{receiver.endpoint}"}}'}


def test_i6_an_execution_killed_three_times_is_one_trace(
    project: Any, windlass: Any, until: Any, receiver: Receiver
) -> None:
    project.plan(PLAN)
    env = telemetry(receiver)
    execution = windlass.detached("plan.yaml", **env)
    for attempt in (1, 2, 3):
        until(lambda attempt=attempt: len(project.lines("b.txt")) == attempt, f"attempt {attempt} is at work")
        windlass.kill(execution)
        if attempt < 3:
            windlass.background("resume", execution, **env)
    windlass("resume", execution, **env)
    spans = receiver.unique()  # raises if a span came in two forms
    assert {span.trace for span in spans.values()} == {execution.replace("-", "")}
    assert tree(spans) == [
        "invoke_workflow hard-life",
        "  step a",
        "    execute_tool shell",
        "  step b",
        *["    execute_tool shell"] * 4,
        "  step c",
        "    execute_tool shell",
    ]
    (step,) = receiver.named("step b")
    lost = [span for span in spans.values() if span.parent == step.id and span.error]
    assert [span.attributes["windlass.stopped"] for span in lost] == ["lost"] * 3
    (root,) = receiver.named("invoke_workflow hard-life")
    assert [name for name, _at, _told in root.events] == ["windlass.started", *["windlass.resumed"] * 3]
    assert len({told["windlass.driver"] for _name, _at, told in root.events}) == 4


@pytest.mark.parametrize("point", [1, 2, 3])
def test_i6_a_kill_after_any_commit_loses_no_span(point: int, project: Any, windlass: Any, receiver: Receiver) -> None:
    """The process dies before it has sent anything: who resumes it sends that, too."""
    project.plan(
        "name: p\nsteps: [{id: a, run: 'true'}, {id: b, run: 'true', needs: [a]}, {id: c, run: 'true', needs: [b]}]"
    )
    env = telemetry(receiver)
    windlass("run", "plan.yaml", code=-9, WINDLASS_FAULT=f"journal.after_commit:{point}", **env)
    (execution,) = project.ids()
    windlass("resume", execution, **env)
    spans = receiver.unique()
    steps = [span.attributes["windlass.step"] for span in spans.values() if span.name.startswith("step ")]
    assert sorted(steps) == ["a", "b", "c"]
    known = set(spans)
    assert all(span.parent in known for span in spans.values() if span.parent)
