"""Open questions to people, and their answers: `/api/approvals`."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request
from starlette.responses import Response

from windlass.clock import iso
from windlass.core.events import ApprovalAsked
from windlass.core.questions import question_id
from windlass.engine.engine import Engine
from windlass.engine.lookup import find_step
from windlass.engine.preview import difference
from windlass.errors import Ambiguous, NotFound
from windlass.ports import AskedQuestion
from windlass.server import models
from windlass.server.idempotency import ticket_of
from windlass.server.problems import NotNow, not_now
from windlass.server.routes.shared import BY, Id, answer, problems, told
from windlass.server.service import Service

__all__ = ["approval_routes"]


PAGE, LARGEST_PAGE = 100, 1000


def _shown(service: Service, found: AskedQuestion, asked: ApprovalAsked) -> dict[str, Any]:
    question = found.question
    diff = difference(asked.input, question.workdir, asked.basis)
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
        "asked_at": iso(asked.at),
        "expires_at": iso(asked.expires_at),
        "link": service.access.approval_link(found.execution, question.step, question.digest, asked.expires_at),
    }


def approval_routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/api/approvals", tags=["approvals"])
    engine = service.engine
    refusals = problems(404, 409, 415)

    @router.get("", responses={200: {"model": list[models.Question]}, **problems()})
    async def list_approvals(
        limit: Annotated[int, Query(ge=1, le=LARGEST_PAGE)] = PAGE,
        before: Annotated[int, Query(ge=0, le=2**63 - 1, description="From the `Link` of the page before.")] = 0,
    ) -> Response:
        """Open questions, newest first, with exactly what they ask for. `Link` names the next page."""
        found = await engine.open_questions(before=before, limit=limit + 1)
        page, more = found[:limit], len(found) > limit
        next_page = f"/api/approvals?limit={limit}&before={page[-1][0].position}" if more else ""
        headers = {"link": f'<{next_page}>; rel="next"'} if more else {}
        return answer([_shown(service, question, asked) for question, asked in page], headers=headers)

    @router.post("/{approval}", responses={200: {"model": models.Snapshot}, **refusals})
    async def answer_by_id(
        request: Request,
        approval: Annotated[str, Path(max_length=100, description="The question's id, or its digest.")],
        body: models.Answer,
    ) -> Response:
        """Answer a question. Its id names exactly what it asks for: another question is not answered by it."""
        asked = await engine.journal.questions(named=approval)
        found = [(one.execution, one.question.step, one.question.digest) for one in asked]
        if not found and ticket_of(request).again:
            found = await _answered(engine, approval)
        if not found:
            raise NotFound(
                f"no open question has the id {approval!r}", advice=("list open questions: GET /api/approvals",)
            )
        if len(found) > 1:
            raise Ambiguous(
                f"{len(found)} executions ask for exactly that",
                advice=("name one by its id: GET /api/approvals", "or POST /api/approvals/EXECUTION/STEP"),
            )
        execution, step, digest = found[0]
        return await _answer(request, execution, step, body, digest)

    @router.post("/{execution}/{step}", responses={200: {"model": models.Snapshot}, **refusals})
    async def answer_by_step(
        request: Request, execution: Id, step: Annotated[str, Path(max_length=400)], body: models.Answer
    ) -> Response:
        """Answer the question of a step; with `digest`, only if it still asks for what was seen."""
        head = await engine.find(execution)
        return await _answer(request, head.id, step, body, None)

    async def _answer(request: Request, execution: str, step: str, body: models.Answer, digest: str | None) -> Response:
        if body.digest is not None and digest is not None and body.digest != digest:
            raise NotNow("the digest is of another question than the id")
        wanted = body.digest or digest
        if ticket_of(request).again:
            state = await engine.state(execution)
            before = (find_step(state, step).answers or {}).values()
            if any(a.by == BY and a.allow == body.allow and wanted in (None, a.digest) for a in before):
                return told(state)  # it was answered by this very request, whose server did not live to say so
        with not_now():
            await engine.approve(execution, step, allow=body.allow, by=BY, note=body.note, digest=wanted)
        return told(await engine.state(execution))

    return router


async def _answered(engine: Engine, approval: str) -> list[tuple[str, str, str]]:
    """Questions that have an answer already, of executions that are not finished or finished lately."""
    found = []
    async for state in engine.states(await engine.executions(limit=1000)):
        for step in state.steps.values():
            for digest in step.answers or ():
                if approval in (question_id(state.id, step.id, digest), digest):
                    found.append((state.id, step.id, digest))
    return found
