"""The seam towards what is kept of triggers: scheduled plans, turns, firings, ticks (L1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from windlass.core.triggers import Firing, FiringStatus, TriggerState
from windlass.ports.deliveries import DeliveryStore

__all__ = ["ScheduledPlan", "TriggerFiring", "TriggerStore", "WatchedFile"]


class ScheduledPlan(NamedTuple):
    """A plan file whose triggers start executions."""

    path: str
    workdir: str
    """The working directory of its executions."""
    added_at: float
    trouble: str = ""
    """The reason why nothing could start it at the last tick."""


class TriggerFiring(NamedTuple):
    """A firing of a trigger of a plan."""

    plan: str
    trigger: str
    firing: Firing


class WatchedFile(NamedTuple):
    """A file of a watched folder, as it was when it was last seen."""

    size: int
    changed: int
    """The time of its last change, in nanoseconds."""
    digest: str
    """Of its content."""


class TriggerStore(Protocol):
    """Keeps them among all processes of a home."""

    @property
    def deliveries(self) -> DeliveryStore:
        """Deliveries of webhooks."""
        ...

    async def plans(self) -> list[ScheduledPlan]: ...

    async def add_plan(self, plan: ScheduledPlan) -> None:
        """Add a plan, or replace what is known of it."""
        ...

    async def note_trouble(self, path: str, trouble: str) -> None:
        """Note why nothing can start a plan; empty is that something can."""
        ...

    async def remove_plan(self, path: str) -> bool:
        """Remove a plan with all of its triggers; False if it was not there."""
        ...

    async def state(self, plan: str, trigger: str) -> TriggerState | None: ...

    async def files(self, plan: str, trigger: str) -> dict[str, WatchedFile]:
        """The files of its folder that were seen, by their names."""
        ...

    async def write(
        self,
        plan: str,
        trigger: str,
        state: TriggerState,
        firings: Sequence[Firing],
        files: Mapping[str, WatchedFile] | None = None,
    ) -> bool:
        """Write a turn, in one transaction; False if another process has taken that turn, and nothing is written.

        `files` take the place of those that were seen.
        """
        ...

    async def claim(self, me: str, alive: Callable[[str], bool], only: str = "") -> list[TriggerFiring]:
        """Claim all firings that are due and that no other living process has claimed; or only those of one key."""
        ...

    async def settle(self, claimed: TriggerFiring, status: FiringStatus, reason: str = "") -> None:
        """Write down what became of a claimed firing."""
        ...

    async def executions(self, plan: str, trigger: str, since: float) -> set[str]:
        """The ids of the executions of its times since then."""
        ...

    async def ticked(self, by: str, at: float) -> None:
        """Note that somebody has looked at the triggers: `tick` or `serve`."""
        ...

    async def ticks(self) -> dict[str, float]:
        """The times of the last looks, by who looked."""
        ...

    async def close(self) -> None: ...
