"""The roles and skills that are at hand in one working directory, found once.

Of several with one name the first in the order of `places` counts; the others are remembered as shadowed. A role that
is malformed or switched off still stands before others of its name: another one's prompt must not quietly take its
place. `windlass agents --json` and the API show it as plain data.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from windlass.agents.places import ConfigSources
from windlass.agents.reading import UnreadableFile, shown_path
from windlass.agents.rolefiles import built_in_roles, find_roles
from windlass.agents.roles import ALIASES, Role, UnusableRole, key_of
from windlass.agents.rules import Rules, find_rules
from windlass.agents.skills import Skill, find_skills, skill_text
from windlass.errors import Problem, UsageError
from windlass.plan.schema import nearest

__all__ = ["Catalogue", "Shadowed", "catalogue_data", "role_data"]


class Shadowed(NamedTuple):
    """A role or skill that does not count, because another of its name stands before it."""

    name: str
    source: str
    by: str


class Catalogue:
    """Roles and skills, found on first use and kept: make a new catalogue to look again."""

    def __init__(self, workdir: Path, env: Mapping[str, str] = os.environ) -> None:
        self.places = ConfigSources(workdir, env)
        self._role_problems: list[Problem] = []
        self._skill_problems: list[Problem] = []

    @property
    def problems(self) -> tuple[Problem, ...]:
        """All that is wrong with roles and skills, with file and line."""
        _ = self._roles, self._skills
        return (*self._role_problems, *self._skill_problems)

    def roles(self) -> tuple[Role, ...]:
        """Every role that can be used, by name."""
        usable = (role for role in self._roles[0].values() if isinstance(role, Role))
        return tuple(sorted(usable, key=lambda role: key_of(role.name)))

    def unusable(self) -> tuple[UnusableRole, ...]:
        return tuple(role for role in self._roles[0].values() if isinstance(role, UnusableRole))

    def skills(self) -> tuple[Skill, ...]:
        """Every skill, by name."""
        return tuple(sorted(self._skills[0].values(), key=lambda skill: skill.name))

    def shadowed_roles(self) -> tuple[Shadowed, ...]:
        return tuple(self._roles[1])

    def shadowed_skills(self) -> tuple[Shadowed, ...]:
        return tuple(self._skills[1])

    def rules(self) -> Rules:
        """The project's rules, as they stand now."""
        return find_rules(self.places)

    def role(self, name: str) -> Role:
        """The role of a name or alias, in any case; a `UsageError` names the nearest."""
        roles = self._roles[0]
        key = key_of(name)
        found = roles.get(key) or roles.get(ALIASES.get(key, ""))
        if isinstance(found, Role):
            return found
        if found is not None:
            advice = "remove `disable` there, or name another role" if found.disabled else "mend that file"
            raise UsageError(f"the role {found.name!r} cannot be used: {found.why}", advice=(advice, _LOOK))
        near = self.nearest(name)
        meant = f"did you mean {near!r}?" if near else "there are: " + ", ".join(role.name for role in self.roles())
        raise UsageError(f"there is no role {name!r}; {meant}", advice=(_LOOK,))

    def skill(self, name: str) -> Skill:
        """The skill of a name; a `UsageError` names the nearest."""
        found = self._skills[0].get(name.strip())
        if found is not None:
            return found
        known = list(self._skills[0])
        near = nearest(name, known)
        few = ", ".join(sorted(known)[:10]) + (" …" if len(known) > 10 else "")
        meant = f"did you mean {near!r}?" if near else f"there are: {few}" if known else "none was found here"
        raise UsageError(f"there is no skill {name!r}; {meant}", advice=(_LOOK,))

    def text_of(self, skill: Skill) -> str:
        try:
            return skill_text(skill)
        except UnreadableFile as error:
            problem = Problem(f"cannot be read: {error.why}", shown_path(skill.path), error.line)
            raise UsageError(
                f"the skill {skill.name!r} cannot be used: {problem}", advice=("mend that file",)
            ) from error

    def nearest(self, name: str) -> str | None:
        """The role that was probably meant."""
        names = {key_of(role.name): role.name for role in self.roles()}
        near = nearest(key_of(name), [*names, *ALIASES])
        return names.get(ALIASES.get(near, near)) if near else None

    @cached_property
    def _roles(self) -> tuple[dict[str, Role | UnusableRole], list[Shadowed]]:
        found = [*find_roles(self.places.roles(), self._role_problems.append), *built_in_roles()]
        counts: dict[str, Role | UnusableRole] = {}
        shadowed = []
        for role in found:
            first = counts.setdefault(key_of(role.name), role)
            if first is not role and first.source != role.source:
                shadowed.append(Shadowed(role.name, role.source, first.source))
        return counts, shadowed

    @cached_property
    def _skills(self) -> tuple[dict[str, Skill], list[Shadowed]]:
        counts: dict[str, Skill] = {}
        shadowed = []
        for skill in find_skills(self.places.skills(), self._skill_problems.append):
            first = counts.setdefault(skill.name, skill)
            if first.path != skill.path:
                shadowed.append(Shadowed(skill.name, shown_path(skill.path), shown_path(first.path)))
        return counts, shadowed


_LOOK = "list all: windlass agents"


def role_data(role: Role) -> dict[str, Any]:
    return {
        "name": role.name,
        "description": role.description,
        "source": role.source,
        "origin": role.origin,
        "runtime": role.runtime,
        "tools": None if role.tools is None else list(role.tools),
        "disallowed": list(role.disallowed),
        "model": role.model,
        "permission_mode": role.permission_mode,
        "max_turns": role.max_turns,
        "temperature": role.temperature,
        "skills": list(role.skills),
        "ignored": list(role.ignored),
    }


def catalogue_data(catalogue: Catalogue) -> dict[str, Any]:
    return {
        "roles": [role_data(role) for role in catalogue.roles()],
        "unusable": [
            {"name": role.name, "source": role.source, "why": role.why, "disabled": role.disabled}
            for role in catalogue.unusable()
        ],
        "skills": [
            {
                "name": skill.name,
                "description": skill.description,
                "path": shown_path(skill.path),
                "origin": skill.origin,
            }
            for skill in catalogue.skills()
        ],
        "shadowed": [
            {"kind": kind, **shadowed._asdict()}
            for kind, found in (("role", catalogue.shadowed_roles()), ("skill", catalogue.shadowed_skills()))
            for shadowed in found
        ],
        "problems": [msgspec.to_builtins(problem) for problem in catalogue.problems],
    }
