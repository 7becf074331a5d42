"""Which layers stand between a command and the rest of this machine, and which do not: for `doctor` and the docs.

Everything here is tried or asked of the kernel, and nothing is assumed. A layer that is not there is named as well, so
that no one takes its silence for a yes.
"""

from __future__ import annotations

import functools
import shutil
import subprocess
import sys
from dataclasses import dataclass

from windlass.process import bounds, cgroups, confine
from windlass.process.isolation import bubblewrap_launcher, network_launcher
from windlass.process.supervisor import Mechanism, containment

__all__ = ["Layer", "cpu_share", "layers"]

PATIENCE = 10.0
"""Seconds that trying a layer out may take."""

REALTIME = "import os; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))"
"""What a keeper asks for, tried by a process of its own."""


@dataclass(frozen=True, slots=True)
class Layer:
    name: str
    active: bool
    detail: str


def layers() -> tuple[Layer, ...]:
    """All layers. Most of them are tried out, which starts processes and takes some milliseconds."""
    mechanism = containment().mechanism
    kernel = (_landlock(), _network())
    bubblewrap = _bubblewrap({layer.name for layer in kernel if not layer.active})
    return (
        Layer("process tree", True, f"{mechanism}: every step"),
        _watch(mechanism),
        _cgroups(mechanism),
        cpu_share(),
        _resource_limits(mechanism),
        *(layer if layer.active else _stood_in_for(layer, bubblewrap) for layer in kernel),
        bubblewrap,
    )


def _watch(mechanism: Mechanism) -> Layer:
    if mechanism != "subreaper":
        watch = "looked at with ps five times a second; what is used in between can pass a limit"
    else:
        watch = "the keeper looks at the whole tree, every 0.2 to 20 ms as memory comes to its limit, "
        said, _ = _tried([sys.executable, "-I", "-S", "-c", REALTIME])
        watch += "without realtime priority: late on a busy machine" if said else "with realtime priority"
    return Layer("limits", True, f"steps with `limits`: {watch}")


def _cgroups(mechanism: Mechanism) -> Layer:
    watched = "memory of steps with `limits` is watched, and not bounded by the kernel"
    if mechanism != "subreaper":
        return Layer("cgroups", False, f"not used with process groups: {watched}")
    said, place = _tried([sys.executable, "-I", "-S", cgroups.__file__])
    if said is not None:
        return Layer("cgroups", False, f"{said}: {watched}")
    return Layer(
        "cgroups", True, f"{place}: memory of steps with `limits` is bounded, {cgroups.SPARE:.0%} above the limit"
    )


@functools.cache
def cpu_share() -> Layer:
    """Asked once: a step with a share is told by it if its share is only a priority."""
    weak = "`limits.cpu_share` is a lower priority alone, which bounds nothing while the machine is idle"
    if containment().mechanism != "subreaper":
        return Layer("processors", False, f"no cgroups with process groups: {weak}")
    said, place = _tried([sys.executable, "-I", "-S", cgroups.__file__, "cpu"])
    if said is not None:
        return Layer("processors", False, f"{said}: {weak}")
    return Layer("processors", True, f"{place}: steps with `limits.cpu_share` are slowed down to it by the kernel")


def _resource_limits(mechanism: Mechanism) -> Layer:
    if mechanism != "subreaper":
        return Layer("resource limits", False, "not used with process groups")
    told = f"the kernel ends a process that has computed for {bounds.LATER} s more than `limits.cpu`; no core dumps"
    return Layer("resource limits", True, f"steps with `limits`: {told}")


def _landlock() -> Layer:
    version = confine.landlock_version()
    if version < confine.NEEDED:
        missing = "this kernel has none" if version == 0 else f"version {version}, and {confine.NEEDED} is needed"
        return Layer("Landlock", False, missing)
    return Layer("Landlock", True, f"version {version}: steps with `isolate: files`")


def _network() -> Layer:
    if sys.platform != "linux":
        return Layer("network namespace", False, "only on Linux")
    said, _ = _tried(network_launcher(["true"]))
    if said is not None:
        return Layer("network namespace", False, said)
    return Layer("network namespace", True, "steps with `isolate: network`")


_FOR = {"Landlock": "`isolate: files`", "network namespace": "`isolate: network`"}


def _stood_in_for(missing: Layer, bubblewrap: Layer) -> Layer:
    outcome = "is left to bubblewrap" if bubblewrap.active else "is refused"
    return Layer(missing.name, False, f"{missing.detail}: {_FOR[missing.name]} {outcome}")


def _bubblewrap(missing: set[str]) -> Layer:
    """Used for what the kernel does not give us by itself."""
    found = shutil.which("bwrap")
    if found is None:
        return Layer("bubblewrap", False, f"not installed, and {'would help here' if missing else 'not needed'}")
    said, _ = _tried(bubblewrap_launcher(["true"], found))
    if said is not None:
        return Layer("bubblewrap", False, f"{found} fails ({said})")
    if not missing:
        return Layer("bubblewrap", False, f"{found} works, and is not needed")
    return Layer("bubblewrap", True, f"{found}: steps with {' and '.join(_FOR[name] for name in sorted(missing))}")


def _tried(argv: list[str]) -> tuple[str | None, str]:
    """What went wrong, None if nothing did; and the answer."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error), ""
    said = done.stderr.decode(errors="replace").strip().removeprefix(confine.CANNOT)
    if done.returncode == 0:
        return None, done.stdout.decode(errors="replace").strip()
    return said[-200:] or f"exit code {done.returncode}", ""
