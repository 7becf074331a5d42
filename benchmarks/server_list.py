"""How long `GET /api/executions` takes with many executions in the home: through the whole application, on disk.

    python -m benchmarks.server_list [COUNT]

The home is filled past the engine with finished executions of a few plans (heads and one event each), then the list is
asked for as clients do: the first page, pages in the middle, by status, by a plan's name, and a name that is rare.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import windlass
from windlass.ids import new_id
from windlass.server.app import create_app
from windlass.server.service import Service

__all__ = ["COUNT", "Listed", "list_times"]

COUNT = 100_000
ROUNDS = 200


class Listed(NamedTuple):
    """How long one kind of question took, in seconds."""

    kind: str
    p50: float
    p95: float
    p99: float


def fill(file: Path, count: int) -> list[str]:
    db = sqlite3.connect(file)
    now = time.time()
    statuses = ("completed", "completed", "completed", "partial", "failed", "cancelled", "paused")
    ids = [new_id() for _ in range(count)]
    with db:
        db.executemany(
            "INSERT INTO executions (id, name, status, created_at, updated_at, driver, detail) "
            "VALUES (?, ?, ?, ?, ?, '', '')",
            [
                (one, "rare" if n == 7 else f"plan-{n % 20}", statuses[n % len(statuses)], now, now)
                for n, one in enumerate(ids)
            ],
        )
        db.execute(
            "INSERT INTO events (execution, seq, body) SELECT key, 1, '{}' FROM executions",
        )
    db.close()
    return ids


async def ask(app: Any, path: str, token: str) -> tuple[float, int]:
    target, _, query = path.partition("?")
    headers = [(b"host", b"127.0.0.1:8642"), (b"authorization", f"Bearer {token}".encode())]
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": target, "raw_path": target.encode(), "query_string": query.encode(), "headers": headers,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8642), "root_path": "", "extensions": {},
    }  # fmt: skip
    status = 0

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal status
        status = message.get("status", status)

    began = time.perf_counter()
    await app(scope, receive, send)
    return time.perf_counter() - began, status


async def _measured(count: int) -> list[Listed]:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / ".windlass"
        async with windlass.open(home) as engine:
            ids = fill(home / "windlass.db", count)
            service = Service(engine)
            app = create_app(service)
            await service.keys.forget_old(0.0)  # what a server does when it starts: its table is there
            rng = random.Random(1)
            kinds: dict[str, Callable[[], str]] = {
                "first page of 50": lambda: "/api/executions",
                "page in the middle": lambda: f"/api/executions?before={rng.choice(ids)}",
                "by status": lambda: f"/api/executions?status=failed&before={rng.choice(ids)}",
                "by two statuses": lambda: "/api/executions?status=failed&status=partial",
                "by name": lambda: f"/api/executions?name=plan-{rng.randrange(20)}",
                "by a name that is rare": lambda: "/api/executions?name=rare",
                "stats": lambda: "/api/stats",
            }
            found = []
            for kind, path in kinds.items():
                taken = []
                for _ in range(ROUNDS):
                    seconds, status = await ask(app, path(), service.access.token)
                    assert status == 200, status
                    taken.append(seconds)
                cuts = statistics.quantiles(taken, n=100)
                found.append(Listed(kind, cuts[49], cuts[94], cuts[98]))
            await service.feed.close()
            await service.keys.close()
            return found


def list_times(count: int = COUNT) -> list[Listed]:
    """Each kind of list, and the figures of all executions together last."""
    return asyncio.run(_measured(count))


def main(count: int) -> None:
    print(f"{count:,} executions; ms")
    for kind, *cuts in list_times(count):
        p50, p95, p99 = (seconds * 1000 for seconds in cuts)
        print(f"  {kind:<24} p50 {p50:7.2f}   p95 {p95:7.2f}   p99 {p99:7.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT)
