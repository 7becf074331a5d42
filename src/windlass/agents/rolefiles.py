"""Roles out of files: Markdown with frontmatter, and OpenCode's configuration.

`find_roles` goes through the places in their order and gives everything found, first the one that counts. Built-in
roles are Markdown files of this package, read the same way.

`read_config` reads OpenCode's configuration as far as it concerns what agents are told: `agent` and `instructions`.
Comments and trailing commas are allowed, as OpenCode allows them. `{file:…}` is read, for a project's file only inside
the project. `{env:…}` is left as it stands: a cloned repository must not get at the user's environment.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass.agents.places import ConfigSource, walk
from windlass.agents.reading import (
    FrontMatterFile,
    UnreadableFile,
    decode_strictly,
    read_head,
    read_matter,
    shown_path,
    stays_inside,
)
from windlass.agents.roles import BadRole, Role, UnusableRole, make_role
from windlass.errors import PlanInvalid, Problem
from windlass.jsonc import without_comments
from windlass.plan.schema import kind_of
from windlass.plan.yamlread import Document, read
from windlass.runtimes import OPEN_CODE

__all__ = ["MAX_CONFIG", "MAX_ROLE", "built_in_roles", "find_roles", "read_config"]

MAX_CONFIG = 1024 * 1024
"""Bytes of a configuration file that is read."""
MAX_PROMPT = 256 * 1024
"""Bytes of a file that `{file:…}` names."""

_FILE = re.compile(r"\{file:([^}\n]+)\}")


@dataclass(frozen=True, slots=True)
class Config:
    """Agents and instructions of an OpenCode configuration file."""

    agents: dict[str, Any] = field(default_factory=dict)
    instructions: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    document: Document | None = None

    def line_of(self, *path: str) -> int | None:
        place = self.document.locate(path) if self.document else None
        return place.line if place else None


def read_config(place: ConfigSource) -> Config | None:
    """The file, or None where there is none."""
    if not os.path.lexists(place.path):
        return None
    file = shown_path(place.path)
    if place.boundary is not None and not stays_inside(place.path, place.boundary):
        return Config(problems=(Problem("is a link that leaves the project, so it is not followed", file),))
    try:
        piece = read_head(place.path, MAX_CONFIG)
        if piece.left_out:
            raise UnreadableFile(f"it has {piece.size:,} bytes; {MAX_CONFIG:,} are the most")
        text = decode_strictly(piece.head)
    except UnreadableFile as error:
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


def resolve_reference(prompt: str, place: ConfigSource) -> str:
    """A prompt with the files that it names; raises `UnreadableFile`."""

    def content(found: re.Match[str]) -> str:
        named = found[1].strip()
        target = place.path.parent / named
        if place.home is not None and named.startswith("~/"):
            target = place.home / named[2:]
        if place.boundary is not None and os.path.lexists(target) and not stays_inside(target, place.boundary):
            raise UnreadableFile(f"{{file:{named}}} leaves the project")
        try:
            piece = read_head(target, MAX_PROMPT)
            if piece.left_out:
                raise UnreadableFile(f"it has {piece.size:,} bytes; {MAX_PROMPT:,} are the most")
            return decode_strictly(piece.head)
        except UnreadableFile as error:
            raise UnreadableFile(f"{{file:{named}}} cannot be read: {error.why}") from error

    return _FILE.sub(content, prompt)


MAX_ROLE = 256 * 1024
"""Bytes of a role's file."""
_BUILT_IN = ConfigSource(Path(__file__).with_name("builtin"), "", "built-in")

Complain = Callable[[Problem], None]


def find_roles(places: Iterable[ConfigSource], complain: Complain) -> list[Role | UnusableRole]:
    """Every role of these places, those first that count before others of their name."""
    found: list[Role | UnusableRole] = []
    for place in places:
        found += _of_config(place, complain) if place.is_config else _of_folder(place, complain)
    return found


def built_in_roles() -> list[Role | UnusableRole]:
    def complain(problem: Problem) -> None:
        raise AssertionError(f"a built-in role is malformed: {problem}")

    return list(_of_folder(_BUILT_IN, complain))


def _of_folder(place: ConfigSource, complain: Complain) -> Iterator[Role | UnusableRole]:
    for path in walk(place, lambda name: name.endswith(".md"), complain):
        relative = path.relative_to(place.path).with_suffix("")
        # OpenCode names a role by its path beneath the folder, Claude Code by a key that it requires.
        name = shown_path(relative if place.runtime == OPEN_CODE.name else relative.name)
        role = _of_file(path, name, place, complain)
        if role is not None:
            yield role


def _of_file(path: Path, name: str, place: ConfigSource, complain: Complain) -> Role | UnusableRole | None:
    source = "built-in" if place.origin == "built-in" else shown_path(path)
    matter = FrontMatterFile()

    def unusable(why: str, line: int | None) -> UnusableRole:
        problem = Problem(why, source, line)
        complain(problem)
        return UnusableRole(_named(matter.keys, name), source, str(problem))

    try:
        piece = read_head(path, MAX_ROLE)
        if piece.left_out:
            raise UnreadableFile(f"it has {piece.size:,} bytes; {MAX_ROLE:,} are the most")
        matter = read_matter(piece.head, source)
        prompt = matter.text()
    except UnreadableFile as error:
        return unusable(f"cannot be read: {error.why}", error.line)
    if not matter.present and name.lower() == "readme":
        return None
    for problem in matter.problems:
        complain(problem)
    if matter.broken:
        return UnusableRole(name, source, str(matter.problems[0]))
    if matter.keys.get("disable") is True:
        return UnusableRole(_named(matter.keys, name), source, f"it is switched off in {source}", disabled=True)
    try:
        return make_role(
            matter.keys,
            prompt,
            name=name,
            source=source,
            runtime=place.runtime,
            origin=place.origin,
            complain=lambda key, message: complain(Problem(message, source, matter.line_of(key))),
        )
    except BadRole as bad:
        return unusable(bad.why, matter.body_line if bad.key == "prompt" else matter.line_of(bad.key))


def _named(keys: Any, name: str) -> str:
    """The name that a role wants, as far as it can be one."""
    wanted = keys.get("name")
    return wanted if isinstance(wanted, str) and wanted.isprintable() and wanted.strip() else name


def _of_config(place: ConfigSource, complain: Complain) -> Iterator[Role | UnusableRole]:
    config = read_config(place)
    if config is None:
        return
    for problem in config.problems:
        complain(problem)
    for name, entry in config.agents.items():
        role = _of_entry(name, entry, config, place, complain)
        if role is not None:
            yield role


def _of_entry(
    name: str, entry: Any, config: Config, place: ConfigSource, complain: Complain
) -> Role | UnusableRole | None:
    source = shown_path(place.path)

    def line_of(key: str) -> int | None:
        return config.line_of("agent", name, key)

    def unusable(problem: Problem) -> UnusableRole:
        complain(problem)
        return UnusableRole(name, source, str(problem))

    if not isinstance(entry, dict):
        return unusable(Problem(f"`agent.{name}` must be an object, not {kind_of(entry)}", source, line_of("")))
    if entry.get("disable") is True:
        return UnusableRole(name, source, f"it is switched off in {source}", disabled=True)
    prompt = entry.get("prompt")
    if prompt is None:
        return None  # it only adjusts one of OpenCode's own
    if not isinstance(prompt, str):
        problem = Problem(f"`agent.{name}.prompt` must be text, not {kind_of(prompt)}", source, line_of("prompt"))
        return unusable(problem)
    try:
        text = resolve_reference(prompt, place)
        return make_role(
            {key: value for key, value in entry.items() if key != "name"},
            text,
            name=name,
            source=source,
            runtime=place.runtime,
            origin=place.origin,
            complain=lambda key, message: complain(Problem(message, source, line_of(key))),
        )
    except UnreadableFile as error:
        return unusable(Problem(f"`agent.{name}.prompt`: {error.why}", source, line_of("prompt")))
    except BadRole as bad:
        return unusable(Problem(f"`agent.{name}`: {bad.why}", source, line_of(bad.key)))
