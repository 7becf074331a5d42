"""What waits for a person's answer, and the answers: `/api/approvals`."""

from __future__ import annotations

import hashlib
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from windlass.clock import iso
from windlass.core.state import State
from windlass.core.step import StepState
from windlass.engine.engine import Engine
from windlass.engine.lookup import find_step
from windlass.engine.preview import difference
from windlass.errors import Ambiguous, NotFound
from windlass.server import models
from windlass.server.once import ticket_of
from windlass.server.problems import NotNow, not_now
from windlass.server.routes.shared import BY, Id, answer, problems, told
from windlass.server.service import Service

__all__ = ["approval_id", "approval_routes", "open_questions"]


def approval_id(execution: str, step: str, digest: str) -> str:
    """Names one question of one execution, and exactly what it asks for."""
    return hashlib.sha256(f"{execution}\0{step}\0{digest}".encode()).hexdigest()[:32]


async def open_questions(engine: Engine) -> list[tuple[State, StepState]]:
    """Every step that waits for approval, of every execution of the home."""
    found: list[tuple[State, StepState]] = []
    async for state in engine.states(await engine.executions(["running", "paused"])):
        found += [(state, step) for step in state.questions.values() if step.waiting_for == "approval"]
    return found


def _shown(service: Service, state: State, step: StepState) -> dict[str, Any]:
    asked = step.approval
    assert asked is not None
    return {
        "id": approval_id(state.id, step.id, asked.digest),
        "execution": state.id,
        "plan": state.plan.name,
        "step": step.id,
        "tool": asked.tool,
        "input": asked.input,
        "question": asked.question,
        "diff": difference(asked.input, state.workdir, asked.basis),
        "basis": dict(asked.basis),
        "digest": asked.digest,
        "asked_at": iso(asked.asked_at),
        "expires_at": iso(asked.expires_at),
        "link": service.access.approval_link(state.id, step.id, asked.digest, asked.expires_at),
    }


def approval_routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/api/approvals", tags=["approvals"])
    engine = service.engine
    refusals = problems(404, 409, 415)

    @router.get("", responses={200: {"model": list[models.Question]}, **problems()})
    async def list_approvals() -> Response:
        """What waits for a person's answer, with exactly what is asked."""
        return answer([_shown(service, state, step) for state, step in await open_questions(engine)])

    @router.post("/{approval}", responses={200: {"model": models.Snapshot}, **refusals})
    async def answer_by_id(
        request: Request,
        approval: Annotated[str, Path(max_length=100, description="The question's id, or its digest.")],
        body: models.Answer,
    ) -> Response:
        """Answer a question. Its id names exactly what it asks for: another question is not answered by it."""
        asked = await open_questions(engine)
        fitting = [(s.id, q.id, q.approval.digest) for s, q in asked if q.approval is not None]
        found = [one for one in fitting if approval in (approval_id(*one), one[2])]
        if not found and ticket_of(request).again:
            found = await _answered(approval)
        if not found:
            raise NotFound(
                f"no open question has the id {approval!r}", advice=("see what is asked: GET /api/approvals",)
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

    async def _answered(approval: str) -> list[tuple[str, str, str]]:
        """Questions that have an answer already, of executions that are not finished or finished lately."""
        found = []
        async for state in engine.states(await engine.executions(limit=1000)):
            for step in state.steps.values():
                for digest in step.answers or ():
                    if approval in (approval_id(state.id, step.id, digest), digest):
                        found.append((state.id, step.id, digest))
        return found

    return router
