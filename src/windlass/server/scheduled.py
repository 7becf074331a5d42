"""Ticks of a server: it starts scheduled plans itself, drives them, and logs what becomes of each time (L1)."""

from __future__ import annotations

import logging

from windlass.engine.engine import Engine
from windlass.engine.schedule import PlanTrouble, Schedule
from windlass.ports.triggers import TriggerStore

__all__ = ["tick_once"]

_log = logging.getLogger("windlass.server")
_GOOD = ("started", "completed", "waiting", "cancelled")


async def tick_once(engine: Engine, store: TriggerStore, told: list[PlanTrouble], driven: set[str]) -> None:
    """Look at the triggers of all scheduled plans, once. `told` are the troubles that were there at the last look;
    executions that are started here are added to `driven`."""

    async def drive(execution: str) -> None:
        driven.add(execution)
        await engine.resume(execution, keep_plan=True)

    firings, troubles = await Schedule(engine, store, drive).tick("serve")
    for plan, trigger, firing in firings:
        fields = {"plan": plan, "trigger": trigger, "execution": firing.execution, "reason": firing.reason}
        level = logging.INFO if firing.status in _GOOD else logging.WARNING
        _log.log(level, "trigger %s", firing.status, extra={"fields": fields})
    for one in troubles:
        if one not in told:  # it is said once
            fields = {"plan": one.path, "trigger": one.trigger, "reason": one.trouble}
            _log.warning("nothing starts a scheduled plan", extra={"fields": fields})
    told[:] = troubles
