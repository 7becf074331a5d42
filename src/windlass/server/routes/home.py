"""The home besides its executions: money, tools, roles, figures, health and metrics. Reads only."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any

from fastapi import Path as PathOf
from fastapi import Query, Request
from starlette.responses import Response

from windlass.agents.catalogue import Catalogue, catalogue_data
from windlass.assembly.tool_catalog import every_tool, tool_data, whole_data
from windlass.core.rollup import FIELDS
from windlass.engine.gates.view import breakers, manner, open_breakers
from windlass.engine.history_page import HistoryPage, SlowPage
from windlass.engine.single import tool_named
from windlass.engine.spending import By, as_json, limits_of, look_up, row_json
from windlass.errors import JournalError, UsageError
from windlass.ports import hooks_of
from windlass.server import answer_models
from windlass.server.metrics import CONTENT_TYPE_LATEST
from windlass.server.routes.shared import answer, clean, engine_of, new_router, problems, returns, service_of
from windlass.server.service import Service
from windlass.settings.origins import settings_table
from windlass.version import __version__

__all__ = ["health_routes", "home_routes"]

home_routes = new_router("/api", "looking")


@home_routes.get("/budget", responses=problems())
async def budget(request: Request, by: By = By.DAY) -> Response:
    """Budgets: the limit, spent and left, today and this month."""
    engine = engine_of(request)
    limits = limits_of(engine.settings.budget)
    return answer(as_json(await look_up(engine.ledger, engine.clock.now(), limits, by)))


@home_routes.get("/tools", responses=problems())
async def tools(request: Request) -> Response:
    """The tools that steps can use: kinds, what they take and return, terms, breakers, uses of composed ones."""
    engine = engine_of(request)
    gates = engine.attempt_runner.gates

    def told() -> list[dict[str, Any]]:
        return [tool_data(engine, tool) | manner(gates, tool) for tool in every_tool(engine)]

    return answer(await asyncio.to_thread(lambda: clean(request, told())))


@home_routes.get("/tools/{name}", responses=problems(404))
async def tool(
    request: Request, name: Annotated[str, PathOf(max_length=200, description="A tool's name.")]
) -> Response:
    """One tool, with its TypeScript declaration for programs; of a composed one also its source."""
    engine = engine_of(request)

    def told() -> dict[str, Any]:
        found = tool_named(engine, name)
        return whole_data(engine, found) | manner(engine.attempt_runner.gates, found)

    return answer(await asyncio.to_thread(lambda: clean(request, told())))


@home_routes.get("/agents", responses=problems())
async def agents(
    workdir: Annotated[str | None, Query(max_length=4096, description="Search from this folder.")] = None,
) -> Response:
    """The roles and skills that agents can be given, where they come from, and what is wrong with them."""
    folder = Path(workdir or os.getcwd())
    if not os.path.isdir(folder):  # unlike Path.is_dir, it takes any text: too long a name, too
        raise UsageError(f"{str(folder)!r} is not a folder")
    return answer(await asyncio.to_thread(lambda: catalogue_data(Catalogue(folder))))


@home_routes.get("/runtimes", responses=problems())
async def runtimes(request: Request) -> Response:
    """Runtimes of agents, as far as can be told without starting one, and every breaker that has failures."""
    engine = engine_of(request)

    def told() -> list[dict[str, Any]]:
        known = engine.agents.runners if engine.agents is not None else {}
        found = {name: hooks_of(known[name]).installed() for name in known}
        return [
            {"name": name, "ok": health.ok, "detail": health.detail, "advice": health.advice}
            for name, health in found.items()
        ]

    listed = await asyncio.to_thread(lambda: clean(request, told()))
    return answer({"runtimes": listed, "breakers": clean(request, breakers(engine.attempt_runner.gates))})


@home_routes.get("/settings", responses=problems())
async def settings(request: Request) -> Response:
    """Settings of this server, each value with its origin; secrets are not told."""
    engine = engine_of(request)
    rows = await asyncio.to_thread(settings_table, engine.settings, engine.home)
    return answer({"home": str(engine.home), "settings": clean(request, rows)})


@home_routes.get("/history/forecasts", responses=problems())
async def forecasts(
    request: Request,
    plan: Annotated[str, Query(max_length=200, description="Only executions of this plan.")] = "",
) -> Response:
    """Scores of earlier forecasts of time and of cost: how many came true within their band."""
    from windlass.core.forecast.calibration import BAND
    from windlass.core.forecast.scores import cost_scores, scores

    outcomes = await engine_of(request).forecast_outcomes(plan)
    times = scores((one.forecast, one.took_s) for one in outcomes)
    costs = cost_scores((one.forecast, one.usd) for one in outcomes)
    rows = {"scores": [one.as_dict() for one in times], "cost_scores": [one.as_dict() for one in costs]}
    return answer({"runs": len({one.execution for one in outcomes}), "band": BAND, **rows})


@home_routes.get("/history", responses=problems())
async def history(
    request: Request,
    by: Annotated[str, Query(max_length=20, description=f"Group by {', '.join(FIELDS)}.")] = "day",
    since: Annotated[str | None, Query(max_length=20, description="First day: `30d`, `4w`, a date.")] = None,
    until: Annotated[str | None, Query(max_length=20, description="Last day.")] = None,
    failed: Annotated[bool, Query(description="Only failures.")] = False,
    plan: Annotated[str, Query(max_length=200, description="Only executions of this plan.")] = "",
    slow: Annotated[bool, Query(description="Bottlenecks and changes of steps instead.")] = False,
) -> Response:
    """Past executions or their steps, summed up by a field: times, waits, cost, tokens, failures."""
    engine = engine_of(request)
    page: HistoryPage | SlowPage
    if slow:
        _refuse_beside_slow(by != "day" or until or failed)
        page = await engine.slow_steps(since=since, plan=plan)
    else:
        page = await engine.history(by, since=since, until=until, failed=failed, plan=plan)
    return answer(await asyncio.to_thread(lambda: clean(request, page.as_dict())))


@home_routes.get("/stats", responses=problems())
async def stats(request: Request) -> Response:
    """Executions counted by status, spending by day, model and runtime, and the last 30 days summed up."""
    engine = engine_of(request)
    found = await engine.ledger.spent_by(("day", "model", "runtime"))
    spent = {by: [{by: row.heading, **row_json(row)} for row in rows] for by, rows in found.items()}
    history = await engine.past_runs.recent_totals()
    return answer({"executions": await engine.counts(), "spent": spent, "history": history})


def _refuse_beside_slow(given: object) -> None:
    if given:
        raise UsageError("`slow` goes with `since` and `plan` only")


health_routes = new_router("", "health")


@health_routes.get("/health", responses={503: {"description": "The journal cannot be used"}})
async def health(request: Request) -> Response:
    """Health of the server; with a token, in detail."""
    service = service_of(request)
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    known = kind.lower() == "bearer" and service.access.has_token(token.strip())
    return await _health(service, details=known)


@health_routes.get("/api/health", responses=problems())
async def health_details(request: Request) -> Response:
    """Health of the server, in detail."""
    return await _health(service_of(request), details=True)


async def _health(service: Service, *, details: bool) -> Response:
    engine = service.engine
    trouble, loss, questions = None, "", None
    try:
        await engine.journal.heads(limit=1)
        if details:
            questions, loss = await engine.journal.count_questions(), await engine.journal_loss()
    except JournalError as error:
        trouble = error.message
    told: dict[str, Any] = {"ok": trouble is None}
    if details:
        told |= {
            "version": __version__,
            "home": str(engine.home),
            "pid": os.getpid(),
            "uptime_s": round(engine.clock.now() - service.started_at, 3),
            "driven": engine.driving,
            "waiting": service.waiting,
            "questions": questions,
            "journal": trouble or loss or "ok",
            "recovery": service.trouble or "ok",
            "damaged": [
                {"execution": one.execution, "seq": one.seq, "reason": service.answer_redactor.clean(one.reason)}
                for one in sorted(engine.damaged.values(), key=lambda one: one.execution)
            ],
            "breakers": service.answer_redactor.clean(open_breakers(engine.attempt_runner.gates)),
            "intake": engine.attempt_runner.intake.told(),
        }
    return answer(told, 200 if trouble is None else 503, {"cache-control": "no-store"})


@health_routes.get("/api/waiting", responses={200: returns(answer_models.WaitingGate, many=True), **problems()})
async def waiting(request: Request) -> Response:
    """The gates at which steps that this server runs wait: slots, rates and places of tools, open breakers."""
    return answer(clean(request, engine_of(request).waiting_at_gates()))


@health_routes.get("/metrics", responses={200: {"content": {"text/plain": {}}}, **problems()}, response_class=Response)
async def metrics(request: Request) -> Response:
    """Metrics in Prometheus' form."""
    service = service_of(request)
    engine = service.engine
    spent = await engine.ledger.spent_by(("runtime", "model"))
    page = service.metrics.page(
        counts=await engine.counts(),
        spent=spent["runtime"],
        models=spent["model"],
        questions=await engine.journal.count_questions(),
        scores=await engine.forecast_scores(),
        spans=engine.telemetry.counts() if engine.telemetry is not None else None,
        circuits={name: told["circuit"] for name, told in breakers(engine.attempt_runner.gates).items()},
        waiting=engine.attempt_runner.intake.told()["waiting"],
        driven=engine.driving,
        clients=service.feed.clients,
        dropped=service.feed.dropped,
    )
    return Response(page, media_type=CONTENT_TYPE_LATEST)
