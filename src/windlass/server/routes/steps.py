"""What a person does about one step that failed: try it again, or go on without it (D10)."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request
from starlette.responses import Response

from windlass.core import events as ev
from windlass.core.state import State
from windlass.server import models
from windlass.server.once import ticket_of
from windlass.server.problems import not_now
from windlass.server.routes.shared import BY, Id, problems, told
from windlass.server.service import Service

__all__ = ["step_routes"]

StepId = Annotated[str, Path(description="A step; `STEP[N]` is one item of a foreach.", max_length=400)]


def step_routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/api/executions/{execution}/steps/{step}", tags=["control"])
    engine = service.engine
    answers = {200: {"model": models.Snapshot}, **problems(404, 409, 415)}

    async def asked_before(request: Request, execution: str, step: str, kind: type[ev.Event]) -> bool:
        """Whether this very request was written down by a server that did not live to answer it."""
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
        """Go on without a step, also after the execution's end: steps that depend on it run with a null output."""
        wanted = body or models.Skip()
        head = await engine.find(execution)
        if await asked_before(request, head.id, step, ev.StepSkipRequested):
            return await go_on(await engine.state(head.id), wanted)
        with not_now():
            state = await engine.skip(head.id, step, by=BY)
        return await go_on(state, wanted)

    return router
