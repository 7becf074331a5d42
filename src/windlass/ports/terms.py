"""What a tool may say of itself besides its work: on which terms it is used, and how it is (H1, H3, C4, C8).

None of it has to be there: a tool that says nothing is used at once, for as long as it takes, as often as one likes.
The user's settings come before what a tool says.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from windlass.ports.tool import Health, Tool

__all__ = ["Estimate", "Rate", "Terms", "circuit_of", "estimate_of", "health_of", "returns_of", "terms_of"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_RATE = re.compile(r"(\d+)\s*/\s*(\d+(?:\.\d+)?)?\s*([smhd])")


class Rate(NamedTuple):
    """So many uses in so many seconds, by all executions of a home together."""

    uses: int
    seconds: float

    @classmethod
    def of(cls, text: str) -> Rate:
        """From `10/s`, `60/m`, `100/15m`, `1000/d`."""
        found = _RATE.fullmatch(text.strip())
        if found is None or not int(found[1]) or (found[2] and not float(found[2])):
            raise ValueError(f"{text!r} is not a rate: write it like 10/s, 60/m, 100/15m, 1000/d")
        return cls(int(found[1]), float(found[2] or 1) * _UNITS[found[3]])

    def next(self, due: float, now: float) -> tuple[float, float]:
        """When everything taken will have drained, with one more use; and how long that one has to wait, if it has to.

        This is the generic cell rate algorithm: one number is all there is to keep. A clock that was set back must not
        close the gate for longer than one period.
        """
        each = self.seconds / self.uses
        after = max(due, now) + each
        wait = after - now - self.seconds
        if wait > self.seconds:
            return now + each, 0.0
        return (due, wait) if wait > 1e-6 else (after, 0.0)

    def __str__(self) -> str:
        return f"{self.uses}/{self.seconds:g}s"


@dataclass(frozen=True, slots=True)
class Terms:
    """On which terms a tool is used."""

    timeout: float | None = None
    """Seconds that one use may take."""
    rate: Rate | None = None
    concurrent: int | None = None
    """Uses at the same time, by all executions of a home together."""
    cache: float | None = None
    """Seconds for which a result is good; only for what has no effect."""
    fallback: str | None = None
    """The tool that takes its place when it cannot be used. It must take the same arguments."""
    sensitive: bool = False
    """A person is asked before it is used, unless the plan says `approve: never`."""


class Estimate(NamedTuple):
    """What a use will probably take."""

    seconds: float | None = None
    usd: float | None = None


_PLAIN = Terms()


def terms_of(tool: Tool) -> Terms:
    """What the tool itself says: its attribute `terms`."""
    found = getattr(tool, "terms", None)
    return found if isinstance(found, Terms) else _PLAIN


def circuit_of(tool: Tool, arguments: Mapping[str, Any]) -> str | None:
    """What a failure would say something about, for the breaker: the tool, unless its method `circuit(arguments)` names
    something else (one host of many), or nothing: who runs any command is not broken because one of them fails."""
    circuit = getattr(tool, "circuit", None)
    if circuit is None:
        return tool.name
    found = circuit(arguments)
    return str(found) if found is not None else None


def returns_of(tool: Tool) -> Mapping[str, Any] | None:
    """JSON Schema of its result, where it has one: its attribute `returns`."""
    found = getattr(tool, "returns", None)
    return found if isinstance(found, Mapping) else None


def estimate_of(tool: Tool, arguments: Mapping[str, Any]) -> Estimate:
    """Its method `estimate(arguments)`, where it has one."""
    estimate = getattr(tool, "estimate", None)
    return estimate(arguments) if estimate is not None else Estimate()


async def health_of(tool: Tool) -> Health:
    """Its async method `health()`, where it has one; a tool without one is well. One that breaks is not."""
    health = getattr(tool, "health", None)
    if health is None:
        return Health(True)
    try:
        found = await health()
    except Exception as error:  # whatever it stumbles over is how it is
        return Health(False, f"its health cannot be told: {error}")
    return found if isinstance(found, Health) else Health(bool(found))
