"""Reads an answer from the terminal: a whole line, or key by key while a live view is drawn above it.

Key by key, the terminal neither echoes nor collects lines, so that the view can draw what is typed where it wants it.
It is put back at every end: an answer, a cancelled question, an error, and a second Ctrl-C that ends the process.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import signal
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

__all__ = ["TypedLine", "forget_typed", "keys_unechoed", "leave_terminal", "read_keys", "read_line"]

_LONGEST = 500
"""Characters of an answer; more are not taken."""
_UNFINISHED = re.compile(r"\x1b(\[[0-?]*[ -/]*|O)?\Z")
_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|O.|[^\n\r\x1b])")
"""An arrow key and the like."""
_IN_BACKGROUND = 0.3
"""Seconds until a process in the background looks again whether it is in the foreground."""
_before: list[Any] = []
"""The settings of the terminal to put back, as `termios` gives them; empty while it has them."""


class TypedLine:
    """A line in the making: takes what the keys send, until Enter or the end of input."""

    def __init__(self) -> None:
        self.text = ""
        self.done = False
        self._decode = codecs.getincrementaldecoder("utf-8")("ignore")
        self._begun = ""
        """The beginning of a key's sequence whose rest has not come."""

    def take(self, data: bytes) -> None:
        """Edit the line; no data is the end of input. After Enter, the rest is left alone."""
        if not data:
            self.text, self.done = "", True
            return
        typed = self._begun + self._decode.decode(data)
        unfinished = _UNFINISHED.search(typed)
        self._begun = unfinished[0] if unfinished else ""
        for key in _SEQUENCE.sub("", typed.removesuffix(self._begun) if self._begun else typed):
            if not self.done:
                self._press(key)

    def _press(self, key: str) -> None:
        match key:
            case "\n" | "\r":
                self.done = True
            case "\x04":  # Ctrl-D
                self.done = not self.text
            case "\x7f" | "\b":
                self.text = self.text[:-1]
            case "\x15":  # Ctrl-U
                self.text = ""
            case "\x17":  # Ctrl-W
                self.text = re.sub(r"\S*\s*\Z", "", self.text)
            case _ if key.isprintable() and len(self.text) < _LONGEST:
                self.text += key


async def read_keys(line: TypedLine, changed: Callable[[], None]) -> str:
    """Fill the line from the keys, within `keys_unechoed`, and report each change."""
    loop = asyncio.get_running_loop()
    done = asyncio.Event()
    terminal = sys.stdin.fileno()

    def take() -> None:
        if not _is_ours(terminal):  # the key is the shell's, and to read it would stop this process
            loop.remove_reader(terminal)
            loop.call_later(_IN_BACKGROUND, look_again)
            return
        try:
            line.take(os.read(terminal, 1024))
        except OSError:  # the terminal is gone
            line.take(b"")
        changed()
        if line.done:
            loop.remove_reader(terminal)
            done.set()

    def look_again() -> None:
        if not done.is_set():
            loop.add_reader(terminal, take)

    look_again()
    loop.add_signal_handler(signal.SIGCONT, _stop_echo, terminal)  # after Ctrl-Z and `fg`: the shell has changed it
    try:
        await done.wait()
    finally:
        done.set()
        loop.remove_signal_handler(signal.SIGCONT)
        loop.remove_reader(terminal)
    return line.text


@contextmanager
def keys_unechoed() -> Iterator[None]:
    """Get each key as it is pressed, unechoed. Those that were pressed before are forgotten."""
    forget_typed()
    _stop_echo(sys.stdin.fileno())
    try:
        yield
    finally:
        _put_back()


def forget_typed() -> None:
    """Forget the keys that were pressed so far: they answer no question that comes after."""
    if sys.stdin.isatty() and _is_ours(sys.stdin.fileno()):
        termios.tcflush(sys.stdin, termios.TCIFLUSH)


def _stop_echo(terminal: int) -> None:
    """Stop echo and lines; Ctrl-C and Ctrl-Z remain signals."""
    if not _is_ours(terminal):
        return
    settings = termios.tcgetattr(terminal)
    if not _before:
        _before[:] = [terminal, [*settings]]
    settings[3] &= ~(termios.ECHO | termios.ICANON)
    settings[6] = [*settings[6]]
    settings[6][termios.VMIN], settings[6][termios.VTIME] = 1, 0
    termios.tcsetattr(terminal, termios.TCSANOW, settings)


def _is_ours(terminal: int) -> bool:
    """Tell whether this process is in the foreground: one in the background that changes the terminal is stopped."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:  # not the terminal of this session, so nobody is in the background of it
        return True


def _put_back() -> None:
    """Give the terminal the settings that it had before the question, if one is open."""
    if _before:
        terminal, settings = _before
        _before.clear()
        if _is_ours(terminal):
            with suppress(termios.error):  # the terminal is gone
                termios.tcsetattr(terminal, termios.TCSANOW, settings)


def leave_terminal() -> None:
    """Put the terminal back for an end in which no view is closed: also show the cursor that a live view hides."""
    _put_back()
    if sys.stderr.isatty():
        os.write(sys.stderr.fileno(), b"\x1b[?25h\n")


async def read_line() -> str:
    """A line from the terminal, without blocking the loop and without a thread that cannot be stopped."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(sys.stdin, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline()
