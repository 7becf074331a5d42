"""`OpenCodeRunner`: the methods of the port, and the choice of the contract."""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from windlass.errors import Category, Failure, WindlassError, classify
from windlass.ports import AgentRequest, AgentResult, Amount, Health, Host, Media, Runner, RunnerHooks, SessionPlace
from windlass.runners import RunnerDeps
from windlass.runners.opencode import failures
from windlass.runners.opencode.engine_tools import EngineTools
from windlass.runners.opencode.environment import (
    account,
    folder_settings,
    modern_environment,
    unstoppable_setting,
)
from windlass.runners.opencode.legacy import LegacyTurn
from windlass.runners.opencode.oneshot import OneShotTurn, leaves_project_settings_out
from windlass.runners.opencode.probe import Contract, OpenCodeProgram, Probe
from windlass.runners.opencode.serve import ServedTurn
from windlass.runners.opencode.server import OpenCodeServer, ServerError, ServerPool
from windlass.runners.tool_listener import ToolListener
from windlass.runners.tool_server import tool_server
from windlass.runtimes import OPEN_CODE

if TYPE_CHECKING:
    from windlass.runners.opencode.session_copy import SessionCopies

__all__ = ["OpenCodeRunner"]

log = logging.getLogger("windlass.runners.opencode")

OWN_PROMPT = 20_000
"""Tokens of its own instructions and tools, which come before every prompt."""
MOST_OUTPUT = 32_000
"""Tokens that it asks for in one reply at most."""
DEAREST = "opus"
COPY = "opencode"
"""The folder of a step that has a copy of its session for other machines."""
RETRIES = 3
"""Retries that OpenCode may make by itself before the engine takes over."""


class _Turn(Protocol):
    async def run(self) -> AgentResult: ...
    async def interrupt(self) -> None: ...


class OpenCodeRunner(RunnerHooks, Runner):
    name = OPEN_CODE.name
    takes_messages = True

    def __init__(self, deps: RunnerDeps, *, contract: Contract | None = None, retries: int = RETRIES) -> None:
        self._supervisor, self._env, self._now, self._prices = deps.supervisor, deps.env, deps.now, deps.prices
        self._home, self._retries = deps.home, retries
        own = modern_environment(deps.env, {}, trusted=False)
        self._probe = Probe(deps.supervisor, deps.settings.path, own, deps.home, contract)
        self._pool = ServerPool(deps.supervisor, deps.home)
        self._settings = deps.settings
        self._listener = ToolListener()
        self._turns: dict[str, _Turn | None] = {}
        """By request; None while the turn is being prepared."""
        self._interrupts: dict[str, asyncio.Event] = {}

    async def available(self) -> Health:
        self._home.mkdir(parents=True, exist_ok=True)
        found = await self._probe.program()
        if isinstance(found, Health):
            return found
        return Health(True, f"OpenCode {found.version} ({found.path}, by {found.contract})", version=found.version)

    def installed(self) -> Health:
        return self._probe.installed()

    def call_cost(self, model: str | None, prompt: int) -> Amount:
        """With its own instructions and tools before the prompt. It says itself what a call did cost where it can, so a
        model that we have no price for counts as the dearest until then."""
        prices = self._prices
        found = prices.call(model or DEAREST, prompt + OWN_PROMPT, MOST_OUTPUT)
        return found if found.usd is not None else prices.call(DEAREST, prompt + OWN_PROMPT, MOST_OUTPUT)

    def window(self, model: str | None) -> int | None:
        return self._prices.window(model) if model else None

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        began = asyncio.get_running_loop().time()
        self._turns[request.id] = None
        self._interrupts[request.id] = asyncio.Event()
        try:
            result = await self._run(request, host)
        except ServerError as error:
            result = AgentResult(failure=error.failure, session=request.session)
        except WindlassError as error:
            failure = Failure(error.category, f"{self.name}: {error.message}", advice=error.advice, elsewhere=True)
            result = AgentResult(failure=failure, session=request.session)
        except Exception as error:
            # A runner never raises for an error of its runtime: an unforeseen answer is a failure like others.
            log.exception("opencode did something that was not foreseen")
            failure = failures.cut_off(classify(error).message)
            result = AgentResult(failure=failure, session=request.session)
        finally:
            self._turns.pop(request.id, None)
            self._interrupts.pop(request.id, None)
        return dataclasses.replace(result, duration=asyncio.get_running_loop().time() - began)

    def media(self, model: str | None) -> Media:
        """OpenCode knows which models take them, and tells the others that it could not show them."""
        return "attached"

    def account(self, model: str | None, env: Mapping[str, str]) -> str:
        return account(model, {**self._env, **env})

    async def interrupt(self, request: str) -> None:
        if request not in self._turns:
            return
        self._interrupts[request].set()
        turn = self._turns[request]
        if turn is not None:
            await turn.interrupt()

    async def keep_session(self, place: SessionPlace) -> None:
        copies, file = await self._copies(place)
        if copies is not None:
            await copies.write(place.session, file)

    async def bring_session(self, place: SessionPlace, *, current: bool) -> bool:
        if not current:
            return False
        copies, file = await self._copies(place)
        return copies is not None and await copies.read(place.session, file)

    async def _copies(self, place: SessionPlace) -> tuple[SessionCopies | None, Path]:
        """The way in and out of OpenCode's database, and the file for this session; the older program has none."""
        from windlass.runners.opencode.session_copy import SessionCopies  # only where machines share a store

        program, file = await self._probe.program(), place.scratch / COPY / f"{place.session}.json"
        if isinstance(program, Health) or program.contract == "legacy":
            return None, file
        env = modern_environment(self._env, place.env, trusted=False)
        return SessionCopies(self._supervisor, program, env, place.workdir), file

    async def close(self) -> None:
        await self._pool.close()
        await self._listener.close()

    async def _run(self, request: AgentRequest, host: Host) -> AgentResult:
        self._home.mkdir(parents=True, exist_ok=True)
        program = await self._probe.program()
        if isinstance(program, Health):
            advice = (program.advice,) if program.advice else ()
            failure = Failure(Category.CONFIGURATION, f"{self.name}: {program.detail}", advice=advice, elsewhere=True)
            return AgentResult(failure=failure, session=request.session)
        if program.contract != "legacy" and not request.trusted:
            home = {**self._env, **request.env}.get("HOME", "")
            if (found := unstoppable_setting(request.workdir, home)) is not None:
                failure = failures.untrusted_plugin(str(found), program.version)
                return AgentResult(failure=failure, session=request.session)
        if program.contract == "serve":
            return await self._serve(program, request, host)
        messages, how = host.told(), request.opening
        if messages:
            text = "\n\n".join(filter(None, (request.brief.prompt, *(message.text for message in messages))))
            request = dataclasses.replace(request, brief=dataclasses.replace(request.brief, prompt=text))
        if program.contract == "run":
            result = await self._one_shot(program, request, host)
        else:
            if request.brief.attachments:
                host.note(f"OpenCode {program.version} takes no attachments: the images and documents were left out")
            legacy = LegacyTurn(self._supervisor, program, request, host, engine_env=self._env, home=self._home)
            result = await self._follow(request, legacy)
        if messages and (result.success or result.usage.tokens_out):
            await host.heard([message.id for message in messages], how)
        return result

    async def _serve(self, program: OpenCodeProgram, request: AgentRequest, host: Host) -> AgentResult:
        env = modern_environment(self._env, request.env, trusted=request.trusted)
        server = await self._borrowed(program, request, env)
        if server is None:
            return AgentResult(session=request.session, interrupted=True)
        try:
            if (failure := self._distrusted(server, request)) is not None:
                return AgentResult(failure=failure, session=request.session)
            tools = tool_server(host, request, self._settings, OPEN_CODE)
            turn = ServedTurn(
                server,
                tools.request() if tools is not None else request,
                host,
                now=self._now,
                prices=self._prices,
                retries=self._retries,
                tools=EngineTools(server, tools, self._listener) if tools is not None else None,
                others_have_tools=self._settings.engine_tools != "none",
            )
            return await self._follow(request, turn)
        finally:
            self._pool.give_back(server, str(request.workdir))

    async def _borrowed(
        self, program: OpenCodeProgram, request: AgentRequest, env: Mapping[str, str]
    ) -> OpenCodeServer | None:
        """A server; or None when the run is interrupted before one is up, which takes seconds."""
        folder = str(request.workdir)
        borrowing = asyncio.create_task(self._pool.borrow(program.path, program.version, env, folder))
        interrupted = asyncio.create_task(self._interrupts[request.id].wait())
        try:
            await asyncio.wait({borrowing, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            borrowing.add_done_callback(lambda task: self._unwanted(task, folder))
            raise
        finally:
            interrupted.cancel()
            if not borrowing.done():
                borrowing.cancel()
        return borrowing.result() if borrowing.done() else None

    def _unwanted(self, borrowing: asyncio.Task[OpenCodeServer], folder: str) -> None:
        if not borrowing.cancelled() and borrowing.exception() is None:
            self._pool.give_back(borrowing.result(), folder)

    async def _one_shot(self, program: OpenCodeProgram, request: AgentRequest, host: Host) -> AgentResult:
        if request.inherited is not None:
            return AgentResult(failure=failures.no_copy(program.version), metadata={"session_lost": True})
        found = [] if request.trusted else folder_settings(request.workdir)
        if found:
            env = modern_environment(self._env, request.env, trusted=False)
            if not await leaves_project_settings_out(self._supervisor, program, env, self._home):
                failure = failures.untrusted_settings(str(found[0]), program.version)
                return AgentResult(failure=failure, session=request.session)
        tools = tool_server(host, request, self._settings, OPEN_CODE)
        access = await self._listener.open(tools) if tools is not None else None
        turn = OneShotTurn(
            self._supervisor,
            program,
            tools.request() if tools is not None else request,
            host,
            engine_env=self._env,
            home=self._home,
            now=self._now,
            prices=self._prices,
            retries=self._retries,
            tools=tools,
            access=access,
        )
        try:
            return await self._follow(request, turn)
        finally:
            if tools is not None and access is not None:
                self._listener.shut(access)
                await tools.close(answered=turn.has_answered)

    async def _follow(self, request: AgentRequest, turn: _Turn) -> AgentResult:
        if self._interrupts[request.id].is_set():
            return AgentResult(session=request.session, interrupted=True)
        self._turns[request.id] = turn
        return await turn.run()

    def _distrusted(self, server: OpenCodeServer, request: AgentRequest) -> Failure | None:
        """A version that cannot leave a folder's own settings out does not work in a folder that has some."""
        if request.trusted or server.leaves_project_settings_out:
            return None
        found = folder_settings(request.workdir)
        return failures.untrusted_settings(str(found[0]), server.version) if found else None
