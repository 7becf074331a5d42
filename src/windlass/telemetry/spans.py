"""Spans: those that have ended, as values, and those that are open."""

from __future__ import annotations

import json
from typing import Any, TypeAlias

import msgspec

__all__ = ["AttributeValue", "OpenSpan", "SpanEvent", "SpanRecord", "as_json"]

AttributeValue: TypeAlias = str | bool | int | float

MOST_EVENTS = 128
"""Events of one span; further ones are counted."""
LONGEST_TEXT = 500
"""Characters of one attribute that is no content."""
LONGEST_CONTENT = 8_000
"""Characters of one attribute with a prompt, an argument or an output."""


class SpanEvent(msgspec.Struct, frozen=True):
    name: str
    at: float
    attributes: dict[str, AttributeValue]


class SpanRecord(msgspec.Struct, frozen=True):
    """A span that has ended. Two that come from the same events are equal."""

    trace: int
    id: int
    parent: int | None
    name: str
    start: float
    """Seconds since the epoch, as in the journal."""
    end: float
    attributes: dict[str, AttributeValue]
    events: tuple[SpanEvent, ...] = ()
    links: tuple[tuple[int, int], ...] = ()
    """Trace and span of each."""
    error: str | None = None
    """Its status is an error, with this description."""
    client: bool = False
    """It calls another service: a model."""


class OpenSpan:
    """A span that has not ended yet."""

    __slots__ = (
        "attributes",
        "children",
        "client",
        "error",
        "events",
        "id",
        "left_out",
        "links",
        "name",
        "parent",
        "start",
    )

    def __init__(self, id: int, parent: int | None, name: str, start: float, *, client: bool = False) -> None:
        self.id = id
        self.parent = parent
        self.name = name
        self.start = start
        self.client = client
        self.attributes: dict[str, AttributeValue] = {}
        self.events: list[SpanEvent] = []
        self.left_out = 0
        self.links: list[tuple[int, int]] = []
        self.error: str | None = None
        self.children: dict[str, OpenSpan] = {}
        """Open calls of tools, of an attempt."""

    def set(self, **attributes: AttributeValue | None) -> None:
        """Set attributes of ours, `windlass.` before their names; None and empty text are left out."""
        for name, value in attributes.items():
            if value is not None and value != "":
                self.attributes[f"windlass.{name}"] = _short(value)

    def gen_ai(self, **attributes: AttributeValue | None) -> None:
        """Set attributes of the GenAI conventions; a `__` stands for the dot inside of a name."""
        for name, value in attributes.items():
            if value is not None and value != "":
                self.attributes[f"gen_ai.{name.replace('__', '.')}"] = _short(value)

    def content(self, name: str, text: str) -> None:
        """Set an attribute that holds content."""
        cut = len(text) > LONGEST_CONTENT
        self.attributes[name] = text[:LONGEST_CONTENT] + f"[… {len(text):,} characters]" if cut else text

    def event(self, name: str, at: float, /, **attributes: AttributeValue | None) -> None:
        """Add an event; past the most that a span can have, it is counted only."""
        if len(self.events) >= MOST_EVENTS:
            self.left_out += 1
            return
        told = {f"windlass.{key}": _short(value) for key, value in attributes.items() if value not in (None, "")}
        self.events.append(SpanEvent(f"windlass.{name}", at, told))

    def ended(self, trace: int, at: float) -> SpanRecord:
        """The span, ended at that time; a clock that was set back does not end it before its start."""
        if self.left_out:
            self.attributes["windlass.events_left_out"] = self.left_out
        return SpanRecord(
            trace,
            self.id,
            self.parent,
            self.name,
            self.start,
            max(self.start, at),
            self.attributes,
            tuple(self.events),
            tuple(self.links),
            self.error,
            self.client,
        )


def _short(value: AttributeValue) -> AttributeValue:
    return value[: LONGEST_TEXT - 1] + "…" if isinstance(value, str) and len(value) > LONGEST_TEXT else value


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
