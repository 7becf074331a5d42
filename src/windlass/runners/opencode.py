"""OpenCode as a runner: the real `opencode`, by whichever contract it speaks (A3, A7, A8).

The map of `open_code/`: `probe` finds the program and its contract; `server` keeps servers warm and `serve` does a turn
on one (`models`, `asking`, `leftovers` help it); `oneshot` is a process for each turn; `legacy` is the older program;
`reading` turns events into what the host is told; `permissions` and `environment` say what an agent may do and see;
`failures` words what goes wrong. The engine's own tools are not offered to OpenCode: it has its own.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from windlass.errors import Category, Failure, WindlassError, classify
from windlass.ports import AgentRequest, AgentResult, Amount, Health, Host
from windlass.prices import Prices
from windlass.process import Supervisor
from windlass.runners.open_code import failures
from windlass.runners.open_code.accounts import account
from windlass.runners.open_code.environment import folder_settings, modern_environment
from windlass.runners.open_code.legacy import LegacyTurn
from windlass.runners.open_code.oneshot import OneShotTurn, leaves_project_settings_out
from windlass.runners.open_code.probe import Contract, Probe, Program
from windlass.runners.open_code.serve import ServedTurn
from windlass.runners.open_code.server import Pool, Server, ServerError

__all__ = ["OpenCodeRunner"]

log = logging.getLogger("windlass.runners.opencode")

OWN_PROMPT = 20_000
"""Tokens of its own instructions and tools, which come before every prompt."""
MOST_OUTPUT = 32_000
"""Tokens that it asks for in one reply at most."""
DEAREST = "opus"
RETRIES = 3
"""Retries that OpenCode may make by itself before the engine takes over."""


class _Turn(Protocol):
    async def run(self) -> AgentResult: ...
    async def interrupt(self) -> None: ...


class OpenCodeRunner:
    """The `Runner` for OpenCode."""

    def __init__(
        self,
        supervisor: Supervisor,
        *,
        path: str | None = None,
        env: Mapping[str, str],
        now: Callable[[], float],
        home: Path,
        prices: Prices | None = None,
        contract: Contract | None = None,
        retries: int = RETRIES,
    ) -> None:
        """`env` is the engine's whole environment, of which what is needed is picked. `home` is a folder of ours."""
        self._supervisor, self._env, self._now, self._prices = supervisor, env, now, prices
        self._home, self._retries = home, retries
        own = modern_environment(env, {}, trusted=False)
        self._probe = Probe(supervisor, path, own, home, contract)
        self._pool = Pool(supervisor, home)
        self._turns: dict[str, _Turn | None] = {}
        """By request; None while the turn is being prepared."""
        self._interrupts: dict[str, asyncio.Event] = {}

    @property
    def name(self) -> str:
        return failures.NAME

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
        prices = self._prices or Prices()
        found = prices.call(model or DEAREST, prompt + OWN_PROMPT, MOST_OUTPUT)
        return found if found.usd is not None else prices.call(DEAREST, prompt + OWN_PROMPT, MOST_OUTPUT)

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
            # A runner never raises for what a runtime does: an answer that nobody foresaw is a failure like others.
            log.exception("opencode did something that was not foreseen")
            failure = failures.cut_off(classify(error).message)
            result = AgentResult(failure=failure, session=request.session)
        finally:
            self._turns.pop(request.id, None)
            self._interrupts.pop(request.id, None)
        return dataclasses.replace(result, duration=asyncio.get_running_loop().time() - began)

    def account(self, model: str | None, env: Mapping[str, str]) -> str:
        return account(model, {**self._env, **env})

    async def interrupt(self, request: str) -> None:
        if request not in self._turns:
            return
        self._interrupts[request].set()
        turn = self._turns[request]
        if turn is not None:
            await turn.interrupt()

    async def close(self) -> None:
        await self._pool.close()

    async def _run(self, request: AgentRequest, host: Host) -> AgentResult:
        self._home.mkdir(parents=True, exist_ok=True)
        program = await self._probe.program()
        if isinstance(program, Health):
            advice = (program.advice,) if program.advice else ()
            failure = Failure(Category.CONFIGURATION, f"{self.name}: {program.detail}", advice=advice, elsewhere=True)
            return AgentResult(failure=failure, session=request.session)
        match program.contract:
            case "serve":
                return await self._serve(program, request, host)
            case "run":
                return await self._one_shot(program, request, host)
            case "legacy":
                legacy = LegacyTurn(self._supervisor, program, request, host, engine_env=self._env, home=self._home)
                return await self._follow(request, legacy)

    async def _serve(self, program: Program, request: AgentRequest, host: Host) -> AgentResult:
        env = modern_environment(self._env, request.env, trusted=request.trusted)
        server = await self._borrowed(program, request, env)
        if server is None:
            return AgentResult(session=request.session, interrupted=True)
        try:
            if (failure := self._distrusted(server, request)) is not None:
                return AgentResult(failure=failure, session=request.session)
            turn = ServedTurn(server, request, host, now=self._now, prices=self._prices, retries=self._retries)
            return await self._follow(request, turn)
        finally:
            self._pool.give_back(server, str(request.workdir))

    async def _borrowed(self, program: Program, request: AgentRequest, env: Mapping[str, str]) -> Server | None:
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

    def _unwanted(self, borrowing: asyncio.Task[Server], folder: str) -> None:
        if not borrowing.cancelled() and borrowing.exception() is None:
            self._pool.give_back(borrowing.result(), folder)

    async def _one_shot(self, program: Program, request: AgentRequest, host: Host) -> AgentResult:
        found = [] if request.trusted else folder_settings(request.workdir)
        if found:
            env = modern_environment(self._env, request.env, trusted=False)
            if not await leaves_project_settings_out(self._supervisor, program, env, self._home):
                failure = failures.untrusted_settings(str(found[0]), program.version)
                return AgentResult(failure=failure, session=request.session)
        turn = OneShotTurn(
            self._supervisor,
            program,
            request,
            host,
            engine_env=self._env,
            home=self._home,
            now=self._now,
            prices=self._prices,
            retries=self._retries,
        )
        return await self._follow(request, turn)

    async def _follow(self, request: AgentRequest, turn: _Turn) -> AgentResult:
        if self._interrupts[request.id].is_set():
            return AgentResult(session=request.session, interrupted=True)
        self._turns[request.id] = turn
        return await turn.run()

    def _distrusted(self, server: Server, request: AgentRequest) -> Failure | None:
        """A version that cannot leave a folder's own settings out does not work in a folder that has some."""
        if request.trusted or server.leaves_project_settings_out:
            return None
        found = folder_settings(request.workdir)
        return failures.untrusted_settings(str(found[0]), server.version) if found else None
