"""Landlock: the kernel refuses this thread every file, every TCP port, and every other process's sockets and signals.

A ruleset that handles a right and has no rule for it refuses that right everywhere. Open files stay usable.
Called by `lockdown`, once, after no_new_privs is set.
"""

from __future__ import annotations

import ctypes
import os
from typing import Final

from windlass.sandbox.seccomp import call

__all__ = ["restrict"]

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


def restrict() -> bool:
    """Restrict this thread, with a new kernel the whole process. Returns False if the kernel cannot."""
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
