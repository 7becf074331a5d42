"""Runs one peer once, in a process of the peers' environment. The benchmark imports this; it imports no peer.

A peer that cannot be had, or did not do its work, comes back as an error with its reason, never as a number.
"""

import json
import os
import signal
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.peers.environment import python_of

__all__ = ["PEERS", "clean_environment", "run_peer"]

PEERS = ("langgraph", "dbos", "restate")

_HERE = Path(__file__).resolve().parent
_KEYS = {"peer", "version", "scenario", "steps", "seconds", "steps_per_s", "durability"}


def run_peer(
    name: str,
    scenario: str,
    environment: Path,
    workdir: Path,
    timeout: float,
    options: Sequence[str] = (),
    under: Sequence[str] = (),
) -> dict[str, Any]:
    """The measurement as the script printed it, or {"peer", "scenario", "error"}.

    `environment` is the folder that environment.py prepared, `workdir` a folder on the disk to measure. After
    `timeout` seconds the script and all it started are killed. `under` is a command that runs its Python.
    """
    python = python_of(environment)
    if name not in PEERS:
        return _error(name, scenario, f"no such peer; there are {', '.join(PEERS)}")
    if not python.exists():
        return _error(name, scenario, f"no Python at {python}: run environment.py {environment}")

    home = workdir.absolute() / "home"  # vendors' tools keep their files out of the user's home
    home.mkdir(parents=True, exist_ok=True)
    script = _HERE / f"bench_{name}.py"
    process = subprocess.Popen(
        [*under, python, script, "--scenario", scenario, "--dir", workdir.absolute(), *options],
        env=clean_environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that the script and its servers can be ended together, and nothing else
    )
    try:
        output, complaints = process.communicate(timeout=timeout)
    except BaseException as error:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            return _error(name, scenario, f"no result within {timeout:g} s")
        raise
    if process.returncode != 0:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # a server that a crashed script left behind
        return _error(name, scenario, complaints.strip()[-800:] or f"ended with {process.returncode}")
    return _parse(name, scenario, output)


def clean_environment(home: Path) -> dict[str, str]:
    """Allow-listed: a key, a proxy or a database address of the user's must not change what is measured."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "PYTHONNOUSERSITE": "1",
        "DO_NOT_TRACK": "1",
    }


def _parse(name: str, scenario: str, output: str) -> dict[str, Any]:
    try:
        (line,) = output.splitlines()
        result = json.loads(line)
        if not isinstance(result, dict) or result.keys() != _KEYS:
            raise ValueError("not the object of a measurement")
    except ValueError as error:
        return _error(name, scenario, f"did not print one JSON line ({error}): {output[-200:]!r}")
    return result


def _error(name: str, scenario: str, reason: str) -> dict[str, Any]:
    return {"peer": name, "scenario": scenario, "error": reason}
