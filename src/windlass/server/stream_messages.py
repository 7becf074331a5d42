"""Messages of the stream: a journal's event, its position, and its execution's status and progress after it.

Secrets are hidden in them, as in everything that leaves the server. A message is made once, as the WebSocket frame that
all clients get: a server's frames are not masked and, without compression, are the same for every client.

`MessageEncoder` folds executions alongside, for status and progress only, and drops the inputs and outputs of steps at
once. It reads the beginning of an execution that it meets in the middle, and forgets an execution at its end.
"""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from windlass.core import events as ev
from windlass.core.state import State, StepState, fold
from windlass.core.transitions import ExecutionStatus
from windlass.core.view import percent_of
from windlass.errors import Damaged
from windlass.ports import Entry, Journal
from windlass.redact import Redactor

if TYPE_CHECKING:
    from windlass.core.forecast.value import Forecast

    Forecasts = Callable[..., Awaitable[Mapping[str, Forecast]]]

__all__ = ["MessageEncoder", "StreamMessage", "payload", "text_frame"]

LOOK_AGAIN = 1.0
"""Seconds between two looks at the forecasts."""
MOST_STEPS = 200_000
"""Steps of all folded executions together; past that, those heard of longest ago are forgotten and read again."""


class StreamMessage(NamedTuple):
    """An event as it goes out to clients."""

    position: int
    execution: str
    seq: int
    frame: bytes
    """The WebSocket frame: made once, written to every client."""

    @property
    def text(self) -> str:
        """The message itself: one JSON object."""
        return payload(self.frame).decode()


class _FoldedExecution:
    """One execution's fold, kept small."""

    def __init__(self, state: State) -> None:
        self.state = state
        self._lists: list[StepState] = []
        """Steps that were expanded into items and are not settled: they count in parts."""
        self._find_lists()

    def _find_lists(self) -> None:
        self._lists = [step for step in self.state.top_level() if step.children and not step.settled]

    def apply(self, event: ev.Event) -> None:
        self.state.apply(event)
        if isinstance(event, ev.StepExpanded | ev.ExecutionReplanned):
            self._find_lists()
        name = getattr(event, "step", None)
        step = self.state.steps.get(name) if isinstance(name, str) else None
        if step is not None:
            step.input = step.output = None

    @property
    def progress(self) -> float:
        """The same number as `core.view.progress`, without a walk over all steps for each event."""
        done = float(len(self.state.plan.steps) - self.state.unsettled)
        for step in self._lists:
            if step.children and not step.settled:
                done += 1 - step.open_children / len(step.children)
        return percent_of(self.state, done)


class MessageEncoder:
    """Makes messages of entries that come in the journal's order, each execution's without gaps."""

    def __init__(self, journal: Journal, redactor: Redactor, forecasts: Forecasts | None = None) -> None:
        """`forecasts` reads the last one of each execution; without it, `eta` is null: events of the past have none."""
        self._journal = journal
        self._forecasts = forecasts
        self._looked = 0.0
        self._foreseen: Mapping[str, Forecast] = {}
        self._redactor = redactor
        self._standings: OrderedDict[str, _FoldedExecution | None] = OrderedDict()
        """None is an execution whose journal does not fold: its events are sent all the same."""
        self._steps = 0

    async def encode(self, entries: Sequence[Entry]) -> list[StreamMessage]:
        told: list[StreamMessage] = []
        if self._forecasts is not None and entries and abs(entries[-1].event.at - self._looked) >= LOOK_AGAIN:
            self._looked = entries[-1].event.at
            known = {name for name in self._foreseen if name in self._standings}
            self._foreseen = await self._forecasts(*known.union(entry.execution for entry in entries))
        for entry in entries:
            if entry.execution not in self._standings and entry.seq > 1:
                await self._meet(entry)
            told.append(self._encoded(entry))
        return told

    async def _meet(self, entry: Entry) -> None:
        """Bring an execution to where it stood just before this entry."""
        try:
            before = await self._journal.read(entry.execution, 0, limit=entry.seq - 1)
        except Damaged:
            self._keep(entry.execution, None)
            return
        self._keep(entry.execution, _folded(earlier.event for earlier in before))

    def _encoded(self, entry: Entry) -> StreamMessage:
        event = entry.event
        standing = self._standings.pop(entry.execution, None)
        self._steps -= _weight(standing)
        if isinstance(event, ev.ExecutionCreated):
            standing = _folded([event])
        elif standing is not None:
            try:
                standing.apply(event)
            except Exception:  # a journal that breaks the rules: tell what it says, and nothing about where it stands
                standing = None
        if not isinstance(event, ev.ExecutionFinished):
            self._keep(entry.execution, standing)
        foreseen = self._foreseen.get(entry.execution) if self._foreseen else None
        runs = standing is not None and standing.state.status is ExecutionStatus.RUNNING
        left = foreseen.left_at(event.at) if foreseen is not None and runs else None
        text = self._redactor.bytes(message(entry, standing, None if left is None else round(left.middle, 1)))
        return StreamMessage(entry.position, entry.execution, entry.seq, text_frame(text))

    def _keep(self, execution: str, standing: _FoldedExecution | None) -> None:
        self._standings[execution] = standing
        self._steps += _weight(standing)
        while self._steps > MOST_STEPS and len(self._standings) > 1:
            _name, forgotten = self._standings.popitem(last=False)
            self._steps -= _weight(forgotten)


def message(entry: Entry, standing: _FoldedExecution | None, eta: float | None = None) -> bytes:
    """One JSON object: `encode` gives the event's own, and ours is written around it."""
    event = ev.encode(entry.event)
    head = b'{"position":%d,"execution":%s,"seq":%d,' % (
        entry.position,
        msgspec.json.encode(entry.execution),
        entry.seq,
    )
    where: dict[str, float | str | None] = {"progress": None if standing is None else standing.progress, "eta": eta}
    if not isinstance(entry.event, ev.ExecutionFinished):  # which says the status itself
        where["status"] = str(standing.state.status) if standing is not None else None
    return b"%b%b,%b" % (head, event[1:-1], msgspec.json.encode(where)[1:])


def _folded(events: Iterable[ev.Event]) -> _FoldedExecution | None:
    try:
        standing = _FoldedExecution(fold(events))
    except Exception:  # see above: it is not the stream's place to judge it
        return None
    for step in standing.state.steps.values():
        step.input = step.output = None
    return standing


def _weight(standing: _FoldedExecution | None) -> int:
    return len(standing.state.steps) if standing is not None else 0


_WHOLE_TEXT = 0x81
"""The only frame of its message, and text."""


def text_frame(text: bytes) -> bytes:
    """One message of UTF-8 text as one unmasked frame (RFC 6455, section 5.2)."""
    size = len(text)
    if size < 126:
        return struct.pack("!BB", _WHOLE_TEXT, size) + text
    if size < 65536:
        return struct.pack("!BBH", _WHOLE_TEXT, 126, size) + text
    return struct.pack("!BBQ", _WHOLE_TEXT, 127, size) + text


def payload(frame: bytes) -> bytes:
    """The text in a frame that `text_frame` made."""
    return frame[{126: 4, 127: 10}.get(frame[1], 2) :]
