"""Named fault points: places where a crash test can pull the plug.

`WINDLASS_FAULT=name:N` makes the process kill itself with SIGKILL the N-th time it passes the point
`name`; `*` counts every point. Unset, a point costs one comparison. Only crash tests set it.
"""

from __future__ import annotations

import os
import signal

__all__ = ["fault_point", "is_armed"]


class _FaultSpec:
    def __init__(self, spec: str) -> None:
        self.name, _, count = spec.partition(":")
        self.left = int(count or 1)

    def pass_by(self, name: str) -> None:
        if self.name not in ("*", name):
            return
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


_plug = _FaultSpec(os.environ["WINDLASS_FAULT"]) if os.environ.get("WINDLASS_FAULT") else None


def is_armed() -> bool:
    """True if this process is to kill itself at a fault point: any other one may leave out the calls."""
    return _plug is not None


def fault_point(name: str) -> None:
    if _plug is not None:
        _plug.pass_by(name)
