"""The one publisher of commits: those who want to know what the drivers of this process write subscribe here."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from windlass.core.events import Event

__all__ = ["Commits", "Subscriber"]

Subscriber = Callable[[str, Sequence[Event], int], None]
"""Called with the execution, its new events, and the sequence of the last; with no events when its driver has ended."""


class Commits:
    """Passes each commit of a driver on to the subscribers.

    They are called on the path of the commit, so they must only take a note and return.
    """

    __slots__ = ("_subscribers",)

    def __init__(self) -> None:
        self._subscribers: tuple[Subscriber, ...] = ()  # replaced, not changed: one may unsubscribe while it is called

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Returns the function that ends the subscription."""
        self._subscribers = (*self._subscribers, subscriber)

        def unsubscribe() -> None:
            self._subscribers = tuple(one for one in self._subscribers if one is not subscriber)

        return unsubscribe

    def publish(self, execution: str, events: Sequence[Event], seq: int) -> None:
        for subscriber in self._subscribers:
            subscriber(execution, events, seq)
