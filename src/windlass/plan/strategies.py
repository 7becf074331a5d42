"""Strategies make plans (B1–B4): one agent, a chain that hands over, or a graph of tasks.

A task's text is the user's and no template, so it goes in as an input. Which strategy is taken when none is named:

| given | strategy |
|---|---|
| more than one task | `parallel` |
| one task and a role for it | `single` |
| one task that speaks of the structure of the code (`RESTRUCTURES`), or lists three points or more | `multi` |
| any other task | `single` |
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from windlass.errors import UsageError
from windlass.plan.model import DEFAULT_ROLE

__all__ = ["RESTRUCTURES", "Strategy", "chain_for", "choose_strategy", "plan_data", "tasks_of"]


class Strategy(StrEnum):
    SINGLE = "single"
    """One agent does it."""
    MULTI = "multi"
    """A chain of agents, each of which is handed what those before it said."""
    PARALLEL = "parallel"
    """A graph of tasks; those that wait for others are handed their outputs."""
    PLAN = "plan"
    """An agent drafts the plan, and a person agrees to it."""


RESTRUCTURES = (
    "architect",
    "decouple",
    "extract",
    "migrat",
    "modular",
    "module",
    "redesign",
    "refactor",
    "reorganis",
    "reorganiz",
    "restructur",
    "rewrite",
    "split",
)
"""Beginnings of words that speak of architecture or refactoring."""

PLANNER = "planner"
"""The role of the agent that drafts a plan."""
DRAFTS = 4
"""Drafts at most: problems of a plan go back to the agent three times."""

_WORDS = re.compile(rf"\b(?:{'|'.join(RESTRUCTURES)})", re.IGNORECASE)
_POINTS = re.compile(r"^\s*(?:[-*•]|\d+[.)])\s+\S", re.MULTILINE)
_KEYS = {"task": "prompt", "role": "agent", "depends_on": "needs"}
"""Other names that a task file may use for a step's fields."""


def restructures(task: str) -> bool:
    return _WORDS.search(task) is not None


def choose_strategy(tasks: Sequence[Mapping[str, Any]], *, role: str | None = None) -> Strategy:
    """Choose a strategy when none is named: the same tasks always give the same (B4)."""
    if len(tasks) > 1:
        return Strategy.PARALLEL
    if role or tasks[0].get("agent"):
        return Strategy.SINGLE
    text = str(tasks[0]["prompt"])
    return Strategy.MULTI if restructures(text) or len(_POINTS.findall(text)) >= 3 else Strategy.SINGLE


def chain_for(task: str) -> list[str]:
    """Architect and developer; and a reviewer where the structure of the code is at stake (B2)."""
    return ["architect", "developer", *(["reviewer"] if restructures(task) else [])]


def tasks_of(data: Any, file: str) -> list[dict[str, Any]]:
    """The tasks of a task file: text, a list of texts or mappings, or a mapping with `tasks`."""
    if isinstance(data, Mapping):
        unknown = sorted(data.keys() - {"tasks"})
        if unknown or "tasks" not in data:
            problem = f"unknown key `{unknown[0]}`" if unknown else "`tasks` is missing"
            raise UsageError(f"{file}: {problem}; a task file is a list of tasks, or a mapping with `tasks`")
        data = data["tasks"]
    if isinstance(data, str):
        data = [data]
    if not isinstance(data, list) or not data:
        raise UsageError(f"{file}: a task file is text, or a list of at least one task")
    return [_task(entry, number, file) for number, entry in enumerate(data, 1)]


def _task(entry: Any, number: int, file: str) -> dict[str, Any]:
    if isinstance(entry, str):
        entry = {"task": entry}
    if not isinstance(entry, Mapping):
        raise UsageError(f"{file}: task {number} is neither text nor a mapping with `task`")
    told: dict[str, Any] = {}
    for key, value in entry.items():
        name = _KEYS.get(str(key), str(key))
        if name in told:
            raise UsageError(f"{file}: task {entry.get('id', number)} gives `{key}` twice, under two names")
        told[name] = value
    if not isinstance(told.get("prompt"), str) or not told["prompt"].strip():
        raise UsageError(f"{file}: task {told.get('id', number)} has no `task`: describe it there")
    told.setdefault("id", f"task-{number}")
    return told


def plan_data(
    tasks: Sequence[Mapping[str, Any]],
    strategy: Strategy,
    *,
    role: str | None = None,
    chain: Sequence[str] | None = None,
    name: str | None = None,
) -> dict[str, Any]:
    """A plan, as a file would say it: it passes the same checks."""
    if strategy is not Strategy.PARALLEL and len(tasks) > 1:
        raise UsageError(f"strategy {strategy} takes one task, but there are {len(tasks)}: use parallel")
    if strategy is Strategy.PARALLEL:
        steps = [_step(task, task["id"], task.get("agent") or role) for task in tasks]
        return _plan(name or "tasks", {str(task["id"]): task["prompt"] for task in tasks}, steps)
    task = {**tasks[0], "agent": tasks[0].get("agent") or role}
    if strategy is Strategy.SINGLE:
        return _plan(name or "task", {"task": task["prompt"]}, [_step(task, "task", task["agent"])])
    if strategy is Strategy.PLAN:
        draft = _step(task, "task", task["agent"] or PLANNER) | {"id": "draft", "output": "plan", "tries": DRAFTS}
        draft["prompt"] = f"{draft['prompt']}\n\nDraft a plan for this task. Do not do the task itself."
        return _plan(name or "draft", {"task": task["prompt"]}, [draft])
    roles = list(chain or chain_for(str(task["prompt"])))
    steps = []
    for number, member in enumerate(roles):
        step = _step(task, _unique(member, [earlier["id"] for earlier in steps]), member)
        step["prompt"] = _in_chain(roles, number)
        before = [earlier["id"] for earlier in steps]
        steps.append(step | ({"needs": [before[-1]], "handoff": before} if before else {}))
    return _plan(name or "task", {"task": task["prompt"]}, steps)


def _plan(name: str, texts: dict[str, Any], steps: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": name, "inputs": {"tasks": texts}, "steps": steps}


def _step(task: Mapping[str, Any], key: str, role: str | None) -> dict[str, Any]:
    rest = {name: value for name, value in task.items() if name not in ("id", "agent", "prompt")}
    return {"id": key, "agent": role or DEFAULT_ROLE, "prompt": f'{{{{ inputs.tasks["{key}"] }}}}', **rest}


def _in_chain(roles: Sequence[str], number: int) -> str:
    """The task, and the agent's place in the chain."""
    line = " → ".join(roles)
    last = number == len(roles) - 1
    after = "you are the last of it" if last else f"what you say last is handed to the {roles[number + 1]}"
    return (
        '{{ inputs.tasks["task"] }}\n\n'
        f"You work in a chain: {line}. Do the {roles[number]}'s part of this task, leave the others' to them; {after}."
    )


def _unique(role: str, taken: Sequence[str]) -> str:
    """A step's id: the role's name, with a number when it comes again."""
    name = re.sub(r"[^A-Za-z0-9_-]", "-", role)
    name = name if re.match(r"[A-Za-z_]", name) else f"agent-{name}"
    numbered = (f"{name}-{number}" for number in range(2, len(taken) + 3))
    return next(one for one in (name, *numbered) if one not in taken)
