"""One attempt: the single path by which anything with an effect happens.

`AttemptRunner.perform` finds the tool, checks the arguments, sets the limits, runs it, and turns every result or error
into an `Outcome`. It never raises but for cancellation, and never writes to the journal.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path, PurePath
from typing import Any, ClassVar, Literal

import msgspec

from windlass.core.approval import Basis, answer_for, changes, digest_of
from windlass.core.events import ApprovalAsked, AttemptStarted, StepWaiting
from windlass.core.state import StepState
from windlass.engine.basis import step_hash
from windlass.engine.contact import AttemptContext, AttemptOutput
from windlass.engine.gates import Gates, TookTooLong
from windlass.engine.gates.intake import Admission
from windlass.engine.gates.terms import PLAIN
from windlass.errors import CUT_OFF, ApprovalOutdated, Category, Failure, ToolError, classify
from windlass.plan.model import Effect
from windlass.ports import Call, Meter, Tool, Toolbox, effect_of
from windlass.process import MemoryPool, ProcessLost, Supervisor

__all__ = ["AttemptFolders", "AttemptRunner", "Held", "Outcome", "not_finite", "read_back", "storable"]

MAX_RESULT = 16 * 1024 * 1024
"""Bytes of JSON that one step may give as its output."""

LONGEST_MESSAGE = 65_536
"""Characters of a failure's message that are kept, half from its beginning and half from its end."""

_LARGE = 2**63
"""An integer from here on may have more digits than can be written."""


def _dumped(value: Any) -> Any:
    """A model of pydantic as its JSON Schema describes it, a path, text and numbers of other classes (as of NumPy)."""
    from numbers import Integral, Real  # few results need it

    match value:
        case str():
            return str(value)
        case Integral():
            return int(value)
        case Real():
            return float(value)
        case PurePath():
            return str(value)
    if (dump := getattr(value, "model_dump", None)) is None or isinstance(value, type):
        raise TypeError(f"Encoding objects of type {type(value).__name__} is unsupported")
    return dump(by_alias=True)


_encode = msgspec.json.Encoder(enc_hook=_dumped).encode
_decode = msgspec.json.Decoder().decode


_path = lru_cache(maxsize=64)(Path)
"""Executions mostly share their working directory, and to take a path apart costs as much as a part of a step."""


class Held(Exception):
    """A gate is closed: the attempt did not fail, and goes on once there is quota or budget again; or at once, with the
    next model."""

    def __init__(
        self,
        reason: Literal["quota", "budget", "model"],
        question: str,
        *,
        until: float | None = None,
        runtime: str = "",
        scope: str = "",
        needed: float | None = None,
        unit: Literal["usd", "tokens"] = "usd",
        account: str = "",
    ) -> None:
        """Without `until`, a person is asked."""
        super().__init__(question)
        self.reason, self.question, self.until = reason, question, until
        self.runtime, self.scope, self.needed, self.unit = runtime, scope, needed, unit
        self.account = account

    def waiting(self, at: float, step: str) -> StepWaiting | None:
        if self.reason == "model":
            return None
        return StepWaiting(
            at,
            step,
            self.reason,
            self.until,
            self.question,
            self.runtime,
            self.scope,
            self.needed,
            self.unit,
            self.account,
        )


class Outcome(msgspec.Struct, frozen=True):
    """The end of an attempt: a value, or a Failure with the output before it."""

    value: Any = None
    failure: Failure | None = None
    cut_off: bool = False
    """It was ended from outside, so that its outcome is unknown."""
    held: Held | None = None
    """It stands before a closed gate."""
    outdated: tuple[str, ...] = ()
    """Changes since a person allowed it: nothing was done, and it is asked anew."""

    @classmethod
    def done(cls, value: Any) -> Outcome:
        return cls(value)

    @classmethod
    def failed(cls, failure: Failure, partial: Any = None) -> Outcome:
        return cls(partial, failure)


class AttemptFolders(msgspec.Struct, frozen=True):
    """Folders and memory pool of an execution's attempts."""

    execution: str
    workdir: Path
    folder: Path
    pool: MemoryPool | None = None


class AttemptRunner(msgspec.Struct):
    brings_files: ClassVar[bool] = False
    """True if it has the files of a step's last attempt wherever that was."""
    tools: Toolbox
    processes: Supervisor
    env: Mapping[str, str]
    """The allow-listed environment for children."""
    folder: Path
    """The folder that holds a folder for each execution."""
    grace: float = 5.0
    gates: Gates = msgspec.field(default_factory=Gates)
    intake: Admission = msgspec.field(default_factory=Admission)
    span_variables: Callable[[str, str, int], Mapping[str, str]] | None = None
    """Gives the variables that tell an attempt's processes their span, where there are traces."""

    def place(self, execution: str, workdir: str, memory: int | None = None) -> AttemptFolders:
        """`memory` is the limit that the processes of the execution share."""
        folder = self.folder / execution
        pool = MemoryPool(execution, memory, str(folder / "memory")) if memory is not None else None
        return AttemptFolders(execution, _path(workdir), folder, pool)

    def effect(self, step: StepState, arguments: Mapping[str, Any]) -> str:
        """The effect, which decides if recovery may repeat the step: the step's own declaration, else the tool's."""
        if step.prepared.effect is not None:
            return step.prepared.effect
        tool = self.tools.get(step.prepared.tool)
        return effect_of(tool, arguments) if tool is not None else "none"

    def only_looks(self, step: StepState) -> bool:
        """Tell whether its attempt neither changes anything outside nor uses up a place, a rate or money.

        The tool's own word counts: a plan may call a step of an agent `effect: none`, and it costs money all the same.
        """
        if step.effect != Effect.NONE or step.prepared.effect is not None:
            return False
        tool = self.tools.get(step.prepared.tool)
        return tool is None or self.gates.terms.of(tool) is PLAIN

    def grounded(self, asked: ApprovalAsked, step: StepState, workdir: str) -> ApprovalAsked:
        """The question with its basis, and the digest of both."""
        tool = self.tools.get(asked.tool)
        arguments = asked.input if tool is None else _checked(tool, step, asked.input)[0]
        basis = {**asked.basis, **self.gates.basis(tool, arguments, Path(workdir), self.tools, step.spec)}
        digest = digest_of(step.id, asked.tool, asked.input, basis)
        return msgspec.structs.replace(asked, digest=digest, basis=basis)

    async def perform(
        self,
        started: AttemptStarted,
        step: StepState,
        place: AttemptFolders,
        output: AttemptOutput,
        contact: AttemptContext,
        meter: Meter,
    ) -> Outcome:
        tool = self.tools.get(started.tool)
        if tool is None:
            return Outcome.failed(_no_such_tool(started.tool, self.tools))
        arguments, problems = _checked(tool, step, _own(started.input))
        if problems:
            message = f"{started.tool} cannot take these arguments: {'; '.join(problems)}"
            return Outcome.failed(Failure(Category.CONFIGURATION, message))
        approved = None
        if step.answers and (answer := answer_for(step, started.tool, started.input)) is not None:
            approved, edited = _of_use(answer.basis, step)
            if edited:
                return Outcome(outdated=edited)
        call = Call(
            execution=place.execution,
            step=started.step,
            attempt=started.attempt,
            workdir=place.workdir,
            folder=place.folder,
            processes=self.processes,
            timeout=step.prepared.timeout,
            reduced=started.reduced,
            env=self.env if self.span_variables is None else self._with_span(place.execution, started),
            output=output,
            grace=self.grace,
            contact=contact,
            meter=meter,
            approved=approved,
            pool=place.pool,
        )
        try:
            if step.failures and Category.PERMISSION in step.failures:
                await tool.refresh()
            if not self.intake.enter():
                with _queued(call.meter):
                    await self._admit(call)
            try:
                if call.timeout is None:
                    return storable(await self.gates.use(tool, arguments, call, self.tools), tool.name)
                return storable(await self._in_time(call.timeout, tool, arguments, call, contact), tool.name)
            finally:
                self.intake.leave()
        except _TooSlow:
            return Outcome(failure=_out_of_time(call.timeout), cut_off=True)
        except (ProcessLost, TookTooLong) as error:
            return Outcome(failure=classify(error), cut_off=True)
        except Held as held:
            return Outcome(held=held)
        except ApprovalOutdated as error:
            return Outcome(outdated=error.changes)
        except (Exception, SystemExit) as error:  # a tool may raise anything; it must end as a recorded failure
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise asyncio.CancelledError from error  # told to stop, it did: that is no failure of the step
            failure = classify(error)
            if failure.category is Category.PERMISSION and not tool.can_refresh:
                failure = msgspec.structs.replace(failure, final=True)  # nothing would be different the second time
            told = _as_failure(failure, getattr(error, "output", None) if type(error) is ToolError else None)
            return msgspec.structs.replace(told, cut_off=failure.kind == CUT_OFF)

    def _with_span(self, execution: str, started: AttemptStarted) -> Mapping[str, str]:
        assert self.span_variables is not None
        return {**self.env, **self.span_variables(execution, started.step, started.attempt)}

    async def _admit(self, call: Call) -> None:
        """Wait for a place; if the wait was shown, so is its end."""
        shown = False

        def say(stream: str, text: str) -> None:
            nonlocal shown
            shown = True
            call.output(stream, text)

        with self.gates.waits.noted("slot", "", call, self.gates.clock.now()):
            await self.intake.wait(say)
        if shown:
            call.output("note", "the wait is over: starting\n")

    async def _in_time(
        self, timeout: float, tool: Tool, arguments: Mapping[str, Any], call: Call, contact: AttemptContext
    ) -> Any:
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                contact.limit = limit
                return await self.gates.use(tool, arguments, call, self.tools)
        except Exception as error:
            if limit.expired():
                raise _TooSlow from error
            raise


def _of_use(approved: Basis, step: StepState) -> tuple[Basis, tuple[str, ...]]:
    """The part of the basis that is about the use of the tool; and the changes if the step was edited since."""
    label = f"step {step.spec.id}"
    now = {label: step_hash(step.spec)}
    rest = {name: mark for name, mark in approved.items() if name not in (label, f"question {step.id}")}
    return rest, changes({label: approved[label]}, now) if label in approved else ()


@contextmanager
def _queued(meter: Meter) -> Iterator[None]:
    clock = asyncio.get_running_loop().time
    began = clock()
    try:
        yield
    finally:
        meter.queued += clock() - began


class _TooSlow(Exception):
    """The attempt's own limit was reached, as opposed to a TimeoutError from inside the tool."""


def _own(given: Mapping[str, Any]) -> dict[str, Any]:
    """Plain data for a tool alone: what it changes in it must change neither the plan nor another step's output."""
    own = {**given}
    for name, value in own.items():
        kind = type(value)
        if kind is dict or kind is list:
            own[name] = _copied(value)
    return own


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return _own(value)
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def _checked(tool: Tool, step: StepState, given: Mapping[str, Any]) -> tuple[Mapping[str, Any], list[str]]:
    """The arguments as the tool takes them, and everything that is wrong with them."""
    problems = tool.validate(given)
    if not problems:
        return given, problems
    from windlass.engine.as_text import nulls_for_text, with_texts  # nearly all arguments fit as they are

    written = step.spec.arguments
    fitting = with_texts(tool.schema, written, given)
    remaining = tool.validate(fitting) if fitting != given else problems
    return (fitting, remaining) if not remaining else (given, nulls_for_text(tool.schema, written, given) or remaining)


def storable(value: Any, tool: str) -> Outcome:
    """The value as the journal will give it back, so that a run and its replay see the same."""
    if value is None or type(value) is bool or (type(value) is int and -_LARGE < value < _LARGE):
        return Outcome(value)
    try:
        encoded = _encode(value)
        kept = read_back(encoded) if len(encoded) <= MAX_RESULT else None
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        message = f"{tool} returned something that is not plain data: {error}"
        advice = ("return numbers, text, lists and dicts",)
        return Outcome.failed(Failure(Category.LOGIC, message, advice=advice))
    if len(encoded) > MAX_RESULT:
        message = f"{tool} returned {len(encoded)} bytes; the limit for a step's output is {MAX_RESULT}"
        advice = ("write large results to a file and return its path",)
        return Outcome.failed(Failure(Category.LOGIC, message, advice=advice))
    # JSON makes null of NaN.
    if b"null" in encoded and (place := not_finite(msgspec.to_builtins(value, enc_hook=_dumped))) is not None:
        message = f"{tool} returned a number that is not finite{place and f' at {place}'}"
        return Outcome.failed(Failure(Category.LOGIC, message, advice=("return None or text for it",)))
    return Outcome.done(kept)


def read_back(encoded: bytes) -> Any:
    """The value of JSON that msgspec wrote. ValueError: an entry is lost, as of `{1: "a", "1": "b"}`."""
    value = _decode(encoded)
    if len(_encode(value)) == len(encoded):
        return value
    from windlass.plan.storable import unique_keys  # needed for what goes wrong alone

    return json.loads(encoded, object_pairs_hook=unique_keys)


def not_finite(value: Any, place: str = "") -> str | None:
    """The path of NaN or an infinity in the value; None if there is none."""
    if isinstance(value, float):
        return None if math.isfinite(value) else place
    if isinstance(value, dict):
        inner = [(one, f"{place}.{name}" if place else str(name)) for name, one in value.items()]
    elif isinstance(value, list):
        inner = [(one, f"{place}[{index}]") for index, one in enumerate(value)]
    else:
        return None
    return next((found for one, at in inner if (found := not_finite(one, at)) is not None), None)


def _as_failure(failure: Failure, partial: Any) -> Outcome:
    """The failure as the journal can hold it: an exception may carry a file's name that is not UTF-8."""
    wait = failure.retry_after
    kept = storable(partial, "")
    clean = msgspec.structs.replace(
        failure,
        message=_plain(failure.message),
        where=_plain(failure.where),
        advice=tuple(_plain(advice) for advice in failure.advice),
        retry_after=wait if wait is not None and math.isfinite(wait) else None,
    )
    return Outcome.failed(clean, kept.value)


def _plain(text: Any) -> str:
    whole = str(text).encode("utf-8", "replace").decode()
    left_out = len(whole) - LONGEST_MESSAGE
    if left_out <= 0:
        return whole
    half = LONGEST_MESSAGE // 2
    return f"{whole[:half]}\n… ({left_out:,} characters are left out) …\n{whole[-half:]}"


def _out_of_time(timeout: float | None) -> Failure:
    return Failure(
        Category.RESOURCE,
        f"took longer than its timeout of {timeout:g} s and was stopped",
        advice=("raise `timeout` of the step, or give it less to do",),
    )


def _no_such_tool(name: str, tools: Toolbox) -> Failure:
    nearest = tools.nearest(name)
    hint = f"did you mean {nearest!r}?" if nearest else "the tools are: " + ", ".join(tools.names())
    return Failure(Category.CONFIGURATION, f"there is no tool named {name!r}", advice=(hint,))
