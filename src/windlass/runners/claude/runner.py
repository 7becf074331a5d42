"""`ClaudeCodeRunner`: the methods of the port; and `ClaudeTurn`, one turn to the end of its last process.

The SDK holds the conversation (`ClaudeSDKClient`) over our wire; the process tree is the supervisor's. `ClaudeTurn.run`
always ends the tree before it returns or raises, and gives a result for everything but a cancellation.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import shlex
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from windlass.core.events import AgentTold
from windlass.errors import Category, Failure, classify
from windlass.guarded import changes_guarded_file
from windlass.ids import new_id
from windlass.ports import (
    AgentRequest,
    AgentResult,
    Amount,
    Health,
    Host,
    Media,
    Meter,
    Runner,
    RunnerHooks,
    SessionPlace,
    Usage,
)
from windlass.process import Exit, Process, ProcessLimits, ProcessLost, SpawnError
from windlass.process.pipes import PIPE
from windlass.runners import RunnerDeps, import_in_background
from windlass.runners.claude.binary import GIVES_DATA, ON_PATH, VERBATIM, Binaries, Binary
from windlass.runners.claude.command import ClaudeCommand, account, command_for, credentials, for_child, only_within
from windlass.runners.claude.failures import UNFIT, Verdict, cut_off, of_result, without_result
from windlass.runners.claude.messages import MessageListener, summarise
from windlass.runners.claude.session_file import copy_in, copy_out, known_uuids, uuid_of
from windlass.runners.claude.spending import TurnSpending
from windlass.runners.claude.wire import ClaudeWire
from windlass.runners.tool_server import SERVER, tool_server
from windlass.runtimes import CLAUDE_CODE

if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeSDKClient, PermissionResult, ToolPermissionContext, Transport

__all__ = ["ClaudeCodeRunner"]

FAREWELL = 10.0
"""Seconds to write its session down and end, after its result. It takes a fraction of one where nothing holds it up."""
COPY = "claude-code"
"""The folder of a step that has a copy of its session for other machines."""
COMPACT = "/compact"
"""The message with which Claude Code summarises its conversation."""
HELD_UP = 2.0
"""The same where something does: commands in the background, or an output that is closed already."""
LAST_WORDS = 1.0
"""Seconds between the polite signal and the kill of a turn that is cancelled or does not end."""


class ClaudeTurn:
    def __init__(
        self,
        deps: RunnerDeps,
        binary: Binary,
        request: AgentRequest,
        host: Host,
        *,
        interrupted: asyncio.Event,
    ) -> None:
        """`interrupted` may be set at any time, also before the turn begins."""
        self._supervisor, self._env, self._now = deps.supervisor, deps.env, deps.now
        self._binary, self._request, self._host, self._interrupted = binary, request, host, interrupted
        # Chosen by us, so that it is known before the first byte: a crash at any moment can go on with it.
        self._session = request.session if request.session and request.inherited is None else new_id()
        self._spending = TurnSpending(deps.prices, resumed=request.session is not None)
        self._tools = tool_server(host, request, deps.settings, CLAUDE_CODE)
        if self._tools is not None:
            self._request = self._tools.request()
        self._listener = MessageListener(host, self._spending, self._session, self._named)
        self._wire = ClaudeWire(self._spawn, self._listener.hear, self._tools.answer if self._tools else None)
        self._command = ClaudeCommand([], ())
        self._said: dict[str, list[str]] = {}
        """Ids of people's messages, by the uuids that they were sent with, until they are reported as heard."""
        self._heard = asyncio.Event()

    async def run(self) -> AgentResult:
        begun = self._now()
        mishap: Failure | None = None
        ended: Exit | ProcessLost | None = None
        try:
            self._command = command_for(
                self._request,
                session=self._session,
                served=self._tools is not None,
                gives_data=self._binary.version >= GIVES_DATA,
            )
            self._host.session(self._session)
            await self._talk()
        except asyncio.CancelledError:
            self._host.note(f"{CLAUDE_CODE.name} was stopped {self._listener.last}")
            raise
        except SpawnError as error:
            mishap = Failure(
                error.category, f"{CLAUDE_CODE.name}: {error.message}", advice=error.advice, elsewhere=True
            )
        except OSError as error:
            mishap = classify(error)
        except Exception as error:  # out of the SDK, whatever its version raises: the end of the process says more
            text = f"{CLAUDE_CODE.name}: the SDK gave up: {type(error).__name__}: {error}"
            mishap = Failure(Category.TRANSIENT, text, advice=("look at it with: windlass doctor",), elsewhere=True)
        finally:
            ended = await self._end()
            if self._tools is not None:
                await self._tools.close(answered=self._listener.has_answered)
            self._measure(ended)
        return self._result(mishap, ended, self._now() - begun)

    # -- the conversation ------------------------------------------------------------------------------

    async def _talk(self) -> None:
        # Seconds of work the first time, which nothing else on this event loop should have to wait for.
        await asyncio.to_thread(importlib.import_module, "claude_agent_sdk")
        from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

        compacts = self._request.session is not None and self._host.summary_wanted()
        # A command of the runtime's own must not be taken word for word; the prompt after it is, by a mark of its own.
        options = ClaudeAgentOptions(can_use_tool=self._may_use, verbatim_prompts=not compacts)
        client = ClaudeSDKClient(options, transport=cast("Transport", self._wire))
        connecting = asyncio.create_task(self._open(client, compacts=compacts))
        telling: list[asyncio.Task[None]] = []
        try:
            await _first(self._wire.ended, self._interrupted, connecting)
            if connecting.done():
                connecting.result()
                if compacts:
                    await _first(self._listener.over, self._wire.ended, self._interrupted)
                if not self._interrupted.is_set() and not self._wire.ended.is_set():
                    if compacts:
                        self._listener.begin_turn()
                        await self._prompt(client)
                    telling = [asyncio.create_task(self._speak(client)), asyncio.create_task(self._report())]
                    await _first(self._listener.over, self._wire.ended, self._interrupted)
                if self._interrupted.is_set() and not self._listener.over.is_set():
                    await self._stop_turn(client)
                elif telling:
                    await self._reported(telling[1])
            await self._part()
        finally:
            for task in (connecting, *telling):
                task.cancel()
            await asyncio.gather(connecting, *telling, return_exceptions=True)
            await client.disconnect()

    async def _open(self, client: ClaudeSDKClient, *, compacts: bool) -> None:
        """Connect, and send the prompt, or the command that comes before it."""
        await client.connect()
        await (client.query(COMPACT) if compacts else self._prompt(client))

    async def _prompt(self, client: ClaudeSDKClient) -> None:
        """Send the prompt with the messages that were there before it."""
        messages, uuid = await self._unsaid(), str(uuid4())
        if messages:
            uuid = uuid_of(messages[-1].id)
            self._said[uuid] = [message.id for message in messages]
            self._listener.opens_with(uuid)
        texts = (self._request.brief.prompt, *(message.text for message in messages))
        await client.query(_message("\n\n".join(filter(None, texts)) or "Go on.", uuid))

    async def _unsaid(self) -> list[AgentTold]:
        """Messages for the first prompt. The session knows those that it had when an earlier attempt broke off."""
        messages = self._host.told()
        if not messages or self._request.session is None:
            return messages
        env = for_child(self._env, self._request.env)
        known = await asyncio.to_thread(known_uuids, env, self._request.session)
        last = max((place for place, told in enumerate(messages, 1) if uuid_of(told.id) in known), default=0)
        if last:
            await self._host.heard([message.id for message in messages[:last]], "steer")
        return messages[last:]

    async def _speak(self, client: ClaudeSDKClient) -> None:
        """Send people's messages as they come; the runtime gives them to the model after the running tool call."""
        await self._listener.tracks.wait()
        while True:
            await self._host.wait_told()
            sent = {id for ids in self._said.values() for id in ids}
            for message in self._host.told():
                if self._listener.over.is_set():
                    return  # too late for this turn
                if message.id not in sent:
                    uuid = uuid_of(message.id)
                    self._said[uuid] = [message.id]
                    self._listener.sent[uuid] = "sent"
                    await client.query(_message(message.text, uuid))
            while self._said:
                self._heard.clear()
                await self._heard.wait()

    async def _reported(self, reporting: asyncio.Task[None]) -> None:
        """Wait until all that the model has seen is reported."""
        joining = asyncio.create_task(self._listener.answered.join())
        await _first(joining, reporting)
        joining.cancel()
        if reporting.done():
            reporting.result()

    async def _report(self) -> None:
        """Report the messages that the model has seen."""
        answered = self._listener.answered
        while True:
            uuid, how = await answered.get()
            await self._host.heard(self._said.pop(uuid), how or self._request.opening)
            answered.task_done()
            self._heard.set()

    async def _stop_turn(self, client: ClaudeSDKClient) -> None:
        """End the turn in order, so that the conversation can go on later; not for longer than the grace."""
        asking = asyncio.create_task(client.interrupt())
        try:
            async with asyncio.timeout(self._request.grace):
                await _first(self._listener.over, self._wire.ended)
        except TimeoutError:
            return  # then it is killed
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _part(self) -> None:
        """After the result: let it end by itself, and hear the rest."""
        if not self._listener.over.is_set() or self._wire.process is None:
            return
        if background := ", ".join(self._listener.background):
            self._host.note(f"commands in the background end with the step: {background}")
        self._wire.hang_up()
        try:
            async with asyncio.timeout(HELD_UP if background else FAREWELL):
                await self._wire.ended.wait()
        except TimeoutError:
            return  # then it is killed

    async def _end(self) -> Exit | ProcessLost | None:
        """Leave nothing running. None: nothing ran."""
        process = self._wire.process
        if process is None:
            return None
        self._wire.hang_up()
        try:
            # Its output has ended, and so it is about to end itself; in all other cases it is told to.
            if self._wire.ended.is_set() and not self._wire.flood:
                return await _ended(process)
            return await process.stop(LAST_WORDS)
        except ProcessLost as error:
            return error
        finally:
            await self._wire.rest()

    def _measure(self, ended: Exit | ProcessLost | None) -> None:
        """Tell what it took, if the host wants to know: its own tools' processes are in it."""
        meter: Meter | None = getattr(self._host, "meter", None)
        if meter is not None and isinstance(ended, Exit) and ended.used is not None:
            meter.add(cpu=ended.used.cpu, memory=ended.used.memory)

    def _named(self, tool: str) -> str:
        return self._tools.name(tool, f"mcp__{SERVER}__") if self._tools is not None else tool

    async def _spawn(self) -> Process:
        return await self._supervisor.spawn(
            [self._binary.path, *self._command.arguments],
            cwd=str(self._request.workdir),
            env={**for_child(self._env, self._request.env), "PWD": str(self._request.workdir)},
            stdin=PIPE,
            limits=ProcessLimits(pool=self._request.pool) if self._request.pool is not None else None,
        )

    async def _may_use(self, tool: str, input: dict[str, Any], context: ToolPermissionContext) -> PermissionResult:
        """Decide a use that the runtime may not decide by itself: one that is not read-only and in no list."""
        from claude_agent_sdk import PermissionResultAllow, PermissionResultDeny

        permissions = self._request.permissions
        allowed, note = permissions.mode == "allow", "this step may not use it"
        if permissions.tools is not None and tool.startswith("mcp__") and tool not in permissions.tools:
            allowed, note = False, "this role does not have it"
        elif permissions.mode == "allow" and (uses := only_within(permissions).get(tool)):
            allowed, note = False, f"this role has only {uses}"
        elif permissions.mode == "ask" or (allowed and self._command.unheeded) or changes_guarded_file(tool, input):
            self._listener.last = f"while it was waiting for permission to use {tool} {summarise(input)}".rstrip()
            try:
                allowed, note = await self._host.ask(tool, input)
            except Exception as error:  # a question that cannot be put is no yes
                allowed, note = False, f"no person could be asked: {error}"
        if allowed:
            return PermissionResultAllow()
        self._listener.deny(context.tool_use_id or "", tool, input, note)
        return PermissionResultDeny(message=note or "denied")

    # -- the result ------------------------------------------------------------------------------------

    def _result(self, mishap: Failure | None, ended: Exit | ProcessLost | None, duration: float) -> AgentResult:
        heard, result = self._listener, self._listener.result
        verdict, interrupted = self._judge(mishap, ended)
        text = (
            _last_words(result, heard.data)
            if result is not None and verdict.failure is None and not interrupted
            else ""
        )
        facts = {
            "model": heard.model,
            "version": heard.version or self._binary.label,
            "turns": result.get("num_turns") if result is not None else None,
        }
        adjustments = [*self._command.adjustments, *heard.adjustments]
        adjustments += self._tools.adjustments if self._tools is not None else ()
        if self._binary.version < VERBATIM:
            adjustments.append(f"claude {self._binary.label} expands @paths in prompts: claude update")
        return AgentResult(
            output=text or heard.said,
            failure=verdict.failure,
            usage=self._spending.final(cut_off=cut_off(result)),
            session=heard.session or self._session,
            duration=duration,
            interrupted=interrupted,
            adjustments=tuple(adjustments),
            metadata={**{name: fact for name, fact in facts.items() if fact}, **verdict.metadata},
        )

    def _judge(self, mishap: Failure | None, ended: Exit | ProcessLost | None) -> tuple[Verdict, bool]:
        result = self._listener.result
        failed = result is None or bool(result.get("is_error"))
        if self._interrupted.is_set() and failed:
            return Verdict(None), True
        if result is not None:
            return of_result(result, self._listener, now=self._now()), False
        if self._wire.error is not None:
            return Verdict(classify(self._wire.error)), False
        if isinstance(ended, ProcessLost):
            return Verdict(Failure(Category.TRANSIENT, f"{CLAUDE_CODE.name}: {ended.message}", elsewhere=True)), False
        if ended is not None and (mishap is None or not ended.killed):
            return Verdict(without_result(self._wire, ended, self._listener)), False
        return Verdict(mishap), False


async def _message(text: str, uuid: str) -> AsyncIterator[dict[str, Any]]:
    """A message of the user with a name, in which the runtime expands nothing."""
    said = {"role": "user", "content": text}
    yield {"type": "user", "message": said, "parent_tool_use_id": None, "client_composed": True, "uuid": uuid}


def _last_words(result: Mapping[str, Any], given: Any) -> str:
    """The data that the agent gave with the runtime's own tool for it, as JSON; else its last text. `given`: the data
    that the runtime may have refused."""
    data = given if result.get("subtype") == UNFIT else result.get("structured_output")
    if data is not None:
        return json.dumps(data, ensure_ascii=False)
    text = result.get("result")
    return text if isinstance(text, str) else ""


async def _ended(process: Process) -> Exit:
    try:
        async with asyncio.timeout(HELD_UP):
            return await process.wait()
    except TimeoutError:
        return await process.stop(LAST_WORDS)


async def _first(*awaited: asyncio.Event | asyncio.Task[None]) -> None:
    """Wait until one of the events is set or one of the tasks is done. Touches none of the tasks."""
    waiting = [asyncio.create_task(one.wait()) if isinstance(one, asyncio.Event) else one for one in awaited]
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task, one in zip(waiting, awaited, strict=True):
            if task is not one:
                task.cancel()


OWN_PROMPT = 30_000
"""Tokens of its own instructions and tools, which come before every prompt."""
MOST_OUTPUT = 32_000
"""Tokens that it asks for in one reply at most, unless CLAUDE_CODE_MAX_OUTPUT_TOKENS says otherwise."""
DEAREST = "opus"


class ClaudeCodeRunner(RunnerHooks, Runner):
    name = CLAUDE_CODE.name
    takes_messages = True

    def __init__(self, deps: RunnerDeps) -> None:
        self._deps = deps
        self._binaries = Binaries(deps.supervisor, deps.settings.path, deps.env)
        self._running: dict[str, asyncio.Event] = {}

    async def available(self) -> Health:
        found = await self._binaries.find()
        if isinstance(found, Health):
            return found
        old = ("it expands @paths in prompts: claude update",) if found.version < VERBATIM else ()
        if credentials(self._deps.env) or await self._binaries.logged_in(found):
            return Health(True, "; ".join((found.detail, *old)), version=found.label)
        program = found.path if found.origin != ON_PATH else "claude"
        advice = f"log in with: {shlex.quote(program)} auth login; or set ANTHROPIC_API_KEY"
        detail = "; ".join((found.detail, "installed, not logged in", *old))
        return Health(True, detail, advice, unset=True, version=found.label)

    def installed(self) -> Health:
        return self._binaries.installed()

    def prepare(self, model: str | None) -> None:
        if self.installed().ok:
            import_in_background("claude_agent_sdk")

    def call_cost(self, model: str | None, prompt: int) -> Amount:
        """With its own instructions and tools before the prompt. It says itself what a call did cost, so a model that
        we have no price for counts as the dearest until then."""
        named = model or self._deps.env.get("ANTHROPIC_MODEL") or DEAREST
        most = self._deps.env.get("CLAUDE_CODE_MAX_OUTPUT_TOKENS", "")
        output = int(most) if most.isdecimal() else MOST_OUTPUT
        prices = self._deps.prices
        found = prices.call(named, prompt + OWN_PROMPT, output)
        return found if found.usd is not None else prices.call(DEAREST, prompt + OWN_PROMPT, output)

    def media(self, model: str | None) -> Media:
        return "opens"

    def window(self, model: str | None) -> int | None:
        return self._deps.prices.window(model) if model else None

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        begun = self._deps.now()
        interrupted = self._running[request.id] = asyncio.Event()
        try:
            found = await self._binaries.find()
            if isinstance(found, Health):
                return _unavailable(found, request, self._deps.now() - begun)
            return await ClaudeTurn(self._deps, found, request, host, interrupted=interrupted).run()
        finally:
            del self._running[request.id]

    def account(self, model: str | None, env: Mapping[str, str]) -> str:
        return account({**self._deps.env, **env})

    async def keep_session(self, place: SessionPlace) -> None:
        env = for_child(self._deps.env, place.env)
        await asyncio.to_thread(copy_out, env, place.session, place.scratch / COPY)

    async def bring_session(self, place: SessionPlace, *, current: bool) -> bool:
        env = for_child(self._deps.env, place.env)
        return current and await asyncio.to_thread(copy_in, env, place.session, place.scratch / COPY)

    async def interrupt(self, request: str) -> None:
        if running := self._running.get(request):
            running.set()

    async def close(self) -> None:
        """Nothing is kept warm: each turn's process ends with it."""


def _unavailable(health: Health, request: AgentRequest, duration: float) -> AgentResult:
    advice = (health.advice,) if health.advice else ()
    failure = Failure(Category.CONFIGURATION, f"{CLAUDE_CODE.name}: {health.detail}", advice=advice, elsewhere=True)
    nothing = Usage(usd=0.0, source="runtime")
    return AgentResult(failure=failure, usage=nothing, session=request.session, duration=duration)
