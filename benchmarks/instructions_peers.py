"""Instructions of a step of the peers, counted as those of ours are: a ratio that disk, load and machine do not change.

    python -m benchmarks.instructions_peers

Only peers that do their work in one process: valgrind counts that process, with all its threads. Restate's is done by
a server and a service, in processes of their own that also work by the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.instructions import CACHEGRIND, FEW, KINDS, MANY, read_instructions
from benchmarks.peers.environment import prepare
from benchmarks.peers.measure import SCENARIOS
from benchmarks.peers.run import run_peer

__all__ = ["COUNTED", "PeerInstructions", "count_peers"]

COUNTED = ("langgraph", "dbos")
TIMEOUT = 1800.0


class PeerInstructions(NamedTuple):
    peer: str
    kind: str
    """One of `benchmarks.instructions.KINDS`."""
    count: int
    """Instructions of a step."""
    error: str = ""
    """The reason why the peer could not be counted."""


def count_peers(folder: Path, environment: Path) -> Iterator[PeerInstructions]:
    """A count for each kind of work that the peers' scripts have, and each peer."""
    for missing in prepare(environment):
        print(f"could not be had: {missing}")
    for kind in filter(SCENARIOS.__contains__, KINDS):
        steps = (MANY - FEW) * SCENARIOS[kind].steps
        for peer in COUNTED:
            try:
                few, many = (_total(peer, kind, rounds, folder, environment) for rounds in (FEW, MANY))
            except ValueError as error:
                yield PeerInstructions(peer, kind, 0, str(error))
            else:
                yield PeerInstructions(peer, kind, (many - few) // steps)


def _total(peer: str, kind: str, rounds: int, folder: Path, environment: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    report = folder.absolute() / "report"
    under = [*CACHEGRIND, f"--log-file={report}"]
    done = run_peer(peer, kind, environment, folder, TIMEOUT, ["--rounds", str(rounds)], under)
    if "error" in done:
        raise ValueError(done["error"])
    found = read_instructions(report.read_text())
    if found is None:
        raise ValueError(f"no count in {report}")
    return found


if __name__ == "__main__":
    for found in count_peers(Path(".bench/counted"), Path(".bench/peers")):
        print(found)
