"""The seam towards tools: what a step or an agent can use, and what it is given to work with."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from windlass.core.events import Event
from windlass.core.state import State, StepState
from windlass.plan.model import Effect
from windlass.ports.meter import Meter
from windlass.process import MemoryPool, Supervisor

__all__ = ["Answer", "Call", "Contact", "Health", "PersonAnswer", "RestsOn", "Tool", "Toolbox"]


@dataclass(frozen=True, slots=True)
class Health:
    ok: bool
    detail: str = ""
    advice: str = ""
    """The command that mends it."""
    back_in: float | None = None
    """Seconds after which it may be well again by itself."""
    unset: bool = False
    """It is not set up, or nobody is logged in. A runtime may be `ok` all the same: a step can bring a key."""
    version: str = ""
    """The version of its program, where it has one of its own."""


class Answer(NamedTuple):
    """A person's word, or the policy's, on something an agent wants to do."""

    allow: bool
    note: str = ""


class PersonAnswer(NamedTuple):
    """A person's word on one use of a tool."""

    allow: bool
    note: str
    basis: Mapping[str, str]
    """What the answer rests on, for `Call.approved`."""


class Contact(Protocol):
    """An attempt's line to the execution that it belongs to."""

    @property
    def state(self) -> State:
        """Where the execution stands; to be read only."""
        ...

    @property
    def step(self) -> StepState: ...

    @property
    def tools(self) -> Toolbox:
        """The tools of this execution."""
        ...

    def tell(self, event: Event, *, soon: bool | None = None) -> None:
        """Something happened; it is written down within a moment, at once with `soon`. By default the kind decides."""
        ...

    async def record(self, event: Event) -> None:
        """The same, and returns when it is on disk."""
        ...

    def unclocked(self) -> AbstractContextManager[None]:
        """Within this, the attempt's timeout does not run: it waits for others."""
        ...

    async def use(self, tool: Tool, arguments: Mapping[str, Any], call: Call) -> Any:
        """Use a tool through its gates: whoever may use it, its breaker, its rate and its time hold for all."""
        ...

    async def ask(self, tool: str, input: Any, *, use: str = "", question: str = "") -> PersonAnswer:
        """A person's word on a use of a tool with exactly this input.

        The same is not asked twice; `use` tells uses apart that are to be asked about one by one. `question` is what
        is asked, when it is more than whether it may be done.
        """
        ...


def _silent(stream: str, text: str) -> None:
    """Output nobody asked for."""


_NOTHING: Mapping[str, str] = MappingProxyType({})


class Call:
    """One attempt as the tool sees it: who asks, where, and what it may use."""

    __slots__ = (
        "_stopping",
        "approved",
        "attempt",
        "contact",
        "env",
        "execution",
        "folder",
        "grace",
        "meter",
        "origin",
        "output",
        "pool",
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
        contact: Contact | None = None,
        origin: object = None,
        meter: Meter | None = None,
        approved: Mapping[str, str] | None = None,
        pool: MemoryPool | None = None,
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
        self.contact = contact
        """The line to the execution: there for every attempt that the engine drives."""
        self.origin = origin
        """On whose behalf it is, when not the step's own: what the engine's tools hand on to each other."""
        self.meter = meter or Meter()
        """Where it says what it took of the machine."""
        self.approved = approved
        """What the person's answer rests on (`core.approval.Basis`); None when nobody was asked."""
        self.pool = pool
        """Memory that the processes of all steps of the execution share; None is no limit."""
        self._stopping: threading.Event | None = None

    def within(
        self,
        use: str,
        origin: object = None,
        *,
        line: bool = False,
        meter: Meter | None = None,
        approved: Mapping[str, str] | None = None,
    ) -> Call:
        """The same for one use of a tool inside this attempt: with a scratch and an effect id of its own.

        Without a `line` to the execution it asks nobody itself: whoever uses it has passed the gates.
        """
        return Call(
            execution=self.execution,
            step=f"{self.step}.{use}",
            attempt=self.attempt,
            workdir=self.workdir,
            folder=self.folder,
            processes=self.processes,
            timeout=self.timeout,
            reduced=self.reduced,
            env=self.env,
            output=self.output,
            grace=self.grace,
            contact=self.contact if line else None,
            origin=origin,
            meter=meter or self.meter.inner(),
            approved=approved,
            pool=self.pool,
        )

    @property
    def scratch(self) -> Path:
        """A folder for this step's own bookkeeping (undo copies and the like); may not exist yet."""
        return self.folder / "steps" / self.step

    @property
    def home(self) -> Path:
        """The engine's home: no tool that takes a path may touch it."""
        return self.folder.parent.parent

    @property
    def artifacts(self) -> Path:
        """The folder for files that this step leaves for people to look at; may not exist yet."""
        return self.home / "artifacts" / self.execution / self.step

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


@runtime_checkable
class RestsOn(Protocol):
    """A tool that does more than its arguments say: with files, with a program, with a role."""

    compares_files: bool
    """Whether it compares the files with `Call.approved` itself, in the moment of the change."""

    def basis(self, arguments: Mapping[str, Any], workdir: Path, tools: Toolbox) -> dict[str, str]:
        """Everything beside the arguments that decides what will happen, with its hash. It only looks."""
        ...


class Toolbox(Protocol):
    """Where tools are found."""

    def get(self, name: str) -> Tool | None: ...

    def nearest(self, name: str) -> str | None: ...

    def names(self) -> list[str]: ...

    def validate(self, name: str, arguments: Mapping[str, Any]) -> list[str]: ...

    def misnamed(self, name: str, given: Iterable[str]) -> list[str]: ...

    def extended(self, tools: Iterable[Tool]) -> Toolbox:
        """These and some more, for one execution."""
        ...
