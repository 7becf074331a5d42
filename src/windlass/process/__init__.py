"""Own a process tree: start it, stream it, end all of it (A8). The map of this package is in `supervisor`."""

from windlass.process.command import SpawnError
from windlass.process.isolation import Isolation, isolated, refusal
from windlass.process.layers import Layer, cpu_share, layers
from windlass.process.limits import LimitName, ProcessLimits, Used
from windlass.process.supervisor import Containment, Mechanism, Supervisor, containment
from windlass.process.ward import Exit, Process, ProcessLost

__all__ = [
    "Containment",
    "Exit",
    "Isolation",
    "Layer",
    "LimitName",
    "Mechanism",
    "Process",
    "ProcessLimits",
    "ProcessLost",
    "SpawnError",
    "Supervisor",
    "Used",
    "containment",
    "cpu_share",
    "isolated",
    "layers",
    "refusal",
]
