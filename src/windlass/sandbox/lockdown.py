"""Lock a worker in: from then on it can compute, read and write open files, and end.

The guest is confined by WebAssembly already. This is the second wall: code that escapes from WebAssembly finds a
process that may do nothing. `lock_down` is called once, when all is loaded, compiled and started; there is no way back.
That means threads, too, and one instance of each module: wasmtime makes the image of a module's memory with the first.
It applies every layer that the platform has and returns their names; the caller decides if they are enough.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from typing import Final

from windlass.sandbox import seccomp
from windlass.sandbox.seccomp import call

__all__ = ["LAYERS", "lock_down", "restrict_by_landlock"]

_ASK_VERSION: Final = 1
_ALL_THREADS: Final = 1 << 3
_ALL_THREADS_SINCE: Final = 8
"""The first version that can restrict the other threads, too. Before, they have seccomp alone."""


class _Rules(ctypes.Structure):
    """`struct landlock_ruleset_attr`. A kernel that does not know the last fields takes them as long as they are 0."""

    _fields_ = (
        ("files", ctypes.c_uint64),
        ("network", ctypes.c_uint64),
        ("scoped", ctypes.c_uint64),
    )


def restrict_by_landlock() -> bool:
    """Take away all rights to files, network and other processes that Landlock knows: of this thread, with a new kernel
    of the whole process. Returns False if the kernel cannot."""
    try:
        version = call("landlock_create_ruleset", None, ctypes.c_size_t(0), ctypes.c_uint32(_ASK_VERSION))
        ruleset = _create(_Rules(_known("files"), _known("network"), _known("scoped")))
    except OSError:
        return False  # not in this kernel, or turned off at boot
    try:
        flags = _ALL_THREADS if version >= _ALL_THREADS_SINCE else 0
        call("landlock_restrict_self", ctypes.c_int(ruleset), ctypes.c_uint32(flags))
    except OSError:
        return False
    finally:
        os.close(ruleset)
    return True


def _known(field: str) -> int:
    """Every right of this kind that the kernel knows: it refuses a ruleset with one that it does not.

    Asking beats a table by version: rights that come with later kernels are refused from the day they are there.
    """
    rights = 0
    for bit in range(64):
        wider = rights | 1 << bit
        try:
            os.close(_create(_Rules(**{field: wider})))
        except OSError:
            break
        rights = wider
    return rights


def _create(rules: _Rules) -> int:
    """The descriptor of a new ruleset."""
    return call(
        "landlock_create_ruleset", ctypes.byref(rules), ctypes.c_size_t(ctypes.sizeof(rules)), ctypes.c_uint32(0)
    )


_PR_SET_DUMPABLE: Final = 4
_PR_SET_NO_NEW_PRIVS: Final = 38

LAYERS: Final = ("undumpable", "no_new_privs", "landlock", "rlimits", "seccomp")
"""Every layer there is, in the order in which they are put on."""


def lock_down() -> tuple[str, ...]:
    """Locks this process in for good. The result names the layers that are active, of those in `LAYERS`."""
    linux = sys.platform == "linux"
    # Landlock needs no_new_privs and a descriptor to spare; after seccomp nothing can be set any more.
    active = {
        "undumpable": linux and _prctl(_PR_SET_DUMPABLE, 0),  # the user's other processes cannot look into its memory
        "no_new_privs": linux and _prctl(_PR_SET_NO_NEW_PRIVS, 1),  # no program gives it more rights than it has
        "landlock": linux and restrict_by_landlock(),
        "rlimits": _limit(),
        "seccomp": linux and seccomp.restrict(),
    }
    return tuple(layer for layer in LAYERS if active[layer])


def _limit() -> bool:
    """No core, no file, no descriptor but those that are open, no process, no locked memory."""
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_MEMLOCK: 0,
        resource.RLIMIT_NOFILE: _lowest_free_descriptor(),
    }
    if os.getuid():  # it does not hold for root
        limits[resource.RLIMIT_NPROC] = 0
    try:
        for which, most in limits.items():
            resource.setrlimit(which, (most, most))
    except (OSError, ValueError):  # Python's name for EPERM and EINVAL here is ValueError
        return False
    return True


def _prctl(option: int, value: int) -> bool:
    zero = ctypes.c_ulong(0)
    return int(ctypes.CDLL(None).prctl(ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero)) == 0


def _lowest_free_descriptor() -> int:
    """Return the lowest free descriptor. As the limit it allows no new ones; open ones above it stay usable."""
    reading, writing = os.pipe()
    os.close(reading)
    os.close(writing)
    return min(reading, writing)
