"""Promises of every tool, tried on one of them: built-in, composed, or your own (H1).

    await exercise_tool(word_count, {"path": "text.txt"}, prepare=lambda work: (work / "text.txt").write_text("a b"))

It looks at what the tool says of itself, asks it about arguments that mean no good, has it refuse what it called wrong,
and, where it is given good arguments, uses it once in an empty folder and once more to stop it midway.
"""

from __future__ import annotations

import asyncio
import json
import re
import reprlib
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from windlass.engine.code.typings import declarations, key
from windlass.errors import ToolError
from windlass.plan.model import Effect
from windlass.plan.storable import unique_keys
from windlass.ports import Call, Estimate, Health, Meter, Terms, Tool, ToolLike, as_tool, health_of
from windlass.process import Supervisor
from windlass.schemas import misfits, unusable

__all__ = ["exercise_tool"]

Prepare = Callable[[Path], object]
"""Furnishes a working directory."""


class ToolWorkspace:
    """A working directory, and attempts in it."""

    def __init__(self, prepare: Prepare | None) -> None:
        self._prepare, self._count = prepare, 0

    async def __aenter__(self) -> ToolWorkspace:
        self._base = tempfile.TemporaryDirectory(prefix="windlass-tool-")
        base = Path(self._base.name).resolve()
        self.work, self._folder = base / "work", base / "home" / "executions" / "exercise"
        self.work.mkdir()
        self._folder.mkdir(parents=True)
        if self._prepare is not None:
            self._prepare(self.work)
        self._processes = Supervisor()
        await self._processes.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self._processes.__aexit__(*error)
        self._base.cleanup()

    def call(self) -> Call:
        self._count += 1
        return Call(
            execution="exercise",
            step=f"use{self._count}",
            attempt=1,
            workdir=self.work,
            folder=self._folder,
            processes=self._processes,
            env={"PATH": "/usr/local/bin:/usr/bin:/bin"},
            grace=0.5,
        )

    def seen(self) -> dict[str, tuple[int, int, int]]:
        looks = ((path, path.lstat()) for path in sorted(self.work.rglob("*")))
        return {str(path): (look.st_mode, look.st_size, look.st_mtime_ns) for path, look in looks}


MOST_DESCRIPTION = 1_500
"""Characters of the description that a model is shown."""
MOST_COMPUTING = 5.0
"""Seconds of computing that an answer about arguments may take, however they look."""
DEEP = 500
"""Levels of nesting; JSON that arrives has fewer than a thousand."""
PATIENCE = 60.0
"""Seconds that a use may take to end after it was asked to stop."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}(\.[A-Za-z0-9_-]{1,64}){0,7}")
_VALUES: tuple[Any, ...] = (
    {},
    [],
    7,
    -1,
    1e308,
    float("nan"),
    float("inf"),
    True,
    None,
    "",
    "\0",
    "\ud800",
    "../../x",
    "x" * 100_000,
)
_short = reprlib.Repr().repr
"""Arguments as they can be shown, however deep or large."""


async def exercise_tool(
    given: Tool | ToolLike,
    good: Mapping[str, Any] | None = None,
    *,
    prepare: Prepare | None = None,
    lasting: Mapping[str, Any] | None = None,
) -> None:
    """Hold a tool to the port: `AssertionError` names every promise that it does not keep.

    `good` are arguments that work with nothing but a working directory, which `prepare` furnishes. With `lasting` it
    works until it is stopped. Without these two, it is not used: only its description and its refusals are checked.
    """
    tool = as_tool(given)
    found = [*_said(tool), *_declared(tool)]
    found += [wrong for arguments in hostile_arguments(tool, good) for wrong in _answers(tool, arguments, valid=None)]
    if good is not None:
        found += _answers(tool, good, valid=True)
        found += [f"its schema refuses good arguments: {wrong}" for wrong in misfits(tool.schema, good)]
    health: Any = await health_of(tool)
    if health is not None and (not isinstance(health, Health) or (not health.ok and not health.detail)):
        found.append(f"`health()` gives {health!r}, which is not a Health")
    found += await _refuses(tool, good, prepare)
    if good is not None:
        found += await _works(tool, good, prepare)
        found += await _stops(tool, good, prepare, ends=True)
    if lasting is not None:
        found += await _stops(tool, lasting, prepare, ends=False)
    told = "\n".join(f"- {wrong}" for wrong in dict.fromkeys(found))
    assert not found, f"{tool.name} violates the protocol `Tool`:\n{told}"


def hostile_arguments(tool: Tool, good: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
    """Arguments from a confused model or a hostile page: nothing, nonsense, too much, `good` with one thing wrong."""
    deep: Any = []
    for _ in range(DEEP):
        deep = [deep]
    names = list(tool.schema.get("properties", {})) or ["value"]
    yield {}
    yield {"no_such_argument": 1}
    yield {"__proto__": {"polluted": True}, "constructor": {}, "__class__": "x", "": ""}
    yield {"\ud800": "\ud800", "\0": "\0"}
    yield {str(number): number for number in range(2_000)}
    for value in (*_VALUES, deep, list(range(10_000)), {"__proto__": {"polluted": True}}):
        yield dict.fromkeys(names, value)
        if good is not None:
            yield from ({**good, name: value} for name in names)
    if good is not None:
        yield {**good, "no_such_argument": 1}


def _said(tool: Tool) -> Iterator[str]:
    if not _NAME.fullmatch(tool.name):
        yield f"its name {tool.name!r} is not words of letters, digits, _ and -, with dots between them"
    text = tool.description
    if not text.strip() or len(text) > MOST_DESCRIPTION or not text.isprintable():
        yield f"its description {text[:100]!r} is not one printable line of 1 to {MOST_DESCRIPTION} characters"
    yield from (f"its schema cannot be used: {wrong}" for wrong in unusable(tool.schema))
    returns: Any = tool.returns
    if returns is not None:
        if not isinstance(returns, Mapping):
            yield f"`returns` is {type(returns).__name__}, not a JSON Schema"
        yield from (f"`returns` cannot be used: {wrong}" for wrong in unusable(returns, of_arguments=False))
    for words in (tool.schema, returns):
        try:
            json.dumps(words, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            yield f"a schema of it cannot be written as JSON: {error}"
    terms: Any = tool.terms
    if not isinstance(terms, Terms):
        yield f"`terms` is {type(terms).__name__}, not {Terms.__name__}"


def _declared(tool: Tool) -> Iterator[str]:
    """Its declaration for code has the same arguments as its schema, unless there are too many."""
    text = declarations([tool])
    if key(tool.name.rpartition(".")[2]) not in text:
        yield "its TypeScript declaration does not name it"
    if re.search(r"\(args\??: any\)", text) or tool.schema.get("$ref"):
        return
    needed = tool.schema.get("required", [])
    for name in tool.schema.get("properties", {}):
        mark = "" if name in needed else r"\?"
        if not re.search(rf"(?<![\w]){re.escape(key(name))}{mark}:", text):
            yield f"its TypeScript declaration lacks the argument {name!r}, or whether it is needed"


def _answers(tool: Tool, arguments: Mapping[str, Any], *, valid: bool | None) -> Iterator[str]:
    """Its `validate` and `effect` give proper answers for any arguments, and soon."""
    about = f"for {_short(arguments)}"
    began = time.process_time()
    try:
        wrong: Any = tool.validate(arguments)
        effect: Any = tool.effect(arguments)
    except Exception as error:
        yield f"`validate` or `effect` raises {type(error).__name__} {about}"
        return
    if time.process_time() - began > MOST_COMPUTING:
        yield f"`validate` and `effect` compute longer than {MOST_COMPUTING:g} s {about}"
    if not isinstance(wrong, list) or not all(isinstance(each, str) and each for each in wrong):
        yield f"`validate` gives {wrong!r:.100}, not a list of sentences, {about}"
    elif valid and wrong:
        yield f"`validate` refuses good arguments: {'; '.join(wrong)[:300]}"
    if effect not in list(Effect):
        yield f"`effect` gives {effect!r}, not an Effect, {about}"
    if wrong:
        return  # nobody asks further about arguments that were refused
    try:
        circuit, estimate = tool.circuit(arguments), tool.estimate(arguments)
    except Exception as error:
        yield f"`circuit` or `estimate` raises {type(error).__name__} {about}"
        return
    if circuit == "":
        yield f"`circuit` gives an empty name {about}"
    if not isinstance(estimate, Estimate):
        yield f"`estimate` gives {estimate!r:.100}, not an Estimate, {about}"


async def _refuses(tool: Tool, good: Mapping[str, Any] | None, prepare: Prepare | None) -> list[str]:
    """Arguments that it called wrong end as a ToolError (or as its model's own complaint), and nothing is changed."""
    found = []
    async with ToolWorkspace(prepare) as place:
        before = place.seen()
        for arguments in hostile_arguments(tool, good):
            if not _is_refused(tool, arguments):
                continue
            shown = _short(arguments)
            try:
                async with asyncio.timeout(PATIENCE):
                    await tool.execute(arguments, place.call())
            except Exception as error:
                if not isinstance(error, ToolError):
                    found.append(f"`execute` raises {type(error).__name__}, not ToolError, for wrong arguments {shown}")
            else:
                found.append(f"`execute` takes arguments that `validate` refuses: {shown}")
        if place.seen() != before:
            found.append("`execute` changes the working directory though it was given wrong arguments")
    return found


def _is_refused(tool: Tool, arguments: Mapping[str, Any]) -> bool:
    try:
        return bool(tool.validate(arguments))
    except Exception:
        return False  # which `_answers` tells


async def _works(tool: Tool, good: Mapping[str, Any], prepare: Prepare | None) -> list[str]:
    async with ToolWorkspace(prepare) as place:
        call = place.call()
        try:
            result = await tool.execute(good, call)
        except Exception as error:
            return [f"`execute` fails with good arguments: {type(error).__name__}: {error}"]
    found = [*_measured(call.meter)]
    try:
        plain = json.loads(json.dumps(result, allow_nan=False), object_pairs_hook=unique_keys)
    except (TypeError, ValueError) as error:
        return [*found, f"its result is not plain data: {error}"]
    returns = tool.returns
    wrong = misfits(returns, plain) if returns else []
    return [*found, *(f"its result does not fit `returns`: {one}" for one in wrong)]


def _measured(meter: Meter) -> Iterator[str]:
    """Its reported usage is recorded and summed: a negative number would take from others."""
    for name, kind in (("cpu", int | float), ("memory", int), ("received", int), ("sent", int)):
        took = getattr(meter.used, name, None)
        if took is not None and not (isinstance(took, kind) and 0 <= took < float("inf")):
            yield f"it tells `call.meter` that it took {took!r} of {name}, which is not an amount"


async def _stops(tool: Tool, arguments: Mapping[str, Any], prepare: Prepare | None, *, ends: bool) -> list[str]:
    """Asked to stop, it lets the cancellation through; one that can end by itself may be done just then."""
    async with ToolWorkspace(prepare) as place:
        task = asyncio.ensure_future(tool.execute(arguments, place.call()))
        await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=PATIENCE)
        if not done:
            return [f"`execute` continues for {PATIENCE:g} s after its cancellation"]
        if task.cancelled():
            return []
        error = task.exception()
        if error is not None:
            return [f"cancelled, `execute` raises {type(error).__name__} in place of the cancellation: {error}"]
        return [] if ends else ["told to stop, `execute` swallows the cancellation and gives a result"]
