"""seccomp: the kernel lets the worker compute, read and write open files, and end; nothing else.

A call that a library may try by habit fails with EPERM, and computing goes on. A call that no worker has a reason to
make ends the process, as a sign that the worker was taken over. The filter is made here as a classic BPF program, two
instructions for a call, and holds for all threads at once. Called by `lockdown`, last of all.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from typing import Final

__all__ = ["ALLOWED", "FATAL", "NUMBERS", "call", "machine", "number", "program", "restrict"]


ALLOWED: Final = (
    # open files
    *("read", "write", "readv", "writev", "close", "lseek", "fstat", "poll", "ppoll"),
    # memory; see `_NEVER_EXECUTABLE` for mmap and mprotect
    *("munmap", "mremap", "madvise", "brk"),
    # waiting for threads and time
    *("futex", "sched_yield", "membarrier", "clock_gettime", "clock_nanosleep", "nanosleep", "gettimeofday"),
    # signals: wasmtime's traps are some
    *("rt_sigaction", "rt_sigprocmask", "rt_sigreturn", "sigaltstack", "restart_syscall"),
    *("getpid", "gettid", "getrandom", "exit", "exit_group"),
)

_NEVER_EXECUTABLE: Final = ("mmap", "mprotect")
"""Allowed, but not with PROT_EXEC: everything is compiled before the lock, and no data becomes code after it."""

FATAL: Final = (
    *("execve", "execveat", "fork", "vfork", "clone"),
    *("kill", "tkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo", "pidfd_open", "pidfd_getfd", "pidfd_send_signal"),
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise"),
    *("socket", "socketpair", "connect", "bind", "listen", "accept", "accept4"),
    *("io_uring_setup", "io_uring_enter", "io_uring_register"),
    *("bpf", "perf_event_open", "userfaultfd", "keyctl", "add_key", "request_key"),
    *("mount", "umount2", "move_mount", "mount_setattr", "open_tree", "fsopen", "fsconfig", "fsmount"),
    *("pivot_root", "chroot", "setns", "unshare", "open_by_handle_at"),
    *("init_module", "finit_module", "delete_module", "kexec_load", "kexec_file_load", "reboot", "iopl", "ioperm"),
)

_AUDIT_ARCH: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
_X32: Final = 0x40000000
"""Numbers from here on are those of the x32 ABI, with other meanings under the same architecture."""

# Offsets in `struct seccomp_data`; of the arguments we look at, the lower half is all that the kernel reads.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_KILL_PROCESS, _ERROR, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000
_PROT_EXEC: Final = 4

_SET_MODE_FILTER: Final = 1
_ALL_THREADS: Final = 1

Instruction = tuple[int, int, int, int]
"""Code, how many to skip if true, how many if false, operand."""


class _Program(ctypes.Structure):
    """`struct sock_fprog`."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_void_p))


class _Instruction(ctypes.Structure):
    """`struct sock_filter`."""

    _fields_ = (
        ("code", ctypes.c_uint16),
        ("true", ctypes.c_uint8),
        ("false", ctypes.c_uint8),
        ("operand", ctypes.c_uint32),
    )


def restrict() -> bool:
    """Restrict every thread of this process. Returns False if the kernel cannot."""
    here = machine()
    if here is None:
        return False
    lines = [_Instruction(*line) for line in program(here, os.getpid())]
    block = (_Instruction * len(lines))(*lines)
    argument = _Program(len(lines), ctypes.addressof(block))
    try:
        # A number above 0 is a thread that could not be brought under the filter: then no thread was.
        return not call("seccomp", ctypes.c_uint(_SET_MODE_FILTER), ctypes.c_uint(_ALL_THREADS), ctypes.byref(argument))
    except OSError:
        return False  # not in this kernel, or what surrounds us does not let us


def program(here: str, pid: int) -> Iterator[Instruction]:
    """The filter for this machine. Every branch ends in a return, so the number stays loaded from call to call."""
    yield _LOAD, 0, 0, _ARCHITECTURE
    yield _JUMP_EQUAL, 1, 0, _AUDIT_ARCH[here]
    yield _RETURN, 0, 0, _KILL_PROCESS
    yield _LOAD, 0, 0, _NUMBER
    if here == "x86_64":
        yield _JUMP_GREATER_EQUAL, 0, 1, _X32
        yield _RETURN, 0, 0, _KILL_PROCESS
    for name in ALLOWED:
        yield from _when(name, here, (_RETURN, 0, 0, _ALLOW))
    for name in _NEVER_EXECUTABLE:
        yield from _when(
            name,
            here,
            (_LOAD, 0, 0, _ARGUMENTS + 2 * 8),
            (_JUMP_ANY_BIT, 0, 1, _PROT_EXEC),
            (_RETURN, 0, 0, _ERROR | errno.EPERM),
            (_RETURN, 0, 0, _ALLOW),
        )
    # abort() signals its own thread; any other process is none of a worker's business.
    yield from _when(
        "tgkill",
        here,
        (_LOAD, 0, 0, _ARGUMENTS),
        (_JUMP_EQUAL, 0, 1, pid),
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _KILL_PROCESS),
    )
    for name in FATAL:
        yield from _when(name, here, (_RETURN, 0, 0, _KILL_PROCESS))
    # The C library asks for clone3 first, and takes clone where there is none; its arguments cannot be looked at.
    yield from _when("clone3", here, (_RETURN, 0, 0, _ERROR | errno.ENOSYS))
    yield _RETURN, 0, 0, _ERROR | errno.EPERM


def _when(name: str, here: str, *then: Instruction) -> Iterator[Instruction]:
    found = number(name, here)
    if found is not None:
        yield _JUMP_EQUAL, 0, len(then), found
        yield from then


NUMBERS: Final[dict[str, tuple[int | None, int | None]]] = {
    # name: (x86_64, aarch64)
    "accept": (43, 202),
    "accept4": (288, 242),
    "add_key": (248, 217),
    "bind": (49, 200),
    "bpf": (321, 280),
    "brk": (12, 214),
    "chroot": (161, 51),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "clone": (56, 220),
    "clone3": (435, 435),
    "close": (3, 57),
    "connect": (42, 203),
    "delete_module": (176, 106),
    "execve": (59, 221),
    "execveat": (322, 281),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "finit_module": (313, 273),
    "fork": (57, None),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fstat": (5, 80),
    "futex": (202, 98),
    "getpid": (39, 172),
    "getrandom": (318, 278),
    "gettid": (186, 178),
    "gettimeofday": (96, 169),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, None),
    "iopl": (172, None),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "kill": (62, 129),
    "landlock_create_ruleset": (444, 444),
    "landlock_restrict_self": (446, 446),
    "listen": (50, 201),
    "lseek": (8, 62),
    "madvise": (28, 233),
    "membarrier": (324, 283),
    "mmap": (9, 222),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "munmap": (11, 215),
    "nanosleep": (35, 101),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "pivot_root": (155, 41),
    "poll": (7, None),
    "ppoll": (271, 73),
    "process_madvise": (440, 440),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "read": (0, 63),
    "readv": (19, 65),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "restart_syscall": (219, 128),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigqueueinfo": (129, 138),
    "rt_sigreturn": (15, 139),
    "rt_tgsigqueueinfo": (297, 240),
    "sched_yield": (24, 124),
    "seccomp": (317, 277),
    "setns": (308, 268),
    "sigaltstack": (131, 132),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "tgkill": (234, 131),
    "tkill": (200, 130),
    "umount2": (166, 39),
    "unshare": (272, 97),
    "userfaultfd": (323, 282),
    "vfork": (58, None),
    "write": (1, 64),
    "writev": (20, 66),
}

_MACHINES: Final = ("x86_64", "aarch64")


def machine() -> str | None:
    """Return the machine whose system call numbers hold here: `x86_64`, `aarch64`, or None for any other."""
    name = os.uname().machine
    return name if name in _MACHINES and struct.calcsize("P") == 8 else None  # a 32-bit Python has other numbers


def number(name: str, on: str) -> int | None:
    return NUMBERS[name][_MACHINES.index(on)]


def call(name: str, *arguments: object) -> int:
    """Makes a system call and returns its result; OSError when the kernel says no, or its number is not known."""
    here = machine()
    found = number(name, here) if here else None
    if found is None:
        raise OSError(0, f"the number of {name} on this machine is not known")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    result = int(libc.syscall(ctypes.c_long(found), *arguments))
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result
