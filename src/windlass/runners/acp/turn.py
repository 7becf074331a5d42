"""One turn of an agent: a process, a session in it, a prompt, and the agent's notifications until it has answered.

`AgentTurn.run` always ends the process tree before it returns or raises. An interrupt asks the agent to cancel its turn
and waits for its answer, not for longer than the grace.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from windlass.errors import Category, Failure
from windlass.ports import AgentRequest, AgentResult, Host
from windlass.process import Exit, Process, ProcessLimits, ProcessLost
from windlass.process.pipes import PIPE
from windlass.runners import RunnerDeps
from windlass.runners.acp import failures
from windlass.runners.acp.agents import AgentProgram, KnownAgent
from windlass.runners.acp.questions import PermissionQuestions
from windlass.runners.acp.updates import UpdateListener
from windlass.runners.acp.wire import AgentWire, RpcError, WireEnded
from windlass.runners.endings import TurnEnding, failure
from windlass.runners.tool_listener import ToolAccess, ToolListener
from windlass.runners.tool_server import SERVER, tool_server
from windlass.version import __version__

__all__ = ["PATIENCE", "PROTOCOL", "AgentTurn", "introduction"]

PROTOCOL = 1
"""The version of the protocol that is spoken."""
PATIENCE = 60.0
"""Seconds in which an agent must introduce itself. It takes some; a busy machine takes longer."""
FAREWELL = 1.0
"""Seconds between the polite signal and the kill of a process that has answered, or is not to."""


def introduction() -> dict[str, Any]:
    """The parameters of `initialize`. The agent reads, writes and runs by itself, with no help of ours."""
    capabilities = {"fs": {"readTextFile": False, "writeTextFile": False}, "terminal": False}
    return {
        "protocolVersion": PROTOCOL,
        "clientCapabilities": capabilities,
        "clientInfo": {"name": "windlass", "title": "Windlass", "version": __version__},
    }


class _TurnStopped(Exception):
    """The turn cannot go on; the failure says why."""

    def __init__(self, failure: Failure, *, session_lost: bool = False) -> None:
        super().__init__(failure.message)
        self.failure, self.session_lost = failure, session_lost


class AgentTurn:
    def __init__(
        self,
        deps: RunnerDeps,
        agent: KnownAgent,
        program: AgentProgram,
        request: AgentRequest,
        host: Host,
        *,
        listener: ToolListener,
        interrupted: asyncio.Event,
    ) -> None:
        """`interrupted` may be set at any time, also before the turn begins."""
        self._deps, self._agent, self._program, self._host = deps, agent, program, host
        self._tools = tool_server(host, request, deps.settings, agent.row)
        self._request = self._tools.request() if self._tools is not None else request
        self._listener, self._interrupted = listener, interrupted
        self._access: ToolAccess | None = None
        self._heard = UpdateListener(
            host,
            deps.prices,
            request.model or "",
            self._tools.known if self._tools is not None else {},
            counts_calls=agent.counts_calls,
            names_server=agent.names_server,
        )
        self._questions = PermissionQuestions(request, host, self._heard)
        self._session = request.session
        self._capabilities: Mapping[str, Any] = {}
        self._logins: list[Mapping[str, Any]] = []
        self._responses: list[Mapping[str, Any]] = []
        self._adjustments: list[str] = []
        self._facts: dict[str, Any] = {}

    async def run(self) -> AgentResult:
        if self._interrupted.is_set():
            return AgentResult(session=self._request.session, interrupted=True)
        env = {**self._program.env(self._request.env), "PWD": str(self._request.workdir)}
        if self._session is not None and self._agent.before_load is not None:
            await asyncio.to_thread(self._agent.before_load, self._session, env)
        process = await self._deps.supervisor.spawn(
            list(self._program.argv),
            cwd=str(self._request.workdir),
            env=env,
            stdin=PIPE,
            limits=ProcessLimits(pool=self._request.pool) if self._request.pool is not None else None,
        )
        wire = AgentWire(process, self._heard.hear, self._answer)
        stopped: Failure | None = None
        lost = False
        try:
            await self._until_interrupted(wire)
        except _TurnStopped as error:
            stopped, lost = error.failure, error.session_lost
        except RpcError as error:
            stopped = failures.of_error(error, self._agent.name, self._deps.now(), self._login())
        except WireEnded:
            end = await _ended(process)
            stopped = failures.died(self._program.argv[0], end, str(wire.last_words), self._agent.name)
        except ProcessLost as error:
            stopped = failure(TurnEnding.DIED, error.message, runtime=self._agent.name)
        finally:
            await self._end(process, wire)
        return self._result(stopped, lost)

    # -- the conversation ------------------------------------------------------------------------------

    async def _until_interrupted(self, wire: AgentWire) -> None:
        talking = asyncio.create_task(self._talk(wire))
        interrupted = asyncio.create_task(self._interrupted.wait())
        try:
            await asyncio.wait({talking, interrupted}, return_when=asyncio.FIRST_COMPLETED)
            if not talking.done() and self._heard.live:
                self._questions.cancel()
                with suppress(TimeoutError):  # also of an agent that reads nothing any more
                    async with asyncio.timeout(self._request.grace):
                        await wire.notify("session/cancel", {"sessionId": self._session})
                        await asyncio.wait({talking})
            if talking.done():
                talking.result()
        finally:
            for task in (talking, interrupted):
                task.cancel()
            await asyncio.gather(talking, interrupted, return_exceptions=True)

    async def _talk(self, wire: AgentWire) -> None:
        await self._meet(wire)
        setup = await self._open(wire)
        self._host.session(self._session or "")
        await self._choose_mode(wire, setup)
        if self._request.model:
            await self._choose_model(wire, setup, self._request.model)
        self._heard.live = True
        prompt = self._prompt()
        while True:
            denied = len(self._questions.denials)
            response = await wire.call("session/prompt", {"sessionId": self._session, "prompt": prompt})
            self._responses.append(response if isinstance(response, Mapping) else {})
            self._heard.tell_usage(self._responses)
            denials = self._questions.denials[denied:]
            if self._reason != "cancelled" or not denials or self._interrupted.is_set():
                self._heard.finish()
                return
            # Some agents end their turn when they are denied something. They are told why, and go on as they can.
            self._heard.end_message()
            said = "".join(f"\n- {denial}" for denial in denials)
            prompt = [{"type": "text", "text": f"This was not allowed:{said}\nGo on without it as far as you can."}]

    async def _meet(self, wire: AgentWire) -> None:
        try:
            async with asyncio.timeout(PATIENCE):
                hello = _mapping(await wire.call("initialize", introduction()))
        except TimeoutError as error:
            said = f"{self._program.argv[0]} says nothing for {PATIENCE:g} s"
            raise _TurnStopped(failure(TurnEnding.DIED, said, runtime=self._agent.name)) from error
        about, version = _mapping(hello.get("agentInfo")), hello.get("protocolVersion")
        self._facts = {"version": str(about.get("version") or ""), "agent": str(about.get("name") or "")}
        if version != PROTOCOL:
            text = f"{self._agent.name}: it speaks version {version} of the Agent Client Protocol, not {PROTOCOL}"
            raise _TurnStopped(Failure(Category.CONFIGURATION, text, advice=(self._agent.row.install,), elsewhere=True))
        self._capabilities = _mapping(hello.get("agentCapabilities"))
        self._logins = [one for one in hello.get("authMethods") or () if isinstance(one, Mapping)]

    async def _open(self, wire: AgentWire) -> Mapping[str, Any]:
        """Begin a session, or load the one to go on with; its settings are returned."""
        place = {"cwd": str(self._request.workdir), "mcpServers": await self._servers()}
        if self._session is None:
            setup = _mapping(await self._logged_in(wire, "session/new", place))
            self._session = str(setup.get("sessionId"))
            return setup
        session, sessions = self._session, _mapping(self._capabilities.get("sessionCapabilities"))
        method = "session/resume" if "resume" in sessions else "session/load"
        if self._request.inherited is not None:
            why = "it cannot be copied for another execution"
        elif method == "session/load" and not self._capabilities.get("loadSession"):
            why = "this agent does not keep conversations"
        else:
            try:
                return _mapping(await self._logged_in(wire, method, {"sessionId": session, **place}))
            except RpcError as error:
                if error.code == failures.AUTH_REQUIRED:
                    raise
                why = failures.words_of(error)
        raise _TurnStopped(failures.session_lost(session, why, self._agent.name), session_lost=True)

    async def _logged_in(self, wire: AgentWire, method: str, params: Mapping[str, Any]) -> Any:
        """The result of a call. An agent that wants a key which its environment has is told to take it."""
        try:
            return await wire.call(method, params)
        except RpcError as error:
            login = self._agent.login(self._logins, self._program.env(self._request.env))
            if error.code != failures.AUTH_REQUIRED or login is None:
                raise
            await wire.call("authenticate", {"methodId": login})
            return await wire.call(method, params)

    async def _servers(self) -> list[dict[str, Any]]:
        """The engine's tools, as an MCP server for this attempt alone."""
        if self._tools is None:
            return []
        if not _mapping(self._capabilities.get("mcpCapabilities")).get("http"):
            self._adjustments.append("this agent takes no MCP servers over HTTP: it has none of the engine's tools")
            return []
        self._access = await self._listener.open(self._tools)
        headers = [{"name": "Authorization", "value": f"Bearer {self._access.token}"}]
        return [{"type": "http", "name": SERVER, "url": self._access.url, "headers": headers}]

    async def _choose_mode(self, wire: AgentWire, setup: Mapping[str, Any]) -> None:
        """Have the agent ask before it changes anything, unless it is allowed everything."""
        modes = _mapping(setup.get("modes"))
        offered = [str(_mapping(mode).get("id")) for mode in modes.get("availableModes") or ()]
        wanted = self._agent.mode(self._request.permissions, offered)
        if wanted is not None and wanted != modes.get("currentModeId"):
            await wire.call("session/set_mode", {"sessionId": self._session, "modeId": wanted})

    async def _choose_model(self, wire: AgentWire, setup: Mapping[str, Any], model: str) -> None:
        options = [_mapping(option) for option in setup.get("configOptions") or ()]
        option = next((option for option in options if option.get("category") == "model"), None)
        try:
            if option is not None:
                chosen = {"sessionId": self._session, "configId": option.get("id"), "value": model}
                await wire.call("session/set_config_option", chosen)
            else:
                await wire.call("session/set_model", {"sessionId": self._session, "modelId": model})
        except RpcError as error:
            known = (
                option.get("options") if option is not None else _mapping(setup.get("models")).get("availableModels")
            )
            some = ", ".join(_names(known or ())[:8])
            said = f"it does not take the model {model!r}: {failures.words_of(error)}"
            advice = (f"models that it offers: {some}",) if some else ()
            ending = failure(TurnEnding.NO_MODEL, said, runtime=self._agent.name, advice=advice)
            raise _TurnStopped(ending) from error

    def _prompt(self) -> list[dict[str, Any]]:
        """The content of the prompt. The protocol has no system prompt: it opens the first message."""
        brief = self._request.brief
        texts = (brief.system if self._request.session is None else "", brief.prompt)
        blocks: list[dict[str, Any]] = [{"type": "text", "text": "\n\n".join(filter(None, texts)) or "Go on."}]
        takes = _mapping(self._capabilities.get("promptCapabilities"))
        for attachment in brief.attachments:
            data = base64.b64encode(attachment.data).decode()
            if attachment.media_type.startswith("image/") and takes.get("image"):
                blocks.append({"type": "image", "mimeType": attachment.media_type, "data": data})
            elif takes.get("embeddedContext"):
                uri = f"file://{self._request.workdir / attachment.path}"
                embedded = {"uri": uri, "mimeType": attachment.media_type, "blob": data}
                blocks.append({"type": "resource", "resource": embedded})
            else:
                self._adjustments.append(f"this agent takes no attachments: {attachment.path} was left out")
        return blocks

    async def _answer(self, method: str, params: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return await self._questions.answer(params) if method == "session/request_permission" else None

    # -- the end ---------------------------------------------------------------------------------------

    async def _end(self, process: Process, wire: AgentWire) -> None:
        if self._access is not None:
            self._listener.shut(self._access)
        if process.stdin is not None:
            process.stdin.close()
        with suppress(ProcessLost):
            await asyncio.shield(process.stop(FAREWELL))
        await wire.close()
        if self._tools is not None:
            await self._tools.close(answered=self._heard.has_answered)

    @property
    def _reason(self) -> str:
        return str(self._responses[-1].get("stopReason") or "") if self._responses else ""

    def _result(self, stopped: Failure | None, lost: bool) -> AgentResult:
        over = bool(self._responses) and self._reason != "cancelled"
        interrupted = self._interrupted.is_set() and not over
        found = stopped
        if found is None and not interrupted:
            found = failures.of_stop(self._reason, self._heard.last_output, self._agent.name)
        if interrupted:
            found = None
        complete = found is None and not interrupted
        return AgentResult(
            output=self._heard.last_output if complete else self._heard.output,
            failure=found,
            usage=self._heard.usage(self._responses, complete=complete),
            session=None if lost else self._session,
            interrupted=interrupted,
            adjustments=tuple(dict.fromkeys(self._said_of_request())),
            metadata={
                **{name: fact for name, fact in self._facts.items() if fact},
                **({"session_lost": True} if lost else {}),
            },
        )

    def _said_of_request(self) -> Iterable[str]:
        yield from self._adjustments
        yield from self._questions.adjustments
        yield from self._tools.adjustments if self._tools is not None else ()
        if self._request.max_turns is not None:
            yield "the Agent Client Protocol has no limit of turns: left out"
        if self._request.temperature is not None:
            yield "the Agent Client Protocol has no temperature: left out"

    def _login(self) -> tuple[str, ...]:
        names = [str(one.get("name")) for one in self._logins if one.get("name")]
        return (
            (f"log in once with {self._program.argv[0]} itself, or set its key: {', '.join(names)}",) if names else ()
        )


def _mapping(found: Any) -> Mapping[str, Any]:
    return found if isinstance(found, Mapping) else {}


def _names(options: Iterable[Any]) -> list[str]:
    return [str(one.get("value") or one.get("modelId")) for one in options if isinstance(one, Mapping)]


async def _ended(process: Process) -> Exit:
    """Its output has ended, and so it is about to end itself."""
    try:
        async with asyncio.timeout(FAREWELL):
            return await process.wait()
    except TimeoutError:
        return await process.stop(0)
