"""A tool as its server describes it: whatever that is, cleaned and bounded, before anyone reads it or relies on it.

Descriptions are shown to models, and may try to talk them into something. They stay what they are, the words of a
stranger; but nothing in them is hidden from the people who look at them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from windlass.plan.model import Effect
from windlass.schemas import unusable
from windlass.tools.mcp.mending import MENDED
from windlass.tools.mcp.text import clean

__all__ = ["Described", "describe"]

MOST_DESCRIPTION = 2_000
MOST_NAME = 256
_OPEN: dict[str, Any] = {"type": "object"}
_WORDS = ("description", "title")


@dataclass(frozen=True, slots=True)
class Described:
    original: str
    """Its name for its server."""
    description: str
    schema: dict[str, Any]
    returns: dict[str, Any] | None
    effect: Effect
    sensitive: bool

    def stored(self) -> dict[str, Any]:
        """In the words of the protocol, so that what is remembered is read like what a server says."""
        hints = {
            "readOnlyHint": self.effect is Effect.NONE,
            "idempotentHint": self.effect is Effect.REPEATABLE,
            "destructiveHint": self.sensitive,
        }
        raw = {"name": self.original, "description": self.description, "inputSchema": self.schema, "annotations": hints}
        return raw if self.returns is None else {**raw, "outputSchema": self.returns}


def describe(raw: Any) -> tuple[Described | None, list[str]]:
    """The tool, None if it has no name that one could call it by; and what is wrong with it."""
    name = raw.get("name") if isinstance(raw, Mapping) else None
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME:
        return None, ["it has a tool whose name is empty, too long or no text; it is left out"]
    shown, problems = clean(name, 80, lines=False), []
    running = raw.get("execution")
    if isinstance(running, Mapping) and running.get("taskSupport") == "required":
        return None, [f"{shown} runs only as an MCP task, which is not done here; it is left out"]
    schema = raw.get("inputSchema")
    if isinstance(schema, dict) and schema.get("$comment") == MENDED:
        problems.append(f"{shown} does not say which arguments it takes, so that they are not checked")
        schema = _OPEN
    elif reasons := unusable(schema):
        problems.append(f"the schema of {shown}'s arguments cannot be used, so that they are not checked: {reasons[0]}")
        schema = _OPEN
    returns = raw.get("outputSchema")
    if returns is not None and (reasons := unusable(returns, of_arguments=False)):
        problems.append(f"the schema of {shown}'s result cannot be used, so that it is not checked: {reasons[0]}")
        returns = None
    hints = raw.get("annotations")
    hints = hints if isinstance(hints, Mapping) else {}
    words = raw.get("description")
    if not isinstance(words, str) or not words.strip():
        words = raw.get("title") if isinstance(raw.get("title"), str) else ""
    found = Described(
        name,
        clean(str(words), MOST_DESCRIPTION),
        _worded(schema),
        _worded(returns) if returns is not None else None,
        _effect(hints),
        hints.get("destructiveHint") is True and hints.get("readOnlyHint") is not True,
    )
    return found, problems


def _effect(hints: Mapping[str, Any]) -> Effect:
    """A server that says nothing may do anything: it is not asked twice unless a person says so."""
    if hints.get("readOnlyHint") is True:
        return Effect.NONE
    return Effect.REPEATABLE if hints.get("idempotentHint") is True else Effect.ONCE


def _worded(schema: Any) -> Any:
    """The schema with the words in it cleaned. It was found usable, so it is not deep."""
    match schema:
        case dict():
            return {
                key: clean(value, MOST_DESCRIPTION) if key in _WORDS and isinstance(value, str) else _worded(value)
                for key, value in schema.items()
            }
        case list():
            return [_worded(one) for one in schema]
    return schema
