"""Isolation of a command: no writing outside its folder, no network; and which layers of it this machine has.

`isolated` gives the command line that does so. The work is done by `confine`, in the command's own process before the
command is there; whether it can be done at all shows there, and `refusal` reads it. `layers` lists for `doctor` and the
docs the layers that there are: everything is tried or asked of the kernel, and a missing layer is named as well.
"""

from __future__ import annotations

import asyncio
import functools
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import msgspec

from windlass.process import bounds, cgroups, confine
from windlass.process.supervisor import Mechanism, containment
from windlass.removal import remove_tree

__all__ = ["Isolation", "Layer", "cpu_share", "isolated", "layers", "refusal"]


Isolation = Literal["none", "files", "network", "all"]

LAUNCHER = Path(__file__).with_name("confine.py")


@asynccontextmanager
async def isolated(
    argv: Sequence[str], env: Mapping[str, str], isolation: Isolation, folder: str, *, wrapped: bool = False
) -> AsyncIterator[tuple[list[str], dict[str, str]]]:
    """The command line and the environment to start, while this is open.

    Where only `folder` may be written to, the command gets a TMPDIR of its own, which is removed at the end. `wrapped`
    is to use bubblewrap even where the kernel offers us all of it.
    """
    if isolation == "none":
        yield list(argv), dict(env)
    elif isolation == "network":
        yield _launched(argv, writable=None, network=False, wrapped=wrapped), dict(env)
    else:
        import tempfile  # slow to import, and few commands need it

        private = tempfile.mkdtemp(prefix="windlass-")
        try:
            open_network = isolation == "files"
            launched = _launched(argv, writable=[folder, private], network=open_network, wrapped=wrapped)
            yield launched, {**env, "TMPDIR": private}
        finally:
            await asyncio.to_thread(remove_tree, Path(private), ignore_errors=True)  # a command may have left a lot


def network_launcher(argv: Sequence[str]) -> list[str]:
    """The command line of a command without a network, by the kernel alone."""
    return _line(argv, {"writable": None, "network": False, "bubblewrap": None, "forced": False})


def bubblewrap_launcher(argv: Sequence[str], bubblewrap: str) -> list[str]:
    """The command line of a command without a network that can write nowhere, by bubblewrap alone."""
    return _line(argv, {"writable": [], "network": False, "bubblewrap": bubblewrap, "forced": True})


def _launched(argv: Sequence[str], *, writable: list[str] | None, network: bool, wrapped: bool) -> list[str]:
    # Looked for here: the command's own PATH may begin with a folder in which it has put a program of that name.
    bubblewrap = shutil.which("bwrap")
    return _line(argv, {"writable": writable, "network": network, "bubblewrap": bubblewrap, "forced": wrapped})


def _line(argv: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    return [sys.executable, "-I", "-S", str(LAUNCHER), json.dumps(options), *argv]


def refusal(code: int | None, stderr: str) -> str | None:
    """Give the reason why isolation failed; None if it worked, and the command ran."""
    if code != confine.EX_CANNOT or not stderr.startswith(confine.CANNOT):
        return None
    return stderr.removeprefix(confine.CANNOT).strip()


PATIENCE = 10.0
"""Seconds that trying a layer out may take."""

REALTIME = "import os; os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))"
"""The request of a keeper for real-time priority, tried by a process of its own."""


class Layer(msgspec.Struct, frozen=True):
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
    """Find out, once, if the kernel can hold a step to its share of the processors; else it is only a priority."""
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
    """Run it; give the error, None if there was none, and the output."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=PATIENCE, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error), ""
    said = done.stderr.decode(errors="replace").strip().removeprefix(confine.CANNOT)
    if done.returncode == 0:
        return None, done.stdout.decode(errors="replace").strip()
    return said[-200:] or f"exit code {done.returncode}", ""
