"""Plans from files and texts, and the values that an execution's inputs get.

- `load_plan` and `load_text` read, check and give a `Loaded`, or raise `PlanInvalid` with every problem.
- `check_plan` puts a plan that Python code built through the same checks.
- `peek_tools` says which tool files a plan names, so that its tools are at hand when it is checked.
- `parse_input` reads one `--input key=value`; `bind_inputs` lays given values over a plan's defaults.

A file that cannot be opened is a `UsageError`.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from windlass.errors import InputInvalid, PlanInvalid, Problem, UsageError
from windlass.plan.check import Locate, ToolCatalog, check_data, check_steps
from windlass.plan.model import MAX_STEPS, Plan
from windlass.plan.schema import kind_of, nearest
from windlass.plan.yamlread import Document, plain, read
from windlass.regular import read_stdin

__all__ = [
    "MAX_BYTES",
    "Loaded",
    "NotAnInput",
    "Written",
    "bind_inputs",
    "check_plan",
    "fitting_input",
    "load_plan",
    "load_text",
    "locate_in",
    "parse_input",
    "peek_tools",
    "plan_bytes",
]

MAX_BYTES = 16 * 1024 * 1024
"""Longest file that is read."""


class Loaded(msgspec.Struct, frozen=True):
    """A plan that passed every check."""

    plan: Plan
    path: Path | None
    digest: str
    """SHA-256 of the file's bytes."""
    warnings: tuple[Problem, ...] = ()
    """Probable mistakes in a plan that can run all the same."""


class Written(NamedTuple):
    """An input as it was typed; the type of the input's default decides how to read it."""

    text: str
    verbatim: bool = False
    """True for text from a file: it stays text unless the default has another type."""


def plan_bytes(path: Path, *, pipes: bool = True) -> bytes:
    """A plan file as it is, for what is to be read of it: a pipe gives its bytes once.

    Without `pipes`, only a regular file is read, and nothing is waited for.
    """
    return _bytes_of(path, "plan", pipes=pipes)


def load_plan(path: Path, *, tools: ToolCatalog | None = None, data: bytes | None = None) -> Loaded:
    """The plan in a YAML or JSON file; `data` is what was read of it, if it was."""
    return _load(plan_bytes(path) if data is None else data, str(path), path, tools)


def load_text(text: str | bytes, *, file: str = "<text>", tools: ToolCatalog | None = None) -> Loaded:
    """The plan in a text. `file` names it in problems; a name that ends in .json makes it JSON."""
    return _load(_encoded(text, file), file, None, tools)


def peek_tools(data: bytes, file: str) -> list[str]:
    """The tool files that a plan names, as far as can be told before it is checked."""
    if b"tools" not in data:
        return []
    plan = _read(data, file).data
    found = plan.get("tools") if isinstance(plan, dict) else None
    listed = found if isinstance(found, list) else [found]
    return [file for file in listed if isinstance(file, str)]


def locate_in(path: Path, digest: str) -> Locate | None:
    """Find positions in a plan file that was read before; None if it has changed since."""
    try:
        data = plan_bytes(path, pipes=False)
    except UsageError:
        return None
    return _read(data, str(path)).locate if hashlib.sha256(data).hexdigest() == digest else None


def check_plan(plan: Plan, tools: ToolCatalog | None = None) -> list[Problem]:
    """Everything wrong with a plan that was built in Python."""
    from windlass.plan.storable import unstorable_values  # a plan from a file has no other values

    if problems := unstorable_values(plan):
        return problems
    return list(check_steps(plan, tools=tools).problems)


def _load(data: bytes, file: str, path: Path | None, tools: ToolCatalog | None) -> Loaded:
    document = _read(data, file)
    found = check_data(document.data, file=file, locate=document.locate, tools=tools)
    # A mistake in the text often causes a second problem in the checks: report one problem a line.
    lines = {problem.line for problem in document.problems}
    problems = [*document.problems, *(p for p in found.problems if p.line not in lines)]
    if problems or found.plan is None:
        raise PlanInvalid(sorted(problems, key=lambda p: (p.line or 0, p.column or 0)))
    return Loaded(found.plan.as_from_text(), path, hashlib.sha256(data).hexdigest(), found.warnings)


def _read(data: bytes, file: str) -> Document:
    as_json = file.lower().endswith(".json")
    return read(_decoded(data, file), file=file, as_json=as_json, longest={"steps": MAX_STEPS})


def _decoded(data: bytes, file: str) -> str:
    """Text of a file's bytes: UTF-8 with or without a byte order mark, not too long, not binary."""
    if len(data) > MAX_BYTES:
        raise PlanInvalid([Problem(f"the file is larger than {MAX_BYTES // 1024**2} MiB", file)])
    try:
        text = data.decode("utf-8-sig")
        bad, message, hint = data.find(b"\0"), "this file is binary: it holds a NUL character", ""
    except UnicodeDecodeError as error:
        text, bad, message, hint = "", error.start, "this is not UTF-8 text", "save the file as UTF-8"
    if bad >= 0:
        line, column = data.count(b"\n", 0, bad) + 1, bad - data.rfind(b"\n", 0, bad)
        raise PlanInvalid([Problem(message, file, line, column, hint=hint)])
    return text


def _encoded(text: str | bytes, file: str) -> bytes:
    try:
        return text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise PlanInvalid([Problem("this text has an invalid character (a lone surrogate)", file)]) from error


def _bytes_of(path: Path, what: str, *, pipes: bool = True) -> bytes:
    try:
        with open(path, "rb", opener=None if pipes else _open_at_once) as stream:
            if not (pipes or stat.S_ISREG(os.fstat(stream.fileno()).st_mode)):
                raise UsageError(f"{path} is not a regular file, as a {what} file must be here")
            return stream.read(MAX_BYTES + 1)  # `_decoded` refuses the one byte too many
    except FileNotFoundError:
        begin = ["write one to begin with: windlass init"] if what == "plan" else []
        raise UsageError(f"there is no {what} file {path}", advice=_files_like(path) or begin) from None
    except IsADirectoryError:
        plans = _plans_in(path)
        advice = [f"name one of the files in it: {', '.join(plans[:5])}"] if plans else []
        raise UsageError(f"{path} is a folder, not a {what} file", advice=advice) from None
    except PermissionError:
        advice = [f"check its permissions: ls -l {path}"]
        raise UsageError(f"no permission to read the {what} file {path}", advice=advice) from None
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the name
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"the {what} file {str(path)!r} cannot be read: {reason}") from None


def _stdin() -> bytes:
    try:
        return read_stdin()
    except OSError as error:
        raise UsageError(f"standard input cannot be read: {error.strerror}") from None


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)  # else a pipe that nobody writes to is waited for


def _files_like(path: Path) -> list[str]:
    if not path.parent.is_dir():
        return [f"there is no folder {path.parent} either"]
    meant = nearest(path.name, (entry.name for entry in path.parent.iterdir() if entry.is_file()))
    if meant:
        return [f"did you mean {path.with_name(meant)}?"]
    plans = _plans_in(path.parent)
    return [f"files in that folder: {', '.join(plans[:5])}"] if plans else []


def _plans_in(folder: Path) -> list[str]:
    """The names of the files that may be plans."""
    return sorted(file.name for file in folder.iterdir() if file.suffix in (".yaml", ".yml", ".json"))


# ── Inputs ───────────────────────────────────────────────────────────────────────────────────────────


def parse_input(text: str) -> tuple[str, Written]:
    """`key=value`, or `key=@file` for what a file holds: `@-` is standard input, `@@` text that begins with an @."""
    name, equals, value = text.partition("=")
    name = name.strip()
    if not equals or not name:
        raise UsageError(f"{text!r} is not an input", advice=["write it like --input name=value"])
    if value.startswith("@@"):
        return name, Written(value[1:])
    if not value.startswith("@"):
        return name, Written(value)
    file = value[1:]
    try:
        data = _stdin() if file == "-" else _bytes_of(Path(file), "input")
        return name, Written(_decoded(data, file), verbatim=True)
    except PlanInvalid as error:
        raise UsageError(f"input {name}: {error.problems[0]}") from error


def bind_inputs(plan: Plan, given: Mapping[str, Any]) -> dict[str, Any]:
    """The plan's inputs with the given values over the defaults.

    A `Written` value takes its type from the default, so that `version=1.10` stays text where the default
    is text. Where the default is null, any type will do. Raises `InputInvalid` with every problem.
    """
    if type(given) is not dict and not isinstance(given, Mapping):
        raise InputInvalid([Problem(f"expected a mapping of names to values, found {kind_of(given)}", where="inputs")])
    problems: list[Problem] = []
    bound = dict(plan.inputs)
    for name, value in given.items():
        try:
            if name not in plan.inputs:
                raise NotAnInput(f"the plan has no input `{name}`", _known_inputs(name, plan))
            bound[name] = fitting_input(name, value, plan.inputs[name])
        except NotAnInput as error:
            problems.append(Problem(error.message, where=f"inputs.{name}", hint=error.hint))
    if problems:
        raise InputInvalid(problems)
    return bound


class NotAnInput(Exception):
    """A value cannot be given to an input of a plan."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


def _known_inputs(name: str, plan: Plan) -> str:
    if meant := nearest(str(name), plan.inputs):
        return f"did you mean `{meant}`?"
    return f"known: {', '.join(plan.inputs)}" if plan.inputs else "it has no inputs at all"


def fitting_input(name: str, given: Any, default: Any) -> Any:
    """A given value as the journal gives it back, made sure to be of the default's type; else raises `NotAnInput`."""
    value = _meaning(name, given, default) if isinstance(given, Written) else given
    if default is not None and not _same_type(value, default):
        raise NotAnInput(f"input {name}: expected {_type_of(default)}, got {_type_of(value)}", kind_of(value))
    try:
        written = json.dumps(value, allow_nan=False, ensure_ascii=False)
        written.encode()
    except (TypeError, ValueError, RecursionError):
        hint = "an input is text, a number, true, false, null, or lists and mappings of these"
        raise NotAnInput(f"input {name}: {kind_of(value)} cannot be stored as JSON", hint) from None
    if not isinstance(value, dict | list | tuple):
        return value
    from windlass.plan.storable import unique_keys  # most inputs are text and numbers

    try:  # What the caller does with a list or a mapping later must not change what the steps are given.
        return json.loads(written, object_pairs_hook=unique_keys)
    except ValueError as error:
        raise NotAnInput(f"input {name}: {error}", "write the keys of a mapping as text") from None


def _meaning(name: str, given: Written, default: Any) -> Any:
    """Typed text as the value it stands for."""
    text = given.text.strip()
    if isinstance(default, str) or (default is None and given.verbatim):
        return given.text
    try:
        a_file_of_data = given.verbatim and isinstance(default, list | dict)
        if text[:1] not in ("[", "{", '"', "'") and not a_file_of_data:
            return plain(text)
        document = read(text)
        if document.problems:
            raise PlanInvalid(document.problems)
        return document.data
    except ValueError as error:
        raise NotAnInput(f"input {name}: {error}") from error
    except PlanInvalid as error:
        raise NotAnInput(f"input {name}: {error.problems[0].message}", "quote it to pass text") from error


def _same_type(value: Any, default: Any) -> bool:
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return True
    return _type_of(value) == _type_of(default)


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true or false"
        case int():
            return "a whole number"
        case float():
            return "a number"
        case str():
            return "text"
        case list() | tuple():
            return "a list"
        case Mapping():
            return "a mapping"
    return f"a {type(value).__name__}"
