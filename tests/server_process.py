"""A real server for tests: `windlass serve` in its own process, on a free port, with its own home and token.

`serve()` starts one (again, for a restart); `server` is one that runs. `server.api` asks it with its token:
`server.api.post("/api/executions", {"plan": …}).json`. What is left at a test's end is killed.
"""

from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import pytest

if TYPE_CHECKING:
    from conftest import Background, Project, Ran, Windlass

PATIENCE = 180.0


@dataclass(frozen=True)
class Reply:
    status: int
    headers: dict[str, str]
    """By their names in lower case."""
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Api:
    """Asks a server. A connection for each request: servers come and go in these tests."""

    def __init__(self, address: str, token: str) -> None:
        self.address, self.token = address, token

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        raw: bytes | None = None,
    ) -> Reply:
        sent = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        if data is not None:
            sent["Content-Type"] = "application/json"
        sent |= headers or {}
        connection = http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=PATIENCE)
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            named = {name.lower(): value for name, value in answer.getheaders()}
            return Reply(answer.status, named, answer.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Reply:
        return self("GET", path, headers=_names(headers))

    def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        return self("POST", path, body, _names(headers))

    def start(self, plan: dict[str, Any], *, wait: float = 0, **more: Any) -> dict[str, Any]:
        """Start a plan, and give the execution."""
        reply = self.post(f"/api/executions?wait={wait:g}", {"plan": plan, **more})
        assert reply.status == 201, reply.body
        found: dict[str, Any] = reply.json
        return found


def _names(headers: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "-"): value for name, value in headers.items()}


class Server:
    """A server that runs."""

    def __init__(self, background: Background, told: dict[str, Any], token: str) -> None:
        self._background = background
        self.told = told
        self.address: str = told["address"]
        self.pid: int = told["pid"]
        self.token = token
        self.api = Api(self.address, token)

    @property
    def log(self) -> list[dict[str, Any]]:
        """What it has written to its log so far."""
        return [json.loads(line) for line in self._background.err.splitlines() if line.endswith("}")]

    @property
    def err(self) -> str:
        return self._background.err

    def stop(self) -> Ran:
        """Ctrl-C, and how it ended."""
        self._background.signal(signal.SIGINT)
        return self.ended()

    def ended(self) -> Ran:
        """Wait for its end, and say how it ended."""
        return self._background.ended()

    def kill(self) -> None:
        self._background.signal(signal.SIGKILL)
        self._background.process.wait(PATIENCE)


Serve = Callable[..., Server]


@pytest.fixture
def serve(project: Project, windlass: Windlass, until: Any) -> Serve:
    def start(*options: str, **env: str) -> Server:
        background = windlass.background("serve", "--port", "0", "--json", *options, **env)

        def told() -> dict[str, Any] | None:
            assert background.process.poll() is None, f"it ended: {background.out}{background.err}"
            text = background.out
            return json.loads(text) if text.endswith("}\n") else None

        found = until(told, "the server says where it is")
        return Server(background, found, (project.home / "server.token").read_text().strip())

    return start


@pytest.fixture
def server(serve: Serve) -> Server:
    return serve()
