"""A plan as lines: its steps in the order in which they can run, with what each waits for and its other keys in brief.

Every key of a step is in `MARKS`, in the line itself, or in `NOT_SHOWN`; a test compares them with the plan's model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from windlass.cli.terminal import clip
from windlass.core.budget import money, shown
from windlass.core.forecast.value import duration_text
from windlass.plan.model import Plan, Retry, Step
from windlass.plan.prepare import prepare
from windlass.visible import one_line

__all__ = ["IN_LINE", "MARKS", "NOT_SHOWN", "plan_lines"]

WIDEST = 60
"""Characters of one mark, beyond which it is cut."""

IN_LINE = frozenset({"id", "needs", "tool"})
"""Keys that the line of a step begins with."""
NOT_SHOWN = frozenset({"name", "run", "with_", "code", "env", "prompt", "merge", "question"})
"""Keys with the work itself and its words, which may be long: the plan file has them."""


def plan_lines(plan: Plan) -> Iterator[str]:
    graph = prepare(plan).graph
    depth: dict[str, int] = {}
    for step_id in graph.order:
        step, needs = plan.by_id[step_id], graph.needs[step_id]
        depth[step_id] = max((depth[need] + 1 for need in needs), default=0)
        marks = [clip(one_line(text), WIDEST) for mark in MARKS.values() if (text := mark(step))]
        after = f" ← {', '.join(needs)}" if needs else ""
        remark = f"  ({'; '.join(marks)})" if marks else ""
        yield f"{'  ' * depth[step_id]}{step_id}: {step.tool_name}{after}{remark}"


def _permissions(step: Step) -> str:
    found = step.permissions
    if found is None:
        return ""
    parts = [found.mode or "", _list("allow", found.allow), _list("deny", found.deny)]
    return f"permissions: {', '.join(filter(None, parts))}"


def _budget(step: Step) -> str:
    found = step.budget
    if found is None:
        return ""
    parts = [
        money(found.usd) if found.usd is not None else "",
        shown(found.tokens, "tokens") if found.tokens is not None else "",
    ]
    return f"budget {' and '.join(filter(None, parts))}"


def _handoff(step: Step) -> str:
    if isinstance(step.handoff, bool):
        return "" if step.handoff else "no handoff"
    return _list("handoff from", step.handoff)


def _retry(found: Retry) -> str:
    if found == Retry():
        return ""
    return f"retry {found.max}" if found.max else "no retry"


def _within(word: str, seconds: float | None) -> str:
    return f"{word} {duration_text(seconds)}" if seconds else ""


def _list(word: str, found: Sequence[str]) -> str:
    return f"{word} {', '.join(found)}" if found else ""


def _count(found: Sequence[object], noun: str) -> str:
    return f"{len(found)} {noun}{'' if len(found) == 1 else 's'}" if found else ""


MARKS: dict[str, Callable[[Step], str]] = {
    "importance": lambda step: str(step.importance) if step.importance != "normal" else "",
    "approve": lambda step: {"always": "needs approval", "auto": ""}.get(step.approve, "asks if sensitive"),
    "approve_within": lambda step: _within("answered within", step.approve_within),
    "when": lambda step: f"when {step.when}" if step.when is not None else "",
    "foreach": lambda step: "foreach" if step.foreach is not None else "",
    "pick": lambda step: "picks the first" if step.pick is not None else "",
    "only": lambda step: f"only {step.only}" if step.only is not None else "",
    "service": lambda step: "service" if step.service is not None else "",
    "agent": lambda step: f"role {step.agent}" if step.agent else "",
    "runtime": lambda step: f"runtime {step.runtime}" if step.runtime else "",
    "model": lambda step: f"model {step.model}" if step.model else "",
    "models": lambda step: _list("models", step.models),
    "skills": lambda step: _list("skills", step.skills),
    "files": lambda step: _list("files", step.files),
    "handoff": _handoff,
    "permissions": _permissions,
    "grants": lambda step: "" if step.grants is None else _list("may call", step.grants) or "may call no tool",
    "max_turns": lambda step: f"at most {step.max_turns} turns" if step.max_turns else "",
    "check": lambda step: _count(step.check, "check"),
    "tries": lambda step: f"at most {step.tries} tries" if step.tries else "",
    "protect": lambda step: "" if step.protect is None else _list("protects", step.protect) or "protects nothing",
    "output": lambda step: "" if step.output is None else "gives a plan" if step.output == "plan" else "gives data",
    "workspace": lambda step: step.workspace.kind if step.workspace is not None else "",
    "workdir": lambda step: f"in {step.workdir}" if step.workdir else "",
    "limits": lambda step: "limits" if step.limits is not None else "",
    "budget": _budget,
    "fallback": lambda step: "" if step.fallback is None else "fallback" if step.fallback else "no fallback",
    "retry": lambda step: _retry(step.retry),
    "timeout": lambda step: _within("timeout", step.timeout),
    "effect": lambda step: f"effect {step.effect}" if step.effect is not None else "",
    "tag": lambda step: f"on workers with tag {step.tag}" if step.tag else "",
}
"""The keys that are shown in brief where a step has them, in the order in which they are shown."""
