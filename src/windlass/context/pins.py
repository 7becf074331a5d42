"""Facts that are carried verbatim through every summary, within a bounded size.

The task and the user's own words come first. Decisions, open problems, paths and identifiers are found by their form:
lines of the model's replies that speak of a decision or of something open, and names in its replies and calls. What a
tool returns is no source: a listing has thousands of paths, and the ones that matter are named again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from windlass.context.messages import CONTINUES, ContextMessage, shorten_middle
from windlass.context.tokens import estimate_tokens

__all__ = ["Pin", "PinKind", "PinList"]

PinKind = Literal["task", "said", "decision", "problem", "path", "identifier"]


class Pin(NamedTuple):
    kind: PinKind
    text: str


_TITLES: dict[PinKind, str] = {
    "task": "Task",
    "said": "The user's own words, oldest first",
    "decision": "Decisions",
    "problem": "Open problems",
    "path": "Paths",
    "identifier": "Identifiers",
}
_SHARES: dict[PinKind, float] = {
    "task": 0.4,
    "said": 0.6,
    "decision": 0.45,
    "problem": 0.45,
    "path": 0.6,
    "identifier": 1.0,
}
"""Part of the room that is left which a kind may take, in this order."""
_LONGEST: dict[PinKind, float] = {"task": 0.35, "said": 0.2}
"""Part of the whole room that one of them may take; a longer one is shortened."""
_LINES: tuple[PinKind, ...] = ("task", "said", "decision", "problem")
"""Kinds that have a line for each; the others are listed with commas."""
_LONGEST_LINE, _LONGEST_NAME = 400, 200

_DECISION = re.compile(
    r"\b(?:decid(?:e|ed|ing)|decisions?|agreed|chos(?:e|en)|choosing|going with|settled on|opted|instead of|"
    r"(?:we|I)(?:'ll| will| shall) (?:use|keep|go with|not))\b|决定|采用",
    re.I,
)
_PROBLEM = re.compile(
    r"\b(?:TODO|FIXME|open (?:problem|question|issue|point)s?|unresolved|unclear|blocked|blocker|still (?:fails?"
    r"|failing|open|missing|to do|broken)|not yet|remain(?:s|ing)|known (?:bug|issue)s?|must (?:still|later))\b"
    r"|待办|未解决",
    re.I,
)
_PATH = re.compile(
    r"(?<![\w/.~@:-])(?:~?/|\.{1,2}/)?(?:[\w.@+-]+/)+[\w.@+-]*\w|(?<![\w/.@-])[\w-]+\.[a-z][a-z0-9]{0,4}\b"
)
_IDENTIFIER = re.compile(
    r"https?://[^\s\"'<>)\]]+"
    r"|\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b"
    r"|\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,64}\b"
    r"|\b[A-Z][A-Z0-9]+-\d+\b|(?<![\w&])#\d+\b"
    r"|\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b"
    r"|\bv?\d+\.\d+\.\d+(?:[-+.][\w.]+)?\b"
    r"|`[^`\s]{2,80}`"
)
_MOST_SEARCHED = 50_000
"""Characters of one text that are searched for names and lines: its end, which has the conclusions."""


@dataclass(frozen=True, slots=True)
class PinList:
    """The pinned facts of a conversation, each once, oldest first."""

    facts: tuple[Pin, ...] = ()

    def with_messages(self, messages: Iterable[ContextMessage], task: str = "") -> PinList:
        """Add the facts of these messages. `task` is pinned in place of the prompt that holds it."""
        found = [Pin("task", task.strip())] if task.strip() and task.strip() not in self.of("task") else []
        for message in messages:
            found += _facts(message, task.strip())
        # A fact that is named again counts as new: the oldest ones have to go first.
        return PinList(tuple(reversed(dict.fromkeys(reversed((*self.facts, *found))))) if found else self.facts)

    def of(self, kind: PinKind) -> list[str]:
        return [pin.text for pin in self.facts if pin.kind == kind]

    def within(self, room: int) -> PinList:
        """Return those that fit into `room` tokens: the newest of each kind; a longer task or word is shortened."""
        kept: dict[Pin, Pin] = {}
        left = room
        for kind in get_args(PinKind):
            allowed = int(left * _SHARES[kind])
            for text in reversed(self.of(kind)):
                shown = _at_most(text, int(room * _LONGEST[kind])) if kind in _LONGEST else text
                cost = estimate_tokens(shown) + 3
                if cost > allowed:
                    continue
                allowed -= cost
                left -= cost
                kept[Pin(kind, text)] = Pin(kind, shown)
        return PinList(tuple(kept[pin] for pin in self.facts if pin in kept))

    def missing_in(self, text: str) -> list[Pin]:
        """Return the facts that do not stand in the text as they are."""
        return [pin for pin in self.facts if pin.text not in text]

    @property
    def text(self) -> str:
        return "\n".join(_section(kind, self.of(kind)) for kind in get_args(PinKind) if self.of(kind))


def _at_most(text: str, room: int) -> str:
    most, shown = max(60, room * 3), text
    while estimate_tokens(shown) > room and most >= 60:
        shown = shorten_middle(text, most, "the transcript has all of it")
        most = most * 2 // 3
    return shown


def _section(kind: PinKind, texts: Sequence[str]) -> str:
    if kind not in _LINES:
        return f"{_TITLES[kind]}: {', '.join(texts)}"
    return "\n".join([f"{_TITLES[kind]}:", *(f"- {text}" for text in texts)])


def _facts(message: ContextMessage, task: str) -> Iterator[Pin]:
    if message.kind == "summary":
        return
    text = message.text[-_MOST_SEARCHED:]
    if message.kind == "reply":
        yield from _lines(text)
    elif text.startswith(CONTINUES):
        return
    elif task and (task in message.text or "<task>" in message.text):
        text = task  # the rest of that prompt is material
    elif message.text.strip():
        yield Pin("said", message.text.strip())
    calls = message.uses if message.kind == "reply" else ()
    for searched in (text, *(use.text[:_LONGEST_LINE] for use in calls)):
        yield from _names(searched)


def _lines(text: str) -> Iterator[Pin]:
    for line in text.splitlines():
        line = line.strip().removeprefix("- ").strip()
        if not 3 < len(line) <= _LONGEST_LINE:
            continue
        if _DECISION.search(line):
            yield Pin("decision", line)
        elif _PROBLEM.search(line):
            yield Pin("problem", line)


def _names(text: str) -> Iterator[Pin]:
    for found in _PATH.finditer(text):
        if len(found[0]) <= _LONGEST_NAME:
            yield Pin("path", found[0])
    for found in _IDENTIFIER.finditer(text):
        if len(found[0]) <= _LONGEST_NAME:
            yield Pin("identifier", found[0].strip("`"))
