"""Random plans whose results can be worked out by hand, and the hand that works them out.

Every step of a plan adds numbers: its own, and the outputs of some steps before it (a foreach gives a list, which
adds up to its sum; a step without a result counts as 0). `worked_out` evaluates a plan one step after another,
in a few lines that share nothing with the engine: it is what the engine's results are held against.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from windlass.core.events import AttemptStarted
from windlass.plan.model import Effect, Importance, Plan, Step

__all__ = ["Verdict", "add_up", "random_plan", "worked_out"]


def random_plan(chance: Random, *, most: int = 9, gates: bool = True, mistakes: bool = False) -> Plan:
    """A plan of up to `most` steps; with `gates` also approvals, once effects, and a limit on its time.

    With `mistakes`, some templates look at what is not there, and some fan-outs at what is no list.
    """
    ids = [f"s{n}" for n in range(chance.randint(1, most))]
    steps = [_random_step(chance, name, ids[:n], gates) for n, name in enumerate(ids)]
    if mistakes:
        for n, step in enumerate(steps):
            if chance.random() < 0.06:
                step["with"]["item"] = "{{ inputs.empty.missing }}"
            elif n and chance.random() < 0.06:
                step["foreach"] = f"steps.{chance.choice(ids[:n])}.output"
    chance.shuffle(steps)
    limits: dict[str, Any] = {"parallel": chance.choice([1, 2, 3, 8])}
    if gates and chance.random() < 0.1:
        limits["timeout"] = chance.choice([5, 30, 300])
    return Plan.model_validate({"name": "sums", "inputs": {"low": 3, "empty": {}}, "limits": limits, "steps": steps})


def _random_step(chance: Random, name: str, before: list[str], gates: bool) -> dict[str, Any]:
    looked_at = chance.sample(before, chance.randint(0, min(3, len(before))))
    step: dict[str, Any] = {
        "id": name,
        "tool": "add",
        "needs": chance.sample(before, chance.randint(0, min(2, len(before)))),
        "with": {"own": chance.randint(1, 9), "terms": [f"{{{{ steps.{other}.output }}}}" for other in looked_at]},
        "importance": chance.choices(["normal", "optional", "critical"], [7, 2, 1])[0],
    }
    if chance.random() < 0.25:
        step["foreach"] = [chance.randint(0, 9) for _ in range(chance.randint(0, 4))]
        step["with"]["item"] = "{{ item }}"
    if chance.random() < 0.2:
        step["when"] = _random_condition(chance, before)
    if chance.random() < 0.3:
        step["retry"] = chance.choice([0, 1, 5, {"max": 2, "delay": "100ms"}, {"max": 3, "on": ["transient", "logic"]}])
    if chance.random() < 0.25:
        step["timeout"] = 20
    if gates and chance.random() < 0.15:
        step["approve"] = "always"
    if gates and chance.random() < 0.2:
        step["effect"] = "once"
    return step


def _random_condition(chance: Random, before: list[str]) -> str:
    kinds = ["inputs.low > 2", "inputs.low > 5"]
    if before:
        other = chance.choice(before)
        kinds += [f"steps.{other}.status == 'failed'", f"steps.{other}.status != 'skipped'", f"steps.{other}.output"]
    return chance.choice(kinds)


def add_up(started: AttemptStarted) -> int:
    """What the tool `add` gives for these arguments."""
    given: dict[str, Any] = started.input
    return _added(given["own"], given.get("item", 0), given["terms"])


def _added(own: int, item: int, terms: list[Any]) -> int:
    return own + (item or 0) + sum(sum(filter(None, term)) if isinstance(term, list) else term or 0 for term in terms)


class Verdict:
    """What has to become of a step."""

    def __init__(self, status: str, output: Any = None, because: str = "", by_condition: bool = False) -> None:
        self.status, self.output, self.because, self.by_condition = status, output, because, by_condition


def worked_out(plan: Plan, failed: Callable[[str], bool] = lambda _step: False) -> dict[str, Verdict]:
    """What has to become of every step, given which of them fail when they run. No critical one may."""
    by_id = {step.id: step for step in plan.steps}
    verdicts: dict[str, Verdict] = {}

    def visit(name: str) -> None:
        if name in verdicts:
            return
        step = by_id[name]
        for other in _awaited(step):
            visit(other)
        verdicts[name] = _verdict(step, verdicts, by_id, failed)

    for name in by_id:
        visit(name)
    return verdicts


def _looked_at(text: str) -> str:
    """The step that `steps.X.field` speaks of."""
    return text.split("steps.")[1].split(".")[0]


def _terms(step: Step) -> list[str]:
    return [_looked_at(text) for text in step.with_["terms"]]


def _awaited(step: Step) -> list[str]:
    """Whom a step waits for: in the order in which a reason to skip it is looked for."""
    others = set(_terms(step))
    if isinstance(step.when, str) and "steps." in step.when:
        others.add(_looked_at(step.when))
    return list(dict.fromkeys([*step.needs, *sorted(others)]))


def _verdict(
    step: Step, verdicts: dict[str, Verdict], by_id: dict[str, Step], failed: Callable[[str], bool]
) -> Verdict:
    handled = _looked_at(step.when) if isinstance(step.when, str) and ".status" in step.when else None
    for other in _awaited(step):
        before = verdicts[other]
        if before.status == "completed" or other == handled:
            continue
        if before.by_condition:
            return Verdict("skipped", because=f"dependency skipped: {other}", by_condition=True)
        if by_id[other].importance is not Importance.OPTIONAL:
            return Verdict("skipped", because=f"dependency failed: {other}")
    if isinstance(step.when, str) and not _holds(step.when, verdicts):
        return Verdict("skipped", because=f"condition was false: {step.when}", by_condition=True)
    terms = [verdicts[other].output for other in _terms(step)]
    own = step.with_["own"]
    if step.foreach is None:
        return Verdict("failed") if failed(step.id) else Verdict("completed", _added(own, 0, terms))
    assert isinstance(step.foreach, list)
    lost = [failed(f"{step.id}[{index}]") for index in range(len(step.foreach))]
    outputs = [None if gone else _added(own, item, terms) for item, gone in zip(step.foreach, lost, strict=True)]
    return Verdict("failed" if any(lost) else "completed", outputs)


def _holds(condition: str, verdicts: dict[str, Verdict]) -> bool:
    if condition.startswith("inputs.low > "):
        return int(condition.removeprefix("inputs.low > ")) < 3
    before = verdicts[_looked_at(condition)]
    if condition.endswith(".output"):
        return bool(before.output)
    return (before.status == "failed") if "==" in condition else (before.status != "skipped")


def is_once(plan: Plan, step: str) -> bool:
    return plan.by_id[step.partition("[")[0]].effect is Effect.ONCE
