"""OpenCode's configuration file, as far as it concerns what agents are told: `agent` and `instructions`.

Comments and trailing commas are allowed, as OpenCode allows them. `{file:…}` is read, for a project's file only inside
the project. `{env:…}` is left as it stands: a cloned repository must not get at the user's environment.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import Any

from windlass.agents.places import Place
from windlass.agents.reading import Unreadable, decode_strictly, read_head, shown_path, stays_inside
from windlass.errors import PlanInvalid, Problem
from windlass.jsonc import without_comments
from windlass.plan.schema import kind_of
from windlass.plan.yamlread import Document, read

__all__ = ["MAX_CONFIG", "Config", "read_config", "resolve_reference"]

MAX_CONFIG = 1024 * 1024
"""Bytes of a configuration file that is read."""
MAX_PROMPT = 256 * 1024
"""Bytes of a file that `{file:…}` names."""

_FILE = re.compile(r"\{file:([^}\n]+)\}")


@dataclass(frozen=True, slots=True)
class Config:
    """What such a file says."""

    agents: dict[str, Any] = field(default_factory=dict)
    instructions: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    document: Document | None = None

    def line_of(self, *path: str) -> int | None:
        place = self.document.locate(path) if self.document else None
        return place.line if place else None


def read_config(place: Place) -> Config | None:
    """The file, or None where there is none."""
    if not os.path.lexists(place.path):
        return None
    file = shown_path(place.path)
    if place.boundary is not None and not stays_inside(place.path, place.boundary):
        return Config(problems=(Problem("is a link that leaves the project, so it is not followed", file),))
    try:
        piece = read_head(place.path, MAX_CONFIG)
        if piece.left_out:
            raise Unreadable(f"it has {piece.size:,} bytes; {MAX_CONFIG:,} are the most")
        text = decode_strictly(piece.head)
    except Unreadable as error:
        return Config(problems=(Problem(f"cannot be read: {error.why}", file, error.line),))
    plain = without_comments(text)
    if not plain.strip():
        return Config()
    try:
        document = read(plain, file=file, as_json=True)
    except PlanInvalid as invalid:
        return Config(problems=invalid.problems)
    return _checked(document, file)


def _checked(document: Document, file: str) -> Config:
    problems = list(document.problems)
    data = document.data if isinstance(document.data, dict) else {}
    if not isinstance(document.data, dict):
        problems.append(Problem(f"the file must hold an object, not {kind_of(document.data)}", file, 1))

    def part(key: str, kind: type, word: str) -> Any:
        value = data.get(key)
        if value is None or isinstance(value, kind):
            return value or kind()
        place = document.locate((key,))
        problems.append(Problem(f"`{key}` must be {word}, not {kind_of(value)}", file, place.line if place else None))
        return kind()

    agents, instructions = part("agent", dict, "an object"), part("instructions", list, "a list")
    texts = tuple(item for item in instructions if isinstance(item, str))
    return Config(agents, texts, tuple(problems), document)


def resolve_reference(prompt: str, place: Place) -> str:
    """A prompt with the files that it names; raises `Unreadable`."""

    def content(found: re.Match[str]) -> str:
        named = found[1].strip()
        target = place.path.parent / named
        if place.home is not None and named.startswith("~/"):
            target = place.home / named[2:]
        if place.boundary is not None and os.path.lexists(target) and not stays_inside(target, place.boundary):
            raise Unreadable(f"{{file:{named}}} leaves the project")
        try:
            piece = read_head(target, MAX_PROMPT)
            if piece.left_out:
                raise Unreadable(f"it has {piece.size:,} bytes; {MAX_PROMPT:,} are the most")
            return decode_strictly(piece.head)
        except Unreadable as error:
            raise Unreadable(f"{{file:{named}}} cannot be read: {error.why}") from error

    return _FILE.sub(content, prompt)
