"""Text that people read in a terminal: nothing in it can command the terminal, and one message cannot pose as two.

Names, outputs, errors and results come from plans, steps, agents and servers. `protect_streams` replaces stdout and
stderr, so every command passes here: control characters, escape sequences and invisible direction marks are shown as
`\\u001b`, which is also how JSON writes them. Rich, which draws with escape sequences of its own, has a way around that
lets only these through. Colours are kept in a step's own output alone (`write_output`).

Remarks that cannot be written are dropped, for progress that nobody sees must not stop the work; data that cannot be
written is an error, `OutputLost`.
"""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Any, TextIO

from windlass.visible import UNSAFE, visible, written_out

__all__ = ["OutputLost", "as_message", "clip", "coloured", "protect_streams", "write_output"]

_COLOUR = r"\x1b\[[0-9;:]*m"
_BUT_COLOURS = re.compile(f"({_COLOUR})|[{UNSAFE}]")
_BUT_DRAWING = re.compile(rf"({_COLOUR}|\x1b\[[0-9]*[A-GJK]|\x1b\[\?25[hl]|\r)|[{UNSAFE}]")
"""Sequences that Rich writes to draw a live view: colours, cursor moves, erasing, hiding the cursor."""
CONTINUED = "\n  | "
"""Begins every line of a message but its first: a line that a name or an error brings cannot look like one of ours."""


class OutputLost(Exception):
    """Stdout cannot be written: its disk is full, or its reader went away. Whatever else is printed is dropped."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(f"cannot write to standard output: {cause.strerror}")
        self.reader_left = isinstance(cause, BrokenPipeError)


def as_message(text: str) -> str:
    """Make a message safe to write to any stream; its further lines cannot be taken for messages."""
    return visible(text).replace("\n", CONTINUED)


def clip(text: str, limit: int) -> str:
    """The text on one line, cut at `limit` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def coloured(text: str) -> str:
    """A line of a step's own output: colours stay and end with it, everything else is written out."""
    safe = _BUT_COLOURS.sub(_written_out, text)
    return f"{safe}\x1b[0m" if "\x1b" in safe else safe


def write_output(stream: TextIO, head: str, output: str) -> None:
    """Write a step's output after a head of ours."""
    text = CONTINUED.join(coloured(line.removesuffix("\r")) for line in output.split("\n"))
    getattr(stream, "rich_proxied_file", stream).write(f"{visible(head)}{text}\n")


def protect_streams() -> None:
    """Let everything that this process prints pass here; a closed stream and one that knows ASCII only work, too."""
    for name, safe in (("stdin", None), ("stdout", _DataStream), ("stderr", _SafeStream)):
        stream = getattr(sys, name)
        if stream is None:  # closed: `>&-`
            stream = _in_place_of_closed(name)
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)  # the original, which would close its file when nobody has it any more
        if safe is not None and isinstance(stream, io.TextIOWrapper):
            setattr(sys, name, safe(stream))


def _in_place_of_closed(name: str) -> TextIO:
    """A stream that has nothing to read and drops remarks. What is written to stdout fails as on a full disk: its
    file is open for reading only, and no file that is opened later can get its number."""
    flags = os.O_WRONLY if name == "stderr" else os.O_RDONLY
    return open(os.open(os.devnull, flags), "r" if name == "stdin" else "w")


class _SafeStream(io.TextIOWrapper):
    """A stream of remarks; what cannot be written is dropped."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors="backslashreplace",
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        self.rich_proxied_file = _RichStream(self)
        """Rich's name for the stream that it writes to instead."""

    def write(self, text: str) -> int:
        return self._put(visible(text))

    def draw(self, text: str) -> int:
        return self._put(_BUT_DRAWING.sub(_written_out, text))

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            self._lose(error)

    def _put(self, text: str) -> int:
        if not text:  # Click tries out a stream with it, and takes no error
            return 0
        try:
            super().write(text)
        except OSError as error:
            self._lose(error)
        return len(text)

    def _lose(self, error: OSError) -> None:
        """Go on without what could not be written."""


class _DataStream(_SafeStream):
    """Stdout; what cannot be written is an error."""

    def _lose(self, error: OSError) -> None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())  # also for what is still in its buffer
        raise OutputLost(error) from error


class _RichStream:
    """The same stream for Rich, and for output in colours."""

    def __init__(self, stream: _SafeStream) -> None:
        self._stream = stream
        self.write = stream.draw

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _written_out(found: re.Match[str]) -> str:
    return found[1] if found[1] is not None else written_out(found[0])
