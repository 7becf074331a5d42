"""Role, skills and prompt of an agent, looked up for the engine before the agent begins.

Every call looks at the disk as it is now, because earlier steps may have changed it; skills are looked for only where
some are wanted. Every engine has a `Briefing`, and most plans have no agents: what it needs is imported when it is
used. Something missing is a `ToolError` of the kind that a person must correct.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from windlass.errors import Category, ToolError, UsageError

if TYPE_CHECKING:
    from windlass.agents.catalogue import Catalogue
    from windlass.agents.roles import Role
    from windlass.agents.skills import Skill
    from windlass.ports import Brief, Handoff, Media

__all__ = ["Briefing"]

W = TypeVar("W")
F = TypeVar("F")

ALL_SKILLS = "*"
"""Among a step's or a role's skills: list all others by name, description and path."""


class Briefing:
    """Briefs for the agents of one engine. It reads files, so call it in a thread if the loop must not wait."""

    def __init__(self, env: Mapping[str, str] = os.environ) -> None:
        self._env = env

    def catalogue(self, workdir: Path) -> Catalogue:
        from windlass.agents.catalogue import Catalogue

        return Catalogue(workdir, self._env)

    def role(self, name: str, workdir: Path) -> Role:
        """The role of a step: its model, turns and limits are the engine's to apply."""
        return _found(self.catalogue(workdir).role, name)

    def roles(self, workdir: Path) -> dict[str, str]:
        """The roles that can be used, each with its description."""
        return {role.name: role.description for role in self.catalogue(workdir).roles()}

    def brief(
        self,
        *,
        task: str,
        workdir: Path,
        role: str = "",
        skills: Sequence[str] = (),
        files: Sequence[str] = (),
        handoff: Sequence[Handoff] = (),
        before: str = "",
        reads_rules_itself: bool = False,
        with_rules: bool = True,
        allow_absolute: bool = True,
        media: Media = "",
        room: int | None = None,
    ) -> Brief:
        """Put together the prompt of a step's agent.

        `before`: the work of earlier attempts, whose conversation is not gone on with.
        `reads_rules_itself`: the runtime reads the project's rules, so they are left out, with a note.
        `media`: how the model comes to see images and PDF documents.
        `allow_absolute`: the entries of `files` are as the user wrote them, not the results of other steps.
        `room`: characters of files and other steps' output that the model's window has room for, where it is known.
        """
        from windlass.agents.context import gather
        from windlass.agents.prompt import compose
        from windlass.agents.rules import Rules

        catalogue = self.catalogue(workdir)
        chosen = _found(catalogue.role, role) if role else None
        notes: list[str] = []
        used, listed = _skills(catalogue, skills, chosen, notes)
        context = gather(files, workdir, allow_absolute=allow_absolute, media=media, room=room)
        if context.problems:
            texts = [str(problem) for problem in context.problems]
            advice = ("correct `files` of the step: paths and patterns are relative to the working directory",)
            raise ToolError("; ".join(texts[:5]), category=Category.CONFIGURATION, advice=advice)
        return compose(
            task=task,
            role=chosen,
            skills=[(skill, _found(catalogue.text_of, skill)) for skill in used],
            listed=listed,
            rules=catalogue.rules() if with_rules else Rules(),
            context=context,
            handoff=handoff,
            before=before,
            reads_rules_itself=reads_rules_itself,
            notes=notes,
            room=room,
        )

    def go_on(self, *, role: str, workdir: Path, reason: str = "", answer: str = "", before: str = "") -> Brief:
        """Put together the next prompt of a conversation that broke off."""
        from windlass.agents.prompt import continuation

        known = self.role(role, workdir) if role else None
        return continuation(role=known, reason=reason, answer=answer, before=before)

    def problems(self, workdir: Path, role: str, skills: Sequence[str]) -> list[str]:
        """List problems with the names of a role and of skills, before anything runs."""
        catalogue = self.catalogue(workdir)
        found: list[str] = []
        for kind, look, names in (("role", catalogue.role, [role]), ("skills", catalogue.skill, skills)):
            for name in names:
                try:
                    if name and name != ALL_SKILLS:
                        look(name)
                except UsageError as error:
                    found.append(f"`{kind}`: {error.message}")
        return found

    def basis(self, workdir: Path, role: str, skills: Sequence[str]) -> dict[str, str]:
        """Give the role and the skills with their hashes, as far as they can be read: an approval is bound to them."""
        catalogue = self.catalogue(workdir)
        basis: dict[str, str] = {}
        with suppress(UsageError):  # the attempt says what is wrong with it
            chosen = catalogue.role(role)
            basis[f"role {chosen.name}"] = _hash(repr(chosen))
            skills = (*skills, *chosen.skills)
        for name in skills:
            with suppress(UsageError):
                basis[f"skill {name}"] = _hash(catalogue.text_of(catalogue.skill(name)))
        return basis


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _skills(
    catalogue: Catalogue, wanted: Sequence[str], role: Role | None, notes: list[str]
) -> tuple[list[Skill], list[Skill]]:
    """The skills to give whole, and those to list."""
    of_role = role.skills if role is not None else ()
    used: dict[str, Skill] = {}
    for name in wanted:
        if name != ALL_SKILLS:
            skill = _found(catalogue.skill, name)
            used[skill.name] = skill
    for name in of_role:
        if name == ALL_SKILLS:
            continue
        try:
            skill = catalogue.skill(name)
            used[skill.name] = skill
        except UsageError as error:  # the role may have been written for another machine
            notes.append(f"role {role.name if role else ''}: {error.message}")
    everything = ALL_SKILLS in wanted or ALL_SKILLS in of_role
    listed = [skill for skill in catalogue.skills() if skill.name not in used] if everything else []
    return list(used.values()), listed


def _found(look: Callable[[W], F], what: W) -> F:
    try:
        return look(what)
    except UsageError as error:
        raise ToolError(error.message, category=Category.CONFIGURATION, advice=error.advice) from error
