"""The seam towards tools: their interface, and the context that a use of one is given."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import FunctionType, MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, TypeAlias

import msgspec

from windlass.errors import UsageError
from windlass.ports.composed import ComposedTool
from windlass.ports.meter import Meter
from windlass.ports.terms import Estimate, Terms

if TYPE_CHECKING:  # a list of executions needs the journal's ports, and neither plans nor processes
    from windlass.core.events import Event
    from windlass.core.state import State, StepState
    from windlass.plan.model import Effect
    from windlass.ports.service import ServiceHost
    from windlass.process import MemoryPool, Supervisor

__all__ = [
    "Answer",
    "Call",
    "Contact",
    "Health",
    "PersonAnswer",
    "Tool",
    "ToolLike",
    "Toolbox",
    "Whereabouts",
    "as_tool",
    "effect_of",
    "health_of",
]


Whereabouts: TypeAlias = Literal["here", "brought", "behind"]
"""Files of a step's last attempt: on this machine, brought from the store, or lost (the store has older ones)."""


@dataclass(frozen=True, slots=True)
class Health:
    ok: bool
    detail: str = ""
    advice: str = ""
    """The command or change that fixes it."""
    back_in: float | None = None
    """Seconds after which it may be well again by itself."""
    unset: bool = False
    """It is not set up, or nobody is logged in. A runtime may be `ok` all the same: a step can bring a key."""
    version: str = ""
    """The version of its program, where it has one of its own."""


class Answer(NamedTuple):
    """The answer of a person, or of the policy, to an agent's request."""

    allow: bool
    note: str = ""


class PersonAnswer(NamedTuple):
    """A person's answer on one use of a tool."""

    allow: bool
    note: str
    basis: Mapping[str, str]
    """The basis of the answer, for `Call.approved`."""


class Contact(Protocol):
    """An attempt's line to the execution that it belongs to."""

    @property
    def state(self) -> State:
        """The state of the execution; to be read only."""
        ...

    @property
    def step(self) -> StepState: ...

    @property
    def tools(self) -> Toolbox:
        """The tools of this execution."""
        ...

    @property
    def services(self) -> ServiceHost | None:
        """Keeps the service that this step starts; None where no other step could use it."""
        ...

    @property
    def files(self) -> Whereabouts | None:
        """Whereabouts of the last attempt's files; None where no store is shared with other machines."""
        ...

    def tell(self, event: Event, *, soon: bool | None = None) -> None:
        """Something happened; it is written down within a moment, at once with `soon`. By default the kind decides."""
        ...

    async def record(self, event: Event) -> None:
        """The same, and returns when it is on disk."""
        ...

    async def history(self, execution: str = "") -> list[Event]:
        """The events of this step in the journal, from the beginning; of the same step in another execution."""
        ...

    async def message(self) -> None:
        """Wait for the next message of a person to the agent of this step."""
        ...

    def close(self) -> None:
        """Take no more messages to the agent of this step: the attempt is about to end."""
        ...

    def unclocked(self) -> AbstractContextManager[None]:
        """Within this, the attempt's timeout does not run: it waits for others."""
        ...

    async def use(self, tool: Tool, arguments: Mapping[str, Any], call: Call) -> Any:
        """Use a tool through its gates: its breaker, rate and timeout hold for every caller."""
        ...

    def for_agent_of(self, step: StepState) -> Contact:
        """The same for the agent of a completed step, which goes on within this attempt. Its questions are asked for
        the step of this attempt."""
        ...

    async def ask(self, tool: str, input: Any, workdir: Path, *, use: str = "", question: str = "") -> PersonAnswer:
        """Ask a person about a use of a tool with exactly this input, in this folder.

        The same is not asked twice; `use` tells uses apart that are to be asked about one by one. `question` is its
        text, if it is more than "may this be done?".
        """
        ...


def _silent(stream: str, text: str) -> None:
    """Drop output."""


class Call(msgspec.Struct, kw_only=True, eq=False):
    """One attempt as the tool sees it: its step, its folders, its means."""

    execution: str
    step: str
    attempt: int
    workdir: Path
    """The execution's working directory: relative paths start here."""
    folder: Path
    """The execution's own folder in the home."""
    processes: Supervisor
    """Spawns child processes that cannot outlive the engine."""
    timeout: float | None = None
    """Seconds this attempt may take; the engine enforces it."""
    reduced: int = 0
    """Number of resource failures so far that asked for reduced usage: halve yours each time."""
    env: Mapping[str, str] = MappingProxyType({})
    """The environment that children get: an allow-list, never the engine's own."""
    output: Callable[[str, str], None] = _silent
    """`output(stream, text)` shows text to the user live and stores it in the logs."""
    grace: float = 5.0
    """Seconds between the polite signal and the kill."""
    contact: Contact | None = None
    """The line to the execution: there for every attempt that the engine drives."""
    origin: object = None
    """The program or agent that makes the call, when not the step itself: passed on between the engine's tools."""
    meter: Meter = msgspec.field(default_factory=Meter)
    """The meter for its use of machine resources."""
    approved: Mapping[str, str] | None = None
    """The basis of the person's answer (`core.approval.Basis`); None when nobody was asked."""
    pool: MemoryPool | None = None
    """Memory that the processes of all steps of the execution share; None is no limit."""
    _stopping: threading.Event | None = None

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

        Without a `line` to the execution it asks nobody itself: its caller has passed the gates.
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
        """The environment of a child of this attempt: the allow-list, and the names of execution, step and attempt."""
        return {
            **self.env,
            "WINDLASS_EXECUTION": self.execution,
            "WINDLASS_STEP": self.step,
            "WINDLASS_ATTEMPT": str(self.attempt),
            "WINDLASS_REDUCED": str(self.reduced),
            "WINDLASS_EFFECT_ID": self.effect_id,
        }


class Tool(ABC):
    """Something a step, an agent or a program can use. Derive from it, and override the hooks that apply.

    `name`, `description` and `execute` are needed. Everything else is a hook; its default does nothing or is safe.
    `schema` and `returns` may be attributes of the class or of the instance, too.
    """

    name: str
    description: str
    """One line, for people and models."""
    terms: Terms = Terms()
    """Time limit, rate, cache and the like; the user's settings come first."""
    stateful: bool = False
    """True if a result depends on earlier uses: it is never taken from a cache."""
    is_program: bool = False
    """True if it runs a program: the program's calls pass the gates one by one."""
    composed: ComposedTool | None = None
    """The saved program that it runs, if it is one."""
    compares_files: bool = False
    """True if it compares files with `Call.approved` itself, in the moment of the change."""
    can_refresh: bool = False
    """True if `refresh` can renew its credentials, so that it is worth trying again after a permission failure."""

    @cached_property
    def schema(self) -> Mapping[str, Any]:
        """JSON Schema of the arguments: an object."""
        return {"type": "object"}

    @cached_property
    def returns(self) -> Mapping[str, Any] | None:
        """JSON Schema of the result, where it has one."""
        return None

    @abstractmethod
    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        """Do the work. The result must be plain JSON data. Raise `ToolError` to say how it failed.

        Cancellation of the awaiting task means stop: clean up, then let it through.
        """

    def validate(self, arguments: Mapping[str, Any]) -> list[str]:
        """Everything wrong with the arguments, by the schema; empty when they are fine."""
        from windlass.schemas import misfits  # takes a while to import, and most tools check with pydantic

        return misfits(self.schema, dict(arguments))

    def effect(self, arguments: Mapping[str, Any]) -> Effect:
        """The effect of a use with these arguments, which decides if recovery may repeat it."""
        from windlass.plan.model import Effect

        return Effect.ONCE

    def circuit(self, arguments: Mapping[str, Any]) -> str | None:
        """The circuit breaker that a failure counts for: the tool's own, or one for each host or server.

        None for a tool whose failures do not predict the next use, such as one that runs any command.
        """
        return self.name

    def estimate(self, arguments: Mapping[str, Any]) -> Estimate:
        """The time and money that a use will probably take."""
        return Estimate()

    def basis(self, arguments: Mapping[str, Any], workdir: Path, tools: Toolbox) -> dict[str, str]:
        """Hashes of everything besides arguments and files that decides the effect: a program, a role."""
        return {}

    def take_back(self, folder: Path, steps: Collection[str], workdir: Path) -> list[dict[str, str]]:
        """Undo the changes of these steps of the execution that keeps its files in `folder`.

        Returns the changes, newest first. It may be called again, and is called once for all tools of a class.
        """
        return []

    async def health(self) -> Health | None:
        """The state of its dependencies; None if it has none."""
        return None

    async def refresh(self) -> None:  # noqa: B027 - a hook
        """Renew credentials, before the one retry after a permission failure."""

    async def close(self) -> None:  # noqa: B027 - a hook
        """Release connections and processes when the engine closes. A later use opens new ones."""


def effect_of(tool: Tool, arguments: Mapping[str, Any]) -> Effect:
    """The effect of a use. `once` where the tool cannot tell: it may raise anything, as for arguments that it needs."""
    try:
        return tool.effect(arguments)
    except (Exception, SystemExit):
        from windlass.plan.model import Effect

        return Effect.ONCE


async def health_of(tool: Tool) -> Health | None:
    """The tool's health; not ok if `health` raises."""
    try:
        return await tool.health()
    except Exception as error:  # the tool may be anybody's
        return Health(False, f"the health check failed: {error}")


class ToolLike(Protocol):
    """A tool with a class that does not derive from `Tool`: the members that it must have. See `as_tool`."""

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def schema(self) -> Mapping[str, Any]: ...

    def effect(self, arguments: Mapping[str, Any]) -> Effect: ...

    def validate(self, arguments: Mapping[str, Any]) -> list[str]: ...

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any: ...


def as_tool(tool: Tool | ToolLike) -> Tool:
    """The tool itself, or a `Tool` that wraps an object of another class. Refuses what is no tool."""
    if isinstance(tool, type):
        raise UsageError(
            f"the class {tool.__name__} cannot be a tool, as an object of it can",
            advice=(f"give an object of it: {tool.__name__}()",),
        )
    if not (hasattr(tool, "name") and hasattr(tool, "execute")):
        what = (
            f"the function {tool.__name__}" if isinstance(tool, FunctionType) else f"an object of {type(tool).__name__}"
        )
        raise UsageError(
            f"{what} cannot be a tool: it has no `name` or no `execute`",
            advice=("write @tool above a function: from windlass import tool",),
        )
    return tool if isinstance(tool, Tool) else _Adapted(tool)


class _Adapted(Tool):
    """Takes over every member of another object that has the name of one of `Tool`."""

    def __init__(self, tool: ToolLike) -> None:
        members = [name for name in dir(Tool) if not name.startswith("_") and name != "close"]  # its maker closes it
        for name in ("name", "description", *members):
            if hasattr(tool, name):
                setattr(self, name, getattr(tool, name))
        self.can_refresh = getattr(tool, "refresh", None) is not None

    async def execute(self, arguments: Mapping[str, Any], call: Call) -> Any:
        raise NotImplementedError  # `__init__` has replaced it


class Toolbox(Protocol):
    """The tools that can be found by name."""

    def get(self, name: str) -> Tool | None: ...

    def nearest(self, name: str) -> str | None: ...

    def names(self) -> list[str]: ...

    def is_built_in(self, name: str) -> bool:
        """True for a tool that comes with Windlass; it is not loaded for that."""
        ...

    def validate(self, name: str, arguments: Mapping[str, Any]) -> list[str]: ...

    def misnamed(self, name: str, given: Iterable[str]) -> list[str]: ...

    def extended(self, tools: Iterable[Tool | ToolLike]) -> Toolbox:
        """These and some more, for one execution."""
        ...

    async def close(self) -> None:
        """Close every tool that was given to it."""
        ...
