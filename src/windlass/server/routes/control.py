"""Control of an execution: pause, resume, cancel, fork, answers to its questions (`/api/approvals` lists those of all
executions); retry and skip of a step (D10).
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import Path, Query, Request
from starlette.responses import Response

from windlass.clock import iso
from windlass.core import events as ev
from windlass.core.advice import fork_notes, retry_notes
from windlass.core.events import ApprovalAsked
from windlass.core.questions import limits_asked_about, question_id
from windlass.core.state import State
from windlass.core.transitions import ExecutionStatus
from windlass.engine.engine import Engine
from windlass.engine.lookup import find_step
from windlass.engine.preview import asked_change
from windlass.engine.resuming import changed_plan
from windlass.engine.run_request import RunRequest
from windlass.errors import Ambiguous, NotFound, UsageError
from windlass.homes import user_folder
from windlass.ports import AskedQuestion
from windlass.server import answer_models, request_models
from windlass.server.idempotency import ticket_of
from windlass.server.problems import NotNow, not_now
from windlass.server.routes.shared import (
    BY,
    STARTED,
    Id,
    answer,
    engine_of,
    new_router,
    problems,
    returns,
    service_of,
    told,
)
from windlass.server.service import Service

__all__ = ["answer_routes", "approval_routes", "control_routes", "step_routes"]

control_routes = new_router("/api/executions/{execution}", "control")
answer_routes = new_router("/api/executions/{execution}", "control")
"""Answers to an execution's questions about outcomes and money."""
step_routes = new_router("/api/executions/{execution}/steps/{step}", "control")
approval_routes = new_router("/api/approvals", "approvals")

StepId = Annotated[str, Path(description="A step; `STEP[N]` is one item of a foreach.", max_length=400)]
_REFUSALS = problems(404, 409, 415)
_AS_IT_STANDS = {200: returns(answer_models.Snapshot), **_REFUSALS}
_DONE: dict[int | str, dict[str, Any]] = {
    200: returns(answer_models.Snapshot),
    202: returns(answer_models.Snapshot, "Requested; not yet done"),
    **_REFUSALS,
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


@control_routes.post("/resume", responses=_AS_IT_STANDS)
async def resume(request: Request, execution: Id, body: request_models.Resume | None = None) -> Response:
    """Resume it, in this server."""
    engine = engine_of(request)
    wanted = body or request_models.Resume()
    if ticket_of(request).again:
        state = await engine.state(execution)
        if engine.driven(state) or state.status.finished:
            return told(state)  # whoever began with this request did not live to answer, and it went on since
    decisions, more = await _answers(engine, execution, wanted)
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
    return told(await engine.state(resumed.id), warnings=resumed.warnings)


@control_routes.post("/checkpoint", status_code=201, responses=_REFUSALS)
async def checkpoint(request: Request, execution: Id) -> Response:
    """Write a portable file of it, as it stands."""
    return answer({"path": str(await engine_of(request).checkpoint(execution))}, 201)


@control_routes.post("/fork", status_code=201, responses={201: STARTED, **_REFUSALS})
async def fork(request: Request, execution: Id, body: request_models.Fork | None = None) -> Response:
    """A new execution that keeps what this one completed before `from_step`."""
    engine = engine_of(request)
    wanted = body or request_models.Fork()
    origin = await engine.find(execution)
    made = ticket_of(request).id
    notes, warnings = list[str](), tuple[str, ...]()
    if not (made and ticket_of(request).again and await engine.journal.heads(prefix=made)):
        given = wanted.model_dump(include={"plan", "plan_text", "plan_file"}, exclude_none=True)
        plan = await asyncio.to_thread(RunRequest(**given).load, engine) if given else None
        if plan is None:
            before = await engine.state(origin.id)
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
            warnings = (await engine.resume(made, hold=wanted.hold, keep_plan=True)).warnings
        state = await engine.state(made)
    return told(state, 201, {"location": f"/api/executions/{made}"}, notes=notes, warnings=warnings)


@answer_routes.post("/decisions", responses=_AS_IT_STANDS)
async def decide(request: Request, execution: Id, body: request_models.Decision) -> Response:
    """Settle an attempt whose outcome nobody saw."""
    engine = engine_of(request)
    head = await engine.find(execution)
    if await _written(engine, head.id, request) is None:
        name = ticket_of(request).id
        with not_now():
            await engine.settle(head.id, body.step, body.choice, by=BY, output=body.output, request=name)
    return told(await engine.state(head.id))


@answer_routes.post("/budget", responses=_AS_IT_STANDS)
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
    if wanted.resume and not state.status.finished and not engine.driven(state):
        with not_now():
            warnings = await _resume(engine, state.id, hold=wanted.hold, keep_plan=wanted.keep_plan)
    return told(await engine.state(state.id), notes=notes, warnings=warnings)


@step_routes.post("/retry", responses=_AS_IT_STANDS)
async def retry(
    request: Request, execution: Id, step: StepId, body: request_models.RetryStep | None = None
) -> Response:
    """Try a failed step again, also after the execution's end; of a foreach, the failed items only."""
    engine = engine_of(request)
    wanted = body or request_models.RetryStep()
    head = await engine.find(execution)
    if await _written(engine, head.id, request) is not None:
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


@step_routes.post("/summarise", status_code=202, responses=_REFUSALS)
async def summarise(request: Request, execution: Id, step: StepId) -> Response:
    """Have the older part of an agent's conversation summarised before its next call."""
    engine = engine_of(request)
    head = await engine.find(execution)
    with not_now():
        found = await engine.summarise(head.id, step, by=BY)
    return answer(found.plain(), 202)


@step_routes.post("/say", responses={200: returns(answer_models.SaidMessage), **_REFUSALS})
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
        if body.resume and not receipt.state.status.finished and not engine.driven(receipt.state):
            keep = body.keep_plan or receipt.forked
            warnings = await _resume(engine, receipt.state.id, hold=body.hold, keep_plan=keep)
    return answer({**receipt.as_dict(), "warnings": list(warnings)})


@step_routes.post("/undo", responses={200: returns(answer_models.UndoneFiles), **_REFUSALS})
async def undo(request: Request, execution: Id, step: StepId) -> Response:
    """Undo the file changes of a finished step, unless a file was changed since."""
    engine = engine_of(request)
    head = await engine.find(execution)
    written = await _written(engine, head.id, request)
    if isinstance(written, ev.StepUndone):
        return answer({"execution": head.id, "step": step, "changes": written.changes})
    with not_now():
        changes = await engine.undo(head.id, step, by=BY, request=ticket_of(request).id)
    return answer({"execution": head.id, "step": step, "changes": changes})


@step_routes.post("/skip", responses=_AS_IT_STANDS)
async def skip(request: Request, execution: Id, step: StepId, body: request_models.Skip | None = None) -> Response:
    """Skip a step, also after the execution's end: steps that depend on it run with a null output."""
    engine = engine_of(request)
    wanted = body or request_models.Skip()
    head = await engine.find(execution)
    if await _written(engine, head.id, request) is not None:
        return await _go_on(engine, await engine.state(head.id), wanted)
    with not_now():
        await _check_redo(engine, head.id, {"kind": "skip", "step": step}, wanted)
        state = await engine.skip(head.id, step, by=BY, request=ticket_of(request).id)
    return await _go_on(engine, state, wanted)


async def _resume(engine: Engine, execution: str, *, hold: bool, keep_plan: bool) -> Sequence[str]:
    """Have it go on, unless this server, which takes up what a dead one left, was faster; gives the warnings."""
    try:
        return (await engine.resume(execution, hold=hold, keep_plan=keep_plan)).warnings
    except UsageError:
        state = await engine.state(execution)
        if not (state.status.finished or engine.driven(state)):
            raise
        return ()


async def _check_redo(
    engine: Engine, execution: str, asked: dict[str, Any], wanted: request_models.RetryStep | request_models.Skip
) -> None:
    """Refuse what could not go on afterwards, before anything is written."""
    if wanted.resume:
        await engine.check_redo(execution, [asked], keep_plan=wanted.keep_plan)


async def _written(engine: Engine, execution: str, request: Request) -> ev.Event | None:
    """The event of this very request, if it was written by a server that died before it answered."""
    ticket = ticket_of(request)
    if not ticket.again:
        return None
    events = (entry.event for entry in await engine.journal.read(execution))
    return next((event for event in events if getattr(event, "request", "") == ticket.id), None)


async def _answers(
    engine: Engine, execution: str, wanted: request_models.Resume
) -> tuple[list[ev.DecisionMade], list[ev.BudgetAnswered]]:
    """The answers to open questions that a request to resume brings along."""
    now, limit = engine.clock.now(), wanted.budget
    asked = limits_asked_about(await engine.state(execution)) if limit is not None else []
    usd, tokens = (limit.usd, limit.tokens) if limit is not None else (None, None)
    more = [ev.BudgetAnswered(now, True, BY, step, scope, usd, tokens) for scope, step in asked]
    return [ev.DecisionMade(now, d.step, d.choice, BY, d.output) for d in wanted.decisions], more


PAGE, LARGEST_PAGE = 100, 1000


def _shown(service: Service, found: AskedQuestion, asked: ApprovalAsked) -> dict[str, Any]:
    question = found.question
    diff = asked_change(asked, question.workdir)
    shown = json.dumps(asked.input, ensure_ascii=False) + (diff or "")
    return {
        "id": question.id,
        "execution": found.execution,
        "plan": found.plan,
        "step": question.step,
        "tool": asked.tool,
        "input": asked.input,
        "question": asked.question,
        "diff": diff,
        "hidden": list(service.feed.redactor.found(shown)),
        "basis": asked.basis,
        "digest": question.digest,
        "in_attempt": asked.attempt > 0,
        "asked_at": iso(asked.at),
        "expires_at": iso(asked.expires_at),
        "link": service.access.approval_link(found.execution, question.step, question.digest, asked.expires_at),
    }


@approval_routes.get("", responses={200: returns(answer_models.Question, many=True), **problems()})
async def list_approvals(
    request: Request,
    limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = PAGE,
    before: Annotated[int, Query(ge=0, le=2**63 - 1, description="From the `Link` of the page before.")] = 0,
) -> Response:
    """Open questions, newest first, with exactly what they ask for. `Link` names the next page."""
    service = service_of(request)
    engine = service.engine
    found = await engine.open_questions(before=before, limit=limit + 1)
    page, more = found[:limit], len(found) > limit
    next_page = f"/api/approvals?limit={limit}&before={page[-1][0].position}" if more else ""
    headers = {"link": f'<{next_page}>; rel="next"'} if more else {}
    forecasts = await engine.forecast_views(question.execution for question, _asked in page)
    shown = [_shown(service, one, asked) | {"forecast": forecasts.get(one.execution)} for one, asked in page]
    return answer(shown, headers=headers)


@approval_routes.post("/{approval}", responses=_AS_IT_STANDS)
async def answer_by_id(
    request: Request,
    approval: Annotated[str, Path(max_length=100, description="The question's id, or its digest.")],
    body: request_models.ApprovalAnswer,
) -> Response:
    """Answer a question. Its id names exactly what it asks for: another question is not answered by it."""
    engine = engine_of(request)
    asked = await engine.journal.questions(named=approval)
    found = [(one.execution, one.question.step, one.question.digest) for one in asked]
    if not found and ticket_of(request).again:
        found = await _answered(engine, approval)
    if not found:
        raise NotFound(f"no open question has the id {approval!r}", advice=("list open questions: GET /api/approvals",))
    if len(found) > 1:
        raise Ambiguous(
            f"{len(found)} executions ask exactly this question",
            advice=("name one by its id: GET /api/approvals", "or POST /api/approvals/EXECUTION/STEP"),
        )
    execution, step, digest = found[0]
    return await _answer(request, execution, step, body, digest)


@approval_routes.post("/{execution}/{step}", responses=_AS_IT_STANDS)
async def answer_by_step(
    request: Request, execution: Id, step: Annotated[str, Path(max_length=400)], body: request_models.ApprovalAnswer
) -> Response:
    """Answer the question of a step; with `digest`, only if it still asks for what was seen."""
    head = await engine_of(request).find(execution)
    return await _answer(request, head.id, step, body, None)


async def _answer(
    request: Request, execution: str, step: str, body: request_models.ApprovalAnswer, digest: str | None
) -> Response:
    service = service_of(request)
    engine = service.engine
    if body.digest is not None and digest is not None and body.digest != digest:
        raise NotNow("the digest is of another question than the id")
    wanted = body.digest or digest
    if await _written(engine, execution, request) is None:
        name = ticket_of(request).id
        with not_now():
            if body.always is not None:
                await _allow_always(service, execution, step, body, wanted, name)
            else:
                await engine.approve(
                    execution, step, allow=body.allow, by=BY, note=body.note, digest=wanted, request=name
                )
    return told(await engine.state(execution))


@approval_routes.get("/{execution}/{step}/rule", responses={200: returns(answer_models.AlwaysRule), **_REFUSALS})
async def always_rule(request: Request, execution: Id, step: Annotated[str, Path(max_length=400)]) -> Response:
    """The rule that an answer with `always` saves; 409 with the reason where there is none."""
    service = service_of(request)
    head = await service.engine.find(execution)
    with not_now():
        rule = await _shown_rule(service, head.id, step)
    meaning = "Agents may do exactly this in every project, without asking; what a file is given is not looked at."
    return answer({"rule": rule, "file": str(user_folder() / "config.toml"), "text": meaning})


async def _shown_rule(service: Service, execution: str, step: str) -> str:
    """The rule of a question, if a person can read all of it."""
    rule = await service.engine.always_rule(execution, step)
    if list(service.feed.redactor.found(rule)):
        raise UsageError("no rule can be made of it: there is a secret in it, so nobody could read the rule")
    return rule


async def _allow_always(
    service: Service,
    execution: str,
    step: str,
    body: request_models.ApprovalAnswer,
    digest: str | None,
    name: str | None,
) -> None:
    if not body.allow:
        raise UsageError("only what is allowed can be allowed always")
    await _shown_rule(service, execution, step)
    assert body.always is not None
    await service.engine.approve_always(
        execution, step, body.always, by=BY, note=body.note, digest=digest, request=name
    )


async def _answered(engine: Engine, approval: str) -> list[tuple[str, str, str]]:
    """Questions that have an answer already, of executions that are not finished or finished lately."""
    found = []
    async for state in engine.states(await engine.executions(limit=1000)):
        for step in state.steps.values():
            for digest in step.answers or ():
                if approval in (question_id(state.id, step.id, digest), digest):
                    found.append((state.id, step.id, digest))
    return found
