"""Questions for approval of all executions, and their answers: `/api/approvals` (C6)."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Path, Query, Request
from starlette.responses import Response

from windlass.clock import iso
from windlass.core.events import ApprovalAsked
from windlass.core.questions import question_id
from windlass.engine.engine import Engine
from windlass.engine.preview import asked_change
from windlass.errors import Ambiguous, NotFound, UsageError
from windlass.homes import user_folder
from windlass.ports import AskedQuestion
from windlass.server import answer_models, request_models
from windlass.server.idempotency import ticket_of
from windlass.server.problems import NotNow, not_now
from windlass.server.routes.shared import (
    AS_IT_STANDS,
    BY,
    REFUSALS,
    Id,
    answer,
    engine_of,
    new_router,
    problems,
    returns,
    service_of,
    told,
    written_by,
)
from windlass.server.service import Service

__all__ = ["approval_routes"]

approval_routes = new_router("/api/approvals", "approvals")


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


@approval_routes.post("/{approval}", responses=AS_IT_STANDS)
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


@approval_routes.post("/{execution}/{step}", responses=AS_IT_STANDS)
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
    if await written_by(engine, execution, request) is None:
        name = ticket_of(request).id
        with not_now():
            if body.always is not None:
                await _allow_always(service, execution, step, body, wanted, name)
            else:
                await engine.approve(
                    execution, step, allow=body.allow, by=BY, note=body.note, digest=wanted, request=name
                )
    return told(await engine.state(execution))


@approval_routes.get("/{execution}/{step}/rule", responses={200: returns(answer_models.AlwaysRule), **REFUSALS})
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
