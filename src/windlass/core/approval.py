"""A request put to a person: its digest, its basis, and the changes since it was put (C6). Pure.

The basis of a request names everything beside the arguments that decides what will happen: files, programs, the
definitions of tools and of the step, each with a hash. The digest covers it, so an answer holds for exactly that.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from windlass.core.step import Approval, StepState

__all__ = ["ABSENT", "YES", "Basis", "answer_for", "asked_again", "changes", "digest_of", "hash_of"]

YES = "--yes"
"""The note of an answer that the option `--yes` gave: no words of a person."""

Basis = Mapping[str, str]
"""Kind and name of each thing (`file NOTES.md`, `program report`), with the hash of its content."""
ABSENT = "absent"
"""Stands for the hash of a file that is not there."""

_encoder = msgspec.json.Encoder(order="deterministic")
_NO_BASIS: Basis = {}
_SENTENCES = {
    "program": "the program or the grants of the composed tool {} changed",
    "tool": "the description or the schema of the tool {} changed",
    "substitute": "the substitute {} changed",
    "code": "the Python code of the tool {} changed",
    "step": "the step {} was edited in the plan",
    "question": "the question of the step {} has other words",
    "role": "the role {} changed",
    "skill": "the skill {} changed",
}


def digest_of(step: str, tool: str, arguments: Any, basis: Basis = _NO_BASIS) -> str:
    """Names one request: another step, tool, argument or basis gives another digest, and needs another answer."""
    # Earlier versions wrote it without a basis, and their answers must still be found.
    told = [step, tool, arguments, basis] if basis else [step, tool, arguments]
    return hash_of(told)


def hash_of(value: Any) -> str:
    """SHA-256 of plain data; the order of keys does not matter."""
    return hashlib.sha256(_encoder.encode(value)).hexdigest()


def answer_for(step: StepState, tool: str, arguments: Any) -> Approval | None:
    """The last answer to this step's request to use the tool with these arguments."""
    for answer in reversed((step.answers or {}).values()):
        if not answer.attempt and answer.digest == digest_of(step.id, tool, arguments, answer.basis):
            return answer
    return None


def changes(before: Basis, now: Basis) -> tuple[str, ...]:
    """Describe the differences, a sentence each."""
    if not before and now:
        return ("it was asked by an earlier version of Windlass, which did not record what it rests on",)
    differing = sorted(label for label in {*before, *now} if before.get(label) != now.get(label))
    return tuple(_sentence(label, before.get(label), now.get(label)) for label in differing)


def asked_again(changed: Sequence[str]) -> str:
    """The question's text when something changed after it was put before."""
    return f"asked again, because since you were asked {'; '.join(changed)}" if changed else ""


def _sentence(label: str, before: str | None, now: str | None) -> str:
    kind, _, name = label.partition(" ")
    if kind in _SENTENCES:
        return _SENTENCES[kind].format(name)
    if before in (None, ABSENT):
        return f"the file {name} was created"
    return f"the file {name} was deleted" if now in (None, ABSENT) else f"the file {name} changed"
