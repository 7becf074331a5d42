"""`agents`: the roles and skills found here, their origins and their problems."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import click
import msgspec

from windlass.cli.command import Argument, Group, Option
from windlass.cli.session import AsJson, CommandEnd, out, out_lines, print_json, say
from windlass.cli.terminal import clip
from windlass.cli.text import plural
from windlass.visible import one_line

if TYPE_CHECKING:
    from windlass.agents.catalogue import Catalogue, Shadowed
    from windlass.agents.roles import Role

__all__ = ["register", "short_path"]

Workdir = Annotated[
    Path | None, Option("--workdir", metavar="DIR", help="Search from this folder instead of the current one")
]

agents_app = Group("agents", help="List the roles and skills that agents can be given.")


def register(app: Group) -> None:
    app.add_command(agents_app)


@agents_app.main_function
def agents(context: click.Context, workdir: Workdir = None, as_json: AsJson = False) -> None:
    """Roles and skills found here, where from, what stands before what, and problems with file and line.

    Problems are warnings: the exit code is 0.
    """
    if context.invoked_subcommand is not None:
        context.obj = workdir
        return
    catalogue = _catalogue(workdir)
    if as_json:
        from windlass.agents.catalogue import catalogue_data

        print_json(catalogue_data(catalogue))
    else:
        _print_tables(catalogue)
    raise CommandEnd(0)


@agents_app.add
def show(
    context: click.Context,
    name: Annotated[str, Argument(metavar="NAME", help="A role, in any case, or an alias")],
    workdir: Workdir = None,
    as_json: AsJson = False,
) -> None:
    """Print a role's system prompt exactly as agents get it."""
    from windlass.agents.catalogue import role_data
    from windlass.agents.prompt import system_prompt

    role = _catalogue(workdir or context.obj).role(name)
    if as_json:
        print_json({**role_data(role), "system": system_prompt(role)})
    else:
        say(f"{role.name}, from {short_path(role.source)}{_limits(role)}")
        for remark in role.ignored:
            say(f"warning: {remark}")
        out_lines(system_prompt(role))
    raise CommandEnd(0)


def _catalogue(workdir: Path | None) -> Catalogue:
    from windlass.agents.catalogue import Catalogue
    from windlass.errors import UsageError

    if workdir is not None and not workdir.is_dir():
        raise UsageError(f"{workdir} is not a folder")
    return Catalogue(workdir or Path.cwd())


def _print_tables(catalogue: Catalogue) -> None:
    roles = catalogue.roles()
    width = max([len(role.name) for role in roles] + [len(skill.name) for skill in catalogue.skills()] + [8])
    width = min(width, 40)
    out("Roles")
    for role in roles:
        out_lines(_row(role.name, role.description, width, short_path(role.source) + _limits(role)))
        _print_shadowed(role.name, catalogue.shadowed_roles())
    for unusable in catalogue.unusable():
        word = "switched off" if unusable.disabled else "cannot be used"
        out_lines(_row(unusable.name, f"({word})", width, short_path(unusable.source)))
        _print_shadowed(unusable.name, catalogue.shadowed_roles())
    out_lines("\nSkills" if catalogue.skills() else "\nSkills: none found")
    for skill in catalogue.skills():
        out_lines(_row(skill.name, skill.description, width, short_path(str(skill.path))))
        _print_shadowed(skill.name, catalogue.shadowed_skills())
    problems = catalogue.problems
    if problems:
        out_lines(f"\n{plural(len(problems), 'problem')}")
        for problem in problems:
            told = msgspec.structs.replace(problem, file=short_path(problem.file))
            out(f"  {' '.join(str(told).split())}")


def _row(name: str, description: str, width: int, source: str) -> str:
    text = clip(description, 90) or "(no description)"
    return f"  {one_line(name):<{width}}  {text}\n  {'':<{width}}  from {one_line(source)}"


def _print_shadowed(name: str, shadowed: Iterable[Shadowed]) -> None:
    for other in shadowed:
        if other.name.casefold() == name.casefold():
            out(f"      overrides {short_path(other.source)}")


def _limits(role: Role) -> str:
    said = [f"only {', '.join(role.tools) or 'no tools'}"] if role.tools is not None else []
    said += [f"without {', '.join(role.disallowed)}"] if role.disallowed else []
    said += [f"model {role.model}"] if role.model else []
    said += [f"at most {plural(role.max_turns, 'turn')}"] if role.max_turns else []
    return f" ({'; '.join(said)})" if said else ""


def short_path(source: str) -> str:
    """A path as a person would type it from here."""
    for base, sign in ((os.getcwd(), ""), (os.environ.get("HOME", ""), "~/")):
        if base and source.startswith(base.rstrip("/") + "/"):
            return sign + source[len(base.rstrip("/")) + 1 :]
    return source
