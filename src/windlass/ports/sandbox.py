"""The seam towards the sandbox: a place where a program runs that can do nothing but compute and ask (G1, G2).

A program is the body of an async JavaScript function. It sees `tools`, the data it is given, `console.log`, a `Date`
and `Math.random` that give the same each time. It runs until it needs the result of a call; the opener of the run makes
the calls and delivers the results in any order: the same results in the same order always lead to the same calls and
the same end. So a run can be dropped at any time and be made again from the delivered results.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from windlass.errors import Trouble
from windlass.ports.tool import Health

__all__ = [
    "Delivery",
    "GuestCall",
    "GuestError",
    "Program",
    "ProgramError",
    "ProgramLimits",
    "ProgramRun",
    "ProgramTurn",
    "Sandbox",
]


class ProgramError(Exception):
    """A program ended without a result. `message` may hold text of the program itself, and nothing of the host's."""

    def __init__(self, trouble: Trouble, message: str, *, call: int | None = None, log: str = "") -> None:
        super().__init__(message)
        self.trouble: Trouble = trouble
        self.message = message
        self.call = call
        """The number of the failed call that it did not catch."""
        self.log = log
        """Its log since the last turn."""


class ProgramLimits(msgspec.Struct, frozen=True):
    """Limits of one program, with everything that it calls."""

    memory: int = 64 * 1024 * 1024
    """Bytes of its machine, all included."""
    cpu: float = 5.0
    """Seconds of computing."""
    wall: float = 600.0
    """Seconds from its beginning to its end; the time that a person takes to answer is left out."""
    calls: int = 1_000
    output: int = 1024 * 1024
    """Bytes of its result, and of the arguments of each call, as JSON."""
    log: int = 256 * 1024
    """Bytes of its log."""


class Program(msgspec.Struct, frozen=True):
    source: str
    """The body of an async function."""
    tools: tuple[str, ...] = ()
    """Names of the tools that it may call: `files.read` is `tools.files.read`."""
    data: Mapping[str, Any] | None = None
    """Further names that it sees, with their values: `inputs`, `steps`, `args`."""
    seed: str = ""
    """The seed of `Math.random`."""
    now: float = 0.0
    """The time of `Date` at its beginning, in seconds since the epoch."""
    limits: ProgramLimits = ProgramLimits()
    name: str = "program.js"
    """The program's name in messages that name a line."""


class GuestCall(NamedTuple):
    """A call that a program makes."""

    number: int
    """1, 2, 3 … in the order in which the program makes them."""
    tool: str
    arguments: Any


class GuestError(NamedTuple):
    """The error that a program sees of a call that failed."""

    message: str
    category: str = "logic"


class Delivery(NamedTuple):
    """The outcome of a call."""

    number: int
    at: float
    """Time of the outcome; `Date` gives it from here on."""
    value: Any = None
    error: GuestError | None = None


class ProgramTurn(NamedTuple):
    """The state of a program after a turn."""

    calls: tuple[GuestCall, ...] = ()
    """Calls that are new."""
    log: str = ""
    """Its log since the last turn."""
    done: bool = False
    value: Any = None
    """Its result, once it is done."""
    cpu: float = 0.0
    """Seconds of computing since its beginning."""
    memory: int = 0
    """Bytes that it holds."""


class ProgramRun(Protocol):
    """One run of one program. Its methods raise `ProgramError` when it ended without a result."""

    async def begin(self) -> ProgramTurn: ...

    async def deliver(self, results: Sequence[Delivery]) -> ProgramTurn:
        """Deliver results of calls. Each is processed before the next one is looked at."""
        ...

    def park(self) -> None:
        """Allow its resources to be released: no result comes for a while."""
        ...

    async def close(self) -> None:
        """Leave nothing behind. May be called at any time, and again."""
        ...


class Sandbox(Protocol):
    @property
    def version(self) -> str:
        """The interpreter's version: another one may run a program otherwise."""
        ...

    async def open(self, program: Program) -> ProgramRun:
        """A run that can begin at once. ProgramError when there is no place to run in."""
        ...

    async def check(self, source: str) -> str | None:
        """The fault in the text of a program, or None. Nothing of it is run."""
        ...

    async def health(self) -> Health:
        """The health of the sandbox here, with the layers that hold programs."""
        ...

    async def close(self) -> None: ...
