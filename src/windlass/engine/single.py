"""One use of a tool, or one program, as a plan of one step: so it is durable, gated and on record like any other.

Plans fill in templates, and here there are none: the given values are passed on as they are, braces and all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from windlass.engine.engine import Engine
from windlass.errors import NotFound, PlanInvalid, UsageError
from windlass.plan.check import check_data
from windlass.plan.model import AGENT, MERGE, Plan
from windlass.ports import Tool

__all__ = ["plan_of_program", "plan_of_tool", "tool_named"]

PROGRAM, CALL = "program", "call"
"""Ids of the one step."""
_MARKS = ("{{", "{%", "{#")
_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "{": "\\x7b", "}": "\\x7d", "\n": "\\n", "\r": "\\r"})


def plan_of_tool(engine: Engine, name: str, arguments: Mapping[str, Any]) -> Plan:
    """The tool of that name, used once with exactly these arguments."""
    tool = tool_named(engine, name)
    if name == MERGE:
        raise UsageError("`merge` cannot be run as a tool: it merges the branches of a step of its plan")
    if name == AGENT:
        raise UsageError(
            "an agent cannot be run as a tool: it needs a role, a runtime and a budget",
            advice=("windlass run --task TEXT", "or engine_execute with `task`"),
        )
    try:
        if wrong := tool.validate(arguments):
            reasons = "\n".join(f"  {reason}" for reason in wrong)
            advice = (f"see its arguments: windlass tools show {name}",)
            raise UsageError(f"{name} cannot take these arguments:\n{reasons}", advice=advice)
        return _plan(name, {"id": CALL, "tool": name, "with": _literal(dict(arguments))})
    except RecursionError:
        raise UsageError(f"the arguments of {name} are nested too deep") from None


def plan_of_program(
    source: str,
    args: Mapping[str, Any] | None = None,
    grants: Sequence[str] | None = None,
    limits: Mapping[str, Any] | None = None,
) -> Plan:
    """The program, run once. Without `grants` it may call every tool."""
    step: dict[str, Any] = {"id": PROGRAM, "code": source, "with": _literal(dict(args or {}))}
    if grants is not None:
        step["grants"] = list(grants)
    if limits is not None:
        step["limits"] = dict(limits)
    return _plan("code", step)


def tool_named(engine: Engine, name: str) -> Tool:
    box = engine.attempt_runner.tools
    tool = box.get(name)
    if tool is None:
        near = box.nearest(name)
        hint = f"did you mean {near!r}?" if near else "list all: windlass tools"
        raise NotFound(f"there is no tool named {name!r}", advice=(hint,))
    return tool


def _plan(name: str, step: dict[str, Any]) -> Plan:
    found = check_data({"name": name, "steps": [step]}, file=name)
    if found.plan is None:
        raise PlanInvalid(found.problems)
    return found.plan


def _literal(value: Any) -> Any:
    """Plan data that gives exactly this value: text that looks like a template becomes one that gives that text."""
    match value:
        case str() if any(mark in value for mark in _MARKS):
            return f'{{{{ "{value.translate(_ESCAPED)}" }}}}'
        case list() | tuple():
            return [_literal(one) for one in value]
        case dict():
            return {key: _literal(one) for key, one in value.items()}
        case _:
            return value
