"""Triggers and their firings as `schedule` shows them, in lines and as data (L1)."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

from windlass.cli.session import suggest
from windlass.clock import iso

if TYPE_CHECKING:
    from windlass.core.triggers import Firing
    from windlass.engine.schedule import PlanTrouble, ScheduleView, TriggerView

__all__ = [
    "firing_data",
    "firing_line",
    "is_continued",
    "schedule_data",
    "suggest_tick",
    "tell_unread",
    "trigger_head",
    "unread_data",
]

SILENT = 300.0
"""Seconds without a tick after which it is said that nobody looks at the triggers."""


def trigger_head(view: TriggerView) -> str:
    from windlass.core.trigger_times import shown_time

    at = _next(view)
    shown = f", next {shown_time(at, view.trigger.zone)}" if at is not None else ""
    paused = f", paused: {view.state.paused} (resume it: {_resume(view)})" if view.state.paused else ""
    schedule = f"POST {_hook(view)}" if view.trigger.webhook is not None else view.trigger.schedule
    trouble = f", {view.trouble}" if view.trouble else ""
    return f"{view.trigger.id}: {schedule}{shown}{paused}{trouble}"


def _resume(view: TriggerView) -> str:
    return shlex.join(["windlass", "schedule", "resume", view.plan.path, view.trigger.id])


def _hook(view: TriggerView) -> str | None:
    from windlass.engine.hooks import hook_path

    return hook_path(view.plan.path, view.trigger.id) if view.trigger.webhook is not None else None


def _next(view: TriggerView) -> float | None:
    """The next time at which it starts its plan; None while it is paused."""
    from windlass.plan.cron import next_time

    trigger = view.trigger
    if view.state.paused:
        return None
    return next_time(trigger.cron, trigger.zone, view.state.until) if trigger.cron is not None else None


def is_continued(firing: Firing) -> bool:
    """True if its execution was started before, and its process died."""
    return firing.status == "started" and firing.tries > 0


def firing_line(firing: Firing, zone: str, status: str = "") -> str:
    from windlass.core.trigger_times import shown_time
    from windlass.core.triggers import FiringStatus, delivery_of, is_by_hand, watched_file

    never = firing.status in (FiringStatus.SKIPPED, FiringStatus.MISSED, FiringStatus.WAITING, FiringStatus.REFUSED)
    source = f" {name}" if (name := watched_file(firing) or delivery_of(firing)) else ""
    by = " by hand" if is_by_hand(firing) else ""
    execution = "" if never else f" {firing.execution}"
    shown = f"{shown_time(firing.at, zone)}{by}{source} {status or firing.status}{execution}"
    return f"{shown}: {firing.reason}" if firing.reason else shown


def schedule_data(found: ScheduleView, limit: int = 1) -> dict[str, Any]:
    triggers = [
        {
            "plan": view.plan.path,
            "workdir": view.plan.workdir,
            "trigger": view.trigger.id,
            "cron": view.trigger.cron,
            "zone": view.trigger.zone,
            "watch": view.trigger.watch.model_dump() if view.trigger.watch is not None else None,
            "webhook": _hook(view),
            "refused": view.refused._asdict() | {"at": iso(view.refused.at)} if view.refused is not None else None,
            "next": iso(_next(view)),
            "paused": view.state.paused,
            "trouble": view.trouble,
            "pending": [{"file": file.name, "reason": file.reason} for file in (view.pending or [])[:limit]],
            "firings": [firing_data(firing) for firing in view.state.firings[:limit]],
        }
        for view in found.triggers
    ]
    ticks = {name: iso(at) for name, at in found.ticks.items()}
    return {"triggers": triggers, "unreadable": unread_data(found.unread), "ticks": ticks}


def firing_data(firing: Firing) -> dict[str, Any]:
    from windlass.core.triggers import delivery_of, is_by_hand, watched_file

    return {
        "at": iso(firing.at),
        "file": watched_file(firing),
        "delivery": delivery_of(firing),
        "status": firing.status.value,
        "execution": firing.execution,
        "reason": firing.reason,
        "decided_at": iso(firing.decided_at),
        "by_hand": is_by_hand(firing),
    }


def unread_data(unread: list[PlanTrouble]) -> list[dict[str, str]]:
    return [{"plan": one.path, "trouble": one.trouble, "trigger": one.trigger} for one in unread]


def tell_unread(unread: list[PlanTrouble]) -> None:
    for one in unread:
        by = f" by {one.trigger}" if one.trigger else ""
        suggest(f"nothing starts {one.path}{by}: {one.trouble}")


def suggest_tick(found: ScheduleView) -> None:
    """Say so where nobody looks at the triggers."""
    last = max(found.ticks.values(), default=None)
    hooks = [view for view in found.triggers if view.trigger.webhook is not None]
    by_tick = len(hooks) < len(found.triggers) or found.unread
    if by_tick and (last is None or found.now - last > SILENT):
        when = "no tick has come yet" if last is None else f"the last tick came at {iso(last)}"
        suggest(f"{when}: triggers fire only while windlass serve runs, or after windlass schedule install")
    if hooks and found.now - found.ticks.get("serve", 0.0) > SILENT:
        suggest("webhooks are received only while windlass serve runs")
