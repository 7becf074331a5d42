"""A call that starts an execution or looks at one, from its beginning to its answer, whichever tool it is of.

A request for approval is passed on to the person at the client, in both eras of the protocol. Up to 2025-11-25 the
server asks in the middle of the call. From 2026-07-28 on the call ends with what is asked, and the client makes it
again with the answer; the state that it brings along is sealed by the library. A client that cannot ask, or a person
who does not answer, leaves the question open: nothing is ever allowed by default.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeAlias

import anyio
from mcp.server.elicitation import AcceptedElicitation, render_elicitation_schema
from mcp.server.mcpserver import Context
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult
from mcp_types.version import is_version_at_least
from pydantic import Field, ValidationError

from windlass.core import events as ev
from windlass.core.agent_events import token_change
from windlass.core.events import OnOverrun
from windlass.core.state import State
from windlass.engine.engine import Engine
from windlass.engine.plans import LoadedPlan
from windlass.errors import UsageError
from windlass.plan.load import bind_inputs
from windlass.server.answer_redactor import AnswerRedactor
from windlass.server.mcp.answers import ProgressReporter, client_name
from windlass.server.mcp.driving import Driving
from windlass.server.mcp.look import ObservedExecution, following, look, questions, view
from windlass.server.mcp.models import Answered, ExecutionView, QuestionView
from windlass.visible import visible

__all__ = [
    "LONGEST_WAIT",
    "CallResult",
    "Engines",
    "ExecutionCalls",
    "QuestionRelay",
    "Until",
    "Wait",
    "Workdir",
    "closed",
    "said_by",
    "watch",
]

Until: TypeAlias = Literal["end", "change"]
LONGEST_WAIT = 3600.0
HEARTBEAT = 15.0
"""Seconds between signs of life."""


async def watch(
    engine: Engine,
    execution: str,
    wait_s: float,
    until: Until,
    reporter: ProgressReporter,
    stopping: asyncio.Event | None = None,
) -> ObservedExecution:
    """Wait until it ends, pauses or asks something, or the time is over; its state then.

    When the server is `stopping`, the time is over at once.
    """
    seen = await look(engine, execution)
    state = seen.state
    if wait_s <= 0 or state.status.finished or state.status == "paused" or (until == "end" and state.questions):
        return seen  # nothing more happens by itself
    before, asked = _standing(state), set(state.questions)
    await reporter.progress(state, _headline(state))
    beating = asyncio.get_running_loop().create_task(_beat(state, reporter))
    try:
        async with _time(wait_s, stopping), following(engine, state.id, state.seq) as entries:
            async for entry in entries:
                warning = seen.take(entry.event)
                if warning is not None:
                    await reporter.warn(warning)
                message = _told(entry.event)
                if message is not None:
                    await reporter.progress(state, message)
                changed = until == "change" and _standing(state) != before
                if changed or state.status.finished or state.questions.keys() - asked:
                    break
    except TimeoutError:
        return await look(engine, execution)
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
    return seen


async def _beat(state: State, reporter: ProgressReporter) -> None:
    """Say now and then that it goes on: clients give up a call of which they hear nothing for a minute."""
    while True:
        await asyncio.sleep(HEARTBEAT)
        await reporter.progress(state, _headline(state))


async def closed(engine: Engine, execution: str, step: str) -> None:
    """Wait until a question of that step is no longer open: answered, expired, or stopped."""
    seen = await look(engine, execution)
    async with following(engine, execution, seen.state.seq) as entries:
        async for entry in entries:
            seen.take(entry.event)
            if step not in seen.state.questions:
                return


@asynccontextmanager
async def _time(wait_s: float, stopping: asyncio.Event | None) -> AsyncIterator[None]:
    """Limit a block to so many seconds, or until the server stops; then TimeoutError."""
    async with asyncio.timeout(wait_s) as limit:
        if stopping is None:
            yield
            return
        loop = asyncio.get_running_loop()
        stopped = loop.create_task(stopping.wait())
        stopped.add_done_callback(lambda ended: None if ended.cancelled() else limit.reschedule(loop.time()))
        try:
            yield
        finally:
            stopped.cancel()


def _standing(state: State) -> tuple[object, ...]:
    """The statuses whose change counts as a change."""
    return (state.status, *((step.id, step.status) for step in state.steps.values()))


def _headline(state: State) -> str:
    running = ", ".join(step.id for step in list(state.active.values())[:3])
    return f"{state.plan.name}: {f'at {running}' if running else state.status}"


def _told(event: ev.Event) -> str | None:
    """One line for people, of events that they would want to see go by."""
    match event:
        case ev.AttemptStarted():
            again = f" (attempt {event.attempt})" if event.attempt > 1 else ""
            return f"{event.step}: {event.tool}{again}"
        case ev.AttemptFinished() | ev.StepCompleted():
            return f"{event.step}: completed"
        case ev.AttemptFailed():
            return f"{event.step}: failed: {event.failure.message}"
        case ev.StepSkipped():
            return f"{event.step}: skipped: {event.because}"
        case ev.AgentActed():
            return f"{event.step}: {event.tool} {event.summary}"
        case ev.AgentSummarised():
            return f"{event.step}: conversation summarised, {token_change(event.tokens_before, event.tokens_after)}"
        case ev.ApprovalAsked():
            return f"{event.step}: asks to run {event.tool}"
        case ev.StepWaiting():
            return f"{event.step}: {event.question or f'waits for {event.reason}'}"
        case ev.ExecutionPaused():
            return f"paused: {event.reason}"
        case ev.ExecutionFinished():
            return f"{event.status}"
        case ev.BudgetWarned() | ev.BudgetWaited() if event.message:
            return f"{event.step}: {event.message}"
        case _:
            return None


Engines: TypeAlias = Callable[[bool], Awaitable[Engine]]
"""Gives the engine. True: something is to be started, so a home is made if there is none."""
CallResult: TypeAlias = ExecutionView | InputRequiredResult
OnCancel: TypeAlias = Literal["go_on", "interrupt", "cancel"]

LONGEST_NAME = 60

Wait = Annotated[
    float,
    Field(ge=0, le=LONGEST_WAIT, description="Seconds to wait, with progress, until it ends, stops or asks; 0: don't."),
]
Workdir = Annotated[str | None, Field(description="Working directory of the steps; the server's own if unset.")]


@dataclass(frozen=True, slots=True)
class ExecutionCalls:
    """Handles the calls of one server's clients."""

    engines: Engines
    driving: Driving
    redactor: AnswerRedactor
    stopping: asyncio.Event | None = None
    """Set when the server stops: no call waits any longer."""

    async def begin(
        self,
        ctx: Context[Any, Any],
        sourced: Callable[[Engine, str | None], Awaitable[LoadedPlan]],
        inputs: Mapping[str, Any],
        workdir: str | None,
        wait_s: float,
        on_cancel: OnCancel = "go_on",
        on_overrun: OnOverrun = "proceed",
    ) -> CallResult:
        """Start what `sourced` gives for a working directory, and wait for it."""
        engine, relay = await self.engines(True), QuestionRelay.of(ctx)
        if relay.execution is not None:  # the client makes the call again, with a person's answer
            return await self.see(engine, relay.execution, relay, wait_s)
        workdir = os.path.expanduser(workdir) if workdir else None
        plan = await sourced(engine, workdir)
        with anyio.CancelScope(shield=True):  # a cancelled call leaves no execution that nobody drives
            execution = await self.driving.start(engine, plan, bind_inputs(plan.plan, inputs), workdir, on_overrun)
        try:
            return await self.see(engine, execution, relay, wait_s, notes=plan.warnings)
        except anyio.get_cancelled_exc_class():
            if on_cancel != "go_on":
                with anyio.CancelScope(shield=True):
                    stop = engine.cancel if on_cancel == "cancel" else engine.interrupt
                    await stop(execution, by=said_by(ctx), within=0.0)
            raise

    async def resume(self, engine: Engine, execution: str, *, keep_plan: bool) -> None:
        with anyio.CancelScope(shield=True):
            await self.driving.resume(engine, execution, keep_plan=keep_plan)

    async def now(self, engine: Engine, execution: str) -> ExecutionView:
        return await view(engine, await look(engine, execution), self.redactor)

    async def see(
        self,
        engine: Engine,
        execution: str,
        relay: QuestionRelay,
        wait_s: float,
        until: Until = "end",
        step: str | None = None,
        notes: Sequence[str] = (),
    ) -> CallResult:
        """Wait for it, passing its questions on to whoever sits at the client; the time they take does not count."""
        reporter, late = ProgressReporter(relay.ctx, self.redactor), list(notes)
        reply: QuestionReply | InputRequiredResult | None = relay.take()
        while True:
            if isinstance(reply, QuestionReply) and reply.answer is not None:
                late += await _pass_on(engine, relay.execution or execution, reply, said_by(relay.ctx))
            seen = await watch(engine, execution, wait_s, until, reporter, self.stopping)
            question = relay.open(questions(seen.state, self.redactor)) if wait_s > 0 else None
            if question is None:
                seen.warnings += late
                return await view(engine, seen, self.redactor, step=step)
            reply = await _ask(engine, seen.state.id, relay, question, self.redactor)
            if isinstance(reply, InputRequiredResult):
                return reply


async def _ask(
    engine: Engine, execution: str, relay: QuestionRelay, question: QuestionView, redactor: AnswerRedactor
) -> QuestionReply | InputRequiredResult | None:
    """The person's answer; None when somebody else was quicker, and the question is taken off their screen."""
    loop = asyncio.get_running_loop()
    asking = loop.create_task(relay.ask(execution, question, _message(execution, question, redactor)))
    gone = loop.create_task(closed(engine, execution, question.step))
    try:
        await asyncio.wait({asking, gone}, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else None
    finally:
        for task in (asking, gone):
            task.cancel()
        await asyncio.gather(asking, gone, return_exceptions=True)


async def _pass_on(engine: Engine, execution: str, reply: QuestionReply, by: str) -> list[str]:
    """A person's answer; one that comes too late is a warning, for the call goes on."""
    answer = reply.answer
    assert answer is not None
    try:
        await engine.approve(execution, reply.step, allow=answer.allow, by=by, note=answer.note, digest=reply.digest)
    except UsageError as error:
        return [f"the answer for step {reply.step} came too late: {error.message}"]
    return []


def said_by(ctx: Context[Any, Any]) -> str:
    """The client's name for itself, for the record, made safe for terminals."""
    name = "".join(sign for sign in client_name(ctx) if sign.isprintable())[:LONGEST_NAME]
    return f"mcp:{name or 'unnamed'}"


ASKS_BY_RESULT = "2026-07-28"
KEY = "approval"


@dataclass(frozen=True, slots=True)
class QuestionReply:
    """Reply to a question; without an answer, the question stays open."""

    step: str
    digest: str
    answer: Answered | None


@dataclass(slots=True)
class QuestionRelay:
    """One call's questions. `execution` is what an earlier round of the same call was about."""

    ctx: Context[Any, Any]
    execution: str | None = None
    asked: list[str] = field(default_factory=list)
    """Digests of what was asked in this call: nothing is asked twice."""
    pending: QuestionReply | None = None
    """Reply that the client brings along from the round before."""

    @classmethod
    def of(cls, ctx: Context[Any, Any]) -> QuestionRelay:
        if ctx.request_state is None:
            return cls(ctx)
        kept = json.loads(ctx.request_state)
        said = (ctx.input_responses or {}).get(KEY)
        answer = _answered(said) if isinstance(said, ElicitResult) else None
        return cls(ctx, kept["execution"], kept["asked"], QuestionReply(kept["step"], kept["digest"], answer))

    def take(self) -> QuestionReply | None:
        reply, self.pending = self.pending, None
        return reply

    def open(self, questions: list[QuestionView]) -> QuestionView | None:
        """The next one to ask, if there is anybody to ask."""
        if not can_ask(self.ctx):
            return None
        return next((q for q in questions if q.kind == "approval" and q.digest not in self.asked), None)

    async def ask(self, execution: str, question: QuestionView, message: str) -> QuestionReply | InputRequiredResult:
        """The answer, or what the call ends with so that the client gets it."""
        digest = question.digest or ""
        self.asked.append(digest)
        if not is_version_at_least(self.ctx.session.protocol_version, ASKS_BY_RESULT):
            try:
                result = await self.ctx.elicit(message, Answered)
            except ValueError:
                return QuestionReply(question.step, digest, None)  # what came is no answer to what was asked
            answer = result.data if isinstance(result, AcceptedElicitation) else None
            return QuestionReply(question.step, digest, answer)
        params = ElicitRequestFormParams(message=message, requested_schema=render_elicitation_schema(Answered))
        kept = {"execution": execution, "asked": self.asked, "step": question.step, "digest": digest}
        return InputRequiredResult(input_requests={KEY: ElicitRequest(params=params)}, request_state=json.dumps(kept))


def can_ask(ctx: Context[Any, Any]) -> bool:
    """Tell whether the client can show a person a form. An empty capability means forms."""
    capabilities = ctx.client_capabilities
    asks = capabilities.elicitation if capabilities is not None else None
    return asks is not None and (asks.form is not None or asks.url is None)


def _answered(said: ElicitResult) -> Answered | None:
    if said.action != "accept" or said.content is None:
        return None
    try:
        return Answered.model_validate(said.content)
    except ValidationError:
        return None


def _message(execution: str, question: QuestionView, redactor: AnswerRedactor) -> str:
    again = f"\n{question.text}" if "; " in question.text else ""
    if question.hidden:
        again += f"\nNot shown, because they are secrets: {', '.join(question.hidden)}"
    exactly = json.dumps(redactor.clean(question.input), indent=2, ensure_ascii=False)
    head = f"Execution {execution}, step {question.step}: allow {question.tool} with exactly this?"
    return visible(f"{head}\n{exactly}{again}")
