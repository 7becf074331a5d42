"""`service` of a step, as a plan file has it (B5)."""

from __future__ import annotations

import pytest

from windlass.errors import PlanInvalid
from windlass.plan.load import load_text


def test_b5_a_service_in_short_and_in_full() -> None:
    text = "steps: [{id: a, run: x, service: true}, {id: b, run: x, service: {port: '{{ inputs.port }}'}}]"
    short, full = load_text(f"inputs: {{port: 8080}}\n{text}").plan.steps
    assert short.arguments["service"] == {"within": 60.0}
    assert full.arguments["service"] == {"port": "{{ inputs.port }}", "within": 60.0}


@pytest.mark.parametrize(
    ("step", "problem"),
    [
        ("{tool: files.read, with: {path: a}, service: true}", "`service` is for one command, and this is none"),
        ("{run: x, foreach: [1], service: true}", "`service` is for one command, and a `foreach` is many"),
        ("{run: x, service: {port: 80, line: up}}", "ready by one of `port`, `line` and `command`"),
        ("{run: x, service: {port: 70000}}", "70000 is not a port"),
        ("{run: x, service: {prot: 80}}", "prot"),
        ("{run: x, service: {line: '{{ inputs.wrd }}'}}", "inputs.wrd"),
    ],
)
def test_b5_a_service_that_cannot_be_is_refused_with_the_reason(step: str, problem: str) -> None:
    with pytest.raises(PlanInvalid) as refused:
        load_text(f"inputs: {{word: up}}\nsteps: [{step.replace('{', '{id: a, ', 1)}]")
    assert problem in str(refused.value)


def test_b5_a_service_that_nothing_needs_is_warned_about() -> None:
    alone = load_text("steps: [{id: a, run: x, service: true}]")
    assert ["a service that no step needs ends at once" in str(one) for one in alone.warnings] == [True]
    needed = load_text("steps: [{id: a, run: x, service: true}, {id: b, run: x, needs: [a]}]")
    assert [str(one) for one in needed.warnings] == []
