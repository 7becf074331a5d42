"""Names and patterns of `protect` (K2): what each of them fits, and those that fit nothing in a folder.

A folder that is not there, or a name like one that is there, is taken for a mistake: the files that were meant would be
unprotected. Another name or pattern may be that of a file which the agent is not to make.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from windlass.errors import Category, ToolError
from windlass.globs import MAX_LOOKED_AT, glob_filter, is_pattern, split_pattern, without_braces
from windlass.plan.model import Plan
from windlass.plan.prepare import prepare
from windlass.plan.schema import nearest

__all__ = ["MissingName", "find_unmatched", "fits", "folder_tests", "from_workdir", "unmatched_in", "unmatched_text"]

LIKE = 0.8
"""Likeness from which on a name is taken for a slip of the pen, from 0 to 1: `test` and `tests` have 0.89."""
_TEMPLATE = re.compile(r"\{[{%#]")


class MissingName(NamedTuple):
    """A name or pattern of `protect` that fits no file."""

    name: str
    meant: str
    """The name that was probably meant; may be empty."""
    is_mistake: bool
    """It cannot be meant so."""


def from_workdir(pattern: str, workdir: Path) -> str:
    """A path or pattern of `protect` in its plain form, from the working directory."""
    found = os.path.relpath(pattern, workdir) if pattern.startswith("/") else os.path.normpath(pattern)
    if not pattern.strip() or pattern.startswith("~") or found.split("/")[0] == "..":
        raise ToolError(
            f"`protect` names {pattern!r}, which is not in the working directory {workdir}",
            category=Category.CONFIGURATION,
            advice=("name files, folders and patterns from the working directory; `.` is all of it",),
        )
    return found


def fits(pattern: str) -> Callable[[str], bool]:
    """A test of paths for a plain path or pattern. Raises `ToolError` for a pattern that cannot be read."""
    if pattern == ".":
        return lambda name: True
    if is_pattern(pattern):
        try:
            return glob_filter(pattern)
        except ValueError as error:
            raise ToolError(
                f"`protect` names {pattern!r}, which is not a pattern: {error}", category=Category.CONFIGURATION
            ) from None
    return lambda name: name == pattern or name.startswith(f"{pattern}/")


def folder_tests(pattern: str) -> list[Callable[[str], bool]]:
    """Tests for the folders that a path or pattern leads through."""
    paths = [path.split("/") for path in without_braces(pattern)]
    return [glob_filter(f"./{'/'.join(parts[:count])}") for parts in paths for count in range(1, len(parts))]


def find_unmatched(patterns: Sequence[str], workdir: Path) -> list[MissingName]:
    """Find the names of `protect` that fit nothing there now. Raises `ToolError` for one that leads out of it."""
    found: list[MissingName] = []
    for pattern in patterns:
        plain = from_workdir(pattern, workdir)
        with_wildcard = is_pattern(plain)
        if _matches(plain, workdir) if with_wildcard else os.path.lexists(workdir / plain):
            continue
        fixed = split_pattern(plain)[0] if with_wildcard else plain
        near = _near(fixed, workdir)
        meant = f"{near}{plain.removeprefix(fixed)}" if near else ""
        if meant and (workdir / meant).is_dir():
            meant += "/"
        found.append(MissingName(pattern, meant, bool(near) or (pattern.endswith("/") and not with_wildcard)))
    return found


def unmatched_in(plan: Plan, workdir: Path, *, misspelt: bool) -> list[str]:
    """Warnings of names in a plan that fit nothing before its start: those that are like a name that is there, or all
    others. Of the others, steps that wait for another step are left out, which may make the files."""
    said: list[str] = []
    for step in plan.steps:
        folder = workdir / (step.workdir or "")
        names = [name for name in step.protect or () if not _TEMPLATE.search(name)]
        if not names or _TEMPLATE.search(step.workdir or "") or not folder.is_dir():
            continue
        if not misspelt and prepare(plan).graph.needs[step.id]:
            continue
        try:
            found = find_unmatched(names, folder)
        except ToolError:  # the step fails and says so
            continue
        said += [f"step {step.id}: {unmatched_text(one)}" for one in found if bool(one.meant) == misspelt]
    return said


def unmatched_text(one: MissingName) -> str:
    text = f"`protect` names {one.name}, and there is nothing of that name"
    return f"{text}; did you mean {one.meant}?" if one.meant else text


def _matches(pattern: str, workdir: Path) -> bool:
    """Return True if a pattern fits a file there, also one behind a link, or if there are too many to tell."""
    test, of_links = fits(pattern), folder_tests(pattern)
    for count, (path, is_link) in enumerate(_files(workdir)):
        if count >= MAX_LOOKED_AT or test(path) or (is_link and any(leads(path) for leads in of_links)):
            return True
    return False


def _files(workdir: Path) -> Iterator[tuple[str, bool]]:
    """The files and links beneath a folder, each with True if it is a link."""
    for folder, folders, names in os.walk(workdir):
        folders[:] = [name for name in folders if name != ".git"]
        for name in (*names, *folders):
            path = os.path.join(folder, name)
            if (is_link := os.path.islink(path)) or name in names:
                yield os.path.relpath(path, workdir), is_link


def _near(path: str, workdir: Path) -> str:
    """The path with its first missing name replaced by one like it; empty if there is none."""
    parts = path.split("/")
    for place, part in enumerate(parts):
        folder = workdir.joinpath(*parts[:place])
        if os.path.lexists(folder / part):
            continue
        try:
            there = {name.lower(): name for name in os.listdir(folder)}
        except OSError:
            return ""
        near = nearest(part.lower(), there, LIKE)
        return "/".join((*parts[:place], there[near], *parts[place + 1 :])) if near else ""
    return ""
