"""The roles and skills of a folder as plain data: what `windlass agents --json` and the API show."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.agents.catalogue import Catalogue
from windlass.agents.reading import shown_path
from windlass.agents.roles import Role

__all__ = ["catalogue_data", "role_data"]


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
