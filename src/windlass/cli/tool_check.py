"""`tools check`: how the tools are, which breakers are not closed, and what of it `status` shows (H3, C4)."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from windlass.cli.terminal import as_message
from windlass.engine.engine import Engine
from windlass.engine.gates.view import breakers, open_breakers, told_line

__all__ = ["checked", "gate_lines", "told_of"]

MOST_LINES = 20


async def checked(engine: Engine) -> dict[str, Any]:
    health = await engine.built_in.check() if engine.built_in is not None else {}
    known = breakers(engine.performer.gates)
    tools = {
        name: {"ok": found.ok, "set_up": not found.unset, "detail": found.detail, "advice": found.advice}
        for name, found in sorted(health.items())
    }
    well = all(found["ok"] or not found["set_up"] for found in tools.values()) and not any(
        breaker["until"] for breaker in known.values()
    )
    return {"ok": well, "tools": tools, "breakers": known, "kept": (engine.home / "windlass.db").exists()}


def told_of(found: dict[str, Any]) -> str:
    lines = []
    for (_, tool), alike in groupby(found["tools"].items(), key=lambda one: (one[0].partition(".")[0], one[1])):
        mark = "✓" if tool["ok"] else "✗" if tool["set_up"] else "–"
        lines.append(f"{mark} {_named([name for name, _ in alike])}{': ' if tool['detail'] else ''}{tool['detail']}")
        lines += [f"    → {tool['advice']}"] if tool["advice"] and not tool["ok"] else []
    lines += _breaker_lines(found["breakers"])
    return "".join(f"{as_message(line)}\n" for line in lines)


def _named(alike: list[str]) -> str:
    """Tools of one family of which the same is to be said."""
    return alike[0] if len(alike) == 1 else f"{alike[0].partition('.')[0]}.* ({len(alike)} tools)"


def gate_lines(engine: Engine) -> list[str]:
    """What keeps executions of this home waiting just now: breakers that are not closed, and a lack of room."""
    lines = _breaker_lines(open_breakers(engine.performer.gates))
    lines[MOST_LINES:] = ["! … and more: windlass tools check"] if len(lines) > MOST_LINES else []
    return lines + [f"! new attempts are held back: {why}" for why in engine.performer.intake.told()["held_back"]]


def _breaker_lines(known: dict[str, dict[str, Any]]) -> list[str]:
    return [f"! {' '.join(told_line(name, told).split())}" for name, told in known.items()]
