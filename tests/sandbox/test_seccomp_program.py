"""The filter of each machine, run here as the kernel would: the machine at hand is not the only one that is tested."""

from __future__ import annotations

import errno
import struct

import pytest

from windlass.sandbox.seccomp import ALLOWED, FATAL, NUMBERS, number, program

PID = 4711
ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
KILL, ALLOW, REFUSE, ABSENT = 0x80000000, 0x7FFF0000, 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS


def verdict(machine: str, call: int, *arguments: int, architecture: int | None = None) -> int:
    """What the filter answers to a call: the kernel's `struct seccomp_data`, through a BPF machine."""
    padded = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("<IIQ6Q", call, architecture or ARCHITECTURES[machine], 0, *padded)
    lines, at, loaded = list(program(machine, PID)), 0, 0
    while True:
        code, true, false, operand = lines[at]
        at += 1
        match code:
            case 0x20:
                (loaded,) = struct.unpack_from("<I", data, operand)
            case 0x15:
                at += true if loaded == operand else false
            case 0x35:
                at += true if loaded >= operand else false
            case 0x45:
                at += true if loaded & operand else false
            case 0x06:
                return operand
            case _:
                raise AssertionError(f"no such instruction: {code:#x}")


def of(name: str, machine: str) -> int:
    found = number(name, machine)
    assert found is not None
    return found


@pytest.fixture(params=sorted(ARCHITECTURES))
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_g1_every_call_there_is_has_the_verdict_that_the_lists_give_it(machine: str) -> None:
    allowed = {number(name, machine) for name in ALLOWED}
    fatal = {number(name, machine) for name in (*FATAL, "tgkill")}
    with_conditions = {of("mmap", machine), of("mprotect", machine)}
    for call in range(1024):
        if call in allowed | with_conditions:
            expected = ALLOW
        elif call in fatal:
            expected = KILL
        elif call == of("clone3", machine):
            expected = ABSENT
        else:
            expected = REFUSE
        assert verdict(machine, call) == expected, call


@pytest.mark.parametrize("name", ["mmap", "mprotect"])
def test_g1_memory_is_never_made_executable(machine: str, name: str) -> None:
    for protection in range(8):
        assert verdict(machine, of(name, machine), 0, 4096, protection) == (REFUSE if protection & 4 else ALLOW)


def test_g1_a_worker_signals_its_own_threads_alone(machine: str) -> None:
    assert verdict(machine, of("tgkill", machine), PID, PID, 6) == ALLOW
    assert verdict(machine, of("tgkill", machine), PID - 1, PID - 1, 0) == KILL
    assert verdict(machine, of("tgkill", machine), 2**32 - 1, PID, 0) == KILL


def test_g1_a_call_of_another_architecture_ends_the_process(machine: str) -> None:
    for architecture in {*ARCHITECTURES.values(), 0x40000003, 0x40000028} - {ARCHITECTURES[machine]}:
        assert verdict(machine, of("read", machine), architecture=architecture) == KILL


def test_g1_x32_ends_the_process() -> None:
    assert verdict("x86_64", 0x40000000 | of("read", "x86_64")) == KILL


def test_g1_no_number_is_given_twice(machine: str) -> None:
    numbers = [found for name in NUMBERS if (found := number(name, machine)) is not None]
    assert len(numbers) == len(set(numbers))
    assert not set(ALLOWED) & set(FATAL)
