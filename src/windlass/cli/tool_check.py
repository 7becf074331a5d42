"""`tools check`: how the tools are, and which breakers are not closed (H3, C4)."""

from __future__ import annotations

from typing import Any

from windlass.cli.agents import visible
from windlass.clock import iso
from windlass.engine.engine import Engine

__all__ = ["checked", "told_of"]


async def checked(engine: Engine) -> dict[str, Any]:
    health = await engine.bench.check() if engine.bench is not None else {}
    now = engine.clock.now()
    breakers = {
        name: {
            "circuit": str(breaker.circuit(now)),
            "failures": breaker.failures,
            "because": breaker.because,
            "until": iso(breaker.until) if breaker.until else None,
        }
        for name, breaker in sorted(engine.performer.gates.book.breakers().items())
    }
    tools = {
        name: {"ok": found.ok, "set_up": not found.unset, "detail": found.detail, "advice": found.advice}
        for name, found in sorted(health.items())
    }
    well = all(found["ok"] or not found["set_up"] for found in tools.values()) and not any(
        b["until"] for b in breakers.values()
    )
    return {"ok": well, "tools": tools, "breakers": breakers}


def told_of(found: dict[str, Any]) -> str:
    lines = []
    for name, tool in found["tools"].items():
        mark = "✓" if tool["ok"] else "✗" if tool["set_up"] else "–"
        lines.append(f"{mark} {name}{': ' if tool['detail'] else ''}{visible(tool['detail'])}")
        lines += [f"    → {visible(tool['advice'])}"] if tool["advice"] and not tool["ok"] else []
    for name, breaker in found["breakers"].items():
        until = f", tried again at {breaker['until']}" if breaker["until"] else ""
        lines.append(f"! {name}: {breaker['circuit']}{until}; the last failure: {visible(breaker['because'])}")
    return "".join(f"{line}\n" for line in lines)
