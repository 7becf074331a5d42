"""What a locked worker tries is refused or ends it; what it is for goes on. Each attempt has a process of its own."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from windlass.sandbox.lockdown import LAYERS

HERE = Path(__file__).parent
Fate = Literal["refused", "done", "killed"]

REFUSED = (
    "read a file",
    "write a file",
    "list a directory",
    "look at a file",
    "remove a file",
    "read its environment",
    "raise a limit",
    "make a descriptor",
    "write into memory and run it",
    "make memory executable",
    "become dumpable",
    "read a file in a thread",
)
KILLED = (
    "execute a program",
    "fork",
    "make a socket",
    "connect to a Unix socket",
    "connect to a port",
    "bind a port",
    "signal its parent",
    "signal a thread of its parent",
    "be traced",
    "make a socket in a thread",
)
BY_LANDLOCK = (
    "read a file",
    "write a file",
    "list a directory",
    "read its environment",
    "execute a program",
)


@dataclass(frozen=True)
class Told:
    """What a process with one attempt left behind."""

    layers: tuple[str, ...]
    fate: Fate
    error: int | None
    """Why the attempt was refused."""
    code: int

    @property
    def went_on(self) -> bool:
        return self.fate != "killed" and self.code == 0


Command = Callable[[str, str], list[str]]
Attempt = Callable[..., Told]


@pytest.fixture
def command(tmp_path: Path) -> Iterator[Command]:
    """Starts a process that has something to reach for."""
    (tmp_path / "old").touch()
    with socket.socket(socket.AF_UNIX) as local, socket.create_server(("127.0.0.1", 0)) as server:
        local.bind(str(tmp_path / "socket"))
        local.listen()
        port = str(server.getsockname()[1])
        yield lambda lock, what: [sys.executable, str(HERE / "locked_attempts.py"), lock, what, str(tmp_path), port]


@pytest.fixture
def attempt(command: Command) -> Attempt:
    def run(what: str, lock: str = "everything") -> Told:
        ended = subprocess.run(
            command(lock, what), capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL
        )
        return _told(what, ended)

    return run


def _told(what: str, ended: subprocess.CompletedProcess[str]) -> Told:
    lines = ended.stdout.splitlines()
    assert lines, ended.stderr
    layers = tuple(json.loads(lines[0]))
    if ended.returncode < 0:
        assert lines[1:] == []
        return Told(layers, "killed", None, ended.returncode)
    if what == "execute a program" and len(lines) == 1:
        return Told(layers, "done", None, ended.returncode)
    assert lines[2:] == ["499500"], ended.stderr
    fate, _, error = lines[1].partition(" ")
    assert fate in ("refused", "done")
    return Told(layers, "refused" if fate == "refused" else "done", int(error) if error else None, ended.returncode)


def needs(layer: str, told: Told) -> None:
    if layer not in told.layers:
        pytest.skip(f"no {layer} here; active: {', '.join(told.layers) or 'nothing'}")


@pytest.mark.parametrize("what", [*REFUSED, *KILLED])
@pytest.mark.skipif(sys.platform != "linux", reason="the attempts are those of Linux")
def test_g1_each_attempt_works_before_the_lock(what: str, attempt: Attempt) -> None:
    """Otherwise its refusal would say nothing."""
    assert attempt(what, lock="none").fate == "done"


@pytest.mark.parametrize("what", REFUSED)
def test_g1_what_a_locked_worker_may_not_do_is_refused_and_it_goes_on(what: str, attempt: Attempt) -> None:
    told = attempt(what)
    needs("seccomp", told)
    assert told.fate == "refused"
    assert told.error == errno.EPERM
    assert told.went_on


@pytest.mark.parametrize("what", KILLED)
def test_g1_what_no_worker_has_a_reason_to_do_ends_it(what: str, attempt: Attempt) -> None:
    told = attempt(what)
    needs("seccomp", told)
    assert told.fate == "killed"
    assert told.code == -signal.SIGSYS


def test_g1_no_thread_is_started_after_the_lock(attempt: Attempt) -> None:
    told = attempt("start a thread")
    needs("seccomp", told)
    assert told.code == -signal.SIGSYS


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="x32 is a mode of x86_64")
def test_g1_the_numbers_of_another_mode_do_not_get_round_the_lock(attempt: Attempt) -> None:
    told = attempt("use x32")
    needs("seccomp", told)
    assert told.code == -signal.SIGSYS


def test_g1_a_locked_worker_can_still_abort(attempt: Attempt) -> None:
    assert attempt("abort").code == -signal.SIGABRT


@pytest.mark.parametrize("what", BY_LANDLOCK)
def test_g1_landlock_alone_keeps_every_file_away(what: str, attempt: Attempt) -> None:
    told = attempt(what, lock="landlock")
    needs("landlock", told)
    assert (told.fate, told.error) == ("refused", errno.EACCES)


@pytest.mark.parametrize("what", ["connect to a port", "signal its parent"])
def test_g1_landlock_alone_keeps_ports_and_other_processes_away_where_the_kernel_can(
    what: str, attempt: Attempt
) -> None:
    told = attempt(what, lock="landlock")
    needs("landlock", told)
    if told.fate == "done":
        pytest.skip("the Landlock of this kernel is older than that")
    assert told.error in (errno.EACCES, errno.EPERM)


@pytest.mark.parametrize("what", REFUSED)
def test_g1_seccomp_alone_refuses_as_much(what: str, attempt: Attempt) -> None:
    told = attempt(what, lock="seccomp")
    needs("seccomp", told)
    assert (told.fate, told.error) == ("refused", errno.EPERM)


def test_g1_the_limits_hold_on_every_platform(attempt: Attempt) -> None:
    told = attempt("make a descriptor")
    assert "rlimits" in told.layers
    assert told.fate == "refused"
    assert told.error in (errno.EPERM, errno.EMFILE)


def test_g1_the_layers_that_are_reported_are_those_that_the_kernel_shows(command: Command) -> None:
    with subprocess.Popen(
        command("everything", "nothing"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        layers = tuple(json.loads(child.stdout.readline()))
        assert set(layers) <= set(LAYERS)
        if sys.platform == "linux":
            tasks = list(Path(f"/proc/{child.pid}/task").iterdir())
            assert len(tasks) > 1  # the threads that were there before the lock
            for task in tasks:
                status = dict(
                    line.split(":\t", 1) for line in (task / "status").read_text().splitlines() if ":\t" in line
                )
                assert (status["Seccomp"] == "2") == ("seccomp" in layers)
                assert (status["NoNewPrivs"] == "1") == ("no_new_privs" in layers)
            assert {"undumpable", "no_new_privs", "rlimits"} <= set(layers)
        else:
            assert layers == ("rlimits",)
        child.communicate("\n")
    assert child.returncode == 0


def test_g1_a_locked_worker_runs_quickjs_stops_it_and_refuses_it_memory() -> None:
    command = [sys.executable, str(HERE / "locked_quickjs.py")]
    ended = subprocess.run(command, input="from outside\n", capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    layers, *rest = ended.stdout.splitlines()
    assert "rlimits" in json.loads(layers)
    assert rest == [
        "200 instances",
        "memory refused at the limit",
        "unreachable: wasm `unreachable` instruction executed",
        "beyond: out of bounds memory access",
        "deep: call stack exhausted",
        "endless: interrupt",
        "heard: from outside",
    ]
