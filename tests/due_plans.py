"""A scheduled plan for tests, whose only time of the year has come: it is due exactly once, whenever one looks."""

from __future__ import annotations

import sqlite3
import time
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

if TYPE_CHECKING:
    from conftest import Project, Windlass

__all__ = ["schedule_due_plan"]

PLAN = """
    name: yearly
    triggers:
      - {{id: yearly, cron: "{cron}", zone: {zone}, catch_up: 1d}}
    steps:
      - {{id: a, run: "{line}"}}
"""


def schedule_due_plan(
    project: Project, windlass: Windlass, zone: str = "UTC", line: str = "echo ran >> ran.txt"
) -> str:
    """Schedule a plan whose time has come ten minutes ago."""
    at = time.time() // 60 * 60 - 600
    moment = datetime.fromtimestamp(at, ZoneInfo(zone))
    cron = f"{moment.minute} {moment.hour} {moment.day} {moment.month} *"
    plan = project.plan(PLAN.format(cron=cron, zone=zone, line=line))
    windlass("schedule", "add", plan)
    db = sqlite3.connect(project.home / "windlass.db")
    with db:
        db.execute("UPDATE schedule_triggers SET until = ?", (at - 60,))
    db.close()
    return plan
