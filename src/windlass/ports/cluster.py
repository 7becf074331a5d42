"""The seam towards machines that share executions."""

from __future__ import annotations

from typing import Protocol

__all__ = ["Cluster"]


class Cluster(Protocol):
    """Several workers that drive executions of one journal together."""

    @property
    def driver(self) -> str:
        """The name under which they drive; alive while one of them is."""
        ...

    async def connect(self) -> None:
        """Raise `UsageError` if the cluster cannot be reached, or has no worker."""
        ...

    async def start(self, execution: str, *, hold: bool) -> None:
        """Have the workers take up an execution that is in the journal under their name.

        They find it themselves, only later, if this fails.
        """
        ...

    async def close(self) -> None: ...
