"""`service` of a step: its command stays until the steps that need it have ended, and when it counts as ready (B5)."""

from __future__ import annotations

from typing import Any

from windlass.plan.quantities import Duration
from windlass.values import CheckedValue, field

__all__ = ["ServiceCheck"]


class ServiceCheck(CheckedValue):
    """The check by which a service is ready; with none of them, it is ready when it is started."""

    port: int | str | None = None
    """It accepts connections at this port of the machine; a text is a template."""
    line: str | None = field(default=None, min_length=1)
    """A line of its output has this text."""
    command: str | None = field(default=None, min_length=1)
    """This shell line succeeds, with the folder and the variables of the step."""
    within: Duration = 60.0
    """The time in which it must be ready."""

    @classmethod
    def _before(cls, value: Any) -> Any:
        return {} if value is True else value

    def _after(self) -> ServiceCheck:
        if sum(one is not None for one in (self.port, self.line, self.command)) > 1:
            raise ValueError("a service is ready by one of `port`, `line` and `command`")
        if isinstance(self.port, int) and not 0 < self.port < 65536:
            raise ValueError(f"`port`: {self.port} is not a port")
        return self

    @property
    def shown(self) -> str:
        """The check in words."""
        if self.port is not None:
            return f"port {self.port} accepts connections"
        if self.line is not None:
            return f"its output has {self.line!r}"
        return "its command succeeds" if self.command is not None else "it is started"
