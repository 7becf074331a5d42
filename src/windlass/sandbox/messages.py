"""Requests to a worker about one program, and checks of its answers.

A request holds how a program begins, or the results of its calls; values that JSON cannot hold are refused here. The
worker and the prelude keep the same rules for answers. The engine checks them again, because a program that took its
worker over could answer anything.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from windlass.ports import Delivery, GuestCall, Program, ProgramError
from windlass.sandbox import frames

__all__ = ["HALF", "Nonsense", "delivering", "opening", "portions", "result_of", "said", "value_of", "whole"]


AT_ONCE = 256 * 1024
"""Bytes of results given at a time to a program that is replayed: it may not have memory for more."""
HALF = "the program's text has an invalid character (a lone surrogate): write it as an escape"

MOST_EXACT = 2**53 - 1
"""The largest whole number that a number of JavaScript holds as it is; beyond it a program gets a BigInt."""

_encoder = msgspec.json.Encoder()
_many_digits = re.compile(rb"\d{16}").search


def opening(run: int, program: Program) -> frames.OpenRun:
    if not whole(program.source):
        raise ProgramError("syntax", HALF)
    limits = program.limits
    setup = {
        "limits": {"calls": limits.calls, "output": limits.output, "log": limits.log},
        "now": int(program.now * 1000),
        "seed": _seed(program.seed),
        "data": program.data or {},
        "tools": program.tools,
    }
    given = _json(setup, "what it is given")
    if _many_digits(given) and (large := list(_large(setup["data"]))):
        given = _json({**setup, "large": large}, "what it is given")
    return frames.OpenRun(run, program.source, program.name, given, limits.memory, limits.cpu, limits.output)


def result_of(delivery: Delivery) -> bytes:
    error = None if delivery.error is None else [delivery.error.message, delivery.error.category]
    told = [delivery.number, int(delivery.at * 1000), delivery.value, error]
    what = f"the result of call {delivery.number}"
    given = _json(told, what)
    if _many_digits(given) and (large := list(_large(delivery.value))):
        return _json([*told, large], what)
    return given


def delivering(run: int, results: Sequence[bytes]) -> frames.Deliver:
    return frames.Deliver(run, b"[" + b",".join(results) + b"]", len(results))


def portions(results: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Split results into lists of at most `AT_ONCE` bytes, in their order."""
    portion: list[bytes] = []
    size = 0
    for result in results:
        if portion and size + len(result) > AT_ONCE:
            yield portion
            portion, size = [], 0
        portion.append(result)
        size += len(result)
    if portion:
        yield portion


def whole(text: str) -> bool:
    """Return True if the text can be encoded as UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _json(value: Any, what: str) -> bytes:
    try:
        return _encoder.encode(value)
    except (RecursionError, TypeError, ValueError) as error:
        raise ProgramError("marshal", f"{what} cannot be passed to a program: it is not JSON") from error


def _large(value: Any) -> Iterator[tuple[list[str | int], str]]:
    """Yield the path and the digits of each integer that a JavaScript number cannot hold."""
    left: list[tuple[list[str | int], Any]] = [([], value)]
    while left:
        place, one = left.pop()
        if isinstance(one, dict):
            left += [([*place, name], inner) for name, inner in one.items()]
        elif isinstance(one, list | tuple):
            left += [([*place, index], inner) for index, inner in enumerate(one)]
        elif isinstance(one, int) and abs(one) > MOST_EXACT:
            yield place, str(one)


def _seed(text: str) -> list[int]:
    raw = hashlib.blake2s(text.encode(), digest_size=16).digest()
    return [int.from_bytes(raw[at : at + 4], signed=True) for at in range(0, 16, 4)]


DEEPEST = 70
"""Levels that a value of a program may have here; the program's own side allows fewer."""


class Nonsense(Exception):
    """An answer that no intact worker gives, whatever program runs in it."""


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
        raise Nonsense("it called a tool that it was not given")
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
    """Return True if a value has at most `DEEPEST` levels. Iterative, so that it cannot overflow the stack."""
    level = [value]
    for _ in range(DEEPEST):
        inner = [one for one in level if isinstance(one, dict | list)]
        if not inner:
            return True
        level = [below for one in inner for below in (one.values() if isinstance(one, dict) else one)]
    return False
