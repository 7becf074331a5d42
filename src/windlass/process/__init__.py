"""Own a process tree: start it, stream it, end all of it (A8). The map of this package is in `supervisor`."""

from windlass.process.ancestry import AttemptAbove, Peer, attempt_above, attempt_behind, peer
from windlass.process.command import LimitName, MemoryPool, ProcessLimits, ResourcesUsed, SpawnError
from windlass.process.isolation import Isolation, Layer, cpu_share, isolated, layers, refusal
from windlass.process.process_handle import Exit, Process, ProcessLost, signal_name
from windlass.process.supervisor import Containment, Mechanism, Supervisor, containment

__all__ = [
    "AttemptAbove",
    "Containment",
    "Exit",
    "Isolation",
    "Layer",
    "LimitName",
    "Mechanism",
    "MemoryPool",
    "Peer",
    "Process",
    "ProcessLimits",
    "ProcessLost",
    "ResourcesUsed",
    "SpawnError",
    "Supervisor",
    "attempt_above",
    "attempt_behind",
    "containment",
    "cpu_share",
    "isolated",
    "layers",
    "peer",
    "refusal",
    "signal_name",
]
