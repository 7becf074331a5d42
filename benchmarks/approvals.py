"""How much computing `GET /api/approvals` and one answer take while many questions are open: through the whole server.

    python -m benchmarks.approvals [COUNT]

The home is filled with paused executions that ask for approval, one question each. CPU time is measured, which a busy
machine changes little.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

import windlass
from windlass.core import events as ev
from windlass.core.approval import digest_of
from windlass.core.questions import changes_of, open_questions
from windlass.core.state import fold
from windlass.engine.commit_writer import head_of
from windlass.ids import new_id
from windlass.server.app import create_app
from windlass.server.service import Service

__all__ = ["COUNT", "Cost", "approval_costs"]

COUNT = 5_000
ROUNDS = 20
PLAN = windlass.Plan(name="asks", steps=[windlass.Step(id="risky", run="true", approve="always")])


class Cost(NamedTuple):
    """Seconds of computing, the median of several rounds."""

    page: float
    """The first page of questions."""
    answer: float


async def fill(engine: windlass.Engine, count: int, workdir: Path) -> None:
    """Executions as a driver leaves them that found nobody to ask."""
    for _ in range(count):
        now, asked = time.time(), {"line": "true"}
        created = ev.ExecutionCreated(now, new_id(), msgspec.Raw(PLAN.encoded), {}, str(workdir))
        events: list[ev.Event] = [
            created,
            ev.ExecutionStarted(now, "driver"),
            ev.ApprovalAsked(now, "risky", digest_of("risky", "shell", asked), "shell", asked, now + 86400),
            ev.ExecutionPaused(now, "approval"),
        ]
        state = fold(events, PLAN)
        questions = changes_of({}, open_questions(state))
        await engine.journal.append(created.id, 0, events, head=head_of(state), questions=questions)


class Asking:
    """Asks the application as a client on this machine does: the peer of each answer is looked for in /proc."""

    def __init__(self, app: Any, token: str) -> None:
        self._app, self._token = app, token
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._connection = socket.create_connection(self._listening.getsockname())

    async def __call__(self, method: str, path: str, body: Any = None) -> Any:
        sent = b"" if body is None else json.dumps(body).encode()
        headers = {"host": "127.0.0.1", "authorization": f"Bearer {self._token}", "content-type": "application/json"}
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method, "scheme": "http",
            "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "", "extensions": {},
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": self._connection.getsockname(), "server": self._listening.getsockname(),
        }  # fmt: skip
        status, received = 0, b""

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": sent, "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            nonlocal status, received
            status = message.get("status", status)
            received += message.get("body", b"")

        await self._app(scope, receive, send)
        assert status == 200, (status, received)
        return json.loads(received)

    def close(self) -> None:
        self._connection.close()
        self._listening.close()


async def approval_costs(count: int = COUNT) -> Cost:
    with tempfile.TemporaryDirectory(prefix="windlass-bench-") as folder:
        async with windlass.open(Path(folder) / ".windlass") as engine:
            await fill(engine, count, Path(folder))
            service = Service(engine)
            asking = Asking(create_app(service), service.access.token)
            await service.keys.forget_old(0.0)  # what a server does when it starts: its table is there
            found: list[dict[str, Any]] = []

            async def page() -> None:
                found[:] = await asking("GET", "/api/approvals")

            async def answer() -> None:
                await asking("POST", f"/api/approvals/{found.pop()['id']}", {"allow": True})

            await page()
            cost = Cost(await _cpu(page), await _cpu(answer))
            asking.close()
            await service.feed.close()
            await service.keys.close()
            return cost


async def _cpu(work: Callable[[], Awaitable[None]]) -> float:
    taken = []
    for _ in range(ROUNDS):
        before = time.process_time()
        await work()
        taken.append(time.process_time() - before)
    return statistics.median(taken)


if __name__ == "__main__":
    cost = asyncio.run(approval_costs(int(sys.argv[1]) if len(sys.argv) > 1 else COUNT))
    print(f"first page {cost.page * 1000:.1f} ms, one answer {cost.answer * 1000:.1f} ms of computing")
