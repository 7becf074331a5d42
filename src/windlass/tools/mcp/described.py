"""A tool as its server describes it: cleaned and bounded before anyone reads it or relies on it.

Descriptions are shown to models, and may try to talk them into something. They stay what they are, the words of a
stranger; but nothing in them is hidden from the people who look at them: no control characters, no invisible ones, a
bounded length.

`mcp.SERVER.TOOL` is `tools.mcp.server.tool` in a program and stands in plans and settings, so both parts are lower-case
words of letters, digits and `_` that begin with a letter. Names that would become the same get a number, which does not
depend on the order in which a server lists its tools.

The library takes a list of tools as a whole or not at all. So each tool is looked at before the library sees it: fields
that we do not use are left out, values that the protocol does not allow are replaced by empty ones, and that is told.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.plan.model import Effect
from windlass.schemas import unusable

__all__ = ["Described", "LenientStream", "clean", "describe", "distinct", "plain", "shortened"]

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
    """Give the tool, None if its name cannot be used; and its problems."""
    name = raw.get("name") if isinstance(raw, Mapping) else None
    if not isinstance(name, str) or not 0 < len(name) <= MOST_NAME:
        return None, ["it has a tool whose name is empty, too long or no text; it is left out"]
    shown, problems = clean(name, 80, lines=False), []
    running = raw.get("execution")
    if isinstance(running, Mapping) and running.get("taskSupport") == "required":
        return None, [f"{shown} runs only as an MCP task, which is not done here; it is left out"]
    schema = raw.get("inputSchema")
    if isinstance(schema, dict) and schema.get("$comment") == NO_SCHEMA:
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


MOST_CHARACTERS = 64
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_STRANGE = re.compile(r"[^a-z0-9]+")
_KEPT = frozenset({"constructor", "prototype", "then"})
"""Members of every object or promise of JavaScript: a tool of that name would be taken for it."""


def plain(name: str) -> str:
    """`getWeather`, `get-weather` and `Get Weather` are all `get_weather`."""
    words = _STRANGE.sub("_", _HUMP.sub("_", name[:500]).lower()).strip("_")[:MOST_CHARACTERS].rstrip("_")
    if not words or not words[0].isalpha() or words in _KEPT:
        words = f"t_{words}".rstrip("_")
    return words


def distinct(names: Iterable[str]) -> dict[str, str]:
    """Map each name to its name here. A name that is good as it is keeps it."""
    found: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(set(names), key=lambda name: (plain(name) != name, name)):
        base = plain(name)
        given, number = base, 1
        while given in taken:
            number += 1
            given = f"{base}_{number}"
        found[name] = given
        taken.add(given)
    return found


def clean(text: str, most: int, *, lines: bool = True) -> str:
    """Of at most so many characters. Without `lines`, it is one."""
    # Twice as much is looked at: what is taken out must not cost what is read.
    kept = "".join(_shown(character, lines) for character in text[: 2 * most])
    return shortened(kept if lines else " ".join(kept.split()), most).strip()


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _shown(character: str, lines: bool) -> str:
    if character in "\n\t":
        return character if lines else " "
    # Cc: terminal sequences; Cf: text in another direction, or that nobody sees; Co, Cs, Cn: no characters at all.
    return "" if unicodedata.category(character).startswith("C") else character


NO_SCHEMA = "(what stood here was no schema of an object)"
_HINTS = ("readOnlyHint", "idempotentHint", "destructiveHint")


def repair(message: Any) -> None:
    """Change the answer to `tools/list` in place; other messages stay as they are."""
    result = getattr(message, "result", None)
    if isinstance(result, dict) and isinstance(tools := result.get("tools"), list):
        result["tools"] = [_tool(raw) for raw in tools if isinstance(raw, dict) and isinstance(raw.get("name"), str)]


def _tool(raw: dict[str, Any]) -> dict[str, Any]:
    tool = {key: raw[key] for key in ("name", "title", "description") if isinstance(raw.get(key), str)}
    schema, returns = raw.get("inputSchema"), raw.get("outputSchema")
    if isinstance(schema, dict) and schema.get("type", "object") == "object":
        tool["inputSchema"] = {"type": "object", **schema}
    else:
        tool["inputSchema"] = {"type": "object", "$comment": NO_SCHEMA}
    if isinstance(returns, dict) and returns.get("type") == "object":
        tool["outputSchema"] = returns
    hints = raw.get("annotations")
    if isinstance(hints, dict):
        tool["annotations"] = {key: hints[key] for key in _HINTS if isinstance(hints.get(key), bool)}
    running = raw.get("execution")
    if isinstance(running, dict) and running.get("taskSupport") == "required":
        tool["execution"] = {"taskSupport": "required"}
    return tool


class LenientStream:
    """A stream of messages of the library's, with every list repaired."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def receive(self) -> Any:
        return _repaired(await self._stream.receive())

    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        return _repaired(await self._stream.__anext__())

    async def __aenter__(self) -> LenientStream:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._stream.__aexit__(*error)


def _repaired(item: Any) -> Any:
    repair(getattr(item, "message", None))
    return item
