"""One turn on a server: a session, a prompt, and the events that follow until the session is idle again (A3).

`ServedTurn.run` opens or continues a session, listens, puts the prompt, and waits for the first of its ends: idle, an
error, an interrupt, the server's death or silence. It gives the server back clean: after an abort nothing of the
session runs on, and a server that keeps something of it running is retired. `reading` interprets the events;
`permissions.Questions` answers the agent's questions.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from windlass.core.events import AgentTold
from windlass.errors import Failure
from windlass.ports import AgentRequest, AgentResult, Host, PromptAttachment
from windlass.prices import Prices
from windlass.runners.endings import TurnEnding, failure
from windlass.runners.opencode import failures
from windlass.runners.opencode.engine_tools import EngineTools
from windlass.runners.opencode.environment import same_folder
from windlass.runners.opencode.failures import LOGIN
from windlass.runners.opencode.permissions import Questions, rules
from windlass.runners.opencode.reading import Reading
from windlass.runners.opencode.server import OpenCodeServer, Stopped, answered, events, refusal
from windlass.runners.result_form import tool_form
from windlass.runtimes import OPEN_CODE

__all__ = ["ServedTurn"]

ABORTING = 2.0
"""Seconds in which an aborted session must be idle. It takes hundredths."""
SIGN_OF_LIFE = 15.0
"""Seconds in which a server that left something unanswered must say that it is well."""
FAREWELL = 1.0
"""Seconds in which we learn that a process has died, once its connections have."""
LONG_WAIT = 60.0
"""OpenCode may wait this long for a retry of its own; beyond it the engine waits, and is seen to."""
RECONNECTIONS = 3
UNGIVEN = "StructuredOutputError"
"""The agent gave no data, but a text. It may have the data in it: the engine looks."""


class ServedTurn:
    """One request on one server."""

    def __init__(
        self,
        server: OpenCodeServer,
        request: AgentRequest,
        host: Host,
        *,
        now: Callable[[], float],
        prices: Prices | None,
        retries: int,
        tools: EngineTools | None = None,
        others_have_tools: bool = False,
    ) -> None:
        """`others_have_tools`: other turns in the same folder may have tools of the engine."""
        self._server, self._request, self._host = server, request, host
        self._now, self._retries, self._tools, self._others = now, retries, tools, others_have_tools
        self._directory = str(request.workdir)
        self._session = request.session
        named = {"named": tools.engine_name} if tools is not None else {}
        self._reading = Reading(host, prices, request.model or "", **named)
        self._desk: Questions | None = None
        self._family: set[str] = set()
        """The session and those of its subagents."""
        self._adjustments: list[str] = []
        self._error: Mapping[str, Any] | None = None
        self._overflows = 0
        self._stopped: Failure | None = None
        self._prompted = False
        self._interrupted = False
        self._at_rest = False
        """The session itself has said that it is idle."""
        self._sent = ""
        """The id of our prompt, while the session has not got it, if it has messages of people in it."""
        self._told: list[str] = []
        self._reporting: asyncio.Task[None] | None = None
        self._aborting: asyncio.Task[None] | None = None
        self._idle = asyncio.Event()
        self._rested = asyncio.Event()
        """The session was idle before the prompt."""
        self._connected = asyncio.Event()
        self._broke = False
        """The stream of events broke, so some of them may be missing."""

    @property
    def session(self) -> str | None:
        return self._session

    async def run(self) -> AgentResult:
        import httpx2

        lost = False
        try:
            await self._work()
        except Stopped as stopped:
            self._stopped, lost = stopped.failure, stopped.session_lost
        except httpx2.HTTPError as error:
            self._stopped = await self._unanswered(error)
        except asyncio.CancelledError:
            await asyncio.shield(asyncio.create_task(self._clean_up()))
            raise
        await self._clean_up()
        return self._result(lost)

    async def interrupt(self) -> None:
        """End the turn now; `run` returns the result so far."""
        self._interrupted = True
        if self._prompted:
            await self._abort()
        self._idle.set()

    # -- the turn --------------------------------------------------------------------------------

    async def _work(self) -> None:
        model = await self._model()
        await self._open()
        if self._tools is not None:
            await self._tools.connect()
        listening = asyncio.create_task(self._listen())
        dying = asyncio.create_task(self._mourn())
        over = asyncio.create_task(self._idle.wait())
        ends: set[asyncio.Task[Any]] = {listening, dying, over}
        try:
            connected = asyncio.create_task(self._connected.wait())
            await asyncio.wait({connected, *ends}, return_when=asyncio.FIRST_COMPLETED)
            connected.cancel()
            if self._connected.is_set() and not self._interrupted:
                if self._request.session is not None and self._host.summary_wanted():
                    await self._compact(model)
                await self._prompt(model)
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for failing in (listening, dying):
                if failing.done():
                    failing.result()
            if self._broke and self._at_rest and self._stopped is None:
                await self._read_messages()  # the last words may have come while the stream was broken
            if self._reporting is not None:
                await self._reporting
        finally:
            for task in ends:
                task.cancel()
            await asyncio.gather(*ends, return_exceptions=True)
            if self._desk is not None:
                await self._desk.close()

    async def _model(self) -> dict[str, str] | None:
        if self._request.model is None:
            return None
        found = await find_model(self._server, self._directory, self._request.model)
        if found.name != self._request.model:
            self._adjustments.append(f"the model {self._request.model} is {found.name} here")
        return {"providerID": found.provider, "modelID": found.model}

    async def _open(self) -> None:
        """Begin a session, or find the one to go on with.

        A session is bound to its folder, wherever it is continued. One of another folder is of no use: its agent would
        work there, by that folder's settings, which the trust in the folder of the step is not about.
        """
        server, request = self._server, self._request
        if self._session is not None:
            if not self._session.startswith("ses"):  # no name of OpenCode's: its server would only say 500
                raise Stopped(failures.session_lost(self._session), session_lost=True)
            answer = await server.call("GET", f"/session/{self._session}", directory=self._directory)
            if answer.status_code in (400, 404):
                raise Stopped(failures.session_lost(self._session), session_lost=True)
            bound = str(answered(answer).get("directory") or self._directory)
            if not same_folder(bound, self._directory):
                raise Stopped(failures.bound_elsewhere(self._session, bound), session_lost=True)
            self._directory = bound
            if request.inherited is not None:
                await self._copy()
        own = answered(await server.call("GET", "/config", directory=self._directory)).get("permission")
        served = "" if self._others else None
        if self._tools is not None:
            served = self._tools.choose_name(self._directory)
        policy = rules(request.permissions, own, served)
        body: dict[str, Any] = {"permission": [rule.plain() for rule in policy]}
        if self._session is None:
            body["title"] = f"windlass {request.id}"
            created = answered(await server.call("POST", "/session", directory=self._directory, body=body))
            self._session = str(created["id"])
        else:
            answered(await server.call("PATCH", f"/session/{self._session}", directory=self._directory, body=body))
        self._family.add(self._session)
        self._desk = Questions(server, self._directory, self._host, policy)
        self._host.session(self._session)

    async def _copy(self) -> None:
        """Go on in a copy of the session, so that the other execution's stays as it is."""
        answer = await self._server.call("POST", f"/session/{self._session}/fork", directory=self._directory, body={})
        if answer.status_code >= 400:
            raise Stopped(failures.no_copy(self._server.version), session_lost=True)
        self._session = str(answered(answer)["id"])

    async def _compact(self, model: dict[str, str] | None) -> None:
        """Have OpenCode summarise the conversation, and wait until it is idle again."""
        if model is None:
            answer = await self._server.call("GET", f"/session/{self._session}/message", directory=self._directory)
            infos = [message["info"] for message in answer.json()] if answer.status_code == 200 else []
            last = next((info for info in reversed(infos) if info.get("modelID")), None)
            if last is None:
                return  # nothing was said yet that could be summarised
            model = {"providerID": str(last["providerID"]), "modelID": str(last["modelID"])}
        path = f"/session/{self._session}/summarize"
        answer = await self._server.call("POST", path, directory=self._directory, body=model)
        if answer.is_error:
            self._host.note(f"OpenCode could not summarise its conversation: {answer.status_code}")
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(SIGN_OF_LIFE):
                await self._rested.wait()

    async def _unsaid(self) -> list[AgentTold]:
        """Messages for the prompt. The session knows those that it had when an earlier attempt broke off."""
        messages = self._host.told()
        if not messages or self._request.session is None:
            return messages
        answer = await self._server.call("GET", f"/session/{self._session}/message", directory=self._directory)
        known = (
            {str(message["info"].get("id"))[-14:] for message in answer.json()} if answer.status_code == 200 else set()
        )
        last = max((place for place, told in enumerate(messages, 1) if _mark(told.id) in known), default=0)
        if last:
            await self._host.heard([message.id for message in messages[:last]], "follow-up")
        return messages[last:]

    async def _prompt(self, model: dict[str, str] | None) -> None:
        messages = await self._unsaid()
        texts = (self._request.brief.prompt, *(message.text for message in messages))
        text = "\n\n".join(filter(None, texts)) or "Go on."
        files = [_file_part(attachment) for attachment in self._request.brief.attachments]
        body: dict[str, Any] = {"parts": [{"type": "text", "text": text}, *files]}
        if messages:
            body["messageID"] = self._sent = _message_id(messages[-1].id, self._now())
            self._told = [message.id for message in messages]
        if self._request.brief.system:
            body["system"] = self._request.brief.system
        if model is not None:
            body["model"] = model
        if (form := tool_form(self._request.form)) is not None:
            body["format"] = {"type": "json_schema", "schema": form}
        self._prompted = True
        answer = await self._server.call(
            "POST", f"/session/{self._session}/prompt_async", directory=self._directory, body=body
        )
        if answer.status_code == 404:
            assert self._session is not None
            raise Stopped(failures.session_lost(self._session), session_lost=True)
        if answer.is_error:
            raise Stopped(refusal(answer.status_code, answer.text))

    # -- ends of the turn ------------------------------------------------------------------------

    async def _listen(self) -> None:
        """Take events until the session is idle. A stream that ends is taken up again."""
        import httpx2

        breaks = 0
        while breaks <= RECONNECTIONS:
            try:
                async for event in events(self._server, self._directory):
                    if event.get("type") == "server.connected" and self._prompted:
                        await self._catch_up()
                    self._take(event)
                    if self._idle.is_set():
                        return
            except httpx2.HTTPError as error:
                await asyncio.wait({self._server.ended}, timeout=FAREWELL)
                if not self._server.alive or not await self._server.healthy(SIGN_OF_LIFE):
                    raise Stopped(await self._unanswered(error)) from error
            breaks += 1
            self._broke = True
            self._host.note("the stream of OpenCode's events broke and is taken up again")
        raise Stopped(failures.cut_off("the stream of its events broke again and again"))

    async def _catch_up(self) -> None:
        """Fetch the state and messages missed while the stream was broken."""
        answer = await self._server.call("GET", "/session/status", directory=self._directory)
        status = answered(answer).get(self._session or "")
        if isinstance(status, Mapping) and status.get("type") in ("busy", "retry"):
            waiting = await self._server.call("GET", "/permission", directory=self._directory)
            for asked in waiting.json() if waiting.status_code == 200 else []:
                self._take({"type": "permission.asked", "properties": asked})
            return
        await self._read_messages()
        self._at_rest = True
        self._idle.set()

    async def _read_messages(self) -> None:
        """Read all that was said since the prompt."""
        answer = await self._server.call("GET", f"/session/{self._session}/message", directory=self._directory)
        messages = answer.json() if answer.status_code == 200 else []
        last = next((i for i in reversed(range(len(messages))) if messages[i]["info"].get("role") == "user"), 0)
        for message in messages[last:]:
            self._reading.message(message["info"])
            if (error := message["info"].get("error")) and error.get("name") != UNGIVEN:
                self._error = error
            for part in message["parts"]:
                self._reading.part(part)

    async def _mourn(self) -> None:
        how = await asyncio.shield(self._server.ended)
        raise Stopped(self._death(how))

    async def _unanswered(self, error: Exception) -> Failure:
        """A request to the server failed: it is dead, or it hangs and is ended."""
        server = self._server
        await asyncio.wait({server.ended}, timeout=FAREWELL)
        if server.alive and await server.healthy(SIGN_OF_LIFE):
            return failures.cut_off(f"its server did not answer a request ({type(error).__name__} {error})")
        if server.alive:
            await server.stop(0)
            return failures.hangs("its server", SIGN_OF_LIFE)
        return self._death(await server.ended)

    def _death(self, how: str) -> Failure:
        return failures.died("its server", f"died in the middle of the turn ({how})", self._server.last_words)

    # -- events ----------------------------------------------------------------------------------

    def _take(self, event: Mapping[str, Any]) -> None:
        kind, told = event.get("type"), event.get("properties")
        told = told if isinstance(told, Mapping) else {}
        if kind == "server.connected":
            self._connected.set()
        elif kind == "session.created":
            info = told.get("info") or {}
            if info.get("parentID") in self._family:
                self._family.add(str(info.get("id")))
        elif self._concerns(told):
            self._happened(str(kind), told)

    def _concerns(self, told: Mapping[str, Any]) -> bool:
        part, info = told.get("part") or {}, told.get("info") or {}
        return (told.get("sessionID") or part.get("sessionID") or info.get("sessionID")) in self._family

    def _happened(self, kind: str, told: Mapping[str, Any]) -> None:
        main = self._session in (
            told.get("sessionID"),
            (told.get("part") or {}).get("sessionID"),
            (told.get("info") or {}).get("sessionID"),
        )
        assert self._desk is not None
        match kind:
            case "message.updated" if main:
                info = told.get("info") or {}
                if self._sent and info.get("id") == self._sent:
                    self._sent = ""
                    self._reporting = asyncio.create_task(self._host.heard(self._told, self._request.opening))
                self._reading.message(info)
                if self._overflows and info.get("finish") and not info.get("error") and not info.get("summary"):
                    self._error = None  # it shortened the conversation, and the model has answered since
            case "message.part.updated":
                part = told.get("part") or {}
                self._desk.saw(part)
                self._reading.part(part, main=main)
                self._count_turns()
            case "message.part.delta" if main:
                self._reading.delta(
                    str(told.get("messageID")), str(told.get("partID")), str(told.get("field")), str(told.get("delta"))
                )
            case "permission.asked":
                self._desk.asked(told)
            case "question.asked":
                self._desk.question(told)
            case "session.error" if main:
                self._failed(told.get("error") or {"name": "UnknownError"})
            case "session.status" if main:
                self._status(told.get("status") or {})
            case "session.compacted" if main:
                self._host.summarised(
                    by="runtime",
                    tokens_before=self._reading.prompt or None,
                    tokens_after=None,
                    text=self._reading.summary_text,
                    usage=self._reading.summary_usage,
                )
            case "session.idle" if main and not self._prompted:
                self._rested.set()
            case "session.idle" if main:
                self._at_rest = True
                self._idle.set()

    def _failed(self, error: Mapping[str, Any]) -> None:
        self._error = error
        self._overflows += error.get("name") == "ContextOverflowError"
        if self._overflows >= failures.MOST_OVERFLOWS:
            self._stopped = failures.of_error(error, self._now())
            self._idle.set()

    def _status(self, status: Mapping[str, Any]) -> None:
        if status.get("type") != "retry":
            return
        attempt, message = (
            int(status.get("attempt") or 1),
            failures.one_line(status.get("message") or "no reason given"),
        )
        next_at = float(status["next"]) / 1000 if isinstance(status.get("next"), int | float) else None
        wait = (next_at or 0.0) - self._now()
        if wait > LONG_WAIT or attempt > self._retries:
            self._stopped = failures.of_retries(attempt, message, next_at, self._now())
            self._idle.set()
        else:
            self._host.note(f"OpenCode retries in {max(wait, 0):.0f} s (attempt {attempt}): {message}", waits=True)

    def _count_turns(self) -> None:
        limit = self._request.max_turns
        if limit is None or self._reading.data:
            return
        if self._reading.turns >= limit and self._reading.finish == "tool-calls":
            self._stopped = failures.too_many_turns(limit)
            # At once, before anything else is cleaned up: OpenCode asks the model again within milliseconds. A plugin
            # (`chat.params`) could refuse that call, but OpenCode with a plugin waits for npm whenever it starts.
            self._aborting = self._aborting or asyncio.create_task(self._abort())
            self._idle.set()

    # -- the end ---------------------------------------------------------------------------------

    async def _clean_up(self) -> None:
        """Leave nothing of this session running."""
        if self._aborting is not None:
            await self._aborting
        if self._tools is not None:
            await self._tools.close(answered=self._reading.has_answered)
        if self._prompted and not self._at_rest and self._server.alive:
            await self._abort()
        await self._server.clear(self._directory)

    async def _abort(self) -> None:
        """Abort the session, and see that it is idle. A server that cannot do that is ended."""
        import httpx2

        # Others lose their turns with the server, so it gets more time while it has any.
        patience = ABORTING if self._server.users <= 1 else SIGN_OF_LIFE
        try:
            async with asyncio.timeout(patience):
                await self._server.call("POST", f"/session/{self._session}/abort", directory=self._directory)
                while True:
                    answer = await self._server.call("GET", "/session/status", directory=self._directory)
                    status = answered(answer).get(self._session or "")
                    if not isinstance(status, Mapping) or status.get("type") == "idle":
                        self._at_rest = True
                        return
                    await asyncio.sleep(0.01)
        except (TimeoutError, httpx2.HTTPError, Stopped):
            await self._server.stop(0)

    def _result(self, lost: bool) -> AgentResult:
        failure = None if self._interrupted else self._stopped or self._judged()
        adjustments = [*self._adjustments, *(self._desk.adjustments if self._desk else ())]
        adjustments += self._tools.adjustments if self._tools is not None else ()
        told = {"contract": "serve", "version": self._server.version, "directory": self._directory}
        return self._reading.result(
            self._request,
            failure,
            session=self._session,
            interrupted=self._interrupted,
            lost=lost,
            adjustments=adjustments,
            metadata={**told, **({"model": self._reading.model} if self._reading.model else {})},
        )

    def _judged(self) -> Failure | None:
        """Return the failure of the session's own end, or None."""
        if self._error is not None:
            return failures.of_error(self._error, self._now())
        return failures.of_finish(self._reading, f"finish {self._reading.finish or 'unknown'!r}")


def _mark(message: str) -> str:
    """The end of the id that a person's message has in the session, by which it is found again after a crash."""
    return hashlib.sha256(f"windlass message {message}".encode()).hexdigest()[:14]


def _message_id(message: str, now: float) -> str:
    """An id as OpenCode makes them: it sorts messages by their time, in units of 1/4096 of a millisecond."""
    return f"msg_{int(now * 1000) * 4096 % 2**48:012x}{_mark(message)}"


def _file_part(attachment: PromptAttachment) -> dict[str, str]:
    url = f"data:{attachment.media_type};base64,{base64.b64encode(attachment.data).decode()}"
    return {"type": "file", "mime": attachment.media_type, "filename": attachment.path, "url": url}


class Model(NamedTuple):
    provider: str
    model: str

    @property
    def name(self) -> str:
        return f"{self.provider}/{self.model}"


async def find_model(server: OpenCodeServer, directory: str, asked: str) -> Model:
    """The model of that name; a name without a provider is looked for among the providers that are set up."""
    provider, slash, model = asked.partition("/")
    wanted = Model(provider, model)
    answer = await server.call("GET", "/config/providers", directory=directory)
    if answer.status_code != 200 and slash:
        return wanted
    providers = (answer.json().get("providers") or []) if answer.status_code == 200 else []
    known = [Model(str(one.get("id")), str(name)) for one in providers for name in one.get("models") or ()]
    found = [one for one in known if (one == wanted if slash else one.model == asked)]
    if found:
        return found[0]
    some = ", ".join(one.name for one in known[:5]) or f"none: {LOGIN}"
    advice = (f"models that are set up: {some}", "opencode models lists them all")
    message = f"OpenCode has no model {asked!r} here"
    raise Stopped(failure(TurnEnding.NO_MODEL, message, runtime=OPEN_CODE.name, advice=advice))
