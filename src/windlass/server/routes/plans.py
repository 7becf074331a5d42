"""Plans before they run: those that ran here before, and the check of one that is to be started."""

from __future__ import annotations

import asyncio
import json
import shlex
from pathlib import Path
from typing import Annotated, Any

from fastapi import Query, Request
from starlette.responses import Response

from windlass.clock import iso
from windlass.engine.plans import LoadedPlan
from windlass.engine.run_request import RunRequest
from windlass.plan.model import DEFAULT_ROLE, Approve, Plan
from windlass.plan.prepare import prepare
from windlass.server import answer_models, request_models
from windlass.server.routes.shared import Id, answer, engine_of, new_router, problems, returns

__all__ = ["plan_routes"]

MOST_OUTLINED, LONGEST_LINE = 200, 200
LOOKED_THROUGH = 1000
"""Executions in which plans are looked for, from the newest on."""

plan_routes = new_router("/api/plans", "plans")


@plan_routes.get("", responses={200: returns(answer_models.PlanList), **problems()})
async def list_plans(request: Request, limit: Annotated[int, Query(ge=1, le=1000)] = 100) -> Response:
    """Plans of the newest executions by name, each with the last execution of it."""
    engine = engine_of(request)
    found: dict[str, dict[str, Any]] = {}
    for head in await engine.executions(limit=LOOKED_THROUGH):
        found.setdefault(head.name, {"name": head.name, "execution": head.id, "started_at": iso(head.created_at)})
    return answer({"plans": list(found.values())[:limit]})


@plan_routes.get("/{execution}", responses={200: returns(answer_models.UsedPlan), **problems(404, 409)})
async def used_plan(request: Request, execution: Id) -> Response:
    """The plan of an execution, as it was, with its file if that is still there, its inputs and folder."""
    engine = engine_of(request)
    state = await engine.state(execution)
    path = state.source.path
    there = path is not None and await asyncio.to_thread(Path(path).is_file)
    return answer(
        {
            "execution": state.id,
            "name": state.plan.name,
            "plan": json.loads(state.plan.encoded),
            "plan_file": path if there else None,
            "inputs": state.inputs,
            "workdir": state.workdir,
        }
    )


@plan_routes.post("/check", responses={200: returns(answer_models.CheckedPlan), **problems(404, 415)})
async def check_plan(request: Request, body: request_models.PlanCheck) -> Response:
    """Check a plan without starting it; an invalid one is answered with its problems, each with its line."""
    asked = RunRequest(**body.model_dump())
    return answer(_outline(await asyncio.to_thread(asked.load, engine_of(request))))


def _outline(loaded: LoadedPlan) -> dict[str, Any]:
    plan = loaded.plan
    return {
        "name": plan.name,
        "description": plan.description,
        "steps": len(plan.steps),
        "agents": sum(step.is_agent for step in plan.steps),
        "inputs": [
            {"name": name, "type": _TYPES.get(type(value), "any"), "default": value}
            for name, value in plan.inputs.items()
        ],
        "budget": {"usd": plan.budget.usd, "tokens": plan.budget.tokens} if plan.budget is not None else None,
        "warnings": list(loaded.warnings),
        "outline": [_outlined(plan, step) for step in prepare(plan).graph.order[:MOST_OUTLINED]],
    }


def _outlined(plan: Plan, name: str) -> dict[str, Any]:
    step = plan.by_id[name]
    does = f"{step.agent or DEFAULT_ROLE}: {step.prompt}" if step.is_agent else step.tool_name
    if step.run is not None:
        does = step.run if isinstance(step.run, str) else shlex.join(step.run)
    return {
        "id": name,
        "does": " ".join(does.split())[:LONGEST_LINE],
        "needs": list(prepare(plan).graph.needs[name]),
        "foreach": step.foreach is not None,
        "asks": step.approve is Approve.ALWAYS,
    }


_TYPES = {str: "text", bool: "yes or no", int: "whole number", float: "number", list: "list", dict: "mapping"}
"""Types of inputs by their defaults; null takes anything."""
