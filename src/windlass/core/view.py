"""JSON view of a state: the contract of `status`, `run` and the API."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Set
from typing import Any

from windlass.clock import iso
from windlass.core.advice import failure_advice, own_advice
from windlass.core.agent import AgentState, Cost
from windlass.core.budget import Amount, limit_of
from windlass.core.events import AgentChecked, AnswerRefused, CheckResult, Usage
from windlass.core.resources import Resources, summed
from windlass.core.scope import errors_of
from windlass.core.state import State, StepState
from windlass.core.transitions import ExecutionStatus, StepStatus
from windlass.errors import Failure

__all__ = [
    "has_verified_work",
    "items_of",
    "percent_of",
    "progress",
    "question_view",
    "shows_progress",
    "snapshot",
    "step_view",
    "summary",
    "verdict_of",
    "waits_because",
    "waits_for",
    "whole_percent",
]

NONE_STALE: Set[str] = frozenset()
ALMOST = 99.9
"""The most percent that are said while a step is left."""


def progress(state: State) -> float:
    """Percent of the plan's steps that are settled; a foreach counts by its items."""
    done = float(len(state.plan.steps) - state.unsettled)
    for step in state.top_level():
        if step.children and not step.settled:
            done += 1 - step.open_children / len(step.children)
    return percent_of(state, done)


def percent_of(state: State, done: float) -> float:
    """So many of its steps in percent; 100 is said of what is done alone, and not of 2,999 steps of 3,000."""
    percent = round(100.0 * done / len(state.plan.steps), 1)
    return min(percent, ALMOST) if state.unsettled else percent


def whole_percent(percent: float) -> int:
    """The same without a fraction, for people to read."""
    return min(round(percent), 99) if percent < 100 else 100


def shows_progress(state: State) -> bool:
    """False for an execution that ended without completing: all its steps are settled, and it is not 100 % done."""
    return not state.status.finished or state.status is ExecutionStatus.COMPLETED


def has_verified_work(state: State) -> bool:
    """True if the checks of an agent's work have passed, and its files may have changed since."""
    return any(step.agent is not None and step.agent.verdict == "verified" for step in state.steps.values())


def snapshot(state: State, forecast: Mapping[str, Any] | None = None, stale: Set[str] = NONE_STALE) -> dict[str, Any]:
    """One execution as one JSON object, with its forecast if there is one; `stale` are steps (see `verdict_of`)."""
    steps = [view for step in state.top_level() for view in _with_items(state, step, stale)]
    return _execution(state, forecast, {"steps": steps, "delegation": _delegation(state)})


def summary(state: State, forecast: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The same without its steps."""
    return _execution(state, forecast, {})


def _execution(state: State, forecast: Mapping[str, Any] | None, steps: Mapping[str, Any]) -> dict[str, Any]:
    left = forecast["left_s"] if forecast is not None else None
    return {
        "id": state.id,
        "plan": state.plan.name,
        "status": str(state.status),
        "phase": state.phase,
        "reason": state.paused_for or None,
        "inputs": state.inputs,
        "workdir": state.workdir,
        "created_at": iso(state.created_at),
        "started_at": iso(state.started_at),
        "finished_at": iso(state.finished_at),
        **steps,
        "cost": _cost(state.cost),
        "budget": _budget(state),
        "resources": _resources(summed(step.used for step in state.steps.values())),
        "progress": progress(state),
        "eta": left["p50"] if left is not None else None,
        "forecast": forecast,
        "lacks": list(state.lacks),
        **({"refused_answers": [_refused(event) for event in state.refused]} if state.refused else {}),
        "error": _failure(state, state.error),
    }


def _refused(event: AnswerRefused) -> dict[str, Any]:
    """An answer that came from inside an attempt."""
    return {"at": iso(event.at), "what": event.what, "step": event.step or None, "by": event.by}


def _with_items(state: State, step: StepState, stale: Set[str]) -> list[dict[str, Any]]:
    return [step_view(state, step, stale), *(step_view(state, child, stale) for child in step.children or ())]


def step_view(state: State, step: StepState, stale: Set[str] = NONE_STALE) -> dict[str, Any]:
    ended = step.finished_at
    began = step.started_at
    return {
        "id": step.id,
        "status": str(step.status),
        "attempts": step.attempts,
        "input": step.input,
        "output": step.output,
        "error": _failure(state, step.error) if step.status is not StepStatus.COMPLETED else None,
        "skipped_because": step.skipped_because,
        "waiting_for": waits_for(step),
        "waiting_because": waits_because(step),
        "until": iso(step.until) if step.status is StepStatus.WAITING else None,
        "question": question_view(step),
        "started_at": iso(began),
        "finished_at": iso(ended),
        "duration_s": round(ended - began, 6) if began is not None and ended is not None else None,
        "queued_s": _seconds(step, "queued"),
        "waited_s": _seconds(step, "waited"),
        "worked_s": _seconds(step, "worked"),
        "cost_usd": _step_cost(step).shown_usd,
        "agent": _agent(step, stale),
        **({"picked": step.picked} if step.picked else {}),
        "resources": _resources(summed((step.used, *(child.used for child in step.children or ())))),
        **({"items": items_of(step), "errors": _errors(state, step)} if step.children is not None else {}),
        **({"undone": True} if step.undone else {}),
        **({"gives_up_at": iso(step.gives_up_at)} if _waits_for_api(step) else {}),
    }


def _errors(state: State, step: StepState) -> dict[str, Any]:
    """Why items failed, by their index; without advice that would be refused."""
    found = errors_of(step)
    for child in step.children or ():
        if (error := found.get(str(child.index))) and "advice" in error and child.error is not None:
            error["advice"] = own_advice(state, child.error)
    return found


def _waits_for_api(step: StepState) -> bool:
    return step.status is StepStatus.WAITING and step.waiting_for == "retry" and step.gives_up_at is not None


def _seconds(step: StepState, name: str) -> float:
    """Of a step and its items together: items that ran at once make more than the time that passed."""
    seconds: float = sum(getattr(one, name) for one in (step, *(step.children or ())))
    return round(seconds, 6)


def items_of(step: StepState) -> dict[str, int]:
    """Count the items of a foreach, by status."""
    children = step.children or []
    count = Counter(child.status for child in children)
    return {
        "done": count[StepStatus.COMPLETED],
        "failed": count[StepStatus.FAILED],
        "skipped": count[StepStatus.SKIPPED],
        "total": len(children),
    }


def waits_for(step: StepState) -> str | None:
    """The reason of a step's wait; for a running attempt `place`, `model` (its API), or `budget` reserved by others."""
    if step.status is StepStatus.WAITING:
        return step.waiting_for
    if (stalled := _stalled(step)) is not None:
        return stalled[0]
    return "budget" if waits_because(step) else None


def waits_because(step: StepState) -> str | None:
    """The words for it, where there are any."""
    if step.status is StepStatus.WAITING:
        return step.question or None
    if (stalled := _stalled(step)) is not None:
        return stalled[1]
    agent = step.agent
    if agent is None or step.status is not StepStatus.RUNNING or agent.waits[0] != step.attempts:
        return None
    return agent.waits[1] or None


def _stalled(step: StepState) -> tuple[str, str] | None:
    """The wait of the running attempt for a place or for the model API."""
    if step.stalled is None or step.status is not StepStatus.RUNNING or step.stalled[0] != step.attempts:
        return None
    return step.stalled[1], step.stalled[2]


def _budget(state: State) -> dict[str, Any]:
    """The execution's own limit, as the plan or a person has set it, and the limits that are passed."""
    named, said = state.plan.budget, state.allowed.get("execution")
    limit = limit_of(said, named or Amount())
    return {
        "limit_usd": limit.usd,
        "limit_tokens": limit.tokens,
        "overruns": [
            {
                "scope": passed.scope,
                "step": passed.step if passed.scope == "step" else None,
                "unit": passed.unit,
                "limit": passed.limit,
                "spent": passed.spent,
                "text": passed.message,
            }
            for passed in state.overruns.values()
        ],
    }


def _step_cost(step: StepState) -> Cost:
    own = step.agent.cost if step.agent is not None else Cost()
    return sum((_step_cost(child) for child in step.children or ()), own)


def _cost(cost: Cost) -> dict[str, Any]:
    return {
        "usd": cost.shown_usd,
        "known": not cost.unknown,
        "tokens_in": cost.tokens_in,
        "tokens_out": cost.tokens_out,
        "text": cost.text,
    }


def _resources(used: Resources | None) -> dict[str, Any] | None:
    """Machine resources used; null is unknown."""
    if used is None:
        return None
    return {
        "cpu_s": round(used.cpu, 6) if used.cpu is not None else None,
        "memory_bytes": used.memory,
        "received_bytes": used.received,
        "sent_bytes": used.sent,
    }


def verdict_of(step: StepState, stale: Set[str] = NONE_STALE) -> str | None:
    """The verdict on an agent's work: `stale` for a verified one of these steps, whose files have changed since."""
    agent = step.agent
    if agent is None or not (step.settled or agent.checked is not None):
        return None
    if agent.verdict == "claimed" and step.settled and step.status is not StepStatus.COMPLETED:
        return None  # it came to no result that could be claimed
    return "stale" if step.id in stale and agent.verdict == "verified" else agent.verdict


def _agent(step: StepState, stale: Set[str]) -> dict[str, Any] | None:
    """The step's agent: role, runtime, model, conversation, cost."""
    agent = step.agent
    if agent is None or not agent.runtime:
        return None
    return {
        "role": agent.role,
        "runtime": agent.runtime,
        "model": agent.model or None,
        **({"models": _models(agent)} if step.spec.models else {}),
        "session": agent.session,
        "cost": _cost(agent.cost),
        "verdict": verdict_of(step, stale),
        **(_checks(agent.checked) if agent.checked is not None else {}),
    }


def _checks(checked: AgentChecked) -> dict[str, Any]:
    found: dict[str, Any] = {"checks": [_check(result) for result in checked.results]}
    if checked.put_back:
        found["put_back"] = list(checked.put_back)
    if checked.touched:
        found["touched"] = list(checked.touched)
    if checked.unmatched:
        found["unmatched"] = list(checked.unmatched)
    return found


def _models(agent: AgentState) -> list[dict[str, Any]]:
    """The models that worked on it one after the other, each with its cost."""
    by_model: dict[str, list[Usage]] = {}
    for usage in agent.usage.values():
        by_model.setdefault(usage.model, []).append(usage)
    return [{"model": name or None, "cost": _cost(Cost.of(used))} for name, used in by_model.items()]


def _check(result: CheckResult) -> dict[str, Any]:
    return {
        "check": result.check,
        "passed": result.passed,
        "exit_code": result.exit_code,
        "output": result.output,
        "seconds": result.seconds,
    }


def _delegation(state: State) -> list[dict[str, Any]]:
    """The agents in the order of the work, with the steps that handed output to each (B2)."""
    order = state.prepared.graph.order
    agents = [state.steps[name] for name in order if state.steps[name].spec.is_agent]
    return [
        {
            "step": step.id,
            "role": step.agent.role if step.agent is not None else step.spec.agent,
            "runtime": step.agent.runtime if step.agent is not None else None,
            "handed_over_by": [given["step"] for given in (step.input or {}).get("handoff", ())],
            "status": str(step.status),
            "output": step.output,
        }
        for step in agents
    ]


def question_view(step: StepState) -> dict[str, Any] | None:
    """The open question of a waiting step."""
    if step.status is not StepStatus.WAITING or not step.asks:
        return None
    if step.waiting_for in ("outcome", "budget"):
        return {"kind": step.waiting_for, "text": step.question}
    if step.approval is None:
        return None
    asked = step.approval
    return {
        "kind": "approval",
        **({"text": asked.question} if asked.question else {}),
        "tool": asked.tool,
        "input": asked.input,
        "digest": asked.digest,
        **({"basis": dict(asked.basis)} if asked.basis else {}),
        "expires_at": iso(asked.expires_at),
    }


def _failure(state: State, failure: Failure | None) -> dict[str, Any] | None:
    if failure is None:
        return None
    return {
        "category": str(failure.category),
        "message": failure.message,
        "where": failure.where,
        "advice": list(failure_advice(state, failure)),
        **({"kind": failure.kind} if failure.kind else {}),
    }
