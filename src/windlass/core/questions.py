"""The questions of an execution that wait for an answer, as lists need them: found without folding its journal. Pure.

A journal keeps them in an index, in the same commit as the events. `open_questions` gives the index entries of a state,
`changes_of` the entries that a commit adds and removes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from windlass.core.state import State

__all__ = [
    "OpenQuestion",
    "QuestionChanges",
    "asked_beside_approval",
    "changes_of",
    "is_answer_on_budget",
    "limits_asked_about",
    "open_questions",
    "question_id",
]


class OpenQuestion(NamedTuple):
    """One request for approval that nobody has answered yet."""

    step: str
    seq: int
    """The place of its `approval.asked` in the execution's journal."""
    id: str
    digest: str
    workdir: str
    """The execution's working directory."""


class QuestionChanges(NamedTuple):
    """The difference that a commit makes to the index."""

    opened: tuple[OpenQuestion, ...] = ()
    closed: tuple[str, ...] = ()
    """Steps without an open question by now."""


def question_id(execution: str, step: str, digest: str) -> str:
    """The id of one question of one execution, for exactly this request."""
    return hashlib.sha256(f"{execution}\0{step}\0{digest}".encode()).hexdigest()[:32]


def open_questions(state: State) -> dict[str, OpenQuestion]:
    """Every step that waits for approval, with its question."""
    found: dict[str, OpenQuestion] = {}
    for step in state.questions.values():
        asked = step.approval
        if step.waiting_for == "approval" and asked is not None:
            name = question_id(state.id, step.id, asked.digest)
            found[step.id] = OpenQuestion(step.id, asked.seq, name, asked.digest, state.workdir)
    return found


def asked_beside_approval(state: State) -> str:
    """`decision` or `budget` while a step asks a person for that, as the reason of a pause would say it; else empty."""
    kinds = {step.waiting_for for step in state.questions.values()}
    return "decision" if "outcome" in kinds else "budget" if "budget" in kinds else ""


def is_answer_on_budget(state: State, allow: bool, usd: float | None, tokens: int | None) -> bool:
    """Tell whether it says something: a new limit does so at any time, every other answer only if a step asks."""
    new_limit = allow and (usd is not None or tokens is not None)
    return new_limit or any(step.waiting_for == "budget" for step in state.questions.values())


def limits_asked_about(state: State) -> list[tuple[str, str]]:
    """The limits that stopped it, by scope and step; without such, the execution's own (E3)."""
    waiting = [step for step in state.questions.values() if step.waiting_for == "budget"]
    return sorted({(step.scope, step.id if step.scope == "step" else "") for step in waiting}) or [("execution", "")]


def changes_of(before: Mapping[str, OpenQuestion], now: Mapping[str, OpenQuestion]) -> QuestionChanges | None:
    """Index entries to add and remove; None without a change."""
    opened = tuple(question for step, question in now.items() if before.get(step) != question)
    closed = tuple(step for step in before if step not in now)
    return QuestionChanges(opened, closed) if opened or closed else None
