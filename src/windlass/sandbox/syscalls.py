"""The system calls that the lock speaks of, by name, with their numbers on the machines it knows; and how to make one.

Numbers never change once a kernel has them. A call that a machine does not have (it has a newer one in its place) is
None. Called by `seccomp` and `landlock`; Linux alone.
"""

from __future__ import annotations

import ctypes
import os
import struct
from typing import Final

__all__ = ["NUMBERS", "call", "machine", "number"]

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
    """Whose numbers hold for this process: `x86_64`, `aarch64`, or None where ours do not."""
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
