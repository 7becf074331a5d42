"""Run by tests: one process of several that spend from one day's limit until nothing is left, or so many rounds.

It reserves and settles round after round, some attempts below what was set aside (or all of them for nothing, so that
nothing is ever used up), and prints a line for each thing
once the ledger has acknowledged it: `reserved ATTEMPT`, `settled ATTEMPT USD`, and in the end `most USD`, the most that
it ever saw counting against the limit.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from windlass.core.budget import Amount, Scope
from windlass.journal.ledger import SqliteLedger
from windlass.ports import Charge, Usage


def tell(*words: object) -> None:
    print(*words, flush=True)


async def spend(path: Path, name: str, limit: float, want: float, rounds: int, free: bool) -> None:
    ledger = SqliteLedger(path, patience=180.0)  # all of them at once, on a slow disk
    scope = Scope("day", Amount(usd=limit), since=1000.0)
    attempt, most = 0, 0.0
    while attempt < rounds:
        attempt += 1
        charge = Charge(name, "step", attempt)
        refusal = await ledger.reserve(charge, 1000.0 + attempt, Amount(usd=want), [scope])
        if refusal is not None:
            if not refusal.busy:
                break
            attempt -= 1
            continue
        tell("reserved", attempt)
        ((_, spent, reserved),) = await ledger.standing([scope])
        most = max(most, (spent.usd or 0.0) + (reserved.usd or 0.0))
        usd = 0.0 if free else want / 4 if attempt % 3 == 0 else want
        await ledger.settle(charge, 1000.0 + attempt, Usage(10, 1, usd=usd, source="runtime"))
        tell("settled", attempt, usd)
    tell("most", most)
    await ledger.close()


if __name__ == "__main__":
    path, name, limit, want, rounds, free = sys.argv[1:]
    asyncio.run(spend(Path(path), name, float(limit), float(want), int(rounds), free == "free"))
