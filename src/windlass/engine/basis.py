"""The basis of an approval: hashes of everything beside the arguments that decides the effect of a use (C6).

`basis_of` is called when a person is asked, and again right before the act; `compare` compares the two. Tools add
their own part (`Tool.basis`). Beside that the shapes of arguments are read, ours and the runtimes': paths of files, and
the words of a command that name a file in the working directory.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from windlass.core.approval import ABSENT, Basis, changes, hash_of
from windlass.errors import ApprovalOutdated
from windlass.plan.model import Step
from windlass.ports import Tool, Toolbox

__all__ = ["basis_of", "compare", "definition", "step_hash"]

MOST_HASHED = 16 * 1024 * 1024
"""Bytes of a file that are hashed; a larger one is known by its size and its time of change."""
MOST_FILES = 64
_PATHS = ("path", "file_path", "filePath", "filename", "notebook_path")
_LISTS = ("attachments", "files")
_COMMANDS = ("line", "command", "cmd")
_JOINTS = re.compile(r"[;&|()\r\n]+")
_INTERPRETER = re.compile(
    r"(?:.*/)?(?:\.|source|(?:ba|da|z|k|fi)?sh|python[\d.]*|node|deno|bun|ruby|perl|php|lua|Rscript)"
)
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def basis_of(
    tool: Tool | None, arguments: Any, workdir: Path, tools: Toolbox, *, step: Step | None = None, substitute: str = ""
) -> dict[str, str]:
    """The basis of this use. `tool` is None for a runtime's own; `step` is given when its approval is asked."""
    basis: dict[str, str] = {}
    if step is not None:
        basis[f"step {step.id}"] = step_hash(step)
    if tool is not None:
        basis[f"tool {tool.name}"] = definition(tool)
        stand_in = tools.get(substitute) if substitute else None
        if stand_in is not None:
            basis[f"substitute {stand_in.name}"] = definition(stand_in)
    given = arguments if isinstance(arguments, Mapping) else {}
    if tool is not None:
        basis |= tool.basis(given, workdir, tools)
        if tool.compares_files:
            return basis
    return basis | _files(given, workdir)


def step_hash(step: Step) -> str:
    """The hash of a step as the plan has it: its templates, grants, limits and all."""
    return hash_of(step.model_dump(mode="json", exclude={"when", "needs"}, exclude_defaults=True))


def definition(tool: Tool) -> str:
    """The hash of a tool's description and schema."""
    return hash_of([tool.description, tool.schema])


def compare(approved: Basis, now: Basis, tool: Tool) -> None:
    """Raises ApprovalOutdated if it is not the same. Files are left to a tool that compares them itself."""
    if tool.compares_files and approved:
        approved, now = ({k: v for k, v in each.items() if not k.startswith("file ")} for each in (approved, now))
    if found := changes(approved, now):
        raise ApprovalOutdated(found)


def _files(given: Mapping[str, Any], workdir: Path) -> dict[str, str]:
    cwd = given.get("cwd")
    base = workdir / cwd if isinstance(cwd, str) else workdir
    named = list(dict.fromkeys([*_named(given), *_scripts(given, base)]))[:MOST_FILES]
    found = ((name, _fingerprint(base, name, workdir)) for name in named)
    return {f"file {name}": mark for name, mark in found if mark is not None}


def _named(given: Mapping[str, Any]) -> Iterator[str]:
    yield from (given[key] for key in _PATHS if isinstance(given.get(key), str))
    for key in _LISTS:
        if isinstance(given.get(key), list):
            yield from (name for name in given[key] if isinstance(name, str))


def _scripts(given: Mapping[str, Any], base: Path) -> Iterator[str]:
    """The files of a command that are run: `./deploy.sh`, `sh deploy.sh`, `sudo -u web ./deploy.sh`.

    A file that is only read or written (`tail app.log`) may change. That is as far as a command can be read without
    running it: programs that a script itself starts are not seen.
    """
    argv = given.get("argv")
    commands = [[str(word) for word in argv]] if isinstance(argv, list) else []
    for key in _COMMANDS:
        if isinstance(given.get(key), str):
            commands += [_words(part) for part in _JOINTS.split(given[key])]
    for words in commands:
        plain = [word for word in words if not word.startswith("-") and not _ASSIGNMENT.match(word)]
        for before, word in zip(["", *plain], plain, strict=False):
            file = os.path.join(base, word)
            if os.path.isfile(file) and (not before or _INTERPRETER.fullmatch(before) or os.access(file, os.X_OK)):
                yield word


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command, comments=True)
    except ValueError:  # a quotation that goes on in the next line
        return command.split()


def _fingerprint(base: Path, name: str, workdir: Path) -> str | None:
    """The hash of a file of the working directory; None for anything else."""
    try:
        place = (base / name).resolve()
        if not place.is_relative_to(workdir.resolve()):
            return None
        descriptor = os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return ABSENT
    except (OSError, ValueError, RuntimeError):
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None  # a folder cannot even be made a file object
        if found.st_size > MOST_HASHED:
            return f"{found.st_size} bytes of {found.st_mtime_ns}"
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    finally:
        os.close(descriptor)
