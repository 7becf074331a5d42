"""Which layers stand between a command and the rest of this machine, and which do not: for `doctor` and the docs.

Everything here is tried or asked of the kernel, and nothing is assumed. A layer that is not there is named as well, so
that no one takes its silence for a yes.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass

from windlass.process import confine
from windlass.process.isolation import network_launcher
from windlass.process.supervisor import Mechanism, containment

__all__ = ["Layer", "layers"]

PATIENCE = 10.0
"""Seconds that trying a layer out may take."""

_WATCHED: dict[Mechanism, str] = {
    "subreaper": "the keeper looks at the whole tree, every 0.2 to 20 ms as memory comes to its limit",
    "process group": "looked at with ps five times a second; what is used in between can pass a limit",
}


@dataclass(frozen=True, slots=True)
class Layer:
    name: str
    active: bool
    detail: str


def layers() -> tuple[Layer, ...]:
    """All layers. Two of them are tried out, which starts processes and takes some milliseconds."""
    mechanism = containment().mechanism
    return (
        Layer("process tree", True, f"{mechanism}: every step"),
        Layer("limits", True, f"steps with `limits`: {_WATCHED[mechanism]}"),
        Layer("cgroups", False, "not used: limits are watched, and not set in the kernel"),
        _landlock(),
        _network(),
        _bubblewrap(),
    )


def _landlock() -> Layer:
    version = confine.landlock_version()
    if version < confine.NEEDED:
        missing = "this kernel has none" if version == 0 else f"version {version}, and {confine.NEEDED} is needed"
        return Layer("Landlock", False, f"{missing}: `isolate: files` is refused")
    return Layer("Landlock", True, f"version {version}: steps with `isolate: files`")


def _network() -> Layer:
    if sys.platform != "linux":
        return Layer("network namespace", False, "only on Linux: `isolate: network` is refused")
    said = _tried(network_launcher(["true"]))
    if said is not None:
        return Layer("network namespace", False, f"{said}: `isolate: network` is refused")
    return Layer("network namespace", True, "steps with `isolate: network`")


def _bubblewrap() -> Layer:
    found = shutil.which("bwrap")
    if found is None:
        return Layer("bubblewrap", False, "not installed, and not needed")
    said = _tried([found, "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "true"])
    return Layer("bubblewrap", False, f"{found} {'works' if said is None else f'fails ({said})'}, and is not used")


def _tried(argv: list[str]) -> str | None:
    """What went wrong; None if nothing did."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    said = done.stderr.decode(errors="replace").strip().removeprefix(confine.CANNOT)
    return None if done.returncode == 0 else said[-200:] or f"exit code {done.returncode}"
