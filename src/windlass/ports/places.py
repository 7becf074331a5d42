"""The seam towards limits on uses at the same time that several machines share."""

from __future__ import annotations

from typing import Protocol

__all__ = ["SharedPlaces"]


class SharedPlaces(Protocol):
    """Places of tools. Those of a process that dies are free again."""

    async def take(self, name: str, count: int) -> int | None:
        """Take one of `count` places of that name; None if all are taken."""
        ...

    async def give_back(self, place: int) -> None: ...

    async def close(self) -> None: ...
