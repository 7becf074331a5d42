"""What the stream says, and from where on: all events, in order, without gaps or duplicates (I3)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import pytest
from stream_worlds import chain, events, heartbeat, hosted, journal, listen, places, quick
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.exceptions import ConnectionClosed, ConnectionClosedError

import windlass
from windlass import Call, Engine, Plan, Step, ToolError, tool
from windlass.core import events as ev
from windlass.core.state import fold
from windlass.core.view import progress
from windlass.server.connections import StreamProtocol

if TYPE_CHECKING:
    from conftest import Project, Windlass

HOSTS = pytest.mark.parametrize("ws", [StreamProtocol, WebSocketsSansIOProtocol], ids=["written directly", "sent"])


@tool
async def broken(call: Call) -> str:
    """Fails for good."""
    raise ToolError("no such bucket", category="configuration", advice=["make the bucket"])


@pytest.fixture
async def engine(project: Project) -> AsyncIterator[Engine]:
    async with windlass.open(tools=[quick, broken]) as engine:
        yield engine


@HOSTS
async def test_i3_an_execution_is_streamed_from_its_first_event_to_its_last(engine: Engine, ws: Any) -> None:
    async with hosted(engine, ws=ws) as host:
        execution = await engine.start(chain(5))
        async with listen(host.url(f"/api/executions/{execution.id}/stream")) as client:
            got = await events(client, until="execution.finished")
        await execution.wait()
    assert places(got) == await journal(engine, execution.id)
    assert [message["seq"] for message in got] == list(range(1, len(got) + 1))


@HOSTS
async def test_i3_the_homes_stream_has_every_executions_events_in_the_order_of_their_commits(
    engine: Engine, ws: Any
) -> None:
    before = await engine.start(chain(3))
    await before.wait()
    async with hosted(engine, ws=ws) as host, listen(host.url("/api/stream?after=0")) as client:
        started = [await engine.start(chain(10, f"plan{n}")) for n in range(10)]
        await asyncio.gather(*(execution.wait() for execution in started))
        expected = await journal(engine)
        got = await events(client, count=len(expected))
    assert places(got) == expected
    assert {execution for _position, execution, _seq in expected} == {before.id, *(e.id for e in started)}


@HOSTS
async def test_i3_whatever_after_says_exactly_the_rest_follows(engine: Engine, ws: Any) -> None:
    execution = await engine.start(chain(8))
    await execution.wait()
    ours = await journal(engine, execution.id)
    async with hosted(engine, ws=ws) as host:
        for after in range(len(ours)):
            async with listen(host.url(f"/api/executions/{execution.id}/stream?after={after}")) as client:
                assert places(await events(client, until="execution.finished")) == ours[after:]
            async with listen(host.url(f"/api/stream?after={ours[after][0] - 1}")) as client:
                assert places(await events(client, count=len(ours) - after)) == ours[after:]


async def test_i3_one_executions_stream_has_nothing_of_another(engine: Engine) -> None:
    async with hosted(engine) as host:
        first, second = await engine.start(chain(20, "one")), await engine.start(chain(20, "two"))
        async with listen(host.url(f"/api/executions/{second.id}/stream")) as client:
            got = await events(client, until="execution.finished")
        await first.wait()
    assert {message["execution"] for message in got} == {second.id}
    assert places(got) == await journal(engine, second.id)


async def test_i3_messages_carry_results_errors_percent_and_status(engine: Engine) -> None:
    plan = Plan(
        name="mixed",
        steps=[
            Step(id="good", tool="quick"),
            Step(id="bad", tool="broken", needs=["good"]),
            Step(id="after", tool="quick", needs=["bad"]),
            Step(id="each", tool="quick", foreach=[1, 2, 3, 4]),
        ],
    )
    async with hosted(engine) as host:
        execution = await engine.start(plan)
        async with listen(host.url(f"/api/executions/{execution.id}/stream")) as client:
            got = await events(client, until="execution.finished")
    by_type = {message["type"]: message for message in got}
    assert {m["output"] for m in got if m["type"] == "attempt.finished"} >= {"good is done", "each[3] is done"}
    assert by_type["attempt.failed"]["failure"]["category"] == "configuration"
    assert by_type["attempt.failed"]["failure"]["advice"] == ["make the bucket"]
    assert by_type["step.skipped"]["step"] == "after"
    assert (got[0]["status"], got[1]["status"], got[-1]["status"]) == ("pending", "running", "partial")
    assert (got[0]["progress"], got[-1]["progress"]) == (0.0, 100.0)
    assert all(message["eta"] is None for message in got)


async def test_percent_and_status_are_those_of_the_fold_after_every_single_event(engine: Engine) -> None:
    plan = Plan(
        steps=[
            Step(id="list", tool="quick", foreach=list(range(7))),
            Step(id="next", tool="broken", needs=["list"], importance="optional"),
            Step(id="last", tool="quick", needs=["next"]),
        ]
    )
    execution = await engine.start(plan)
    await execution.wait()
    entries = await engine.journal.read(execution.id)
    async with hosted(engine) as host:
        async with listen(host.url(f"/api/executions/{execution.id}/stream")) as client:
            got = await events(client, until="execution.finished")
        # Whoever comes in the middle is told the same.
        async with listen(host.url(f"/api/executions/{execution.id}/stream?after=9")) as client:
            late = await events(client, until="execution.finished")
    for number, message in enumerate(got, 1):
        state = fold(entry.event for entry in entries[:number])
        assert (message["progress"], message["status"]) == (progress(state), str(state.status))
    assert late == got[9:]


def test_no_event_has_a_field_of_the_name_of_one_that_the_stream_adds() -> None:
    added = {"position", "execution", "seq", "progress", "status", "eta"}
    clashes = {(kind.__name__, name) for kind in ev.Event.__args__ for name in kind.__struct_fields__ if name in added}
    assert clashes == {("ExecutionFinished", "status")}, "which is the same status"


async def test_i3_without_after_the_homes_stream_begins_now_and_says_where_that_is(engine: Engine) -> None:
    await (await engine.start(chain(3))).wait()
    async with hosted(engine) as host, listen(host.url()) as client:
        begin = await heartbeat(client)
        assert begin["position"] == (await journal(engine))[-1][0]
        execution = await engine.start(chain(1))
        got = await events(client, until="execution.finished")
        await execution.wait()
    assert places(got) == await journal(engine, execution.id)


@pytest.mark.parametrize("of_one", [False, True])
async def test_i3_the_first_heartbeat_comes_when_everything_past_was_sent(engine: Engine, of_one: bool) -> None:
    async with hosted(engine) as host, listen(host.url()) as first:
        await heartbeat(first)
        execution = await engine.start(chain(3))  # the feed has its events in memory
        await execution.wait()
        await events(first, until="execution.finished")
        path = f"/api/executions/{execution.id}/stream" if of_one else "/api/stream"
        async with listen(host.url(f"{path}?after=1")) as late:
            got = [json.loads(await late.recv()) for _ in range(len(await journal(engine)))]
    assert places(got[:-1]) == (await journal(engine))[1:]
    assert got[-1]["type"] == "heartbeat"


async def test_i3_a_quiet_connection_has_heartbeats_with_the_position_to_resume_from(engine: Engine) -> None:
    await (await engine.start(chain(2))).wait()
    (*_, last) = await journal(engine)
    async with hosted(engine, heartbeat=0.05) as host, listen(host.url()) as client:
        beats = [await heartbeat(client) for _ in range(3)]
    assert [beat["position"] for beat in beats] == [last[0]] * 3
    assert beats[0]["at"] < beats[1]["at"] < beats[2]["at"]


async def test_i3_events_of_other_processes_are_streamed_too(project: Project, windlass: Windlass) -> None:
    project.plan("steps: [{id: a, run: echo one}, {id: b, run: echo two, needs: [a]}]")
    import windlass as package

    async with package.open(tools=[quick]) as engine, hosted(engine) as host:
        async with listen(host.url("/api/stream?after=0")) as client:
            running = [windlass.background("run", "plan.yaml") for _ in range(3)]
            ours = [await engine.start(chain(5)) for _ in range(3)]
            await asyncio.gather(*(execution.wait() for execution in ours))
            for command in running:
                ended = await asyncio.to_thread(command.ended)
                assert ended.code == 0, str(ended)
            expected = await journal(engine)
            got = await events(client, count=len(expected))
    assert places(got) == expected
    assert len({execution for _p, execution, _s in expected}) == 6


@HOSTS
@pytest.mark.parametrize(
    ("path", "code", "reason"),
    [
        ("/api/executions/nobody/stream", 4404, "no executions here yet"),
        ("/api/stream?after=later", 1008, "'later' is not a number"),
        ("/api/stream?after=-1", 1008, "not a number"),
        ("/api/stream?after=99999", 1008, "beyond the end of the journal"),
        ("/api/stream?after=99999999999999999999999", 1008, "not a number"),
    ],
)
async def test_i3_what_cannot_be_streamed_is_refused_with_a_code_and_a_reason(
    engine: Engine, ws: Any, path: str, code: int, reason: str
) -> None:
    async with hosted(engine, ws=ws) as host, listen(host.url(path)) as client:
        with pytest.raises(ConnectionClosedError) as refused:
            await client.recv()
    assert refused.value.rcvd is not None
    assert refused.value.rcvd.code == code
    assert reason in refused.value.rcvd.reason


async def test_i3_an_after_beyond_the_executions_end_is_refused(engine: Engine) -> None:
    execution = await engine.start(chain(1))
    await execution.wait()
    last = len(await journal(engine, execution.id))
    async with hosted(engine) as host:
        async with listen(host.url(f"/api/executions/{execution.id}/stream?after={last}")) as client:
            await heartbeat(client)
        async with listen(host.url(f"/api/executions/{execution.id}/stream?after={last + 1}")) as client:
            with pytest.raises(ConnectionClosedError) as refused:
                await client.recv()
    assert refused.value.rcvd is not None
    assert refused.value.rcvd.code == 1008


async def test_an_id_may_be_shortened(engine: Engine) -> None:
    execution = await engine.start(chain(1))
    async with hosted(engine) as host, listen(host.url(f"/api/executions/{execution.id[:-2]}/stream")) as client:
        got = await events(client, until="execution.finished")
    assert {message["execution"] for message in got} == {execution.id}


async def test_i3_where_compression_is_agreed_on_nothing_is_written_past_it(engine: Engine) -> None:
    async with hosted(engine, deflate=True) as host:
        async with listen(host.url("/api/stream?after=0"), "deflate") as squeezed, listen(host.url()) as plain:
            assert "permessage-deflate" in squeezed.response.headers.get("Sec-WebSocket-Extensions", "")
            await heartbeat(plain)
            execution = await engine.start(chain(3))
            got, also = (
                await events(squeezed, until="execution.finished"),
                await events(plain, until="execution.finished"),
            )
    assert places(got) == places(also) == await journal(engine, execution.id)


async def test_what_clients_say_is_not_looked_at(engine: Engine) -> None:
    async with hosted(engine) as host, listen(host.url("/api/stream?after=0")) as client:
        for _ in range(50):
            await client.send("x" * 1000)
            await client.send(b"\0" * 1000)
        execution = await engine.start(chain(3))
        got = await events(client, until="execution.finished")
    assert places(got) == await journal(engine, execution.id)


async def test_i3_a_server_that_stops_says_that_it_goes_away(engine: Engine) -> None:
    async with hosted(engine) as host:
        client = await listen(host.url())
        await heartbeat(client)
    with pytest.raises(ConnectionClosed) as closed:
        await client.recv()
    assert closed.value.rcvd is not None
    assert closed.value.rcvd.code == 1001
