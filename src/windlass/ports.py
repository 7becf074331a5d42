"""The seams: what the engine needs of the world, as small protocols.

Adapters implement them, the engine knows nothing else of them, and one conformance suite each holds every
adapter to the same promises.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from windlass.core.events import Event
from windlass.plan.model import Effect
from windlass.process import Supervisor

__all__ = ["Archive", "Call", "Entry", "Head", "Health", "Journal", "Message", "Tool"]


class Head(NamedTuple):
    """One line about an execution: what lists and look-ups need without reading its events."""

    id: str
    name: str
    status: str
    created_at: float
    updated_at: float
    driver: str
    """The driver that has it, or had it last."""
    detail: str = ""
    """Why it stands still, when it does."""
    expires_at: float | None = None


class Entry(NamedTuple):
    """An event as the journal holds it."""

    position: int
    """Its place among all executions' events: never reused, always growing."""
    execution: str
    seq: int
    """Its place among its execution's events, from 1, without gaps."""
    event: Event


class Message(NamedTuple):
    """Something another process asks of an execution's driver."""

    id: int
    execution: str
    at: float
    body: dict[str, Any]


class Journal(Protocol):
    """Append-only truth. When an append returns, it is on disk."""

    def enlist(self) -> str:
        """A name for a driver of this process, known to be alive until `close` or death."""
        ...

    def alive(self, driver: str) -> bool:
        """Whether that driver's process still lives, wherever it runs on this machine."""
        ...

    async def append(
        self,
        execution: str,
        after: int,
        events: Sequence[Event],
        *,
        head: Head | None = None,
        consumed: Sequence[int] = (),
    ) -> None:
        """Add events that follow sequence `after`, or raise `Conflict` and add nothing.

        `head` replaces the execution's line, and the messages in `consumed` are gone, in the same commit.
        """
        ...

    async def read(self, execution: str | None, after: int = 0, limit: int = 0) -> list[Entry]:
        """One execution's entries after a sequence, or with None everyone's after a position."""
        ...

    async def heads(self, *, prefix: str = "", statuses: Sequence[str] = (), limit: int = 0) -> list[Head]:
        """Executions, newest first."""
        ...

    async def send(self, execution: str, at: float, body: dict[str, Any]) -> None:
        """Put a message into the execution's inbox."""
        ...

    async def receive(self, after: int = 0) -> list[Message]:
        """Messages with a higher id that no driver has consumed yet."""
        ...

    async def remove(self, execution: str) -> None:
        """Forget an execution, its events and messages."""
        ...

    async def close(self) -> None: ...


class Archive(Protocol):
    """Portable copies of executions' journals."""

    def write(self, execution: str, events: Sequence[Event], now: float, label: str) -> Path:
        """Keep a copy and say where."""
        ...

    def read(self, path: Path) -> list[Event]:
        """The events of a copy, if it can be believed."""
        ...

    def remove(self, execution: str) -> None:
        """Forget all copies of an execution."""
        ...


@dataclass(frozen=True, slots=True)
class Health:
    ok: bool
    detail: str = ""
    advice: str = ""
    """The command that mends it."""


def _silent(stream: str, text: str) -> None:
    """Output nobody asked for."""


_NOTHING: Mapping[str, str] = MappingProxyType({})


class Call:
    """One attempt as the tool sees it: who asks, where, and what it may use."""

    __slots__ = (
        "_stopping",
        "attempt",
        "env",
        "execution",
        "folder",
        "grace",
        "output",
        "processes",
        "reduced",
        "step",
        "timeout",
        "workdir",
    )

    def __init__(
        self,
        *,
        execution: str,
        step: str,
        attempt: int,
        workdir: Path,
        folder: Path,
        processes: Supervisor,
        timeout: float | None = None,
        reduced: int = 0,
        env: Mapping[str, str] = _NOTHING,
        output: Callable[[str, str], None] = _silent,
        grace: float = 5.0,
    ) -> None:
        self.execution, self.step, self.attempt = execution, step, attempt
        self.workdir = workdir
        """The execution's working directory: relative paths start here."""
        self.folder = folder
        """The execution's own folder in the home."""
        self.processes = processes
        """Spawns child processes that cannot outlive the engine."""
        self.timeout = timeout
        """Seconds this attempt may take; the engine enforces it."""
        self.reduced = reduced
        """How many times a resource failure asked for reduced usage: halve what you use each time."""
        self.env = env
        """The environment that children get: an allow-list, never the engine's own."""
        self.output = output
        """`output(stream, text)`: what the user sees live and finds in the logs."""
        self.grace = grace
        """Seconds between the polite signal and the kill."""
        self._stopping: threading.Event | None = None

    @property
    def scratch(self) -> Path:
        """A folder for this step's own bookkeeping (undo copies and the like); may not exist yet."""
        return self.folder / "steps" / self.step

    @property
    def stopping(self) -> threading.Event:
        """Set when the attempt is to stop: for code in a thread, which cannot be cancelled."""
        if self._stopping is None:
            self._stopping = threading.Event()
        return self._stopping

    @property
    def effect_id(self) -> str:
        """The same for every attempt of this step: lets the other side recognise a repetition."""
        return f"{self.execution}:{self.step}"

    @property
    def variables(self) -> dict[str, str]:
        """The environment of a child of this attempt: the allow-list, and who it works for."""
        return {
            **self.env,
            "WINDLASS_EXECUTION": self.execution,
            "WINDLASS_STEP": self.step,
            "WINDLASS_ATTEMPT": str(self.attempt),
            "WINDLASS_REDUCED": str(self.reduced),
            "WINDLASS_EFFECT_ID": self.effect_id,
        }


class Tool(Protocol):
    """Something a step can use."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def schema(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        ...

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        """What recovery may repeat, for these arguments."""
        ...

    def validate(self, arguments: Mapping[str, Any]) -> list[str]:
        """Everything wrong with the arguments; empty when they are fine."""
        ...

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        """Do it. The result must be plain JSON data. Raise `ToolError` to say how it failed.

        Cancellation of the awaiting task means stop: clean up, then let it through.
        """
        ...
