"""Roles out of files: Markdown with frontmatter, and OpenCode's configuration.

`find_roles` goes through the places in their order and gives everything found, first the one that counts. Built-in
roles are Markdown files of this package, read the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from windlass.agents.frontmatter import Matter, read_matter
from windlass.agents.opencode import Config, read_config, resolve_reference
from windlass.agents.places import Place, walk
from windlass.agents.reading import Unreadable, read_head, shown_path
from windlass.agents.roles import BadRole, Role, Unusable, make_role
from windlass.errors import Problem
from windlass.plan.schema import kind_of

__all__ = ["MAX_ROLE", "built_in_roles", "find_roles"]

MAX_ROLE = 256 * 1024
"""Bytes of a role's file."""
_BUILT_IN = Place(Path(__file__).with_name("builtin"), "", "built-in")

Complain = Callable[[Problem], None]


def find_roles(places: Iterable[Place], complain: Complain) -> list[Role | Unusable]:
    """Every role of these places, those first that count before others of their name."""
    found: list[Role | Unusable] = []
    for place in places:
        found += _of_config(place, complain) if place.is_config else _of_folder(place, complain)
    return found


def built_in_roles() -> list[Role | Unusable]:
    def complain(problem: Problem) -> None:
        raise AssertionError(f"a built-in role is malformed: {problem}")

    return list(_of_folder(_BUILT_IN, complain))


def _of_folder(place: Place, complain: Complain) -> Iterator[Role | Unusable]:
    for path in walk(place, lambda name: name.endswith(".md"), complain):
        relative = path.relative_to(place.path).with_suffix("")
        # OpenCode names a role by its path beneath the folder, Claude Code by a key that it requires.
        name = shown_path(relative if place.runtime == "open-code" else relative.name)
        role = _of_file(path, name, place, complain)
        if role is not None:
            yield role


def _of_file(path: Path, name: str, place: Place, complain: Complain) -> Role | Unusable | None:
    source = "built-in" if place.origin == "built-in" else shown_path(path)
    matter = Matter()

    def unusable(why: str, line: int | None) -> Unusable:
        problem = Problem(why, source, line)
        complain(problem)
        return Unusable(_named(matter.keys, name), source, str(problem))

    try:
        piece = read_head(path, MAX_ROLE)
        if piece.left_out:
            raise Unreadable(f"it has {piece.size:,} bytes; {MAX_ROLE:,} are the most")
        matter = read_matter(piece.head, source)
        prompt = matter.text()
    except Unreadable as error:
        return unusable(f"cannot be read: {error.why}", error.line)
    if not matter.present and name.lower() == "readme":
        return None
    for problem in matter.problems:
        complain(problem)
    if matter.broken:
        return Unusable(name, source, str(matter.problems[0]))
    if matter.keys.get("disable") is True:
        return Unusable(_named(matter.keys, name), source, f"it is switched off in {source}", disabled=True)
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


def _of_config(place: Place, complain: Complain) -> Iterator[Role | Unusable]:
    config = read_config(place)
    if config is None:
        return
    for problem in config.problems:
        complain(problem)
    for name, entry in config.agents.items():
        role = _of_entry(name, entry, config, place, complain)
        if role is not None:
            yield role


def _of_entry(name: str, entry: Any, config: Config, place: Place, complain: Complain) -> Role | Unusable | None:
    source = shown_path(place.path)

    def line_of(key: str) -> int | None:
        return config.line_of("agent", name, key)

    def unusable(problem: Problem) -> Unusable:
        complain(problem)
        return Unusable(name, source, str(problem))

    if not isinstance(entry, dict):
        return unusable(Problem(f"`agent.{name}` must be an object, not {kind_of(entry)}", source, line_of("")))
    if entry.get("disable") is True:
        return Unusable(name, source, f"it is switched off in {source}", disabled=True)
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
    except Unreadable as error:
        return unusable(Problem(f"`agent.{name}.prompt`: {error.why}", source, line_of("prompt")))
    except BadRole as bad:
        return unusable(Problem(f"`agent.{name}`: {bad.why}", source, line_of(bad.key)))
