"""A worker that lies: `lying_worker.py LIE`. It is ready, like any other, and answers the first question with a lie."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

import msgspec

from windlass.sandbox import frames

IDLE = b'{"calls":[],"log":"","breach":"","finished":"done","call":0}'


def turned(state: bytes = IDLE, result: bytes | None = b"1", *, run: int = 0, cpu: float = 0.0) -> bytes:
    return frames.packed(frames.Turned(run or asked.run, state, result, 0, cpu, 0))


def calling(*calls: str) -> bytes:
    return turned(IDLE.replace(b'"calls":[]', f'"calls":[{",".join(calls)}]'.encode()), None)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(frames.HEADER) + body


def die() -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b""


def be_silent() -> bytes:
    signal.pause()
    return b""


def compute() -> bytes:
    while True:
        pass


LIES: dict[str, Callable[[], bytes]] = {
    "a giant frame": lambda: b"\xff\xff\xff\xff" + b"x" * 100_000,
    "a frame that is just too long": lambda: (frames.LARGEST + 1).to_bytes(frames.HEADER),
    "garbage": lambda: os.urandom(4096),
    "garbage in a frame": lambda: framed(os.urandom(512)),
    "an empty frame": lambda: framed(b""),
    "half a frame": lambda: turned()[:-5] + die(),
    "another type": lambda: framed(msgspec.msgpack.encode(["turned", "x", "y"])),
    "a type that nobody knows": lambda: framed(msgspec.msgpack.encode(["grant", 1])),
    "a depth of 100,000 in the frame": lambda: framed(b"\x91" * 100_000 + b"\x00"),
    "another run's number": lambda: turned(run=asked.run + 1),
    "another question's answer": lambda: frames.packed(frames.SyntaxChecked(None)),
    "that it is ready again": lambda: frames.packed(frames.Ready(())),
    "that something was closed": lambda: frames.packed(frames.RunClosed(asked.run)),
    "a trouble that nobody knows": lambda: framed(msgspec.msgpack.encode(["broke", asked.run, "grant", "", 0])),
    "a state that is no JSON": lambda: turned(b"{"),
    "a state that is no UTF-8": lambda: turned(IDLE.replace(b'"log":""', b'"log":"\xff"')),
    "half a character": lambda: turned(IDLE.replace(b'"log":""', b'"log":"\\ud800"')),
    "a state without calls": lambda: turned(b"{}"),
    "a result that is no JSON": lambda: turned(result=b"[1"),
    "a depth of 100,000 in the result": lambda: turned(result=b"[" * 100_000 + b"]" * 100_000),
    "a depth of 500 in the result": lambda: turned(result=b"[" * 500 + b"]" * 500),
    "a depth of 100,000 in the arguments": lambda: calling('[1,"echo",{"x":' + "[" * 100_000 + "]" * 100_000 + "}]"),
    "a depth of 100 in the arguments": lambda: calling('[1,"echo",{"x":' + "[" * 100 + "]" * 100 + "}]"),
    "a number that skips": lambda: calling('[2,"echo",{}]'),
    "a number twice": lambda: calling('[1,"echo",{}]', '[1,"echo",{}]'),
    "a number that is none": lambda: calling('["1","echo",{}]'),
    "a tool that was not granted": lambda: calling('[1,"shell.run",{}]'),
    "a tool that is none": lambda: calling("[1,null,{}]"),
    "arguments without names": lambda: calling('[1,"echo",[1]]'),
    "more calls than allowed": lambda: calling(*(f'[{n},"echo",{{}}]' for n in range(1, 1002))),
    "its end": die,
    "nothing at all": be_silent,
    "nothing, computing": compute,
}

if __name__ == "__main__":
    os.write(1, frames.packed(frames.Ready(("lies",))))
    length = int.from_bytes(os.read(0, frames.HEADER))
    asked = frames.read_request(os.read(0, length))
    answer = memoryview(LIES[sys.argv[1]]())
    while answer:
        answer = answer[os.write(1, answer) :]
    signal.pause()
