"""`windlass.client` against the real `windlass serve`: what it can ask, and what it says when refused (I3, I5)."""

from __future__ import annotations

import asyncio
import inspect
import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import PATIENCE

from windlass import Plan, Step
from windlass.client import Client, ClientError, Refused, Unreachable
from windlass.client.errors import refusal
from windlass.errors import UsageError

if TYPE_CHECKING:
    from conftest import Project

ECHO = {"name": "echo", "steps": [{"id": "a", "run": "echo one"}, {"id": "b", "run": "echo two", "needs": ["a"]}]}
ASKING = {"name": "asking", "steps": [{"id": "gate", "run": "echo allowed", "approve": "always"}]}
LONG = {"name": "long", "steps": [{"id": "wait", "run": "sleep 60"}, {"id": "then", "run": "echo", "needs": ["wait"]}]}


@pytest.fixture
async def client(server: Any) -> AsyncIterator[Client]:
    async with Client(server.address, server.token) as client:
        yield client


@pytest.mark.parametrize(("address", "read"), [("http://127.0.0.1:9", 0), ("https://127.0.0.1:9", 1)])
async def test_i5_certificates_are_read_for_a_server_with_tls_alone(
    monkeypatch: pytest.MonkeyPatch, address: str, read: int
) -> None:
    files: list[Any] = []
    load = ssl.SSLContext.load_verify_locations

    def noted(context: ssl.SSLContext, *where: Any, **more: Any) -> None:
        files.append((where, more))
        load(context, *where, **more)

    monkeypatch.setattr(ssl.SSLContext, "load_verify_locations", noted)
    async with Client(address, "token"):
        assert len(files) == read


async def until_type(client: Client, execution: str, kind: str) -> dict[str, Any]:
    """The first event of a type."""
    async for event in client.events(execution):
        if event["type"] == kind:
            return event
    raise AssertionError(f"it ended without {kind}")


async def test_i3_start_follow_and_get(client: Client, project: Project) -> None:
    started = await client.start(ECHO)
    events = [event async for event in client.events(started["id"])]
    assert [event["seq"] for event in events] == list(range(1, len(project.events(started["id"])) + 1))
    assert (events[-1]["type"], events[-1]["status"], events[-1]["progress"]) == (
        "execution.finished",
        "completed",
        100,
    )
    found = await client.get(started["id"])
    assert (found["status"], found["steps"][1]["output"]["stdout"].strip()) == ("completed", "two")
    assert [event["seq"] async for event in client.events(started["id"], after=4)] == [e["seq"] for e in events[4:]]


async def test_plans_of_python_and_files_and_tasks_of_text_can_be_started(client: Client, project: Project) -> None:
    made = Plan(name="made", steps=[Step(id="only", tool="shell", **{"with": {"line": "echo from python"}})])
    ran = await client.start(made, wait=60)
    assert (ran["plan"], ran["status"], ran["steps"][0]["output"]["stdout"]) == ("made", "completed", "from python\n")
    file = project.file("plan.yaml", "name: filed\nsteps: [{id: a, run: echo filed}]\n")
    assert (await client.start(plan_file=file, wait=60))["plan"] == "filed"
    assert (await client.start(plan_text="name: typed\nsteps: [{id: a, run: echo}]", wait=60))["plan"] == "typed"


async def test_the_same_key_starts_one_execution(client: Client, project: Project) -> None:
    first, second = await client.start(ECHO, key="order-17"), await client.start(ECHO, key="order-17")
    assert first["id"] == second["id"]
    assert project.ids() == [first["id"]]


@pytest.mark.parametrize("key", ["two\nlines", "größe", 256 * "k"])
async def test_i5_a_key_that_no_request_can_have_is_refused_at_once(client: Client, key: str) -> None:
    with pytest.raises(UsageError, match="a key is 1 to 255 printable ASCII characters"):
        await client.start(ECHO, key=key)


@pytest.mark.parametrize("name", ["", ".", ".."])
async def test_i5_a_name_that_would_lead_to_another_address_is_refused_at_once(client: Client, name: str) -> None:
    for asked in (client.get(name), client.undo("any", name), client.approve(name), anext(client.events(name))):
        with pytest.raises(UsageError, match=f"there is no execution, step or question '{name}'"):
            await asked


@pytest.mark.parametrize("value", [{1, 2}, float("nan"), "\ud800"])
async def test_i5_a_value_that_json_cannot_hold_is_refused(client: Client, value: Any) -> None:
    with pytest.raises(UsageError, match="a value that JSON cannot hold"):
        await client.start({**ECHO, "inputs": {"x": 1}}, inputs={"x": value})


async def test_d8_a_fork_takes_a_plan_of_python_and_a_path(client: Client, project: Project) -> None:
    started = await client.start(ECHO, wait=60)
    plan = Plan(name="echo", steps=[Step(id="a", run="echo one"), Step(id="b", run="echo three", needs="a")])
    forked = await client.fork(started["id"], plan=plan, from_step="b")
    done = await client.get(forked["id"], wait=60)
    assert [step["output"]["stdout"] for step in done["steps"]] == ["one\n", "three\n"]
    file = project.file("plan.json", plan.encoded.decode())
    assert (await client.fork(started["id"], plan_file=file, start=False))["status"] == "pending"


async def test_all_executions_are_listed_page_by_page(client: Client) -> None:
    ids = [(await client.start(ECHO, wait=60))["id"] for _ in range(5)]
    assert [line["id"] async for line in client.list(page=2)] == ids[::-1]
    assert [line["id"] async for line in client.list(status=["failed"])] == []
    assert [line["id"] async for line in client.list(name="echo", status=["completed"])] == ids[::-1]


async def test_pause_resume_interrupt_cancel_and_fork(client: Client) -> None:
    execution = (await client.start(LONG))["id"]
    await until_type(client, execution, "attempt.started")
    assert (await client.pause(execution, now=True, within=60))["status"] == "paused"
    assert (await client.resume(execution))["status"] == "running"
    assert (await client.interrupt(execution, within=60))["reason"] == "interrupt"
    assert (await client.cancel(execution, within=60))["status"] == "cancelled"
    forked = await client.fork(execution, start=False)
    assert (forked["status"], forked["id"] != execution) == ("pending", True)
    assert Path(await client.checkpoint(execution)).is_file()


async def test_c6_a_question_is_seen_and_answered(client: Client) -> None:
    execution = (await client.start(ASKING))["id"]
    await until_type(client, execution, "approval.asked")
    (question,) = await client.approvals()
    assert (question["execution"], question["step"]) == (execution, "gate")
    await client.approve(question, note="go on")
    assert (await client.get(execution, wait=60))["status"] == "completed"
    assert not await client.approvals()


async def test_c6_all_open_questions_are_seen_page_by_page(client: Client) -> None:
    gates = [{"id": f"gate{number}", "run": "true", "approve": "always"} for number in range(101)]
    execution = (await client.start({"name": "many", "limits": {"parallel": 200}, "steps": gates}))["id"]
    await client.pause(execution, within=60)
    assert {question["step"] for question in await client.approvals()} == {gate["id"] for gate in gates}


async def test_the_budget_can_be_read(client: Client) -> None:
    assert isinstance(await client.budget(), dict)


async def test_d7_the_history_can_be_asked(client: Client) -> None:
    await client.start({"name": "quick", "steps": [{"id": "a", "run": "true"}]}, wait=60)
    page = await client.history("plan", since="1d", until=None, failed=False)
    assert [(row["plan"], row["runs"]) for row in page["rows"]] == [("quick", 1)]
    assert "bottlenecks" in await client.history(slow=True)


async def test_h1_a_plan_is_estimated(client: Client) -> None:
    plan = Plan(name="quick", steps=[Step(id="a", run="true")])
    assert (await client.estimate(plan))["unknown"] == ["a"]
    await client.start(plan, wait=60)
    told = await client.estimate(plan_text=plan.encoded.decode())
    assert told["expected_s"] >= 0
    assert told["forecast"]["runs"] == 1


async def test_c5_a_refusal_carries_category_advice_and_all_that_the_server_said(client: Client) -> None:
    with pytest.raises(Refused) as unknown:
        await client.get("nobody")
    assert (unknown.value.status, unknown.value.category) == (404, "configuration")
    with pytest.raises(Refused) as invalid:
        await client.start({"steps": [{"id": "a", "tool": "shell", "needs": ["missing"]}]})
    assert invalid.value.status == 422
    assert any("missing" in problem["message"] for problem in invalid.value.problem["problems"])
    done = await client.start(ECHO, wait=60)
    with pytest.raises(Refused) as late:
        await client.resume(done["id"])
    assert late.value.status == 409
    assert any("fork" in line for line in late.value.advice)


async def test_streams_that_cannot_be_are_refused_and_not_tried_for_ever(client: Client, server: Any) -> None:
    with pytest.raises(Refused) as nobody:
        await anext(client.events("nobody"))
    assert nobody.value.status == 4404
    with pytest.raises(Refused) as beyond:
        await anext(client.stream(after=10**9))
    assert beyond.value.status == 1008
    async with Client(server.address, "not-the-token-of-this-server") as stranger:
        with pytest.raises(Refused) as locked:
            await anext(stranger.stream())
        with pytest.raises(Refused) as closed:
            await stranger.get("any")
    assert (locked.value.status, closed.value.status) == (401, 401)


async def test_client_local_finds_the_server_of_a_home(server: Any, project: Project) -> None:
    async with Client.local() as client:
        assert client.url == server.address
        assert (await client.start(ECHO, wait=60))["status"] == "completed"
    server.stop()
    with pytest.raises(UsageError, match="no server runs for the home") as none:
        Client.local(project.home)
    assert none.value.advice == ("start one: windlass serve",)


async def test_i3_the_stream_goes_on_gapless_through_a_restart_of_the_server(
    serve: Any, project: Project, port: int
) -> None:
    server = serve("--port", str(port))
    steps = [{"id": f"s{n}", "run": f"echo {n}", "needs": [f"s{n - 1}"] if n else []} for n in range(30)]
    async with Client(server.address, server.token) as client:
        execution = (await client.start({"name": "steps", "steps": steps}))["id"]
        got: list[int] = []
        everything: list[int] = []
        restarts = 0
        watching = asyncio.create_task(_positions(client, everything))
        async for event in client.events(execution):
            got.append(event["seq"])
            if event["type"] == "attempt.finished" and event["step"] in ("s5", "s12"):
                if restarts:
                    server.kill()
                else:
                    await asyncio.to_thread(server.stop)
                server = await asyncio.to_thread(serve, "--port", str(port))
                restarts += 1
        await asyncio.wait_for(watching, PATIENCE)
    assert restarts == 2
    assert got == list(range(1, len(project.events(execution)) + 1))
    assert everything == [row[0] for row in project._rows("SELECT position FROM events ORDER BY position")]


async def _positions(client: Client, into: list[int]) -> None:
    async for event in client.stream(after=0):
        into.append(event["position"])
        if event["type"] == "execution.finished":
            return


async def test_nobody_at_the_address_is_said_with_what_to_do(port: int) -> None:
    async with Client(f"http://127.0.0.1:{port}", "token", retry=0.5, patience=0.0) as client:
        with pytest.raises(Unreachable) as asked:
            await client.get("any")
        with pytest.raises(Unreachable) as streamed:
            await anext(client.stream())
    assert asked.value.category == streamed.value.category == "transient"
    assert "check that it runs: windlass serve" in asked.value.advice
    assert isinstance(asked.value, ClientError)


async def test_a_request_is_made_again_when_the_line_is_cut_and_done_once(
    serve: Any, project: Project, until: Any, port: int
) -> None:
    """The server is stopped while it holds the answer back; the next one gives it, for the same execution."""
    server = serve("--port", str(port))
    async with Client(server.address, server.token, retry=PATIENCE) as client:
        starting = asyncio.create_task(client.start(LONG, wait=30))
        await asyncio.to_thread(until, project.ids)
        server.kill()
        server = await asyncio.to_thread(serve, "--port", str(port))
        asked = asyncio.create_task(client.cancel(project.ids()[0]))
        started, cancelled = await asyncio.gather(starting, asked)
    assert started["id"] == cancelled["id"]
    assert project.ids() == [started["id"]]


def test_an_address_must_be_one() -> None:
    with pytest.raises(UsageError, match="not a server's address"):
        Client("127.0.0.1:8642", "token")


async def test_a_client_that_was_not_opened_says_how_to() -> None:
    with pytest.raises(UsageError, match="not open"):
        await Client("http://127.0.0.1:1", "token").get("any")


@pytest.mark.parametrize("body", [b"", b"<html>gateway</html>", b"[]", json.dumps({"category": "odd"}).encode()])
def test_an_answer_that_is_no_problem_document_is_still_an_error(body: bytes) -> None:
    error = refusal(502, body)
    assert (error.status, error.category) == (502, "logic")
    assert "502" in error.message


def test_everything_public_is_documented() -> None:
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        assert name.startswith("_") or inspect.getdoc(method), name


async def test_d10_a_failed_step_is_retried_and_its_events_are_followed_past_the_first_end(client: Client) -> None:
    broken = {"name": "broken", "steps": [{"id": "a", "run": "exit 3"}]}
    execution = (await client.start(broken, wait=60))["id"]
    await client.retry(execution, "a", edits={"run": "echo mended"})
    types = [event["type"] async for event in client.events(execution)]
    assert [kind for kind in types if kind.startswith("execution.")][-3:] == [
        "execution.reopened",
        "execution.resumed",
        "execution.finished",
    ]
