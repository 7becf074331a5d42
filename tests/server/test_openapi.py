"""The API as its OpenAPI document describes it, tried with requests that nobody thought of: no server error (TRUST).

The application is the real one, with its guard, a journal on disk and real executions, served on a
free port. Requests come in any order and build on each other's answers; the seed of a failure is printed by Hypothesis.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import urllib.request
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky, Unsatisfiable
from schemathesis import GenerationMode
from waiting import PATIENCE

import windlass
from windlass.server.app import create_app, create_routes
from windlass.server.service import Service

if TYPE_CHECKING:
    from conftest import Project

PLAN = {
    "name": "p",
    "inputs": {"n": 1},
    "steps": [{"id": "a", "run": "true"}, {"id": "b", "run": "true", "needs": ["a"]}],
}
ASKS = {"name": "q", "steps": [{"id": "a", "run": "true", "approve": "always"}]}
WAYS = ("plan", "plan_text", "plan_file", "task", "tasks", "strategy", "role", "chain", "files", "skills", "inputs")
CALM = settings(
    max_examples=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


LONGEST = 5_000
"""Characters of a value in an address, as they are sent. A server may refuse a longer line while it is still being
sent, and then its answer can be lost."""


def shorten(case: Any) -> None:
    for part in (case.path_parameters, case.query):
        for name, value in part.items() if isinstance(part, dict) else ():
            while isinstance(value, str) and len(quote(value, errors="replace")) > LONGEST:
                value = value[: len(value) * 3 // 4]
            part[name] = value


class Running:
    """The application on a loop of its own, in a thread."""

    def __init__(self) -> None:
        self._begun = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._begun.wait(PATIENCE)

    async def _serve(self) -> None:
        nothing = {"path": "/bin/false"}  # a task must not call a model
        service = Service(windlass.open(grace=0.2, runtimes={"claude-code": nothing, "open-code": nothing}))
        self.document = create_routes(service).openapi()
        self.token = service.access.token
        config = uvicorn.Config(create_app(service), log_config=None, access_log=False, lifespan="on")
        self._server = uvicorn.Server(config)
        listening = socket.create_server(("127.0.0.1", 0))  # who comes before it has started waits in the backlog
        self.address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self._begun.set()
        await self._server.serve([listening])

    def ground(self, case: Any, number: int) -> None:
        """Make a request about something that is there: else nearly all would end with 404."""
        given = case.path_parameters if isinstance(case.path_parameters, dict) else {}
        if len(str(given.get("execution", "x" * 36))) != 36:  # no id that an answer gave
            case.path_parameters = {**given, "execution": self.ids[number % len(self.ids)]}
        if "step" in given:
            case.path_parameters = {**case.path_parameters, "step": "a"}
        if isinstance(case.query, dict):
            # One that asks something would be waited for in vain.
            case.query = {name: value for name, value in case.query.items() if name != "wait"}
        if case.operation.label.rpartition("/")[2] in ("pause", "interrupt", "cancel", "say"):
            given_body = case.body if isinstance(case.body, dict) else {}
            case.body = {**given_body, "within": 1}
        if case.operation.label == "POST /api/executions" and isinstance(case.body, dict):
            rest = {name: value for name, value in case.body.items() if name not in WAYS}
            case.body = {**rest, "plan": (PLAN, ASKS)[number % 2]}

    def populate(self) -> None:
        """Some executions to be asked about: ended, and waiting for a person."""
        self.ids: list[str] = []
        for plan in (PLAN, ASKS):
            body = json.dumps({"plan": plan}).encode()
            headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
            asked = urllib.request.Request(f"{self.address}/api/executions", body, headers)
            with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
                self.ids.append(json.load(answer)["id"])

    def close(self) -> None:
        self._server.should_exit = True
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()


@pytest.fixture
def running(project: Project, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    found = Running()
    try:
        yield found
    finally:
        found.close()


def document_of(running: Running) -> Any:
    schema = schemathesis.openapi.from_dict(running.document)
    headers = {"Authorization": f"Bearer {running.token}"}
    schema.config.update(base_url=running.address, headers=headers, request_timeout=PATIENCE)
    return schema


@pytest.mark.parametrize("examples", [3, pytest.param(100, marks=pytest.mark.soak)])
@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: mode.value)
def test_i3_no_request_that_fits_the_document_or_does_not_makes_a_server_error(
    running: Running, mode: GenerationMode, examples: int
) -> None:
    running.populate()
    answers: list[tuple[str, int]] = []
    for result in document_of(running).get_all_operations():
        operation = result.ok()

        @settings(CALM, max_examples=examples)
        @given(case=operation.as_strategy(generation_mode=mode), number=st.integers(0, 7))
        def one(case: Any, number: int) -> None:
            shorten(case)
            if number > 1:
                running.ground(case, number)
            answer = case.call()
            answers.append((case.operation.label, answer.status_code))
            assert answer.status_code < 500, case.as_curl_command()
            if answer.status_code >= 400:
                assert answer.headers["content-type"] == ["application/problem+json"], case.as_curl_command()

        with contextlib.suppress(Unsatisfiable):  # a route that takes nothing cannot be asked wrongly
            one()
    assert len(answers) > 100
    if mode is GenerationMode.POSITIVE:
        assert {("POST /api/executions", 201), ("POST /api/executions/{execution}/fork", 201)} <= set(answers)


def test_i3_requests_that_build_on_each_others_answers_make_no_server_error(running: Running) -> None:
    running.populate()
    machine = document_of(running).as_state_machine()
    answers: list[int] = []
    errors: list[str] = []

    class Machine(machine):  # type: ignore[misc,valid-type]
        def before_call(self, case: Any) -> None:
            shorten(case)
            running.ground(case, len(answers))

        def validate_response(self, response: Any, case: Any, **more: Any) -> None:
            answers.append(response.status_code)
            if response.status_code >= 500:
                errors.append(case.as_curl_command())

    for _ in range(10):
        with contextlib.suppress(Flaky):  # the same requests may get other answers: the server's executions go on
            Machine.run(settings=settings(CALM, stateful_step_count=8))
        if len(answers) > 30:  # it may have ended early by that
            break
    assert errors == []
    assert {200, 201} <= set(answers)
    assert len(answers) > 30
