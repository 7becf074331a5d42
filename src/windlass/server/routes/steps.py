"""Steps of an execution, light enough for a page with thousands of them, now or at any moment of the past."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Path, Query, Request
from starlette.responses import Response

from windlass.core.state import StepState
from windlass.core.timeline import Timeline
from windlass.core.transitions import StepStatus
from windlass.core.view import items_of, progress, step_view, waits_because, waits_for
from windlass.engine.lookup import find_step
from windlass.engine.preview import asked_change
from windlass.engine.timelines import PAGE
from windlass.ports import Entry
from windlass.server import answer_models
from windlass.server.routes.executions import After, events_page
from windlass.server.routes.shared import Id, answer, new_router, problems, returns, service_of

__all__ = ["step_list_routes"]

At = Annotated[int | None, Query(ge=1, le=2**62, description="As it was after this event, by its sequence.")]
StepId = Annotated[str, Path(description="A step, or `STEP[N]` for an item of a foreach.", max_length=400)]

Seen = Annotated[
    int | None,
    Query(ge=0, le=2**62, description="A summary of up to a second ago will do, if it has this event."),
]

step_list_routes = new_router("/api", "executions")


@step_list_routes.get(
    "/executions/{execution}/summary",
    responses={200: returns(answer_models.ExecutionSummary), **problems(404, 409)},
)
async def summarised(request: Request, execution: Id, at: At = None, seen: Seen = None) -> Response:
    """One execution without its steps: state, money, forecast, and what it asks."""
    body = await service_of(request).summaries.of(execution, at, seen)
    return Response(body, media_type="application/json")


@step_list_routes.get(
    "/executions/{execution}/steps", responses={200: returns(answer_models.StepList), **problems(404, 409)}
)
async def steps(
    request: Request,
    execution: Id,
    at: At = None,
    items: Annotated[str | None, Query(max_length=400, description="The items of this foreach instead.")] = None,
) -> Response:
    """Its steps in the order of their dependencies, without input and output; with the stretches of their time."""
    service = service_of(request)
    engine = service.engine
    head = await engine.find(execution)
    timeline = await service.timelines.at(head.id, at)
    state = timeline.state
    found = list(state.top_level()) if items is None else find_step(state, items).children or []
    return answer(
        {
            "execution": state.id,
            "plan": state.plan.name,
            "status": str(state.status),
            "reason": state.paused_for or None,
            "progress": progress(state),
            "seq": state.seq,
            "at": state.updated_at,
            "created": state.created_at,
            "started": state.started_at,
            "finished": state.finished_at,
            "pauses": timeline.pauses,
            "steps": [_row(timeline, step) for step in found],
        }
    )


@step_list_routes.get(
    "/executions/{execution}/forecast",
    responses={200: returns(answer_models.StepForecasts), **problems(404, 409)},
)
async def forecast_by_step(request: Request, execution: Id) -> Response:
    """When each step that is left is expected to begin and to end; waiting for a person is in no figure."""
    service = service_of(request)
    engine = service.engine
    head = await engine.find(execution)
    state = (await service.timelines.at(head.id)).state
    found = await engine.forecast_by_step(state)
    rows = [
        {"id": step, "begins_s": round(one.begins, 3), "ends_s": round(one.ends, 3), "late_s": round(one.late, 3)}
        for step, one in (found.steps if found is not None else {}).items()
    ]
    at = found.at if found is not None else state.updated_at
    return answer({"execution": head.id, "seq": state.seq, "at": at, "steps": rows})


@step_list_routes.get(
    "/executions/{execution}/steps/{step}", responses={200: returns(answer_models.OneStep), **problems(404, 409)}
)
async def one_step(request: Request, execution: Id, step: StepId, at: At = None) -> Response:
    """One step with everything: input, output, error, question, and the stretches of its time."""
    service = service_of(request)
    engine = service.engine
    head = await engine.find(execution)
    timeline = await service.timelines.at(head.id, at)
    found = find_step(timeline.state, step)
    view = step_view(timeline.state, found, await engine.stale(timeline.state) if at is None else frozenset())
    if at is None and found.approval is not None and view["question"]:
        asked, workdir = found.approval, timeline.state.workdir
        view["question"]["diff"] = await asyncio.to_thread(asked_change, asked, workdir)
    return answer({"execution": head.id, "seq": timeline.state.seq, **view, **_shape(timeline, found)})


@step_list_routes.get(
    "/executions/{execution}/steps/{step}/events",
    responses={200: returns(answer_models.EventPage), **problems(404, 409)},
)
async def step_events(
    request: Request,
    execution: Id,
    step: StepId,
    after: After = 0,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
) -> Response:
    """Events of one step from the journal, in order: attempts, output, waits. Items of a foreach have their own."""
    service = service_of(request)
    engine = service.engine
    head = await engine.find(execution)
    timeline = await service.timelines.at(head.id)
    name = find_step(timeline.state, step).id
    first, last = timeline.places.get(name, (1, 0))
    found: list[Entry] = []
    while (after := max(after, first - 1)) < last and len(found) <= limit:
        entries = await engine.journal.read(head.id, after, min(PAGE, last - after))
        found += [entry for entry in entries if getattr(entry.event, "step", None) == name]
        after = entries[-1].seq if entries else last
    return events_page(head.id, found, limit, f"/api/executions/{head.id}/steps/{quote(name, safe='')}/events")


_RUNNING, _WAITING = StepStatus.RUNNING, StepStatus.WAITING


def _shape(timeline: Timeline, step: StepState) -> dict[str, Any]:
    """Its place in the plan, and the stretches of its time."""
    graph = timeline.state.prepared.graph
    return {
        "tool": step.prepared.tool,
        "needs": graph.needs[step.id] if step.parent is None else (),
        "importance": str(step.spec.importance),
        "stretches": timeline.stretches.get(step.id, ()),
    }


def _row(timeline: Timeline, step: StepState) -> dict[str, Any]:
    agent, error = step.agent, step.error
    can_wait = step.status is _RUNNING or step.status is _WAITING  # of ten thousand, nearly none does
    row = {
        "id": step.id,
        "status": str(step.status),
        **_shape(timeline, step),
        "attempts": step.attempts,
        "started": step.started_at,
        "finished": step.finished_at,
        "waiting_for": waits_for(step) if can_wait else None,
        "waiting_because": waits_because(step) if can_wait else None,
        "until": step.until,
        "asks": step.asks,
        "last_output": step.last_output,
        "cost_usd": agent.cost.shown_usd if agent is not None else None,
        "role": agent.role if agent is not None else step.spec.agent,
        "runtime": agent.runtime if agent is not None else None,
        "model": agent.model if agent is not None else None,
        "category": str(error.category) if error is not None and step.settled else None,
        "error": error.message[:300] if error is not None and step.settled else None,
    }
    if step.children is not None:
        row["items"] = items_of(step)
    return row
