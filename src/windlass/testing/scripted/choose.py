"""Which entry of a script a request gets, for models and runners alike.

Entries with a `when` come first: the first one that fits and is not used up. Then those without, in their order. An
entry serves `times` requests, or for ever with `repeat`. A function in place of the list decides everything itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Chooser", "Entry"]


class Entry(Protocol):
    """What a script is made of: a `Reply` or a `Turn`."""

    @property
    def when(self) -> str | Callable[[Any], bool] | None: ...

    @property
    def times(self) -> int: ...

    @property
    def repeat(self) -> bool: ...


Asked = TypeVar("Asked")
Said = TypeVar("Said", bound=Entry)


class Chooser(Generic[Asked, Said]):
    """A script, and how far it has come. One thread at a time."""

    def __init__(self, script: Sequence[Said] | Callable[[Asked], Said], text_of: Callable[[Asked], str]) -> None:
        self._function = script if callable(script) else None
        self._entries: list[Said] = [] if callable(script) else list(script)
        self._used = [0] * len(self._entries)
        self._text_of = text_of

    def choose(self, asked: Asked) -> Said | None:
        """The entry for this request, which is then used once more; None when there is none left."""
        if self._function is not None:
            return self._function(asked)
        for index in self._order():
            entry = self._entries[index]
            if (entry.repeat or self._used[index] < entry.times) and self._fits(entry, asked):
                self._used[index] += 1
                return entry
        return None

    def unused(self) -> list[str]:
        """A line for every entry that some request should have had. One with `repeat` may serve nobody."""
        pairs = zip(self._entries, self._used, strict=True)
        return [
            f"entry {place} of the script ({entry}) served {used} of {entry.times} requests"
            for place, (entry, used) in enumerate(pairs, start=1)
            if not entry.repeat and used < entry.times
        ]

    def _order(self) -> list[int]:
        """Conditions first; the sort keeps the script's order among equals."""
        return sorted(range(len(self._entries)), key=lambda index: self._entries[index].when is None)

    def _fits(self, entry: Said, asked: Asked) -> bool:
        if entry.when is None:
            return True
        return entry.when in self._text_of(asked) if isinstance(entry.when, str) else entry.when(asked)
