"""What a worker says that a program did, taken for true only after a look of our own.

The worker and the prelude keep the same rules. Here they are kept by somebody whom no program can reach: the tools that
were granted, calls that are counted without a gap, sizes in bytes, depths that Python's own stack can bear.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec

from windlass.ports import GuestCall, Program, ProgramError
from windlass.sandbox import frames

__all__ = ["Nonsense", "Said", "said", "value_of"]

DEEPEST = 70
"""Levels that a value of a program may have here; the program's own side allows fewer."""


class Nonsense(Exception):
    """No worker that is in order says this, whatever program is in it."""


class Said(NamedTuple):
    calls: tuple[GuestCall, ...]
    log: str


class _State(msgspec.Struct):
    calls: list[tuple[int, str, msgspec.Raw]]
    log: str


_states: msgspec.json.Decoder[_State] = msgspec.json.Decoder(_State)
_values: msgspec.json.Decoder[Any] = msgspec.json.Decoder()


def said(turned: frames.Turned, program: Program, issued: int) -> Said:
    """The new calls and the log, of a program that has made `issued` calls before."""
    state = _decoded(_states, turned.state)
    if [number for number, _, _ in state.calls] != list(range(issued + 1, issued + len(state.calls) + 1)):
        raise Nonsense("its calls are not counted one by one")
    if issued + len(state.calls) > program.limits.calls:
        raise Nonsense("it made more calls than it may")
    return Said(tuple(_call(program, *call) for call in state.calls), state.log)


def value_of(raw: bytes | msgspec.Raw) -> Any:
    value = _decoded(_values, raw)
    if not _flat(value):
        raise Nonsense(f"a value is nested more than {DEEPEST} levels deep")
    return value


def _call(program: Program, number: int, tool: str, raw: msgspec.Raw) -> GuestCall:
    if tool not in program.tools:
        raise Nonsense("it calls what it was not given")
    most = program.limits.output
    if memoryview(raw).nbytes > most:  # the prelude counts characters, of which some have several bytes
        raise ProgramError("output", f"the arguments of {tool} are larger than {most} bytes", call=number)
    arguments = value_of(raw)
    if not isinstance(arguments, dict):
        raise Nonsense("arguments have names")
    return GuestCall(number, tool, arguments)


def _decoded(decoder: msgspec.json.Decoder[Any], raw: bytes | msgspec.Raw) -> Any:
    try:
        return decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise Nonsense("it cannot be read") from error


def _flat(value: Any) -> bool:
    """Whether it has a bottom within reach. Level by level: this must not be what runs out of stack."""
    level = [value]
    for _ in range(DEEPEST):
        inner = [one for one in level if isinstance(one, dict | list)]
        if not inner:
            return True
        level = [below for one in inner for below in (one.values() if isinstance(one, dict) else one)]
    return False
