"""The tools. Each translates a call into a word to the engine, and answers with where the execution then stands."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import anyio
from mcp.server.mcpserver import Context
from mcp_types import InputRequiredResult
from pydantic import Field

from windlass.core.state import State
from windlass.engine.engine import Engine
from windlass.engine.spending import By
from windlass.errors import UsageError
from windlass.plan.load import bind_inputs
from windlass.plan.strategies import Strategy
from windlass.server.mcp.asking import Desk, Reply
from windlass.server.mcp.clean import cleaned
from windlass.server.mcp.driving import Driving
from windlass.server.mcp.look import look, questions, view
from windlass.server.mcp.models import BudgetView, ExecutionView, QuestionView
from windlass.server.mcp.money import budget_view
from windlass.server.mcp.request import Asked, runtime_for
from windlass.server.mcp.telling import Teller, client_name, told
from windlass.server.mcp.waiting import LONGEST_WAIT, Until, closed, taken_up, watch

__all__ = ["Engines", "Tools"]

Engines: TypeAlias = Callable[[bool], Awaitable[Engine]]
"""Gives the engine. True: something is to be started, so a home is made if there is none."""

LONGEST_NAME = 60

Id = Annotated[str, Field(description="The execution's id, or a unique beginning of it.")]
Wait = Annotated[
    float,
    Field(ge=0, le=LONGEST_WAIT, description="Seconds to wait, with progress, until it ends, stops or asks; 0: don't."),
]
Usd = Annotated[float | None, Field(ge=0, description="What it may spend in all, in dollars.")]
Tokens = Annotated[int | None, Field(ge=0, description="The same in tokens read and written.")]
Seen: TypeAlias = ExecutionView | InputRequiredResult


class Tools:
    """What an MCP client can ask of one home."""

    def __init__(self, engines: Engines, driving: Driving, stopping: asyncio.Event | None = None) -> None:
        self._engines = engines
        self._driving = driving
        self._stopping = stopping
        """Set when the server stops: no call waits any longer."""

    @told
    async def engine_execute(
        self,
        ctx: Context[Any, Any],
        task: Annotated[
            str | list[str | dict[str, Any]] | None,
            Field(description="What agents are to do: a text, or a list of tasks (texts, or {id, task, depends_on})."),
        ] = None,
        plan: Annotated[
            dict[str, Any] | str | None, Field(description="Instead: a whole plan, as an object or as YAML or JSON.")
        ] = None,
        file: Annotated[str | None, Field(description="Instead: a plan file, relative to workdir.")] = None,
        strategy: Annotated[
            Strategy | None, Field(description="How tasks become a plan; by the tasks if unset.")
        ] = None,
        role: Annotated[str | None, Field(description="The agent's role: developer, reviewer, ...")] = None,
        chain: Annotated[list[str] | None, Field(description="The roles of strategy multi, in order.")] = None,
        runtime: Annotated[
            str | None, Field(description="claude-code, open-code or cli; if unset, the caller's own if healthy.")
        ] = None,
        model: Annotated[str | None, Field(description="The agents' model, in the runtime's own words.")] = None,
        budget: Usd = None,
        budget_tokens: Tokens = None,
        inputs: Annotated[dict[str, Any] | None, Field(description="Values for the plan's inputs.")] = None,
        workdir: Annotated[str | None, Field(description="Where steps work; the server's folder if unset.")] = None,
        wait_s: Wait = 0.0,
        on_cancel: Annotated[
            Literal["go_on", "interrupt", "cancel"],
            Field(description="What becomes of the execution if this call is cancelled while it waits."),
        ] = "go_on",
    ) -> Seen:
        """Start a durable execution: a task for agents, or a plan of steps. Gives its id at once, or waits for it.

        It goes on when this call or the client ends. At a limit of the budget it goes on, too, with a warning. Follow
        it with engine_status; answer what it asks with engine_approve.
        """
        engine, desk = await self._engines(True), Desk.of(ctx)
        if desk.execution is not None:  # the client makes the call again, with a person's answer
            return await self._see(engine, desk.execution, desk, wait_s)
        workdir = os.path.expanduser(workdir) if workdir else None
        asked = Asked(plan, file, task, strategy, role, chain, runtime, model, budget, budget_tokens, workdir)
        sourced = await runtime_for(engine, asked.sourced(engine), client_name(ctx))
        given = bind_inputs(sourced.plan, inputs or {})
        execution = await self._driving.start(engine, sourced, given, workdir)
        try:
            return await self._see(engine, execution, desk, wait_s, notes=sourced.warnings)
        except anyio.get_cancelled_exc_class():
            if on_cancel != "go_on":
                with anyio.CancelScope(shield=True):
                    stop = engine.cancel if on_cancel == "cancel" else engine.interrupt
                    await stop(execution, by=_by(ctx), within=0.0)
            raise

    @told
    async def engine_status(
        self,
        ctx: Context[Any, Any],
        execution: Id,
        wait_s: Wait = 0.0,
        until: Annotated[
            Until, Field(description="Wait for its end (or a question), or for any step's change.")
        ] = "end",
        step: Annotated[str | None, Field(description="Show this step alone, with the whole of its output.")] = None,
    ) -> Seen:
        """Where an execution stands: steps, outputs, errors with advice, open questions, cost, warnings."""
        return await self._see(await self._engines(False), execution, Desk.of(ctx), wait_s, until, step)

    @told
    async def engine_budget(
        self, by: Annotated[By, Field(description="What spending is listed by; all but days: this month.")] = By.DAY
    ) -> BudgetView:
        """What may be spent, what was spent and set aside, and what is left, today and this month."""
        return await budget_view(await self._engines(False), by)

    @told
    async def engine_interrupt(
        self,
        ctx: Context[Any, Any],
        execution: Id,
        mode: Annotated[
            Literal["interrupt", "pause", "cancel"],
            Field(description="Stop now and stand still; let running steps finish first; or end it for good."),
        ] = "interrupt",
        wait_s: Annotated[float, Field(ge=0, le=LONGEST_WAIT, description="Seconds to wait for that.")] = 10.0,
    ) -> ExecutionView:
        """Stop an execution. Interrupted and paused ones can be resumed from exactly there."""
        engine, by = await self._engines(False), _by(ctx)
        stop = {"interrupt": engine.interrupt, "pause": engine.pause, "cancel": engine.cancel}[mode]
        state = await stop(execution, by=by, within=wait_s)
        return await _now(engine, state.id)

    @told
    async def engine_resume(
        self,
        ctx: Context[Any, Any],
        execution: Id,
        budget: Usd = None,
        budget_tokens: Tokens = None,
        decisions: Annotated[
            dict[str, Literal["again", "done", "fail"]] | None,
            Field(description="For steps whose outcome is unknown: run again, it took effect, or count as failed."),
        ] = None,
        keep_plan: Annotated[
            bool, Field(description="Go on with the plan as it was, though its file changed.")
        ] = False,
        wait_s: Wait = 0.0,
    ) -> Seen:
        """Go on with an execution that is paused, was interrupted, or was left behind by a dead process."""
        engine, desk = await self._engines(False), Desk.of(ctx)
        if desk.execution is not None:
            return await self._see(engine, desk.execution, desk, wait_s)
        state = await engine.state(execution)
        driven = engine.driven(state)
        more = _limits_before(state) if budget is not None or budget_tokens is not None else []
        if not driven and not keep_plan:
            await engine.check(state.id)
        elif driven and not (more or decisions):
            raise UsageError(f"execution {state.id} is running", advice=(f"engine_status(execution={state.id!r})",))
        for scope, waits in more:
            by = _by(ctx)
            await engine.allow_budget(state.id, usd=budget, tokens=budget_tokens, scope=scope, step=waits, by=by)
        for step, choice in (decisions or {}).items():
            await engine.settle(state.id, step, choice, by=_by(ctx))
        await taken_up(engine, state.id, state.seq, len(more) + len(decisions or {}))
        if not driven:
            await self._driving.resume(engine, state.id, keep_plan=keep_plan)
        return await self._see(engine, state.id, desk, wait_s)

    @told
    async def engine_approve(
        self,
        ctx: Context[Any, Any],
        execution: Id,
        step: Annotated[str, Field(description="The step that asks.")],
        allow: Annotated[bool, Field(description="What the person has decided.")],
        digest: Annotated[str, Field(description="The question's digest: the answer is for exactly that input.")],
        note: Annotated[str, Field(description="What the agent or the record should be told.")] = "",
    ) -> ExecutionView:
        """Answer a step's request for approval. Only a person may decide: show them the exact input first."""
        engine = await self._engines(False)
        state = await engine.state(execution)
        await engine.approve(state.id, step, allow=allow, by=_by(ctx), note=note, digest=digest)
        await taken_up(engine, state.id, state.seq)
        return await _now(engine, state.id)

    async def _see(
        self,
        engine: Engine,
        execution: str,
        desk: Desk,
        wait_s: float,
        until: Until = "end",
        step: str | None = None,
        notes: Sequence[str] = (),
    ) -> Seen:
        """Wait for it, passing its questions on to whoever sits at the client; the time they take does not count."""
        teller, late = Teller(desk.ctx), list(notes)
        reply: Reply | InputRequiredResult | None = desk.take()
        while True:
            if isinstance(reply, Reply) and reply.answer is not None:
                late += await _pass_on(engine, desk.execution or execution, reply, _by(desk.ctx))
            seen = await watch(engine, execution, wait_s, until, teller, self._stopping)
            question = desk.open(questions(seen.state)) if wait_s > 0 else None
            if question is None:
                seen.warnings += late
                return cleaned(view(seen, engine.driven(seen.state), step=step))
            reply = await _ask(engine, seen.state.id, desk, question)
            if isinstance(reply, InputRequiredResult):
                return reply


def _limits_before(state: State) -> list[tuple[str, str]]:
    """The limits that it stands before, by scope and step; without such, the execution's own."""
    waiting = [step for step in state.questions.values() if step.waiting_for == "budget"]
    return sorted({(step.scope, step.id if step.scope == "step" else "") for step in waiting}) or [("execution", "")]


async def _ask(
    engine: Engine, execution: str, desk: Desk, question: QuestionView
) -> Reply | InputRequiredResult | None:
    """The person's answer; None when somebody else was quicker, and the question is taken off their screen."""
    loop = asyncio.get_running_loop()
    asking = loop.create_task(desk.ask(execution, question))
    gone = loop.create_task(closed(engine, execution, question.step))
    try:
        await asyncio.wait({asking, gone}, return_when=asyncio.FIRST_COMPLETED)
        return asking.result() if asking.done() else None
    finally:
        for task in (asking, gone):
            task.cancel()
        await asyncio.gather(asking, gone, return_exceptions=True)


async def _pass_on(engine: Engine, execution: str, reply: Reply, by: str) -> list[str]:
    """A person's answer; one that comes too late is a warning, for the call goes on."""
    answer = reply.answer
    assert answer is not None
    state = await engine.state(execution)
    try:
        await engine.approve(execution, reply.step, allow=answer.allow, by=by, note=answer.note, digest=reply.digest)
    except UsageError as error:
        return [f"the answer for step {reply.step} came too late: {error.message}"]
    await taken_up(engine, execution, state.seq)
    return []


async def _now(engine: Engine, execution: str) -> ExecutionView:
    seen = await look(engine, execution)
    return cleaned(view(seen, engine.driven(seen.state)))


def _by(ctx: Context[Any, Any]) -> str:
    """Who asked, for the record: the client, as it names itself; what it says is shown on terminals."""
    name = "".join(sign for sign in client_name(ctx) if sign.isprintable())[:LONGEST_NAME]
    return f"mcp:{name or 'unnamed'}"
