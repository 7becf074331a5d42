"""The seam towards what is kept of webhooks: deliveries until they are started, and what was refused (L1)."""

from __future__ import annotations

from typing import NamedTuple, Protocol

__all__ = ["DeliveryStore", "HookDelivery", "HookRefusal"]


class HookDelivery(NamedTuple):
    """A signed request that is to start a plan."""

    id: str
    """Names it among those of its trigger."""
    at: float
    """The time when it came."""
    digest: str
    """SHA-256 of its body."""
    event: str
    """The kind of event, as the sender says."""
    body: bytes


class HookRefusal(NamedTuple):
    """Requests to a webhook that were refused."""

    number: int
    at: float
    """The time of the last one."""
    reason: str
    """The reason for the last one, which its sender was not given."""


class DeliveryStore(Protocol):
    """Keeps them among all processes of a home."""

    async def receive(self, plan: str, trigger: str, delivery: HookDelivery) -> HookDelivery:
        """Keep a delivery; gives the one from before instead, if one had the same id or the same body. One that was
        skipped or refused is replaced if it comes again with the same body and event."""
        ...

    async def undecided(self, plan: str, trigger: str, limit: int) -> list[HookDelivery]:
        """Deliveries on which no turn has decided, without their bodies, oldest first."""
        ...

    async def body(self, plan: str, trigger: str, delivery: str) -> bytes | None:
        """The body of a delivery that has not been started."""
        ...

    async def refuse(self, plan: str, trigger: str, refusal: HookRefusal) -> None:
        """Count refused requests, and keep the reason for the last one."""
        ...

    async def refusals(self, plan: str) -> dict[str, HookRefusal]:
        """The refused requests of a plan, by trigger."""
        ...
