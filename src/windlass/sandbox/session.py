"""One program in one guest, as its worker sees it: begin it, hand results in, say how far it came or why it ended.

`CpuMeter` measures a guest's CPU time on the thread's own clock, so that a busy computer takes nothing from it. A
second thread looks at that clock while a guest runs, and moves the engine's epoch on when the time is used up. That
ends the guest wherever it is, in the middle of one long native operation, too.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Protocol

import msgspec

from windlass.errors import Trouble
from windlass.sandbox.frames import ROOM_FOR_AN_ERROR, Broke, Deliver, OpenRun, Turned
from windlass.sandbox.machine import Guest, Machine, Trapped

__all__ = ["CpuMeter", "Ended", "GuestSession", "problem_of"]

LOOK = 0.01
"""Seconds between two looks at a running guest."""
REST = 1.0
"""Seconds without a guest after which the thread goes to sleep altogether."""


class Epoch(Protocol):
    def increment_epoch(self) -> None: ...


class CpuMeter:
    """Belongs to the main thread, in which the guests run. Begin and end do not nest."""

    def __init__(self, engine: Epoch) -> None:
        self._engine = engine
        main = threading.main_thread().ident
        assert main is not None
        # On a platform without clocks for threads, a guest is measured in wall time.
        self._clock = time.pthread_getcpuclockid(main) if hasattr(time, "pthread_getcpuclockid") else None
        self._lock = threading.Lock()
        self._ends: float | None = None
        self._began = 0.0
        self._awake = threading.Event()
        threading.Thread(target=self._watch, name="meter", daemon=True).start()

    def begin(self, guest: Guest, seconds: float) -> None:
        with self._lock:
            guest.allow_one_epoch()
            self._began = self._now()
            self._ends = self._began + seconds
        if not self._awake.is_set():
            self._awake.set()

    def end(self) -> float:
        """Seconds that the guest computed."""
        with self._lock:
            self._ends = None
            return self._now() - self._began

    def _now(self) -> float:
        return time.monotonic() if self._clock is None else time.clock_gettime(self._clock)

    def _watch(self) -> None:
        idle_since = time.monotonic()
        while True:
            if self._ends is not None:
                idle_since = time.monotonic()
                self._end_what_is_due()
            elif time.monotonic() - idle_since > REST:
                self._awake.clear()
                if self._ends is None:
                    self._awake.wait()
                idle_since = time.monotonic()
            time.sleep(LOOK)

    def _end_what_is_due(self) -> None:
        # In one piece with `begin`: a guest that has ended must not take the next one with it.
        with self._lock:
            if self._ends is not None and self._now() >= self._ends:
                self._ends = None
                self._engine.increment_epoch()


MOST_AT_ONCE = 16 * 1024 * 1024
"""Bytes of the calls and the log of one turn."""
LONGEST_MESSAGE = 16 * 1024
FUNCTION = "(async () => {", "\n})"
"""Text around a program. The part before it is on its first line, so that line numbers are those of the author."""
METHOD = "({async program() {", "\n}})"
"""A second form: a text that closes the function around it early cannot close both, and is refused as no program."""


class Ended(Exception):
    """The program ended without a result."""

    def __init__(self, trouble: Trouble, message: str, call: int = 0) -> None:
        super().__init__(message)
        self.trouble: Trouble = trouble
        self.message, self.call = message, call
        self.log = ""
        """The program's log of its last turn."""

    def told(self, run: int) -> Broke:
        return Broke(run, self.trouble, self.message[:LONGEST_MESSAGE], self.call, self.log)


class _PreludeState(msgspec.Struct):
    """The part of the prelude's state that is used here; the calls are passed on as they are."""

    breach: str
    finished: str
    call: int
    log: str


_state: msgspec.json.Decoder[_PreludeState] = msgspec.json.Decoder(_PreludeState)

_BREACHES: dict[str, Trouble] = {"calls": "calls", "log": "log", "output": "output"}
"""Limits that the prelude counts. One that was crossed ends the program, whether it caught the error or not."""
_ENDS: dict[str, Trouble] = {"thrown": "thrown", "marshal": "marshal", **_BREACHES}
_OUT_OF_MEMORY = ("InternalError: out of memory", "InternalError: Invalid error message")
"""QuickJS gives the second one when it has no memory for an error's text."""
_OUT_OF_STACK = "RangeError: Maximum call stack size exceeded"
_NOTHING = ("it threw null", "it threw something that cannot be looked at")
"""The prelude's messages for an error that found no memory: QuickJS throws null then."""
_SAID: dict[Trouble, str] = {
    "calls": "it made more calls than it may",
    "log": "it logged more than it may",
    "output": "a result or an argument is larger than it may be",
}


class GuestSession:
    def __init__(self, machine: Machine, meter: CpuMeter, opened: OpenRun) -> None:
        self._machine, self._meter = machine, meter
        self._opened = opened
        self._guest: Guest | None = None
        self._left = opened.cpu
        self._unhandled = 0

    def begin(self) -> Turned:
        opened = self._opened
        try:
            self._guest = self._machine.guest(opened.memory)
        except MemoryError as error:
            raise Ended("memory", "there is not enough memory to begin with") from error

        def work(guest: Guest) -> None:
            self._call(guest, "setup", guest.string(opened.setup))
            program = compiled(guest, opened.source, opened.name)
            self._call(guest, "start", program)
            self._settle(guest)

        return self._slice(work)

    def deliver(self, results: Deliver) -> Turned:
        def work(guest: Guest) -> None:
            arrived = guest.string(results.results)
            self._call(guest, "arrive", arrived)
            guest.free(arrived)  # else everything that was ever handed in would stay
            for _ in range(results.count):
                self._call(guest, "take")
                self._settle(guest)

        return self._slice(work)

    def close(self) -> None:
        if self._guest is not None:
            self._guest.close()
            self._guest = None

    def _slice(self, work: Callable[[Guest], None]) -> Turned:
        """Run the program until it waits. An error ends the guest, too."""
        guest = self._guest
        if guest is None:
            raise Ended("lost", "it has ended already")
        if self._left <= 0:  # by so little that the meter did not see it: it must not get that much again each time
            raise self._out_of_time()
        self._machine.unhandled = self._rejected
        self._meter.begin(guest, self._left)
        try:
            work(guest)
            state, result = self._told(guest)
        except Trapped as trap:
            raise self._ended_by(trap) from trap
        except MemoryError as error:
            raise self._out_of_memory() from error
        finally:
            self._left -= self._meter.end()
        spent = self._opened.cpu - self._left
        return Turned(self._opened.run, state, result, self._unhandled, spent, guest.size)

    def _told(self, guest: Guest) -> tuple[bytes, bytes | None]:
        """Return the program's new calls and log, and its result if it is done."""
        drained = self._call(guest, "drain")
        state = guest.bytes_of(drained, MOST_AT_ONCE)
        if state is None:
            raise Ended("output", "what it asks for at once is larger than it may be")
        guest.free(drained)
        seen = _state.decode(state)
        try:
            return state, self._result(guest, seen)
        except Ended as ended:
            ended.log = seen.log
            raise

    def _result(self, guest: Guest, seen: _PreludeState) -> bytes | None:
        if seen.finished not in ("", "done"):
            raise self._thrown(guest, seen)
        if (breach := _BREACHES.get(seen.breach)) is not None:
            raise Ended(breach, _SAID[breach])
        if not seen.finished:
            return None
        result = guest.bytes_of(self._call(guest, "result"), self._opened.output)
        if result is None:
            raise Ended("output", f"the result is larger than {self._opened.output} bytes")
        return result

    def _thrown(self, guest: Guest, seen: _PreludeState) -> Ended:
        said = guest.text_of(self._call(guest, "result"), LONGEST_MESSAGE) or ""
        message = _without_us(said, self._opened.name, len(FUNCTION[0]))
        full = self._opened.memory - guest.size < ROOM_FOR_AN_ERROR
        if message.startswith(_OUT_OF_MEMORY) or (full and message in _NOTHING):
            return self._out_of_memory()
        if message.startswith(_OUT_OF_STACK):
            return self._out_of_stack()
        trouble = _BREACHES.get(seen.breach) or _ENDS.get(seen.finished, "thrown")
        return Ended(trouble, message, seen.call)

    def _settle(self, guest: Guest) -> None:
        """Run everything that can run."""
        while (done := guest.call("qjs_execute_pending_job")) != 0:
            if done > 1:  # minus one: a job that failed in a way that no promise could take
                raise self._out_of_memory()

    def _call(self, guest: Guest, hook: str, *given: int) -> int:
        value = guest.hook(hook, *given)
        if guest.call("qjs_is_exception", value):
            guest.call("qjs_get_exception")
            raise self._out_of_memory()  # the prelude's own functions fail for no other reason
        return value

    def _rejected(self, handled: bool) -> None:
        self._unhandled += -1 if handled else 1

    def _ended_by(self, trap: Trapped) -> Ended:
        match trap.reason:
            case "interrupt":
                return self._out_of_time()
            case "stack_overflow":
                return self._out_of_stack()
            case reason:
                return Ended("lost", f"its virtual machine failed ({reason})")

    def _out_of_time(self) -> Ended:
        return Ended("cpu", f"it used more than {self._opened.cpu:g} s of CPU time")

    def _out_of_stack(self) -> Ended:
        return Ended("stack", "it nests too deeply: its stack is used up")

    def _out_of_memory(self) -> Ended:
        return Ended("memory", f"it needs more than {self._opened.memory >> 20} MiB of memory")


def compiled(guest: Guest, source: str, name: str) -> int:
    """Compile a program to a function."""
    _read(guest, METHOD, source, name, run=False)
    return _read(guest, FUNCTION, source, name, run=True)


def _read(guest: Guest, around: tuple[str, str], source: str, name: str, *, run: bool) -> int:
    value = guest.evaluate(source.join(around), name, run=run)
    if guest.call("qjs_is_exception", value):
        error = guest.call("qjs_get_exception")
        said = guest.text_of(error, LONGEST_MESSAGE) or ""
        stack = guest.text_of(guest.member(error, "stack"), LONGEST_MESSAGE) or ""
        if said.startswith(_OUT_OF_MEMORY):
            raise MemoryError
        if said.startswith(_OUT_OF_STACK):
            raise Trapped("stack_overflow")
        message = _without_us(f"{said}\n{stack}", name, len(around[0]))
        raise Ended("syntax", _at_its_end(source, name) if _is_after(source, name, message) else message)
    return value


def problem_of(machine: Machine, meter: CpuMeter, source: str, name: str, memory: int, cpu: float) -> str | None:
    """Return the syntax error of a program, or None. Nothing of it is run."""
    guest = machine.guest(memory)
    meter.begin(guest, cpu)
    try:
        for around in (METHOD, FUNCTION):
            _read(guest, around, source, name, run=False)
    except Ended as ended:
        return ended.message
    except MemoryError:
        return "it is too large"
    except Trapped as trap:
        return f"it cannot be read ({trap.reason})"
    finally:
        meter.end()
        guest.close()
    return None


def _is_after(source: str, name: str, said: str) -> bool:
    """Return True if an error stands behind the program, in the text around it."""
    found = re.search(rf"{re.escape(name)}:(\d+)", said)
    return found is not None and int(found[1]) > source.count("\n") + 1


def _at_its_end(source: str, name: str) -> str:
    text = source.rstrip()
    line, column = text.count("\n") + 1, len(text) - text.rfind("\n")
    return f"SyntaxError: unexpected end of the program: is a bracket not closed?\n    at {name}:{line}:{column}"


def _without_us(said: str, name: str, before: int) -> str:
    """A message and the program's own lines, without those of the prelude. `before` characters of its first line are
    those of the function around it."""
    lines = said.split("\n")
    kept = [line for line in lines if "prelude.js:" not in line and not line.strip().startswith("at apply (native)")]
    first = re.compile(rf"{re.escape(name)}:1:(\d+)")
    return first.sub(lambda at: f"{name}:1:{max(1, int(at[1]) - before)}", "\n".join(kept).strip())
