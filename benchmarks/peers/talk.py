"""A process that is asked line by line, kept from one question to the next, and watched while it answers.

The other half of sandboxed.py. What it used is read from /proc, because an engine that is beyond its limits is the last
one to be asked about it: Linux alone.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from benchmarks.peers.run import clean_environment
from benchmarks.peers.sandboxed import Asked

__all__ = ["Conversation", "Hang", "NoAnswer", "Used"]

LOOK = 0.01
"""Seconds between two looks at what it uses: of a process that ends, the last look counts."""
START_WITHIN = 90.0
PATIENCE = 25.0
"""Seconds that one may be late on a machine that does not let it compute."""


class NoAnswer(Exception):
    """The process ended, or never began."""


class Hang(Exception):
    """It did not answer in time."""


class Used(NamedTuple):
    """What a process and all that it started used, together."""

    cpu: float
    memory: int
    """Bytes that they held at the most, over what they held before."""


class Conversation:
    """Used as a context: at its end the process and everything that it started is killed."""

    def __init__(self, command: Sequence[str | Path], home: Path, cwd: Path) -> None:
        home.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            command,
            cwd=cwd,
            env=clean_environment(home.absolute()),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(home / "said").open("wb"),
            start_new_session=True,
        )
        self._said = home / "said"
        self._rest = b""
        self._watch: _Watch | None = None
        self.about = self._line(START_WITHIN)

    def __enter__(self) -> "Conversation":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for pid in _family(self._process.pid):  # not by their group: some may have one of their own
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.communicate()

    def watched(self, asked: Asked, within: float, cpu: float) -> tuple[dict[str, Any], Used]:
        """The answer, or why there is none, and what its processes used until then.

        On a busy machine it is waited for longer, as long as it has not computed for `cpu` seconds.
        """
        self._watch = _Watch(self._process.pid, cpu)
        try:
            answer = self.ask(asked, within)
        except (NoAnswer, Hang) as error:
            answer = {"error": str(error), "hangs": isinstance(error, Hang)}
        return answer, self._watch.look()

    def ask(self, asked: Asked, within: float) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked._asdict()).encode() + b"\n")
        self._process.stdin.flush()
        return self._line(within)

    def _line(self, within: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        descriptor, deadline = self._process.stdout.fileno(), time.monotonic() + within
        while b"\n" not in self._rest:
            late = time.monotonic() - deadline
            if late > 0 and (self._watch is None or self._watch.had_its_time or late > PATIENCE):
                raise Hang(f"no answer within {within:g} s")
            if select.select([descriptor], [], [], LOOK)[0]:
                piece = os.read(descriptor, 1 << 20)
                if not piece:
                    raise NoAnswer(self._said.read_text(errors="replace").strip()[-300:] or "its process has ended")
                self._rest += piece
            if self._watch is not None:
                self._watch.look()
        line, _, self._rest = self._rest.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer


class _Watch:
    """On a process and all that it started and starts, from now on."""

    def __init__(self, pid: int, cpu: float) -> None:
        self._pid, self._enough = pid, cpu
        self._cpu: dict[int, float] = {}
        """Seconds of each, those that have ended included."""
        for one in _family(pid):
            with suppress(OSError):
                Path(f"/proc/{one}/clear_refs").write_text("5")  # the highest it held is what it holds now
        self._memory_before = self._memory = self._look()
        self._cpu_before = sum(self._cpu.values())

    @property
    def had_its_time(self) -> bool:
        return self.look().cpu > self._enough

    def look(self) -> Used:
        self._memory = max(self._memory, self._look())
        return Used(sum(self._cpu.values()) - self._cpu_before, self._memory - self._memory_before)

    def _look(self) -> int:
        held = 0
        for one in _family(self._pid):
            if (now := _read(one)) is not None:
                self._cpu[one] = now[0]
                held += now[1]
        return held


def _family(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        for children in Path(f"/proc/{one}/task").glob("*/children"):
            with suppress(OSError):
                found += [int(child) for child in children.read_text().split()]
    return found


def _read(pid: int) -> tuple[float, int] | None:
    """Seconds computed and the most bytes held; None once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    held = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:")), None)
    if held is None:  # it has ended, and nobody has taken note yet
        return None
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK"), int(held) * 1024
