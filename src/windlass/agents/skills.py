"""Skills: `SKILL.md` files that say how something is done. Their metadata is read first, their text when it is used.

A skill needs `name` and `description`; a file without them is a problem with file and line. Other keys are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from windlass.agents.places import ConfigSource, Origin, walk
from windlass.agents.reading import MAX_FRONTMATTER, UnreadableFile, read_head, read_matter, shown_path
from windlass.errors import Problem
from windlass.plan.schema import kind_of

__all__ = ["MAX_SKILL", "Skill", "find_skills", "skill_text"]

MAX_SKILL = 256 * 1024
"""Bytes of a skill's file that can be used."""
_HEAD = MAX_FRONTMATTER + 16
"""Bytes in which both fences of the longest frontmatter stand."""
_FIRST = 4 * 1024
"""Bytes in which they almost always stand."""
_NAME_LENGTH = 100
_DESCRIPTION_LENGTH = 1024


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill's name, description and place; its text is read when it is used."""

    name: str
    description: str
    path: Path
    origin: Origin


def find_skills(places: Iterable[ConfigSource], complain: Callable[[Problem], None]) -> list[Skill]:
    """Every skill of these places, those first that count before others of their name."""
    found: list[Skill] = []
    for place in places:
        for path in walk(place, lambda name: name == "SKILL.md", complain):
            skill = _metadata(path, place.origin, complain)
            if skill is not None:
                found.append(skill)
    return found


def skill_text(skill: Skill) -> str:
    """Read its text without the frontmatter; raises `UnreadableFile`."""
    piece = read_head(skill.path, MAX_SKILL)
    if piece.left_out:
        raise UnreadableFile(f"it has {piece.size:,} bytes; {MAX_SKILL:,} are the most")
    return read_matter(piece.head, shown_path(skill.path)).text().strip()


def _metadata(path: Path, origin: Origin, complain: Callable[[Problem], None]) -> Skill | None:
    file = shown_path(path)
    try:
        piece = read_head(path, _FIRST)
        if piece.left_out and b"\n---" not in piece.head.replace(b"\r", b"\n"):
            piece = read_head(path, _HEAD)
    except UnreadableFile as error:
        complain(Problem(f"cannot be read: {error.why}", file, error.line))
        return None
    matter = read_matter(piece.head, file)
    for problem in matter.problems:
        complain(problem)
    if matter.broken:
        return None
    if b"\0" in piece.head:
        complain(Problem("cannot be read: it is not text: it contains NUL bytes", file))
        return None
    if not matter.present:
        complain(Problem("a skill begins with a frontmatter that has `name` and `description`", file, 1))
        return None
    words: dict[str, str] = {}
    for key, longest in (("name", _NAME_LENGTH), ("description", _DESCRIPTION_LENGTH)):
        value = matter.keys.get(key)
        if not isinstance(value, str) or not value.strip():
            what = "is missing" if value is None else f"must be text, not {kind_of(value)}"
            line = matter.line_of(key) if key in matter.keys else 1
            complain(Problem(f"`{key}` {what}: a skill needs it", file, line))
            return None
        words[key] = " ".join(value.split())[:longest]
    if not words["name"].isprintable():
        complain(Problem("`name` must be visible characters", file, matter.line_of("name")))
        return None
    return Skill(words["name"], words["description"], path, origin)
