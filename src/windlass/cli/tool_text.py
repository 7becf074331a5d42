"""Tools in plain text: `tools`, `tools show`, and their health in `tools check` and `status` (H3, C4)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from windlass.cli.agents import short_path as short
from windlass.cli.install_advice import fitting_install
from windlass.cli.terminal import as_message, clip
from windlass.cli.text import plural
from windlass.engine.engine import Engine
from windlass.engine.gates.view import breakers, open_breakers, told_line
from windlass.journal.stores import HomeStores

__all__ = ["checked", "gate_lines", "short", "told_of", "tool_page", "tool_table"]


_HEADINGS = {"built-in": "Built-in", "mcp": "Of MCP servers", "own": "Own", "composed": "Composed"}
_WIDEST = 40


def tool_table(tools: Sequence[dict[str, Any]]) -> str:
    """A line for each, by kind; of composed ones also what they may call and how often they were used."""
    width = min(max([len(tool["name"]) for tool in tools], default=8), _WIDEST)
    lines: list[str] = []
    for kind, heading in _HEADINGS.items():
        of_kind = [tool for tool in tools if tool["kind"] == kind]
        if not of_kind and kind != "composed":
            continue
        lines.append(heading if of_kind else f"{heading}: none yet")
        for tool in of_kind:
            words = clip(tool["description"], 90) or "(no description)"
            lines.append(f"  {tool['name']:<{width}}  {tool['effect'] or 'by arguments':<10}  {words}")
            if kind == "composed":
                lines.append(f"  {'':<{width}}  {'':<10}  {_calls(tool)}; {_used(tool)}; {_scope(tool)}")
        lines.append("")
    return "\n".join(lines[:-1]) + "\n"


def tool_page(tool: dict[str, Any]) -> str:
    """Everything there is to know about one."""
    return "\n".join(_page(tool))


def _page(tool: dict[str, Any]) -> Iterator[str]:
    effect = f"effect {tool['effect']}" if tool["effect"] else "its effect depends on its arguments"
    yield f"{tool['name']}: {tool['kind']}, {effect}"
    yield as_message(tool["description"])
    if terms := [f"{name} {value}" for name, value in tool["terms"].items() if value]:
        yield f"its terms: {', '.join(terms)}"
    if tool["breaker"] is not None and tool["breaker"]["failures"]:
        yield f"its breaker is {tool['breaker']['circuit']}; the last failure: {tool['breaker']['because']}"
    if tool["kind"] == "composed":
        yield f"kept in {short(tool['file'])}, {_scope(tool)}"
        yield f"{_calls(tool)}; {_used(tool)}"
    yield f"\nArguments\n{_data(tool['schema'])}"
    if tool["returns"] is not None:
        yield f"\nReturns\n{_data(tool['returns'])}"
    if tool["declaration"] is not None:
        yield f"\nIn a program\n{tool['declaration']}".rstrip()
    if tool["kind"] == "composed":
        yield f"\nSource\n{tool['source']}".rstrip()
    yield ""


def _calls(tool: dict[str, Any]) -> str:
    return f"may call {', '.join(tool['grants'])}" if tool["grants"] else "calls no tools"


def _used(tool: dict[str, Any]) -> str:
    uses = tool["uses"]
    if not uses["times"]:
        return "not used yet"
    failed = f", {uses['failed']} failed" if uses["failed"] else ""
    last = f", last {uses['last_at']}" if uses["last_at"] else ""
    return f"used {plural(uses['times'], 'time')}{failed}{last}"


def _scope(tool: dict[str, Any]) -> str:
    return "for all your projects" if tool["scope"] == "user" else "for this project"


def _data(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


MOST_LINES = 20


async def checked(engine: Engine) -> dict[str, Any]:
    health = await engine.built_in.check() if engine.built_in is not None else {}
    known = breakers(engine.attempt_runner.gates)
    tools = {
        name: {"ok": found.ok, "set_up": not found.unset, "detail": found.detail, "advice": found.advice}
        for name, found in sorted(health.items())
    }
    well = all(found["ok"] or not found["set_up"] for found in tools.values()) and not any(
        breaker["until"] for breaker in known.values()
    )
    kept = HomeStores(engine.home, engine.settings.journal).exist
    return {"ok": well, "tools": tools, "breakers": known, "kept": kept}


def told_of(found: dict[str, Any]) -> str:
    lines = []
    for (_, tool), alike in groupby(found["tools"].items(), key=lambda one: (one[0].partition(".")[0], one[1])):
        mark = "✓" if tool["ok"] else "✗" if tool["set_up"] else "–"
        lines.append(f"{mark} {_named([name for name, _ in alike])}{': ' if tool['detail'] else ''}{tool['detail']}")
        lines += [f"    → {fitting_install(tool['advice'])}"] if tool["advice"] and not tool["ok"] else []
    lines += _breaker_lines(found["breakers"])
    return "".join(f"{as_message(line)}\n" for line in lines)


def _named(alike: list[str]) -> str:
    """Tools of one family of which the same is to be said."""
    return alike[0] if len(alike) == 1 else f"{alike[0].partition('.')[0]}.* ({len(alike)} tools)"


def gate_lines(engine: Engine) -> list[str]:
    """Reasons why executions of this home wait now: breakers that are not closed, and a lack of room."""
    lines = _breaker_lines(open_breakers(engine.attempt_runner.gates))
    lines[MOST_LINES:] = ["! … and more: windlass tools check"] if len(lines) > MOST_LINES else []
    return lines + [f"! no new attempts start: {why}" for why in engine.attempt_runner.intake.told()["held_back"]]


def _breaker_lines(known: dict[str, dict[str, Any]]) -> list[str]:
    return [f"! {' '.join(told_line(name, told).split())}" for name, told in known.items()]
