"""The older OpenCode (a Go program): `opencode -p PROMPT -f json -q -c DIR`, one JSON document at the end (A3).

It says neither session nor tokens nor cost, takes no model, and allows itself everything: so a person is asked once,
before it starts, and a policy that it could not hold is refused. A run of it that was cancelled ends with exit code 0
and no output, which is a failure here.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

from windlass.errors import Category, Failure
from windlass.ports import AgentRequest, AgentResult, Host, Usage
from windlass.process import Process, Supervisor
from windlass.runners.opencode import failures
from windlass.runners.opencode.environment import folder_settings, picked_environment
from windlass.runners.opencode.probe import OpenCodeProgram
from windlass.runners.program_output import LastWords, lines
from windlass.runtimes import OPEN_CODE

__all__ = ["LegacyTurn"]

LONGEST_ARGUMENT = 100_000
"""Bytes of a prompt that are handed over as an argument; Linux takes 128 KiB."""
MOST = 16 << 20
"""Bytes of an answer that are read. The rest is dropped, and the answer then is no JSON."""


class LegacyTurn:
    """One request in one process of the older program."""

    def __init__(
        self,
        supervisor: Supervisor,
        program: OpenCodeProgram,
        request: AgentRequest,
        host: Host,
        *,
        engine_env: Mapping[str, str],
        home: Path,
    ) -> None:
        self._supervisor, self._program, self._request, self._host = supervisor, program, request, host
        self._engine_env, self._home = engine_env, home
        self._interrupted = False
        self._process: Process | None = None
        self._adjustments: list[str] = []

    async def run(self) -> AgentResult:
        if (failure := await self._refused()) is not None:
            return self._result(failure=failure)
        argv = [self._program.path, "-p", self._prompt(), "-f", "json", "-q", "-c", str(self._request.workdir)]
        env = picked_environment(self._engine_env, self._request.env)
        self._process = process = await self._supervisor.spawn(argv, cwd=str(self._home), env=env)
        words = LastWords()
        try:
            if self._interrupted:
                await process.stop(0)
            out, _ = await asyncio.gather(_answer(process.stdout), _listen(process.stderr, words))
            end = await process.wait()
        finally:
            await asyncio.shield(process.stop(0))
        if self._interrupted:
            return self._result(out.decode(errors="replace").strip())
        return self._judged(out, end.code, end.text, str(words))

    async def interrupt(self) -> None:
        self._interrupted = True
        if self._process is not None:
            await self._process.stop(self._request.grace)

    async def _refused(self) -> Failure | None:
        """Refuse the request, or ask a person, before it starts: it asks nothing once it runs."""
        request, wanted = self._request, self._request.permissions
        upgrade = f"a newer OpenCode can: {OPEN_CODE.install}"
        if not request.trusted and (found := folder_settings(request.workdir, legacy=True)):
            return failures.untrusted_settings(str(found[0]), self._program.version)
        if request.budget:
            return Failure(
                Category.CONFIGURATION,
                f"{OPEN_CODE.name}: the older OpenCode {self._program.version} reports no cost and no tokens, so no "
                "limit can be held",
                advice=(upgrade,),
                elsewhere=True,
            )
        if wanted.mode == "deny" or wanted.deny or wanted.tools is not None:
            return Failure(
                Category.PERMISSION,
                f"{OPEN_CODE.name}: the older OpenCode {self._program.version} allows itself every tool, which this "
                "step's permissions do not",
                advice=(upgrade,),
                elsewhere=True,
            )
        if wanted.mode == "ask":
            answer = await self._host.ask("opencode", {"task": request.task, "allows itself": "every tool, unasked"})
            if not answer.allow:
                note = f": {answer.note}" if answer.note else ""
                return Failure(
                    Category.PERMISSION, f"{OPEN_CODE.name}: a person did not allow it{note}", advice=(upgrade,)
                )
        return None

    def _prompt(self) -> str:
        request = self._request
        prompt = f"{request.brief.system}\n\n{request.brief.prompt}" if request.brief.system else request.brief.prompt
        left_out = [
            (request.model, f"this older OpenCode takes no model: its own settings replace {request.model}"),
            (request.session, "the older OpenCode keeps no conversation: a new one was begun"),
            (request.max_turns, "the older OpenCode takes no limit of turns"),
            (request.temperature, "the older OpenCode takes no temperature"),
        ]
        self._adjustments += [said for asked, said in left_out if asked is not None]
        if len(prompt.encode()) <= LONGEST_ARGUMENT:
            return prompt
        request.scratch.mkdir(parents=True, exist_ok=True)
        file = request.scratch / "opencode-prompt.md"
        file.write_text(prompt)
        self._adjustments.append(f"the prompt is too long for an argument: it was handed over as {file}")
        return f"Your task is in the file {file}. Read all of it, and do what it says."

    def _judged(self, out: bytes, code: int | None, how: str, said: str) -> AgentResult:
        if code != 0:
            told = said or out.decode(errors="replace").strip()
            if code is None:
                return self._result(failure=failures.died("the older opencode", f"was ended ({how})", told))
            return self._result(
                failure=failures.of_error({"data": {"message": f"{told or 'no reason given'} ({how})"}}, 0.0)
            )
        if not out.strip():
            return self._result(failure=failures.nothing_said(f"{how}, no output: the run was cancelled or failed"))
        try:
            response = json.loads(out)["response"]
        except (ValueError, LookupError, TypeError, RecursionError):
            shown = out[:120].decode(errors="replace")
            return self._result(
                failure=failures.cut_off(f"the older OpenCode answered with no JSON of its own: {shown!r}")
            )
        if not isinstance(response, str) or not response.strip():
            return self._result(failure=failures.nothing_said(f"{how}, an empty response"))
        self._host.text(response)
        return self._result(response)

    def _result(self, output: str = "", failure: Failure | None = None) -> AgentResult:
        return AgentResult(
            output=output,
            failure=failure,
            usage=Usage(model=self._request.model or ""),
            interrupted=self._interrupted and failure is None,
            adjustments=(*self._adjustments, "the older OpenCode reports no session, no tokens and no cost"),
            metadata={"contract": "legacy", "version": self._program.version},
        )


async def _answer(reader: asyncio.StreamReader) -> bytes:
    kept = bytearray()
    while piece := await reader.read(65536):
        if len(kept) <= MOST:
            kept += piece
    return bytes(kept)


async def _listen(reader: asyncio.StreamReader, words: LastWords) -> None:
    async for line in lines(reader):
        words.add(line)
