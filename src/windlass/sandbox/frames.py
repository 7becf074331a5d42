"""Messages between the engine and a worker: one request, one answer, each a length and that many bytes.

The engine does not trust a worker: a frame that is too long or cannot be read as an answer ends that worker.
"""

from __future__ import annotations

import msgspec

from windlass.errors import Trouble

__all__ = [
    "HEADER",
    "LARGEST",
    "ROOM_FOR_AN_ERROR",
    "Answer",
    "Broke",
    "Check",
    "CloseRun",
    "Deliver",
    "OpenRun",
    "Ready",
    "Request",
    "RunClosed",
    "SyntaxChecked",
    "Turned",
    "fits",
    "packed",
    "read_answer",
    "read_request",
]

HEADER = 4
"""Bytes of the length, the first the highest."""
LARGEST = 48 * 1024 * 1024
"""Bytes that one frame may have."""
ROOM_FOR_AN_ERROR = 1024 * 1024
"""Less free memory than this, in bytes, and a program's end without a message counts as out of memory."""


class OpenRun(msgspec.Struct, frozen=True, array_like=True, tag="open"):
    """Begin a program."""

    run: int
    source: str
    name: str
    setup: bytes
    """JSON for the prelude: limits, time, seed, data, tools."""
    memory: int
    cpu: float
    output: int


class Deliver(msgspec.Struct, frozen=True, array_like=True, tag="deliver"):
    run: int
    results: bytes
    """JSON: a list of `[number, milliseconds, value, null | [message, category], large integers if there are any]`."""
    count: int


class CloseRun(msgspec.Struct, frozen=True, array_like=True, tag="close"):
    run: int


class Check(msgspec.Struct, frozen=True, array_like=True, tag="check"):
    source: str
    name: str


class Ready(msgspec.Struct, frozen=True, array_like=True, tag="ready"):
    """First message of a worker: it is locked in and waits for requests."""

    layers: tuple[str, ...]


class Turned(msgspec.Struct, frozen=True, array_like=True, tag="turned"):
    run: int
    state: bytes
    """JSON of the prelude's `drain`."""
    result: bytes | None
    """JSON of the result, once there is one."""
    unhandled: int
    """Rejected promises without a handler."""
    cpu: float
    memory: int
    """Bytes of memory that the program holds after this turn."""


class Broke(msgspec.Struct, frozen=True, array_like=True, tag="broke"):
    """The program ended without a result and was removed."""

    run: int
    trouble: Trouble
    message: str
    call: int = 0
    log: str = ""


class SyntaxChecked(msgspec.Struct, frozen=True, array_like=True, tag="checked"):
    problem: str | None


class RunClosed(msgspec.Struct, frozen=True, array_like=True, tag="closed"):
    run: int


Request = OpenRun | Deliver | CloseRun | Check
Answer = Ready | Turned | Broke | SyntaxChecked | RunClosed

_encoder = msgspec.msgpack.Encoder()
_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)
read_request = _requests.decode
read_answer = _answers.decode


def fits(answer: Answer, request: Request) -> bool:
    """Return True if this kind of answer belongs to the request."""
    match request:
        case OpenRun(run) | Deliver(run):
            return isinstance(answer, Turned | Broke) and answer.run == run
        case CloseRun(run):
            return isinstance(answer, RunClosed) and answer.run == run
        case Check():
            return isinstance(answer, SyntaxChecked)


def packed(message: Request | Answer) -> bytes:
    body = _encoder.encode(message)
    return len(body).to_bytes(HEADER) + body
