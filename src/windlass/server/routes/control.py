"""Control of an execution: pause, resume, cancel, fork; answers about outcomes and money; retry and skip of a step.

Requests to retry and skip are D10. Questions for approval are answered in `approvals`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Path, Request
from starlette.responses import Response

from windlass.core import events as ev
from windlass.core.advice import fork_notes, retry_notes
from windlass.core.questions import limits_asked_about
from windlass.core.state import State
from windlass.core.transitions import ExecutionStatus
from windlass.engine.engine import Engine
from windlass.engine.lookup import find_step
from windlass.engine.resuming import changed_plan
from windlass.engine.run_request import RunRequest
from windlass.errors import UsageError
from windlass.server import answer_models, request_models
from windlass.server.idempotency import ticket_of
from windlass.server.problems import not_now
from windlass.server.routes.shared import (
    AS_IT_STANDS,
    BY,
    REFUSALS,
    STARTED,
    Id,
    answer,
    engine_of,
    new_router,
    returns,
    told,
    written_by,
)

__all__ = ["answer_routes", "control_routes", "step_routes"]

control_routes = new_router("/api/executions/{execution}", "control")
answer_routes = new_router("/api/executions/{execution}", "control")
"""Answers to an execution's questions about outcomes and money."""
step_routes = new_router("/api/executions/{execution}/steps/{step}", "control")

StepId = Annotated[str, Path(description="A step; `STEP[N]` is one item of a foreach.", max_length=400)]
_DONE: dict[int | str, dict[str, Any]] = {
    200: returns(answer_models.Snapshot),
    202: returns(answer_models.Snapshot, "Requested; not yet done"),
    **REFUSALS,
}


def _asked(state: State) -> Response:
    return told(state, 202 if state.status is ExecutionStatus.RUNNING else 200)


@control_routes.post("/pause", responses=_DONE)
async def pause(request: Request, execution: Id, body: request_models.Pause | None = None) -> Response:
    """Pause: let running attempts finish, or with `now` stop them, and start no new ones."""
    engine = engine_of(request)
    wanted = body or request_models.Pause()
    with not_now():
        return _asked(await engine.pause(execution, now=wanted.now, by=BY, within=wanted.within))


@control_routes.post("/interrupt", responses=_DONE)
async def interrupt(request: Request, execution: Id, body: request_models.Interrupt | None = None) -> Response:
    """Stop running attempts and pause."""
    engine = engine_of(request)
    wanted = body or request_models.Interrupt()
    with not_now():
        return _asked(await engine.interrupt(execution, by=BY, within=wanted.within))


@control_routes.post("/cancel", responses=_DONE)
async def cancel(request: Request, execution: Id, body: request_models.Interrupt | None = None) -> Response:
    """Stop running attempts and end it for good."""
    engine = engine_of(request)
    wanted = body or request_models.Interrupt()
    if ticket_of(request).again:
        state = await engine.state(execution)
        if state.status is ExecutionStatus.CANCELLED:
            return told(state)
    with not_now():
        return _asked(await engine.cancel(execution, by=BY, within=wanted.within))


@control_routes.post("/resume", responses=AS_IT_STANDS)
async def resume(request: Request, execution: Id, body: request_models.Resume | None = None) -> Response:
    """Resume it, in this server."""
    engine = engine_of(request)
    wanted = body or request_models.Resume()
    again = ticket_of(request).again  # the server that began with it did not live to answer; it may have gone on since
    if again and _goes_on(engine, state := await engine.state(execution)):
        return told(state)
    decisions, more = await _answers(engine, execution, wanted)
    with not_now():
        warnings = await _resume(
            engine,
            execution,
            again,
            hold=wanted.hold,
            accept_changes=wanted.accept_changes,
            keep_plan=wanted.keep_plan,
            workdir=wanted.workdir,
            take_over=wanted.take_over,
            decisions=decisions,
            budget=more,
        )
    return told(await engine.state(execution), warnings=warnings)


@control_routes.post("/checkpoint", status_code=201, responses=REFUSALS)
async def checkpoint(request: Request, execution: Id) -> Response:
    """Write a portable file of it, as it stands."""
    return answer({"path": str(await engine_of(request).checkpoint(execution))}, 201)


@control_routes.post("/fork", status_code=201, responses={201: STARTED, **REFUSALS})
async def fork(request: Request, execution: Id, body: request_models.Fork | None = None) -> Response:
    """A new execution that keeps what this one completed before `from_step`."""
    engine = engine_of(request)
    wanted = body or request_models.Fork()
    origin = await engine.find(execution)
    made = ticket_of(request).id
    notes: Sequence[str] = ()
    warnings: Sequence[str] = ()
    if not (made and ticket_of(request).again and await engine.journal.heads(prefix=made)):
        given = wanted.model_dump(include={"plan", "plan_text", "plan_file"}, exclude_none=True)
        before = await engine.state(origin.id)
        plan = await asyncio.to_thread(RunRequest(**given, workdir=before.workdir).load, engine) if given else None
        if plan is None:
            from_step = ["--from", wanted.from_step] if wanted.from_step else []
            notes = fork_notes(before, changed_plan(before), from_step)
        made = await engine.fork(
            origin.id,
            from_step=wanted.from_step,
            inputs=wanted.inputs,
            plan=plan,
            fresh=wanted.fresh,
            id=made,
            to_start=wanted.start,
        )
    state = await engine.state(made)
    if wanted.start and state.status is ExecutionStatus.PENDING:
        with not_now():
            warnings = await _resume(engine, made, True, hold=wanted.hold, keep_plan=True)
        state = await engine.state(made)
    return told(state, 201, {"location": f"/api/executions/{made}"}, notes=notes, warnings=warnings)


@answer_routes.post("/decisions", responses=AS_IT_STANDS)
async def decide(request: Request, execution: Id, body: request_models.Decision) -> Response:
    """Settle an attempt whose outcome nobody saw."""
    engine = engine_of(request)
    head = await engine.find(execution)
    if await written_by(engine, head.id, request) is None:
        name = ticket_of(request).id
        with not_now():
            await engine.settle(head.id, body.step, body.choice, by=BY, output=body.output, request=name)
    return told(await engine.state(head.id))


@answer_routes.post("/budget", responses=AS_IT_STANDS)
async def allow_budget(request: Request, execution: Id, body: request_models.BudgetAnswer) -> Response:
    """Say whether more may be spent: `usd` and `tokens` are the limits of the scope from here on."""
    engine = engine_of(request)
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


async def _go_on(
    engine: Engine, state: State, wanted: request_models.RetryStep | request_models.Skip, notes: Sequence[str] = ()
) -> Response:
    warnings: Sequence[str] = ()
    if wanted.resume and not _goes_on(engine, state):
        with not_now():
            warnings = await _resume(engine, state.id, True, hold=wanted.hold, keep_plan=wanted.keep_plan)
    return told(await engine.state(state.id), notes=notes, warnings=warnings)


@step_routes.post("/retry", responses=AS_IT_STANDS)
async def retry(
    request: Request, execution: Id, step: StepId, body: request_models.RetryStep | None = None
) -> Response:
    """Try a failed step again, also after the execution's end; of a foreach, the failed items only."""
    engine = engine_of(request)
    wanted = body or request_models.RetryStep()
    head = await engine.find(execution)
    if await written_by(engine, head.id, request) is not None:
        return await _go_on(engine, await engine.state(head.id), wanted)
    with not_now():
        await _check_redo(engine, head.id, {"kind": "retry", "step": step, "runtime": wanted.runtime}, wanted)
        before = await engine.state(head.id)
        notes = retry_notes(before, find_step(before, step))
        state = await engine.retry(
            head.id,
            step,
            edits=wanted.with_,
            runtime=wanted.runtime,
            model=wanted.model,
            fresh=wanted.fresh,
            by=BY,
            request=ticket_of(request).id,
        )
    return await _go_on(engine, state, wanted, notes)


@step_routes.post("/summarise", status_code=202, responses=REFUSALS)
async def summarise(request: Request, execution: Id, step: StepId) -> Response:
    """Have the older part of an agent's conversation summarised before its next call."""
    engine = engine_of(request)
    head = await engine.find(execution)
    with not_now():
        found = await engine.summarise(head.id, step, by=BY)
    return answer(found.plain(), 202)


@step_routes.post("/say", responses={200: returns(answer_models.SaidMessage), **REFUSALS})
async def say(request: Request, execution: Id, step: StepId, body: request_models.Say) -> Response:
    """Say something to the agent of a step: a running one gets it, a stopped one goes on with it, and a completed
    one goes on with it in a fork."""
    engine = engine_of(request)
    head = await engine.find(execution)
    warnings: Sequence[str] = ()
    with not_now():
        name = ticket_of(request).id
        receipt = await engine.say(
            head.id,
            step,
            body.text,
            by=BY,
            within=body.within,
            id=name,
            to_resume=body.resume,
            keep_plan=body.keep_plan,
        )
        if body.resume and not _goes_on(engine, receipt.state):
            keep = body.keep_plan or receipt.forked
            warnings = await _resume(engine, receipt.state.id, True, hold=body.hold, keep_plan=keep)
    return answer({**receipt.as_dict(), "warnings": list(warnings)})


@step_routes.post("/undo", responses={200: returns(answer_models.UndoneFiles), **REFUSALS})
async def undo(request: Request, execution: Id, step: StepId) -> Response:
    """Undo the file changes of a finished step, unless a file was changed since."""
    engine = engine_of(request)
    head = await engine.find(execution)
    written = await written_by(engine, head.id, request)
    if isinstance(written, ev.StepUndone):
        return answer({"execution": head.id, "step": step, "changes": written.changes})
    with not_now():
        changes = await engine.undo(head.id, step, by=BY, request=ticket_of(request).id)
    return answer({"execution": head.id, "step": step, "changes": changes})


@step_routes.post("/skip", responses=AS_IT_STANDS)
async def skip(request: Request, execution: Id, step: StepId, body: request_models.Skip | None = None) -> Response:
    """Skip a step, also after the execution's end: steps that depend on it run with a null output."""
    engine = engine_of(request)
    wanted = body or request_models.Skip()
    head = await engine.find(execution)
    if await written_by(engine, head.id, request) is not None:
        return await _go_on(engine, await engine.state(head.id), wanted)
    with not_now():
        await _check_redo(engine, head.id, {"kind": "skip", "step": step}, wanted)
        state = await engine.skip(head.id, step, by=BY, request=ticket_of(request).id)
    return await _go_on(engine, state, wanted)


async def _resume(engine: Engine, execution: str, or_goes_on: bool, **how: Any) -> Sequence[str]:
    """Have it go on, and give the warnings. With `or_goes_on`, another may have been faster: a server that starts
    takes up what a dead one left."""
    try:
        return (await engine.resume(execution, **how)).warnings
    except UsageError:
        if not (or_goes_on and _goes_on(engine, await engine.state(execution))):
            raise
        return ()


def _goes_on(engine: Engine, state: State) -> bool:
    return state.status.finished or engine.driven(state)


async def _check_redo(
    engine: Engine, execution: str, asked: dict[str, Any], wanted: request_models.RetryStep | request_models.Skip
) -> None:
    """Refuse what could not go on afterwards, before anything is written."""
    if wanted.resume:
        await engine.check_redo(execution, [asked], keep_plan=wanted.keep_plan)


async def _answers(
    engine: Engine, execution: str, wanted: request_models.Resume
) -> tuple[list[ev.DecisionMade], list[ev.BudgetAnswered]]:
    """The answers to open questions that a request to resume brings along."""
    now, limit = engine.clock.now(), wanted.budget
    asked = limits_asked_about(await engine.state(execution)) if limit is not None else []
    usd, tokens = (limit.usd, limit.tokens) if limit is not None else (None, None)
    more = [ev.BudgetAnswered(now, True, BY, step, scope, usd, tokens) for scope, step in asked]
    return [ev.DecisionMade(now, d.step, d.choice, BY, d.output) for d in wanted.decisions], more
