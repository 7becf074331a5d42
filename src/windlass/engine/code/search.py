"""Finding tools by words: so that a program's writer need not be told of all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from windlass.ports import Tool

__all__ = ["search"]

IN_NAME, IN_DESCRIPTION, IN_ARGUMENTS, BEGINS_NAME = 9, 3, 1, 2
LONGEST_TEXT = 10_000
_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")
_SMALL = frozenset(["a", "an", "and", "for", "from", "in", "of", "or", "the", "to", "with"])
"""Words that say nothing about a tool."""


def search(tools: Iterable[Tool], query: str, limit: int = 10) -> list[Tool]:
    """The tools that the words fit, the best first. A word counts most in a name, then in the description."""
    wanted = _words(query) - _SMALL
    exact = query.strip().casefold()
    ranked = []
    for tool in tools:
        is_it = tool.name.casefold() == exact
        score = _score(tool, wanted)
        if is_it or score:
            ranked.append((not is_it, -score, tool.name, tool))
    ranked.sort(key=lambda entry: entry[:3])
    return [entry[3] for entry in ranked[: max(limit, 0)]]


def _score(tool: Tool, wanted: set[str]) -> int:
    properties = tool.schema.get("properties")
    arguments = " ".join(map(str, properties)) if isinstance(properties, Mapping) else ""
    name = _words(tool.name)
    places = ((name, IN_NAME), (_words(tool.description), IN_DESCRIPTION), (_words(arguments), IN_ARGUMENTS))
    found = sum(worth for words, worth in places for word in wanted if word in words)
    begun = [word for word in wanted - name if len(word) >= 3 and any(part.startswith(word) for part in name)]
    return found + BEGINS_NAME * len(begun)


def _words(text: str) -> set[str]:
    """`listRepos`, `list_repos` and `list.repo` are the same two words."""
    return {_singular(word) for word in _WORD.findall(_HUMPS.sub(" ", text[:LONGEST_TEXT]).casefold())}


def _singular(word: str) -> str:
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word
