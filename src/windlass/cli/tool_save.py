"""Arguments of `tools save` and `tools run`, read with care; and checks of a program before it is kept."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from windlass.cli.session import STDIN
from windlass.cli.stdin import stdin_text
from windlass.engine.engine import Engine
from windlass.errors import UsageError
from windlass.plan.program import Token, granted_tools, tokens
from windlass.ports import ComposedTool, ProgramError

__all__ = ["arguments_of", "keep", "listed", "read_object", "read_text"]

MOST_BYTES = 4 * 1024 * 1024
_PLACE = re.compile(r"\s+at program\.js:(\d+):(\d+)\s*\Z")


def read_text(path: Path, what: str) -> str:
    """A file's text; `-` is stdin."""
    if path == STDIN:
        return stdin_text()
    name = str(path)
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
        if len(data) > MOST_BYTES:
            raise UsageError(f"the {what} {name} is larger than {MOST_BYTES // 1024**2} MiB")
        return data.decode()
    except UnicodeDecodeError as error:
        raise UsageError(f"the {what} {name} is not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise UsageError(
            f"{name} cannot be read: {error.strerror}", advice=(f"give a readable file with the {what}",)
        ) from error


def read_object(text: str, name: str) -> dict[str, Any]:
    """A JSON object."""
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        raise UsageError(f"{name} is not JSON: {error.msg} (line {error.lineno}, column {error.colno})") from error
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deep" if isinstance(error, RecursionError) else str(error)
        raise UsageError(f"{name} is not JSON: {reason}") from error
    if not isinstance(found, dict):
        raise UsageError(f'{name} is not a JSON object like {{"path": "x"}}')
    return found


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is not a JSON number")


def arguments_of(given: str | None) -> dict[str, Any]:
    """`--with`: JSON, or `@` and the file that holds it (`@-`: stdin)."""
    if given is None:
        return {}
    if given.startswith("@"):
        return read_object(read_text(Path(given[1:]), "file"), given[1:])
    return read_object(given, "--with")


def listed(grants: Sequence[str] | None) -> tuple[str, ...]:
    """`--grants` given several times, with commas between, or both."""
    return tuple(dict.fromkeys(name.strip() for given in grants or () for name in given.split(",") if name.strip()))


async def keep(
    engine: Engine, tool: ComposedTool, program: Path, *, replace: bool, any_arguments: bool
) -> dict[str, Any]:
    """Save it. Nothing is written, and no home is made, before the program was looked at."""
    from windlass.assembly import make_home
    from windlass.assembly.tool_catalog import file_of, whole_data
    from windlass.engine.single import tool_named

    assert engine.shelf is not None
    unchecked = await _check_syntax(engine, tool.source, program)
    file = file_of(engine, tool)
    if not replace and (os.path.lexists(file) or os.path.lexists(file.with_suffix(".json"))):
        raise UsageError(
            f"the composed tool {tool.name} already exists: {file}",
            advice=(f"see it: windlass tools show {tool.name}", "replace it: --replace"),
        )
    if not tool.everywhere:
        make_home(engine.home)
    engine.shelf.save(tool)
    remarks = ["without --schema it takes any arguments"] if any_arguments else []
    remarks += [unchecked] if unchecked else []
    remarks += _doubts(tool.source, tool.grants, engine.attempt_runner.tools.names())
    return {**whole_data(engine, tool_named(engine, tool.name)), "warnings": remarks}


async def _check_syntax(engine: Engine, source: str, file: Path) -> str | None:
    """Raise if it is no program; give a remark if the syntax could not be checked."""
    if engine.sandbox is None:
        return "its syntax was not checked: the sandbox is not installed"
    try:
        problem = await engine.sandbox.check(source)
    except ProgramError as error:
        return f"its syntax was not checked: {error.message}"
    if problem is None:
        return None
    place = _PLACE.search(problem)
    said = problem[: place.start()] if place else problem
    where = f"{file}, line {place[1]}, column {place[2]}" if place else str(file)
    raise UsageError(
        f"{where}: {said}",
        advice=(
            "a program is the body of an async function: const …; return await tools.files.read({path: args.path})",
        ),
    )


def _doubts(source: str, grants: Sequence[str], names: Sequence[str]) -> list[str]:
    """List calls of tools that a program will not get, and grants of unknown tools."""
    granted = granted_tools(tuple(grants), names)
    found: list[str] = []
    for called in dict.fromkeys(_calls(source)):
        if called not in names:
            found.append(f"it calls tools.{called}, which does not exist here; list all: windlass tools")
        elif called not in granted:
            found.append(f"it calls tools.{called}, which its grants do not cover; save it with --grants {called}")
    unknown = [grant for grant in grants if not granted_tools((grant,), names)]
    return found + [f"its grant {grant} matches no tool here" for grant in unknown]


def _calls(source: str) -> Iterator[str]:
    """Find `tools.a.b(` and `tools["a"].b(`, outside of comments and texts; computed names are not found."""
    found = list(tokens(source))
    for at, token in enumerate(found):
        if token.kind != "name" or token.text != "tools" or (at and found[at - 1].text in (".", "?.")):
            continue
        name, after = _member(found, at + 1)
        if name and after < len(found) and found[after].text == "(":
            yield name


def _member(found: Sequence[Token], at: int) -> tuple[str, int]:
    parts: list[str] = []
    while True:
        marks = [token.text if token.kind == "mark" else "" for token in found[at : at + 3]]
        if marks[:1] in (["."], ["?."]) and found[at + 1 : at + 2] and found[at + 1].kind == "name":
            parts.append(found[at + 1].text)
            at += 2
        elif marks[:1] == ["["] and marks[2:] == ["]"] and found[at + 1].kind == "text":
            parts.append(found[at + 1].text)
            at += 3
        else:
            return ".".join(parts), at
