"""JSON view of the gates: the same on the command line, over HTTP and over MCP (C4, C8).

A breaker is shown as the gate would find it at this moment, by the gate's own clock. The text of a failure may come
from a stranger: the caller must sanitize it before showing it.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from windlass.clock import iso
from windlass.core.breaker import Breaker, Circuit
from windlass.core.state import State
from windlass.core.view import snapshot
from windlass.engine.gates.gates import Gates
from windlass.ports import Terms, Tool

__all__ = ["breakers", "manner", "open_breakers", "standing", "told_line"]


def breakers(gates: Gates) -> dict[str, dict[str, Any]]:
    """Every breaker that has failures, by name: of tools, of hosts, of runtimes."""
    now = gates.clock.now()
    return {name: _told(breaker, now) for name, breaker in sorted(_kept(gates).items())}


def open_breakers(gates: Gates) -> dict[str, dict[str, Any]]:
    """Breakers that are open or half open, by name."""
    return {name: told for name, told in breakers(gates).items() if told["circuit"] != Circuit.CLOSED}


def standing(
    state: State, gates: Gates, forecast: dict[str, Any] | None = None, stale: Set[str] = frozenset()
) -> dict[str, Any]:
    """An execution as one JSON object; with `breakers` while it is not finished and some are not closed."""
    told = snapshot(state, forecast, stale)
    if not state.status.finished and (found := open_breakers(gates)):
        told["breakers"] = found
    return told


def told_line(name: str, told: dict[str, Any]) -> str:
    """One of them in a line."""
    match told["circuit"]:
        case Circuit.OPEN:
            until = f", next probe at {told['until']}"
        case Circuit.HALF_OPEN:
            until = ", the next use probes it" if not told["probing"] else ", a probe is running"
        case _:
            until = f", {told['failures']} failures in a row"
    return f"{name}: {told['circuit']}{until}; the last failure: {told['because']}"


def manner(gates: Gates, tool: Tool) -> dict[str, Any]:
    """The terms of the tool, and its breaker; null where it has none of its own."""
    try:
        circuit = tool.circuit({})
    except Exception:  # which it is depends on the arguments, or the tool is anybody's
        circuit = None
    breaker = _told(gates.book.breaker(circuit), gates.clock.now()) if circuit is not None else None
    return {"terms": _terms(gates.terms.of(tool)), "breaker": breaker}


def _kept(gates: Gates) -> dict[str, Breaker]:
    try:
        return gates.book.breakers()
    except OSError:  # a read-only home has none, which is no error for a reader
        return {}


def _told(breaker: Breaker, now: float) -> dict[str, Any]:
    return {
        "circuit": str(breaker.circuit(now)),
        "failures": breaker.failures,
        "because": breaker.because,
        "until": iso(breaker.until) if breaker.until else None,
        "probing": breaker.probing,
    }


def _terms(terms: Terms) -> dict[str, Any]:
    return {
        "timeout": terms.timeout,
        "rate": str(terms.rate) if terms.rate is not None else None,
        "concurrent": terms.concurrent,
        "cache": terms.cache,
        "fallback": terms.fallback,
        "sensitive": terms.sensitive,
    }
