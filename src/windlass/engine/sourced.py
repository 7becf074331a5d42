"""A plan with where it came from and the tools it brings along."""

from __future__ import annotations

from dataclasses import dataclass, field

from windlass.core.events import Source
from windlass.plan.model import Plan
from windlass.ports import Tool

__all__ = ["Sourced"]


@dataclass(frozen=True, slots=True)
class Sourced:
    plan: Plan
    source: Source = field(default_factory=Source)
    tools: tuple[Tool, ...] = ()
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, plan: Plan | Sourced) -> Sourced:
        """A bare plan came from nowhere and brings nothing."""
        return cls(plan) if isinstance(plan, Plan) else plan
