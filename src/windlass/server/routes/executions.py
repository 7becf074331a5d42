"""Starting executions, and looking at them: `/api/executions`."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
from fastapi import Query, Request
from starlette.responses import Response

from windlass.clock import iso
from windlass.core import events as ev
from windlass.core.transitions import ExecutionStatus
from windlass.core.view import progress
from windlass.engine.damage import DAMAGED, damaged_view
from windlass.engine.engine import Engine
from windlass.engine.gates.view import standing
from windlass.engine.lookup import find_step
from windlass.errors import Damaged
from windlass.ports import OVER_BUDGET, Entry, Head
from windlass.server import answer_models, request_models
from windlass.server.idempotency import ticket_of
from windlass.server.problems import not_now
from windlass.server.routes.shared import (
    STARTED,
    Id,
    answer,
    clean,
    engine_of,
    new_router,
    problems,
    returns,
    service_of,
    told,
)

__all__ = ["After", "events_page", "execution_routes"]

Wait = Annotated[float, Query(ge=0, le=300, description="Seconds to wait until it ends or pauses.")]
After = Annotated[int, Query(ge=0, le=2**62, description="Only events after this sequence.")]

execution_routes = new_router("/api", "executions")


@execution_routes.post(
    "/executions",
    status_code=201,
    responses={201: STARTED, **problems(404, 409, 415)},
)
async def start(request: Request, order: request_models.NewExecution, wait: Wait = 0.0) -> Response:
    """Start a plan or tasks. The answer comes when the start is on disk, or with `wait` later."""
    service = service_of(request)
    engine = service.engine
    ticket, warnings = ticket_of(request), tuple[str, ...]()
    if ticket.again and ticket.id and await engine.journal.heads(prefix=ticket.id):
        execution = ticket.id
    else:
        started = await order.request().start(engine, id=ticket.id)
        execution, warnings = started.id, started.warnings
    await service.wait(execution, wait)
    headers = {"location": f"/api/executions/{execution}"}
    return told(await engine.state(execution), 201, headers, warnings=warnings)


@execution_routes.post("/plans/estimate", responses={200: returns(answer_models.PlanEstimate), **problems(404, 415)})
async def estimate(request: Request, order: request_models.NewExecution) -> Response:
    """Forecast a plan or tasks from the history of the home. Starts nothing."""
    engine = engine_of(request)
    found = await order.request().estimate(engine)
    return answer(clean(request, found.as_estimate()))


@execution_routes.get("/executions", responses={200: returns(answer_models.ExecutionPage), **problems()})
async def list_executions(
    request: Request,
    status: Annotated[list[ExecutionStatus] | None, Query(description="Filter by status (repeatable).")] = None,
    name: Annotated[str, Query(max_length=400, description="Only of this plan.")] = "",
    text: Annotated[str, Query(max_length=400, description="Only with this text in the plan's name or the id.")] = "",
    since: Annotated[
        float,
        Query(ge=0, le=1e12, allow_inf_nan=False, description="Only created since then: seconds of the epoch."),
    ] = 0.0,
    waiting: Annotated[Literal["approval"] | None, Query(description="Only those that ask a person.")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    before: Annotated[str, Query(max_length=100, description="The last id of the page before.")] = "",
) -> Response:
    """Executions, newest first: one line about each, page by page."""
    engine = engine_of(request)
    wanted = sorted({str(one) for one in status or ()})
    asking = waiting is not None
    heads = await engine.executions(wanted, limit + 1, name=name, text=text, since=since, before=before, asking=asking)
    following = None
    if len(heads) > limit:
        heads = heads[:limit]
        query: list[tuple[str, str]] = [("status", one) for one in wanted]
        filters = (("name", name), ("text", text), ("since", since), ("waiting", waiting))
        query += [(key, str(value)) for key, value in filters if value]
        query += [("limit", str(limit)), ("before", heads[-1].id)]
        following = f"/api/executions?{urlencode(query)}"
    headers = {"link": f'<{following}>; rel="next"'} if following else None
    asks = await engine.waiting(heads)
    # The time until a person answers is in no forecast.
    etas = await engine.etas((head for head in heads if head.id not in asks), engine.clock.now())
    lines = [_line(engine, head, etas.get(head.id)) | {"waiting": asks.get(head.id)} for head in heads]
    loss = "" if heads else await engine.journal_loss()
    return answer({"executions": lines, "next": following, **({"warnings": [loss]} if loss else {})}, headers=headers)


def _line(engine: Engine, head: Head, eta: float | None) -> dict[str, Any]:
    state = engine.driven_state(head.id)
    damage, over_budget = engine.damaged.get(head.id), head.detail == OVER_BUDGET
    return {
        "id": head.id,
        "plan": head.name,
        "status": DAMAGED if damage else head.status,
        "reason": None if over_budget or head.status == ExecutionStatus.RUNNING else head.detail or None,
        "over_budget": over_budget,
        "created_at": iso(head.created_at),
        "updated_at": iso(head.updated_at),
        "expires_at": iso(head.expires_at),
        "driven": engine.driven(head),
        "progress": progress(state) if state is not None else None,
        "eta": eta,
        "damage": {"seq": damage.seq, "reason": damage.reason, "status": head.status} if damage else None,
    }


@execution_routes.get("/executions/{execution}", responses={200: returns(answer_models.Snapshot), **problems(404, 409)})
async def show(request: Request, execution: Id, wait: Wait = 0.0) -> Response:
    """One execution as it stands; with `wait`, when it stands still."""
    service = service_of(request)
    engine = service.engine
    head = await engine.find(execution)
    await service.wait(head.id, wait)
    try:
        state = await engine.state(head.id)
        forecast, stale = await engine.forecast_view(state), await engine.stale(state)
        stands = standing(state, engine.attempt_runner.gates, forecast, stale)
    except Damaged as damage:
        return answer(damaged_view(head, damage))
    return answer(stands | {key: clean(request, stands[key]) for key in ("breakers",) if key in stands})


@execution_routes.get(
    "/executions/{execution}/events", responses={200: returns(answer_models.EventPage), **problems(404, 409)}
)
async def events(
    request: Request, execution: Id, after: After = 0, limit: Annotated[int, Query(ge=1, le=10_000)] = 1000
) -> Response:
    """Events from the journal, in order. The same comes live: `/api/executions/{execution}/stream`."""
    engine = engine_of(request)
    head = await engine.find(execution)
    entries = await engine.journal.read(head.id, after, limit + 1)
    return events_page(head.id, entries, limit, f"/api/executions/{head.id}/events")


@execution_routes.get("/executions/{execution}/prompts", responses=problems(404, 409))
async def prompts(
    request: Request,
    execution: Id,
    step: Annotated[str | None, Query(max_length=400, description="Only of this step.")] = None,
) -> Response:
    """Prompts of agents, word for word."""
    engine = engine_of(request)
    state = await engine.state(execution)
    if step is not None:
        find_step(state, step)
    found = [entry.event for entry in await engine.journal.read(state.id)]
    told = [e for e in found if isinstance(e, ev.AgentBegan) and (step is None or _about(e.step, step))]
    return answer({"execution": state.id, "prompts": told})


@execution_routes.get("/executions/{execution}/context", responses=problems(404, 409))
async def context(
    request: Request,
    execution: Id,
    step: Annotated[str | None, Query(max_length=400, description="Only of this step.")] = None,
) -> Response:
    """Tokens, window, threshold and summaries of its agents' conversations."""
    engine = engine_of(request)
    head = await engine.find(execution)
    with not_now():
        found = await engine.context(head.id, step)
    return answer({"execution": head.id, "contexts": [one.plain() for one in found]})


@execution_routes.get(
    "/executions/{execution}/diff", responses={200: returns(answer_models.FileChanges), **problems(404, 409)}
)
async def diff(
    request: Request, execution: Id, step: Annotated[str, Query(max_length=400, description="Only of this step.")] = ""
) -> Response:
    """Files that agents changed, with their differences; of one that works, so far."""
    engine = engine_of(request)
    head = await engine.find(execution)
    with not_now():
        return answer({"execution": head.id, "changes": await engine.diff(head.id, step)})


def events_page(execution: str, entries: list[Entry], limit: int, address: str) -> Response:
    """At most `limit` events, and the address of the next page if there are more."""
    following = None
    if len(entries) > limit:
        entries = entries[:limit]
        following = f"{address}?after={entries[-1].seq}&limit={limit}"
    head_of = f'{{"execution":"{execution}","events":['.encode()
    lines = [_event(entry) for entry in entries]
    tail = msgspec.json.encode({"next": following})[1:]
    return Response(b"".join([head_of, b",".join(lines), b"],", tail]), media_type="application/json")


def _event(entry: Entry) -> bytes:
    """A journal's event with where it stands; its own JSON is not taken apart."""
    place = f'{{"position":{entry.position},"execution":"{entry.execution}","seq":{entry.seq},'
    return place.encode() + ev.encode(entry.event)[1:]


def _about(step: str, wanted: str) -> bool:
    """An item of a foreach is about its step."""
    return step == wanted or step.partition("[")[0] == wanted
