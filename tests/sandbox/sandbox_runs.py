"""Programs run to their end, with tools that answer at once: what the tests of the sandbox share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from windlass.ports import (
    Delivery,
    GuestCall,
    GuestError,
    Program,
    ProgramError,
    ProgramLimits,
    ProgramRun,
    ProgramTurn,
    Sandbox,
)

TOOLS = ("echo", "fails", "files.read")
USUAL = ProgramLimits()
NOW = 1_700_000_000.0
"""14 November 2023, 22:13:20 UTC."""


class Ended(NamedTuple):
    """How a program ended, and everything that it did until then."""

    value: Any = None
    trouble: str = ""
    message: str = ""
    failed_call: int | None = None
    log: str = ""
    calls: tuple[GuestCall, ...] = ()
    cpu: float = 0.0


def answer(call: GuestCall) -> Delivery:
    """`echo` gives what it is given, `fails` fails, each a second after the other."""
    at = NOW + call.number
    if call.tool == "fails":
        return Delivery(call.number, at, error=GuestError("it did not work", "permission"))
    return Delivery(call.number, at, call.arguments if call.tool == "echo" else "text")


def program(source: str, limits: ProgramLimits = USUAL, *, tools: tuple[str, ...] = TOOLS, **more: Any) -> Program:
    return Program(source, tools, limits=limits, **{"now": NOW, "seed": "s", "data": {"inputs": {"n": 1}}, **more})


async def finish(run: ProgramRun, turn: ProgramTurn, answering: Callable[[GuestCall], Delivery] = answer) -> Ended:
    """Answer every call as it comes, until the program is done."""
    log, calls = turn.log, turn.calls
    while not turn.done:
        turn = await run.deliver([answering(call) for call in turn.calls])
        log, calls = log + turn.log, calls + turn.calls
    return Ended(turn.value, log=log, calls=calls, cpu=turn.cpu)


async def run_program(
    sandbox: Sandbox, what: Program | str, answering: Callable[[GuestCall], Delivery] = answer
) -> Ended:
    """The whole of a run, its trouble included."""
    try:
        run = await sandbox.open(program(what) if isinstance(what, str) else what)
        try:
            return await finish(run, await run.begin(), answering)
        finally:
            await run.close()
    except ProgramError as error:
        return Ended(trouble=error.trouble, message=error.message, failed_call=error.call)
