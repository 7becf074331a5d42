"""A call that starts an execution or looks at one, from its beginning to its answer, whichever tool it is of."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeAlias

import anyio
from mcp.server.mcpserver import Context
from mcp_types import InputRequiredResult
from pydantic import Field

from windlass.engine.engine import Engine
from windlass.engine.plans import LoadedPlan
from windlass.errors import UsageError
from windlass.plan.load import bind_inputs
from windlass.server.mcp.asking import Desk, Reply
from windlass.server.mcp.clean import cleaned
from windlass.server.mcp.driving import Driving
from windlass.server.mcp.look import look, questions, view
from windlass.server.mcp.models import ExecutionView, QuestionView
from windlass.server.mcp.telling import Teller, client_name
from windlass.server.mcp.waiting import LONGEST_WAIT, Until, closed, taken_up, watch

__all__ = ["Attending", "Engines", "Seen", "Wait", "Workdir", "now", "said_by"]

Engines: TypeAlias = Callable[[bool], Awaitable[Engine]]
"""Gives the engine. True: something is to be started, so a home is made if there is none."""
Seen: TypeAlias = ExecutionView | InputRequiredResult
OnCancel: TypeAlias = Literal["go_on", "interrupt", "cancel"]

LONGEST_NAME = 60

Wait = Annotated[
    float,
    Field(ge=0, le=LONGEST_WAIT, description="Seconds to wait, with progress, until it ends, stops or asks; 0: don't."),
]
Workdir = Annotated[str | None, Field(description="Where steps work; the server's folder if unset.")]


@dataclass(frozen=True, slots=True)
class Attending:
    """How the calls of one server's clients are attended to."""

    engines: Engines
    driving: Driving
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
    ) -> Seen:
        """Start what `sourced` gives for a working directory, and wait for it."""
        engine, desk = await self.engines(True), Desk.of(ctx)
        if desk.execution is not None:  # the client makes the call again, with a person's answer
            return await self.see(engine, desk.execution, desk, wait_s)
        workdir = os.path.expanduser(workdir) if workdir else None
        plan = await sourced(engine, workdir)
        execution = await self.driving.start(engine, plan, bind_inputs(plan.plan, inputs), workdir)
        try:
            return await self.see(engine, execution, desk, wait_s, notes=plan.warnings)
        except anyio.get_cancelled_exc_class():
            if on_cancel != "go_on":
                with anyio.CancelScope(shield=True):
                    stop = engine.cancel if on_cancel == "cancel" else engine.interrupt
                    await stop(execution, by=said_by(ctx), within=0.0)
            raise

    async def see(
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
                late += await _pass_on(engine, desk.execution or execution, reply, said_by(desk.ctx))
            seen = await watch(engine, execution, wait_s, until, teller, self.stopping)
            question = desk.open(questions(seen.state)) if wait_s > 0 else None
            if question is None:
                seen.warnings += late
                return cleaned(view(seen, engine.driven(seen.state), step=step))
            reply = await _ask(engine, seen.state.id, desk, question)
            if isinstance(reply, InputRequiredResult):
                return reply


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


async def now(engine: Engine, execution: str) -> ExecutionView:
    seen = await look(engine, execution)
    return cleaned(view(seen, engine.driven(seen.state)))


def said_by(ctx: Context[Any, Any]) -> str:
    """Who asked, for the record: the client, as it names itself; what it says is shown on terminals."""
    name = "".join(sign for sign in client_name(ctx) if sign.isprintable())[:LONGEST_NAME]
    return f"mcp:{name or 'unnamed'}"
