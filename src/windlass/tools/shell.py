"""The `shell` tool: a command as a list of arguments, or one shell line. Its whole process tree is owned.

A shell line runs under `sh -e`: the first command that fails ends it, so that later lines do not hide the
failure. The exit code decides: 0 is success, 75 (EX_TEMPFAIL) transient, 126 and 127 configuration, anything
else logic; death by SIGKILL from outside is taken for an out-of-memory kill. A command that passes one of its limits
is killed with everything that it started, and the failure (resource) names the limit.

Output is shown live, kept up to a limit, and read to its end always. Of a longer one the beginning and the end are
kept, for the error stands at the end. The whole of it then goes to a log file in the execution's folder.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import signal
from collections.abc import Mapping
from contextlib import AsyncExitStack
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from windlass.errors import Category, ToolError
from windlass.plan.model import Effect
from windlass.plan.quantities import MB
from windlass.plan.service import ServiceCheck
from windlass.ports import Call, Tool
from windlass.process import (
    Exit,
    MemoryPool,
    Process,
    ProcessLimits,
    SpawnError,
    containment,
    cpu_share,
    isolated,
    refusal,
    signal_name,
)
from windlass.settings.variables import missing_variable
from windlass.tools.built_in import ToolSetup
from windlass.tools.shell_arguments import ShellArguments
from windlass.values import CheckedValue, complaints
from windlass.visible import last_lines

__all__ = ["MOST_LOGGED", "Shell", "build_tools"]

EX_TEMPFAIL = 75
_NEAR = 0.9
"""The share of a limit from which on the user is warned."""


class ShellResult(CheckedValue):
    exit_code: int
    stdout: str
    stderr: str
    truncated: bool
    """True if some of the output was left out."""


class Shell(Tool):
    name = "shell"
    description = "Run a command and keep its output"

    @cached_property
    def schema(self) -> dict[str, Any]:
        return ShellArguments.model_json_schema()

    @cached_property
    def returns(self) -> dict[str, Any]:
        return ShellResult.model_json_schema()

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        return Effect.REPEATABLE

    def validate(self, arguments: Mapping[str, Any]) -> list[str]:
        return complaints(ShellArguments, arguments)

    def circuit(self, arguments: Mapping[str, Any]) -> None:
        """A command that fails says nothing about the next one."""

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> dict[str, Any]:
        if wrong := self.validate(arguments):
            raise ToolError(f"shell: {'; '.join(wrong)}", category=Category.CONFIGURATION)
        given = ShellArguments.model_validate(arguments)
        cwd = os.path.join(call.workdir, given.cwd)
        if not os.path.isdir(cwd):
            raise ToolError(f"the folder {cwd} does not exist", category=Category.CONFIGURATION)
        command = given.argv or [given.shell, "-e", "-c", given.line or ""]
        variables = {**call.variables, **_values(given, call)}
        if given.service is not None:
            return await self._serve(command, variables, cwd, given, given.service, call)
        async with isolated(command, variables, given.isolate, str(call.workdir)) as (argv, env):
            return await self._run(argv, env, cwd, given, call)

    async def _run(
        self, argv: list[str], env: dict[str, str], cwd: str, given: ShellArguments, call: Call
    ) -> dict[str, Any]:
        process, limits = await self._spawn(argv, env, cwd, given, call)
        captures, readers = _captured(process, given, call)
        try:
            ended = await process.wait()
        except asyncio.CancelledError:
            ended = await process.stop(call.grace)
            if ended.killed or ended.code != 0:
                _measure(ended, call)
                raise
        finally:
            await asyncio.gather(*readers)
            received = sum(capture.bytes for capture in captures)
            call.meter.add(received=received, sent=len((given.stdin or "").encode()))
        _measure(ended, call)
        result = _result(ended, captures, given, call.pool)
        if limits is not None and (near := _near(limits, ended)):
            call.output("note", near)
        if ended.left:
            call.output("note", f"killed at its end, because nothing outlives its step: {', '.join(ended.left)}\n")
        return result

    async def _serve(
        self,
        command: list[str],
        variables: dict[str, str],
        cwd: str,
        given: ShellArguments,
        check: ServiceCheck,
        call: Call,
    ) -> dict[str, Any]:
        """Start a service, and hand it over to the execution when it is ready."""
        from windlass.tools.service import (
            RunningService,
            ServiceOutput,
            refuse_port,
            wait_until_ready,
        )  # few plans have one

        host = call.contact.services if call.contact is not None else None
        if host is None:
            raise ToolError(
                "`service` is for a step of a plan, on the machine that drives it; workers have none",
                category=Category.CONFIGURATION,
            )
        await refuse_port(check)
        open_for_it = AsyncExitStack()

        async def run(line: str) -> Exit:
            looking, _ = await self._spawn([given.shell, "-e", "-c", line], env, cwd, given, call)
            try:
                await asyncio.gather(looking.stdout.read(), looking.stderr.read())
            finally:
                ended = await looking.stop(0.0)
            return ended

        try:
            isolation = isolated(command, variables, given.isolate, str(call.workdir))
            argv, env = await open_for_it.enter_async_context(isolation)
            process, _limits = await self._spawn(argv, env, cwd, given, call)
            captures, readers = _captured(process, given, call)
            output = ServiceOutput(
                lambda: _said(captures), lambda text: any(text in one.text for one in captures), readers
            )
            open_for_it.push_async_callback(output.whole)
            open_for_it.push_async_callback(process.stop, call.grace)
            await wait_until_ready(check, process, output, run)
        except BaseException:
            await open_for_it.aclose()
            raise
        host.keep(call.step, RunningService(process, output, open_for_it))
        return {"ready": check.shown}

    async def _spawn(
        self, argv: list[str], env: dict[str, str], cwd: str, given: ShellArguments, call: Call
    ) -> tuple[Process, ProcessLimits | None]:
        stdin = given.stdin.encode() if given.stdin is not None else None
        told = given.limits.model_dump() if given.limits else {}
        limits = ProcessLimits(**told, pool=call.pool) if told or call.pool else None
        if call.pool is not None and containment().mechanism != "subreaper":
            call.output("note", "the plan's `limits.memory` is not enforced here: only on Linux\n")
        if limits is not None and limits.cpu_share is not None:
            layer = await asyncio.to_thread(cpu_share)
            if not layer.active:
                call.output("note", f"{layer.detail}\n")
        try:
            process = await call.processes.spawn(argv, cwd=cwd, env=env, stdin=stdin, limits=limits)
        except SpawnError as error:
            raise ToolError(error.message, category=error.category, advice=error.advice) from error
        return process, limits


def _captured(
    process: Process, given: ShellArguments, call: Call
) -> tuple[list[CapturedStream], list[asyncio.Task[None]]]:
    """The output of a process, and the tasks that read it."""
    captures = [
        CapturedStream("stdout", given.max_output, call),
        CapturedStream("stderr", given.max_output, call),
    ]
    readers = [
        asyncio.ensure_future(capture.drain(stream))
        for capture, stream in zip(captures, (process.stdout, process.stderr), strict=True)
    ]
    return captures, readers


def _said(captures: list[CapturedStream]) -> str:
    """The last lines of its error output, or else of its output."""
    return next(filter(None, (last_lines(capture.text) for capture in reversed(captures))), "")


def build_tools(setup: ToolSetup) -> list[Tool]:
    return [Shell()]


def _measure(ended: Exit, call: Call) -> None:
    if ended.used is not None:
        call.meter.add(cpu=ended.used.cpu, memory=ended.used.memory)


def _result(
    ended: Exit, captures: list[CapturedStream], given: ShellArguments, pool: MemoryPool | None
) -> dict[str, Any]:
    out, err = captures
    result = {
        "exit_code": ended.code,
        "stdout": out.text,
        "stderr": err.text,
        "truncated": out.truncated or err.truncated,
    }
    if ended.limit == "pool" and pool is not None:
        raise _over_pool(pool, ended, result)
    if ended.limit is not None:
        raise _over(ended, given, result)
    if given.isolate != "none" and (reason := refusal(ended.code, err.text)):
        raise ToolError(
            f"cannot be run with `isolate: {given.isolate}` here: {reason}",
            category=Category.CONFIGURATION,
            advice=("run it on a machine that supports it; check this one: windlass doctor", "leave out `isolate`"),
        )
    if ended.code in given.ok:
        return result
    said = _said(captures)
    if ended.code is None:
        name = signal_name(ended.signal) if ended.signal else "a signal"
        killed = ended.signal == signal.SIGKILL
        raise ToolError(
            f"ended by {name}{said}",
            category=Category.RESOURCE if killed else Category.LOGIC,
            advice=("the system may have run out of memory",) if killed else (),
            output=result,
        )
    category = {
        EX_TEMPFAIL: Category.TRANSIENT,
        126: Category.CONFIGURATION,
        127: Category.CONFIGURATION,
    }.get(ended.code, Category.LOGIC)
    raise ToolError(f"exit code {ended.code}{said}", category=category, output=result)


def _over_pool(pool: MemoryPool, ended: Exit, result: dict[str, Any]) -> ToolError:
    """The failure of a command that grew beyond what all steps of its execution may use together."""
    grown = f"{ended.used.memory / MB:.1f} MB" if ended.used else "more"
    return ToolError(
        f"killed: all steps of the execution together may use {pool.memory / MB:.0f} MB of memory, and this one had "
        f"grown to {grown} when that was exceeded",
        category=Category.RESOURCE,
        advice=("raise `limits.memory` of the plan if it needs more", "run fewer steps at a time: `limits.parallel`"),
        output=result,
    )


def _over(ended: Exit, given: ShellArguments, result: dict[str, Any]) -> ToolError:
    """The failure of a command that passed a limit."""
    bound = getattr(given.limits, str(ended.limit))
    allowed, used = {
        "memory": (f"{bound / MB:.0f} MB of memory", f"{ended.used.memory / MB:.1f} MB" if ended.used else "more"),
        "cpu": (f"{bound:g} s of computing time", f"{ended.used.cpu:.1f} s" if ended.used else "more"),
        "processes": (f"{bound} processes at a time", f"more{_named(ended.processes)}"),
    }[str(ended.limit)]
    return ToolError(
        f"killed: all its processes together may use {allowed}, and used {used}",
        category=Category.RESOURCE,
        advice=(
            f"raise `limits.{ended.limit}` of the step if it needs more",
            "do less at a time; WINDLASS_REDUCED counts these failures for the next attempt",
        ),
        output=result,
    )


def _named(processes: tuple[str, ...]) -> str:
    return f", among them {', '.join(processes)}" if processes else ""


def _near(limits: ProcessLimits, ended: Exit) -> str:
    """A note on a command that came close to a limit; empty if it did not."""
    if ended.used is None:
        return ""
    close = []
    if limits.memory is not None and ended.used.memory > _NEAR * limits.memory:
        close.append(f"{ended.used.memory / MB:.0f} of {limits.memory / MB:.0f} MB of memory")
    if limits.cpu is not None and ended.used.cpu > _NEAR * limits.cpu:
        close.append(f"{ended.used.cpu:.1f} of {limits.cpu:g} s of computing time")
    return f"close to its limits: it used {' and '.join(close)}\n" if close else ""


MOST_LOGGED = 64 * 1024 * 1024
"""Bytes of one stream that its log file holds."""
_CHUNK = 64 * 1024


class CapturedStream:
    def __init__(self, name: str, limit: int, call: Call) -> None:
        self._name, self._limit, self._call = name, limit, call
        self._head = bytearray()
        """The first `limit` bytes."""
        self._tail = bytearray()
        """The last bytes: at least half the limit of what came after the head."""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._log: BinaryIO | None = None
        self._path: Path | None = None
        self._problem = ""
        self.bytes = 0

    async def drain(self, stream: asyncio.StreamReader) -> None:
        """Read the stream to its end."""
        try:
            while chunk := await stream.read(_CHUNK):
                self._take(chunk)
        finally:
            if self._log is not None:
                self._log.close()
        if self.truncated:
            self._call.output(self._name, f"\n[… cut here; {self._whereabouts()}; the end:]\n{self._end()}")

    @property
    def truncated(self) -> bool:
        return self.bytes > self._limit

    @property
    def text(self) -> str:
        if not self.truncated:
            return self._head.decode("utf-8", errors="replace")
        beginning = codecs.getincrementaldecoder("utf-8")(errors="replace").decode(self._head[: self._half_up()])
        left_out = f"{self.bytes - self._limit} of {self.bytes} bytes are left out here; {self._whereabouts()}"
        return f"{beginning}\n[… {left_out}]\n{self._end()}"

    def _take(self, chunk: bytes) -> None:
        room = self._limit - self.bytes
        self.bytes += len(chunk)
        if room > 0:
            self._head += chunk[:room]
            self._call.output(self._name, self._decoder.decode(chunk[:room]))
        if room < len(chunk):
            self._overflow(chunk[max(room, 0) :])

    def _overflow(self, rest: bytes) -> None:
        self._tail += rest
        half = self._limit // 2
        if len(self._tail) > 2 * half + _CHUNK:
            del self._tail[: len(self._tail) - half]
        self._write_log(rest)

    def _write_log(self, rest: bytes) -> None:
        if self._problem:
            return
        try:
            if self._log is None:
                self._log = self._open_log()
                self._log.write(self._head)
            self._log.write(rest[: max(0, MOST_LOGGED - (self.bytes - len(rest)))])
        except OSError as error:  # the command's result does not depend on its log file
            self._problem = error.strerror or str(error)

    def _open_log(self) -> BinaryIO:
        folder = self._call.folder / "logs"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name, number = f"{quote(self._call.step, safe='')}.{self._call.attempt}.{self._name}", 1
        self._path = folder / f"{name}.log"
        while True:
            try:
                descriptor = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            except FileExistsError:  # a service that is started again
                number += 1
                self._path = folder / f"{name}.{number}.log"
            else:
                return os.fdopen(descriptor, "wb", buffering=0)

    def _half_up(self) -> int:
        return self._limit - self._limit // 2

    def _end(self) -> str:
        """The last bytes as text, without the rest of a character whose beginning is left out."""
        kept = bytes(self._head[self._half_up() :] + self._tail)[-(self._limit // 2) :] if self._limit > 1 else b""
        start = next((place for place in range(min(4, len(kept))) if kept[place] & 0xC0 != 0x80), 0)
        return kept[start:].decode("utf-8", errors="replace")

    def _whereabouts(self) -> str:
        if self._problem:
            return f"no log file could be written: {self._problem}"
        if self.bytes > MOST_LOGGED:
            return f"the first {MOST_LOGGED >> 20} MiB are in {self._path}"
        return f"the whole is in {self._path}"


def _values(given: ShellArguments, call: Call) -> dict[str, str]:
    """The variables of its `env`; those that are taken `from` another one have its value."""
    found, seen = {}, call.variables
    for name, value in given.env.items():
        if isinstance(value, str):
            found[name] = value
        elif value.from_ in seen:
            found[name] = seen[value.from_]
        else:
            missing = missing_variable(value.from_, call.env)
            raise ToolError(
                f"{name} has its value from ${value.from_}, which {missing.reason}",
                category=Category.CONFIGURATION,
                advice=(missing.advice,),
            )
    return found
