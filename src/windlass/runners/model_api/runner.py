"""`ModelApiRunner`: the methods of the port, and one run of it.

It falls back to nothing, and every failure of it says so by `elsewhere=False` (A7).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from functools import cached_property
from typing import Any

from windlass.errors import Category, Failure, classify
from windlass.ports import (
    AgentRequest,
    AgentResult,
    Amount,
    Health,
    Host,
    Media,
    Runner,
    RunnerHooks,
    SessionPlace,
    ToolSpec,
    Usage,
)
from windlass.prices import Prices
from windlass.redact import Redactor
from windlass.runners import RunnerDeps, import_in_background
from windlass.runners.model_api.conversation import FILE, Conversation, Lost, Unwritable
from windlass.runners.model_api.loop import Loop
from windlass.runners.model_api.rebuild import completed, rebuilt
from windlass.runners.model_api.target import ModelTarget, choose
from windlass.runners.model_api.window import ContextWindow, SummaryModel
from windlass.runners.model_api.wire import MOST_OUTPUT, UsageTally, clients, installed, load, open_model
from windlass.runtimes import CLI

__all__ = ["ModelApiRunner"]

SILENCE = 300.0
"""Seconds without a single byte from the model's server before a request is given up."""


class ModelApiRunner(RunnerHooks, Runner):
    name = CLI.name
    takes_messages = True

    def __init__(self, deps: RunnerDeps, *, silence: float = SILENCE) -> None:
        self._env, self._now, self._prices, self._silence = deps.env, deps.now, deps.prices, silence
        self._default, self._base_url = deps.settings.model, deps.settings.base_url
        self._running: dict[str, _ModelRun] = {}

    async def available(self) -> Health:
        """Check that a model can be called in principle: the clients are installed, and a key or a server is set.

        Nothing is called and nothing heavy is imported: a call costs money, and the import seconds.
        """
        return self.installed()

    def installed(self) -> Health:
        found = self._target(None)
        if isinstance(found, Failure):
            return Health(False, found.message, "; ".join(found.advice))
        if not found.model:
            return Health(True, str(found), "name a model: `model` in the plan, or of the run")
        return Health(True, str(found))

    def prepare(self, model: str | None) -> None:
        if isinstance(target := self._target(model), ModelTarget):
            import_in_background(*clients(target.provider))

    def call_cost(self, model: str | None, prompt: int) -> Amount:
        target = self._target(model)
        if isinstance(target, Failure):
            return Amount(0.0, 0)  # it will not come to a call
        return self._prices.call(target.priced_as, prompt, MOST_OUTPUT)

    def media(self, model: str | None) -> Media:
        """Attach them for the providers' own models; a model on another server may refuse a request that has some."""
        target = self._target(model)
        return "attached" if isinstance(target, ModelTarget) and target.kind != "openai-compatible" else ""

    def window(self, model: str | None) -> int | None:
        target = self._target(model)
        return self._prices.window(target.priced_as) if isinstance(target, ModelTarget) else None

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        run = _ModelRun(request, host, self._now)
        target = self._target(request.model)
        if isinstance(target, ModelTarget) and not target.model:
            target = Failure(
                Category.CONFIGURATION,
                f"{CLI.name}: no model was named, and {target.host} has no usual one",
                advice=("name one of its models: `model` in the plan, or of the run",),
            )
        if isinstance(target, Failure):
            return run.result(target)
        self._running[request.id] = run
        try:
            summariser = self._summariser(request, target)
            return await run.until_done(run.work(target, self._prices, self._silence, summariser, self._redactor.text))
        finally:
            if self._running.get(request.id) is run:
                del self._running[request.id]

    def account(self, model: str | None, env: Mapping[str, str]) -> str:
        found = choose(model, default=self._default, env=self._env, base_url=self._base_url)
        return found.account if isinstance(found, ModelTarget) else ""

    async def bring_session(self, place: SessionPlace, *, current: bool) -> bool:
        if not current:  # the journal has more: it is rebuilt from there
            await asyncio.to_thread((place.scratch / FILE).unlink, missing_ok=True)
        return True

    async def interrupt(self, request: str) -> None:
        if (run := self._running.get(request)) is not None:
            run.interrupt()

    async def close(self) -> None:
        """Nothing is kept warm: every run closes its own connections."""

    def _summariser(self, request: AgentRequest, own: ModelTarget) -> SummaryModel:
        """The model that summarises: the one that the settings name, if it can be called, else the step's own."""
        named = self._target(request.context.model) if request.context.model else own
        target = named if isinstance(named, ModelTarget) and named.model else own
        window = self._prices.window(target.priced_as) if target is not own else request.context.window
        return SummaryModel(target, window, lambda: open_model(target, self._silence, _unseen))

    @cached_property
    def _redactor(self) -> Redactor:
        return Redactor(self._env)

    def _target(self, model: str | None) -> ModelTarget | Failure:
        found = choose(model, default=self._default, env=self._env, base_url=self._base_url)
        if isinstance(found, ModelTarget) and not installed(found.provider):
            return Failure(
                Category.CONFIGURATION, f"the client for {found.provider} is not installed", advice=(CLI.install,)
            )
        return found


def _unseen(body: bytes) -> None:
    """A request for a summary has no settings of the step's to look at."""


class _ModelRun:
    """One run, with its results so far whenever it ends."""

    def __init__(self, request: AgentRequest, host: Host, now: Callable[[], float]) -> None:
        self._request, self._host, self._now = request, host, now
        self._began = now()
        self._task: asyncio.Task[AgentResult] | None = None
        self._interrupted = False
        self._loop: Loop | None = None
        self._session: str | None = None
        self._facts: dict[str, Any] = {}

    def interrupt(self) -> None:
        self._interrupted = True
        if self._task is not None:
            self._task.cancel()

    async def until_done(self, work: Coroutine[Any, Any, AgentResult]) -> AgentResult:
        """Run the work in a task of its own, so that an interrupt ends it without cancelling the caller."""
        self._task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({self._task})
        except asyncio.CancelledError:
            self._task.cancel()
            await asyncio.wait({self._task})
            raise
        if self._task.cancelled() and self._interrupted:
            return self.result(None, interrupted=True)
        return self._task.result()

    async def work(
        self,
        target: ModelTarget,
        prices: Prices,
        silence: float,
        summariser: SummaryModel,
        redact: Callable[[str], str],
    ) -> AgentResult:
        self._facts = {"model": target.model, "provider": target.kind, "endpoint": target.host}
        await load(target.provider)
        request = self._request
        try:
            conversation = await self._conversation()
        except Lost as lost:
            self._facts["session_lost"] = True
            return self.result(
                Failure(
                    Category.TRANSIENT,
                    f"{CLI.name}: the conversation to go on with is lost: {lost}",
                    advice=("the next attempt begins a new one",),
                )
            )
        except Unwritable as error:
            return self.result(classify(error.reason).located(str(request.scratch)))
        self._session = conversation.session
        self._host.session(conversation.session)
        tally = UsageTally(prices, target.model, target.priced_as)

        def window(system: str, tools: list[ToolSpec]) -> ContextWindow:
            return ContextWindow(
                request,
                self._host,
                conversation,
                system=system,
                tools=tools,
                window=request.context.window or prices.window(target.priced_as),
                summariser=summariser,
                tally=tally,
                now=self._now,
                redact=redact,
            )

        self._loop = Loop(request, self._host, conversation, target=target, tally=tally, now=self._now, window=window)
        async with open_model(target, silence, self._loop.sent) as model:
            failure = await self._loop.run(model)
        return self.result(failure)

    async def _conversation(self) -> Conversation:
        """The conversation to go on with, a copy of another execution's, one rebuilt from the journal, or a new one."""
        request = self._request
        if request.session is None:
            return Conversation.new(request.scratch)
        folder = request.inherited or request.scratch
        history = await self._host.history()
        try:
            found = await asyncio.to_thread(Conversation.load, folder, request.session)
        except Lost as lost:
            remade = rebuilt(request.scratch, request.session, history)
            if remade is None:
                raise
            found = remade
            self._host.note(f"{lost}; {len(found.messages)} messages were rebuilt from the journal")
        else:
            had = len(found.messages)
            if (longer := completed(found, request.scratch, history)) is not None:
                found = longer
                self._host.note(
                    f"{folder / FILE} lost its end; it had {had} messages, with the journal {len(found.messages)}"
                )
        if request.inherited is not None:
            found = found.copy(request.scratch)
        await found.keep()
        return found

    def result(self, failure: Failure | None, *, interrupted: bool = False) -> AgentResult:
        loop, facts = self._loop, dict(self._facts)
        if loop is not None:
            facts["turns"] = loop.turns
            if loop.out_of_budget:
                facts["budget"] = True
        return AgentResult(
            output=loop.output if loop else "",
            failure=failure,
            usage=loop.tally.usage if loop else Usage(usd=0.0, source="prices"),
            session=self._session,
            duration=max(0.0, self._now() - self._began),
            interrupted=interrupted,
            adjustments=tuple(loop.adjustments) if loop else (),
            metadata=facts,
        )
