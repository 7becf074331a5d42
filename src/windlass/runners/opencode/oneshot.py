"""`opencode run --format json`: a process for each turn, its events on stdout, its exit code the verdict (A3).

Used where a program has no `serve`, or when asked for. Nobody can be asked here: OpenCode refuses by itself what its
rules leave open, and the result says so. It retries silently, so its log is read for the errors that it retries.
"""

from __future__ import annotations

import asyncio
import json
import mimetypes
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from windlass.errors import Failure
from windlass.ports import AgentRequest, AgentResult, Host
from windlass.prices import Prices
from windlass.process import Process, Supervisor
from windlass.runners.opencode import failures
from windlass.runners.opencode.engine_tools import connection
from windlass.runners.opencode.environment import (
    PROBE_MARK,
    marked_folder,
    modern_environment,
    same_folder,
)
from windlass.runners.opencode.permissions import PermissionRule, as_config, rules
from windlass.runners.opencode.probe import OpenCodeProgram
from windlass.runners.opencode.reading import Reading
from windlass.runners.program_output import LastWords, json_objects, lines
from windlass.runners.tool_listener import ToolAccess
from windlass.runners.tool_server import SERVER, ToolServer

__all__ = ["OneShotTurn", "leaves_project_settings_out"]

LONG_WAIT = 60.0
"""Seconds without an event, once the model API has failed, after which OpenCode is not waited for any more."""
ASIDE = 30.0
"""Seconds that a look into OpenCode's own files may take."""
EVENT_FOLLOWS = 5.0
"""Seconds in which an error that is not retried must have come as an event, too."""
SESSION = re.compile(r"\bsession\.id=(ses_\w+)")
NO_REASON = "Check server logs"
FAILED_CALL = 'message="stream error"'


class OneShotTurn:
    """One request in one process."""

    def __init__(
        self,
        supervisor: Supervisor,
        program: OpenCodeProgram,
        request: AgentRequest,
        host: Host,
        *,
        engine_env: Mapping[str, str],
        home: Path,
        now: Callable[[], float],
        prices: Prices | None,
        retries: int,
        tools: ToolServer | None = None,
        access: ToolAccess | None = None,
    ) -> None:
        """`access` is the way to `tools`, the engine's own."""
        self._supervisor, self._program, self._request, self._host = supervisor, program, request, host
        self._engine_env, self._home, self._now, self._retries = engine_env, home, now, retries
        self._tools, self._access = tools, access
        self._reading = Reading(host, prices, request.model or "", self._named)
        self._session = request.session
        self._error: Mapping[str, Any] | None = None
        self._overflows = 0
        self._stopped: Failure | None = None
        self._interrupted = False
        self._process: Process | None = None
        self._words = LastWords()
        self._failed_calls = 0
        self._told_session = False
        self._ending: asyncio.Future[Any] | None = None
        self._giving_up: asyncio.TimerHandle | None = None

    async def run(self) -> AgentResult:
        directory = await self._directory()
        if self._session is not None and not same_folder(directory, str(self._request.workdir)):
            failure = failures.bound_elsewhere(self._session, directory)
            return AgentResult(failure=failure, metadata={"session_lost": True})
        env, auto = self._environment()
        argv = [self._program.path, "run", "--format", "json", "--dir", directory, "--agent", "build"]
        argv += ["--print-logs", "--log-level", "ERROR", "--title", f"windlass {self._request.id}"]
        # With `=`, so that a value that begins with a dash is not taken for an option.
        argv += [f"--model={self._request.model}"] if self._request.model else []
        argv += [f"--session={self._session}"] if self._session else []
        argv += ["--auto"] if auto else []
        argv += [f"--file={path}" for path in await asyncio.to_thread(self._attach)]
        # The prompt goes through stdin: an argument may not be longer than 128 KiB. The folder is not our place.
        prompt = self._request.brief.prompt.encode()
        self._process = process = await self._supervisor.spawn(argv, cwd=str(self._home), env=env, stdin=prompt)
        try:
            if self._interrupted:
                await process.stop(0)
            await asyncio.gather(self._read_events(process), self._read_log(process))
            end = await process.wait()
        finally:
            if self._giving_up is not None:
                self._giving_up.cancel()
            await asyncio.shield(process.stop(0))
        return self._result(end.code, end.text, directory)

    @property
    def has_answered(self) -> bool:
        return self._reading.has_answered

    async def interrupt(self) -> None:
        self._interrupted = True
        if self._process is not None:
            await self._process.stop(self._request.grace)

    # -- before ----------------------------------------------------------------------------------

    def _attach(self) -> list[Path]:
        """Write the attachments to files of the step, which OpenCode reads by itself."""
        folder = self._request.scratch / "attachments"
        paths = []
        for number, attachment in enumerate(self._request.brief.attachments, 1):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            paths.append(folder / f"{number}{mimetypes.guess_extension(attachment.media_type) or ''}")
            paths[-1].write_bytes(attachment.data)
        return paths

    async def _directory(self) -> str:
        """The folder that the session is bound to: from another one OpenCode would hang."""
        workdir = str(self._request.workdir)
        if self._session is None or not self._session.replace("_", "").isalnum():
            return workdir
        query = f"select directory from session where id='{self._session}'"
        env = modern_environment(self._engine_env, self._request.env, trusted=False)
        argv = [self._program.path, "db", query, "--format", "json"]
        try:
            found = json.loads(await _said(self._supervisor, argv, self._home, env))
            return str(found[0]["directory"])
        except (ValueError, LookupError, TypeError):
            return workdir  # an older OpenCode keeps no such table, or there is no such session: `run` will say so

    def _environment(self) -> tuple[dict[str, str], bool]:
        """Return the environment, and True if OpenCode may allow uses that its rules leave open."""
        wanted = self._request.permissions
        policy = rules(wanted, served=SERVER if self._access is not None else None)
        auto = wanted.mode == "allow" and wanted.tools is None
        if auto:
            # The denials of the user's own settings hold: only ours are added to them.
            policy = [rule for rule in policy if rule.action == "deny" or rule.permission.startswith(SERVER)]
        if not auto or wanted.deny:
            policy.append(PermissionRule("task", "*", "deny"))  # a subagent would not have these rules
        config: dict[str, Any] = {"agent": {"build": {"permission": as_config(policy)}}}
        if self._access is not None:
            config["mcp"] = {SERVER: connection(self._access)}
        if self._request.brief.system:
            scratch = self._request.scratch
            scratch.mkdir(parents=True, exist_ok=True)
            (scratch / "opencode-system.md").write_text(self._request.brief.system)
            config["instructions"] = [str(scratch / "opencode-system.md")]
        trusted = self._request.trusted
        return modern_environment(self._engine_env, self._request.env, trusted=trusted, config=config), auto

    def _named(self, tool: str) -> str:
        return self._tools.name(tool, f"{SERVER}_") if self._tools is not None else tool

    # -- while it runs ---------------------------------------------------------------------------

    async def _read_events(self, process: Process) -> None:
        async for event in json_objects(process.stdout):
            if self._giving_up is not None:
                self._giving_up.cancel()
            self._take(event)

    def _take(self, event: Mapping[str, Any]) -> None:
        session, part = event.get("sessionID"), event.get("part")
        if isinstance(session, str):
            self._in_session(session)
        if event.get("type") == "error":
            error = event.get("error")
            self._error = error if isinstance(error, Mapping) else {"name": "UnknownError", "message": str(error)}
            self._overflows += self._error.get("name") == "ContextOverflowError"
            if self._overflows >= failures.MOST_OVERFLOWS:
                self._give_up(failures.of_error(self._error, self._now()))
        elif isinstance(part, Mapping):
            self._reading.expect(str(part.get("messageID")))
            self._reading.part(part)
            limit = self._request.max_turns
            if limit is not None and self._reading.turns >= limit and self._reading.finish == "tool-calls":
                self._give_up(failures.too_many_turns(limit))

    def _in_session(self, session: str) -> None:
        if not self._told_session:
            self._session, self._told_session = session, True
            self._host.session(session)

    async def _read_log(self, process: Process) -> None:
        async for line in lines(process.stderr):
            text = self._words.add(line)
            if FAILED_CALL in text and "small=true" not in text:
                self._failed_call(text)

    def _failed_call(self, text: str) -> None:
        """The model API failed. An error that is not retried comes as an event at once; the others show only here."""
        if named := SESSION.search(text):
            self._in_session(named[1])
        self._failed_calls += 1
        reason = failures.one_line(text.partition('error.error="')[2].rstrip('"') or text)
        last = self._failed_calls > self._retries
        if not last:
            self._host.note(f"OpenCode may try again (attempt {self._failed_calls}): {reason}", waits=True)
        wait = EVENT_FOLLOWS if last else LONG_WAIT
        failure = failures.of_retries(self._failed_calls, reason, None, self._now())
        if self._giving_up is not None:
            self._giving_up.cancel()
        self._giving_up = asyncio.get_running_loop().call_later(wait, self._give_up, failure)

    def _give_up(self, failure: Failure) -> None:
        if self._stopped is None and self._process is not None:
            self._stopped = failure
            self._ending = asyncio.ensure_future(self._process.stop(self._request.grace))

    # -- the end ---------------------------------------------------------------------------------

    def _result(self, code: int | None, how: str, directory: str) -> AgentResult:
        failure, lost = self._stopped, False
        if failure is None and not self._interrupted:
            failure, lost = self._judged(code, how)
        adjustments = list(self._tools.adjustments) if self._tools is not None else []
        if self._reading.denied and self._request.permissions.mode == "ask":
            adjustments.append("`opencode run` cannot ask: what needed a question was refused")
        return self._reading.result(
            self._request,
            None if self._interrupted else failure,
            session=self._session,
            interrupted=self._interrupted,
            lost=lost,
            adjustments=adjustments,
            metadata={"contract": "run", "version": self._program.version, "directory": directory},
        )

    def _judged(self, code: int | None, how: str) -> tuple[Failure | None, bool]:
        """Return the failure, decided by the exit code and explained by the log, and True if the session is lost."""
        said = str(self._words)
        if self._error is not None:
            error = self._error
            if NO_REASON in str(error):  # what it would not say is in the log, which we have
                error = {"name": error.get("name"), "data": {"message": said}}
            return failures.of_error(error, self._now()), False
        if code != 0:
            if "Session not found" in said and self._session is not None:
                return failures.session_lost(self._session), True
            if code is None or not said:
                return failures.died("opencode run", f"ended with {how}", said), False
            return failures.of_error(
                {"name": "UnknownError", "data": {"message": f"{said} ({how})"}}, self._now()
            ), False
        return failures.of_finish(self._reading, how), False


async def leaves_project_settings_out(
    supervisor: Supervisor, program: OpenCodeProgram, env: Mapping[str, str], home: Path
) -> bool:
    """Return True if this version can ignore a folder's settings: those of a folder of ours must not show."""
    said = await _said(supervisor, [program.path, "debug", "config"], marked_folder(home), env)
    return "{" in said and PROBE_MARK not in said


async def _said(supervisor: Supervisor, argv: list[str], cwd: Path, env: Mapping[str, str]) -> str:
    """The stdout of a short command that ended well; empty if it did not."""
    process = await supervisor.spawn(argv, cwd=str(cwd), env=env)
    try:
        async with asyncio.timeout(ASIDE):
            out, _ = await asyncio.gather(process.stdout.read(), process.stderr.read())
            end = await process.wait()
    except TimeoutError:
        return ""
    finally:
        await asyncio.shield(process.stop(0))
    return out.decode(errors="replace") if end.code == 0 else ""
