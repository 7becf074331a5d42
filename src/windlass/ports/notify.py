"""The seam towards notifications (I8): what a commit adds to the outbox, and whoever sends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from windlass.ports.journal import Note

if TYPE_CHECKING:
    from windlass.core.events import Event
    from windlass.core.state import State

__all__ = ["NOTE_STATUSES", "Note", "Notifier", "OutboxEntry", "Watch"]

NOTE_STATUSES = ("waiting", "claimed", "sent", "unknown", "failed", "stale", "moot")
"""`unknown`: it may have been sent, so it is not sent again. `moot`: the question was answered before. `stale`: nobody
could send it while it was news."""

Watch = Callable[["Sequence[Event]"], "Sequence[Note]"]
"""Called with the events of each commit of one execution, before it: gives the notes that belong to it."""


class OutboxEntry(NamedTuple):
    """A note as the outbox holds it."""

    number: int
    note: Note
    status: str
    tries: int
    changed_at: float
    detail: str
    """The outcome in words: an answer, an error."""


class Notifier(Protocol):
    """Records notes for the executions of a process, and sends them."""

    @property
    def troubles(self) -> list[str]:
        """Notes of this process that were not sent, a sentence each."""
        ...

    def start(self) -> None:
        """Begin to send what is due, in a task of the running loop."""
        ...

    def watch(self, state: State) -> Watch:
        """Watch one execution, which this process drives from now on."""
        ...

    def committed(self, notes: Sequence[Note]) -> None:
        """Hear that notes of a watch are on disk."""
        ...

    async def close(self) -> None:
        """Send what this process has recorded, within some seconds, and stop. The rest is left to other processes."""
        ...
