"""The project's rules for whoever works in it: `AGENTS.md`, else `CLAUDE.md`, of every folder from the git root down
to the working directory, then the files that `opencode.json` names under `instructions`.

Only the project's own, and only files inside it. The user's global rules are meant for sessions that the user leads,
and addresses on the network are never fetched.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from windlass.agents.places import ConfigSources
from windlass.agents.reading import UnreadableFile, decode_strictly, read_head, shown_path, stays_inside
from windlass.agents.rolefiles import read_config
from windlass.globs import is_pattern, match_files, split_pattern

__all__ = ["MAX_ALL_RULES", "MAX_RULES", "Rules", "RulesFile", "find_rules"]

MAX_RULES = 64 * 1024
"""Bytes of one file of rules."""
MAX_ALL_RULES = 256 * 1024
"""Bytes of all of them together."""


class RulesFile(NamedTuple):
    path: str
    """Relative to the git root."""
    text: str


class Rules(NamedTuple):
    rules: tuple[RulesFile, ...] = ()
    notes: tuple[str, ...] = ()


def find_rules(places: ConfigSources) -> Rules:
    found: list[RulesFile] = []
    notes: list[str] = []
    room = MAX_ALL_RULES
    seen: set[str] = set()
    for path in _paths(places, notes):
        real = os.path.realpath(path)
        if real in seen:
            continue
        seen.add(real)
        shown = shown_path(os.path.relpath(path, places.root))
        if not stays_inside(path, places.root):
            notes.append(f"the rules in {shown} lead out of the project, so they were left out")
            continue
        try:
            piece = read_head(path, MAX_RULES + 1)
            if piece.size > MAX_RULES or piece.size > room:
                limit = f"{MAX_RULES:,} in one file and {MAX_ALL_RULES:,} in all are the most"
                raise UnreadableFile(f"it has {piece.size:,} bytes; {limit}")
            text = decode_strictly(piece.head).strip()
        except UnreadableFile as error:
            notes.append(f"the rules in {shown} were left out: {error.why}")
            continue
        room -= piece.size
        if text:
            found.append(RulesFile(shown, text))
    return Rules(tuple(found), tuple(notes))


def _paths(places: ConfigSources, notes: list[str]) -> Iterator[Path]:
    for folder in reversed(places.folders):
        for name in ("AGENTS.md", "CLAUDE.md"):
            if os.path.lexists(folder / name):
                yield folder / name
                break
    for folder in reversed(places.folders):
        for place in places.configs(folder):
            config = read_config(place)
            for text in config.instructions if config is not None else ():
                yield from _named(text, place.path.parent, places.root, notes)


def _named(text: str, folder: Path, root: Path, notes: list[str]) -> Iterator[Path]:
    """Resolve one entry of `instructions` to files. Reading a file later checks that it is inside the project."""
    if "://" in text:
        notes.append(f"the rules at {text} were left out: addresses are not fetched")
    elif "\0" in text or not text.strip():
        notes.append(f"the rules {text!r} were left out: that is not a path")
    elif is_pattern(text) and not os.path.lexists(folder / text):
        fixed, rest = split_pattern(text)
        start = Path(os.path.normpath(folder / fixed))
        if os.path.isdir(start) and not stays_inside(start, root):
            notes.append(f"the rules in {text} lead out of the project, so they were left out")
            return
        try:
            matched = match_files(rest, start).paths
        except ValueError as error:
            notes.append(f"the rules in {text} were left out: {error}")
            return
        if not matched:
            notes.append(f"the rules in {text} were left out: no file matches")
        yield from map(Path, matched)
    elif os.path.lexists(folder / text):
        yield Path(os.path.normpath(folder / text))
    else:
        notes.append(f"the rules in {text} were left out: there is no such file")
