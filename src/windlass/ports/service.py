"""The seam between the tool that starts a service and the execution that keeps it (B5)."""

from __future__ import annotations

from typing import Protocol

__all__ = ["KeptService", "ServiceHost"]


class KeptService(Protocol):
    """A process that stays after its attempt."""

    async def ended(self) -> str:
        """Wait for its end; gives how it ended, with its last output."""
        ...

    async def stop(self, grace: float) -> None:
        """End it with everything that it started."""
        ...


class ServiceHost(Protocol):
    """Keeps the services of one execution."""

    def keep(self, step: str, service: KeptService) -> None:
        """Keep a service that is ready until the steps that need it have ended."""
        ...
