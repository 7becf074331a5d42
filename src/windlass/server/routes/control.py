"""Control of an execution: pause, resume, cancel, fork, answers to its questions; retry and skip of a step (D10)."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from windlass.core import events as ev
from windlass.core.state import State
from windlass.core.transitions import ExecutionStatus
from windlass.engine.engine import Engine
from windlass.engine.run_request import RunRequest
from windlass.server import models
from windlass.server.idempotency import ticket_of
from windlass.server.problems import not_now
from windlass.server.routes.shared import BY, STARTED, Id, answer, problems, told
from windlass.server.service import Service

__all__ = ["answer_routes", "control_routes", "step_routes"]

_DONE: dict[int | str, dict[str, Any]] = {
    200: {"model": models.Snapshot},
    202: {"model": models.Snapshot, "description": "Requested; not yet done"},
}


def control_routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/api/executions/{execution}", tags=["control"])
    engine = service.engine
    refusals = problems(404, 409, 415)

    def asked(state: State) -> Response:
        return told(state, 202 if state.status is ExecutionStatus.RUNNING else 200)

    @router.post("/pause", responses={**_DONE, **refusals})
    async def pause(execution: Id, body: models.Pause | None = None) -> Response:
        """Pause: let running attempts finish, or with `now` stop them, and start no new ones."""
        wanted = body or models.Pause()
        with not_now():
            return asked(await engine.pause(execution, now=wanted.now, by=BY, within=wanted.within))

    @router.post("/interrupt", responses={**_DONE, **refusals})
    async def interrupt(execution: Id, body: models.Interrupt | None = None) -> Response:
        """Stop running attempts and pause."""
        wanted = body or models.Interrupt()
        with not_now():
            return asked(await engine.interrupt(execution, by=BY, within=wanted.within))

    @router.post("/cancel", responses={**_DONE, **refusals})
    async def cancel(request: Request, execution: Id, body: models.Interrupt | None = None) -> Response:
        """Stop running attempts and end it for good."""
        wanted = body or models.Interrupt()
        if ticket_of(request).again:
            state = await engine.state(execution)
            if state.status is ExecutionStatus.CANCELLED:
                return told(state)
        with not_now():
            return asked(await engine.cancel(execution, by=BY, within=wanted.within))

    @router.post("/resume", responses={200: {"model": models.Snapshot}, **refusals})
    async def resume(request: Request, execution: Id, body: models.Resume | None = None) -> Response:
        """Resume it, in this server."""
        wanted = body or models.Resume()
        if ticket_of(request).again:
            state = await engine.state(execution)
            if engine.driven(state) or state.status.finished:
                return told(state)  # whoever began with this request did not live to answer, and it went on since
        decisions, more = _answers(wanted, engine.clock.now())
        with not_now():
            resumed = await engine.resume(
                execution,
                hold=wanted.hold,
                accept_changes=wanted.accept_changes,
                keep_plan=wanted.keep_plan,
                workdir=wanted.workdir,
                take_over=wanted.take_over,
                decisions=decisions,
                budget=more,
            )
        return told(await engine.state(resumed.id))

    @router.post("/checkpoint", status_code=201, responses=refusals)
    async def checkpoint(execution: Id) -> Response:
        """Write a portable file of it, as it stands."""
        return answer({"path": str(await engine.checkpoint(execution))}, 201)

    @router.post("/fork", status_code=201, responses={201: STARTED, **refusals})
    async def fork(request: Request, execution: Id, body: models.Fork | None = None) -> Response:
        """A new execution that keeps what this one completed before `from_step`."""
        wanted = body or models.Fork()
        origin = await engine.find(execution)
        made = ticket_of(request).execution
        if not (made and ticket_of(request).again and await engine.journal.heads(prefix=made)):
            given = wanted.model_dump(include={"plan", "plan_text", "plan_file"}, exclude_none=True)
            plan = await asyncio.to_thread(RunRequest(**given).load, engine) if given else None
            made = await engine.fork(origin.id, from_step=wanted.from_step, inputs=wanted.inputs, plan=plan, id=made)
        state = await engine.state(made)
        if wanted.start and state.status is ExecutionStatus.PENDING:
            with not_now():
                await engine.resume(made, hold=wanted.hold, keep_plan=True)
            state = await engine.state(made)
        return told(state, 201, {"location": f"/api/executions/{made}"})

    return router


def answer_routes(service: Service) -> APIRouter:
    """Answers to an execution's questions about outcomes and money."""
    router = APIRouter(prefix="/api/executions/{execution}", tags=["control"])
    engine = service.engine
    refusals = problems(404, 409, 415)

    @router.post("/decisions", responses={200: {"model": models.Snapshot}, **refusals})
    async def decide(request: Request, execution: Id, body: models.Decision) -> Response:
        """Settle an attempt whose outcome nobody saw."""
        head = await engine.find(execution)
        if not (ticket_of(request).again and await _decided(engine, head.id, body)):
            with not_now():
                await engine.settle(head.id, body.step, body.choice, by=BY, output=body.output)
        return told(await engine.state(head.id))

    @router.post("/budget", responses={200: {"model": models.Snapshot}, **refusals})
    async def allow_budget(execution: Id, body: models.BudgetAnswer) -> Response:
        """Say whether more may be spent: `usd` and `tokens` are the limits of the scope from here on."""
        with not_now():
            await engine.allow_budget(
                execution,
                allow=body.allow,
                usd=body.usd,
                tokens=body.tokens,
                scope=body.scope,
                step=body.step,
                by=BY,
            )
        return told(await engine.state(execution))

    return router


StepId = Annotated[str, Path(description="A step; `STEP[N]` is one item of a foreach.", max_length=400)]


def step_routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/api/executions/{execution}/steps/{step}", tags=["control"])
    engine = service.engine
    answers = {200: {"model": models.Snapshot}, **problems(404, 409, 415)}

    async def asked_before(request: Request, execution: str, step: str, kind: type[ev.Event]) -> bool:
        """Tell whether this very request was saved by a server that died before it answered."""
        if not ticket_of(request).again:
            return False
        events = [entry.event for entry in await engine.journal.read(execution)]
        last = next((e for e in reversed(events) if isinstance(e, ev.StepRetried | ev.StepSkipRequested)), None)
        return isinstance(last, kind) and (last.step, last.by) == (step, BY)

    async def go_on(state: State, wanted: models.Retry | models.Skip) -> Response:
        if wanted.resume and not state.status.finished and not engine.driven(state):
            with not_now():
                await engine.resume(state.id, hold=wanted.hold, keep_plan=wanted.keep_plan)
        return told(await engine.state(state.id))

    @router.post("/retry", responses=answers)
    async def retry(request: Request, execution: Id, step: StepId, body: models.Retry | None = None) -> Response:
        """Try a failed step again, also after the execution's end; of a foreach, the failed items only."""
        wanted = body or models.Retry()
        head = await engine.find(execution)
        if await asked_before(request, head.id, step, ev.StepRetried):
            return await go_on(await engine.state(head.id), wanted)
        with not_now():
            state = await engine.retry(
                head.id, step, edits=wanted.with_, runtime=wanted.runtime, model=wanted.model, by=BY
            )
        return await go_on(state, wanted)

    @router.post("/skip", responses=answers)
    async def skip(request: Request, execution: Id, step: StepId, body: models.Skip | None = None) -> Response:
        """Skip a step, also after the execution's end: steps that depend on it run with a null output."""
        wanted = body or models.Skip()
        head = await engine.find(execution)
        if await asked_before(request, head.id, step, ev.StepSkipRequested):
            return await go_on(await engine.state(head.id), wanted)
        with not_now():
            state = await engine.skip(head.id, step, by=BY)
        return await go_on(state, wanted)

    return router


async def _decided(engine: Engine, execution: str, decision: models.Decision) -> bool:
    made = (entry.event for entry in await engine.journal.read(execution))
    return any(isinstance(e, ev.DecisionMade) and (e.step, e.by) == (decision.step, BY) for e in made)


def _answers(wanted: models.Resume, now: float) -> tuple[list[ev.DecisionMade], list[ev.BudgetAnswered]]:
    """The answers to open questions that a request to resume brings along."""
    limit = wanted.budget
    more = [ev.BudgetAnswered(now, True, BY, usd=limit.usd, tokens=limit.tokens)] if limit is not None else []
    return [ev.DecisionMade(now, d.step, d.choice, BY, d.output) for d in wanted.decisions], more
