"""Windlass: a durable task execution engine for AI agents.

    import asyncio, windlass

    async def main():
        async with windlass.open() as engine:
            execution = await engine.start("plan.yaml")
            async for event in execution.events():
                print(event)

    asyncio.run(main())

Names are loaded when first used, so that importing `windlass` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from windlass.version import __version__

if TYPE_CHECKING:
    from windlass.assembly import open_engine as open
    from windlass.engine.engine import Engine
    from windlass.engine.execution import Execution
    from windlass.engine.run_request import RunRequest
    from windlass.errors import Category, Failure, PlanInvalid, ToolError, WindlassError
    from windlass.plan.model import Budget, Effect, Importance, Limits, Permits, Plan, Retry, Step
    from windlass.ports import AgentRequest, AgentResult, Amount, Call, Health, Host, Runner, Tool, Usage
    from windlass.tools.function import tool

_HOMES = {
    "open": ("windlass.assembly", "open_engine"),
    "Engine": ("windlass.engine.engine", "Engine"),
    "Execution": ("windlass.engine.execution", "Execution"),
    "RunRequest": ("windlass.engine.run_request", "RunRequest"),
    "Category": ("windlass.errors", "Category"),
    "Failure": ("windlass.errors", "Failure"),
    "PlanInvalid": ("windlass.errors", "PlanInvalid"),
    "ToolError": ("windlass.errors", "ToolError"),
    "WindlassError": ("windlass.errors", "WindlassError"),
    "Budget": ("windlass.plan.model", "Budget"),
    "Effect": ("windlass.plan.model", "Effect"),
    "Importance": ("windlass.plan.model", "Importance"),
    "Limits": ("windlass.plan.model", "Limits"),
    "Permits": ("windlass.plan.model", "Permits"),
    "Plan": ("windlass.plan.model", "Plan"),
    "Retry": ("windlass.plan.model", "Retry"),
    "Step": ("windlass.plan.model", "Step"),
    "AgentRequest": ("windlass.ports", "AgentRequest"),
    "AgentResult": ("windlass.ports", "AgentResult"),
    "Amount": ("windlass.ports", "Amount"),
    "Call": ("windlass.ports", "Call"),
    "Health": ("windlass.ports", "Health"),
    "Host": ("windlass.ports", "Host"),
    "Runner": ("windlass.ports", "Runner"),
    "Tool": ("windlass.ports", "Tool"),
    "Usage": ("windlass.ports", "Usage"),
    "tool": ("windlass.tools.function", "tool"),
}

__all__ = [
    "AgentRequest",
    "AgentResult",
    "Amount",
    "Budget",
    "Call",
    "Category",
    "Effect",
    "Engine",
    "Execution",
    "Failure",
    "Health",
    "Host",
    "Importance",
    "Limits",
    "Permits",
    "Plan",
    "PlanInvalid",
    "Retry",
    "RunRequest",
    "Runner",
    "Step",
    "Tool",
    "ToolError",
    "Usage",
    "WindlassError",
    "__version__",
    "open",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'windlass' has no attribute {name!r}")
    module, attribute = _HOMES[name]
    return getattr(import_module(module), attribute)


def __dir__() -> list[str]:
    return __all__
