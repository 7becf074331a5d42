"""The feed: the ring, who falls off it, who is served from the past, and how little it does for nobody (I3)."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import struct
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from stream_worlds import chain, journal, quick
from waiting import PATIENCE, wait_until_async
from websockets.frames import Frame, Opcode

import windlass
from windlass import Engine
from windlass.client import Client
from windlass.errors import UsageError
from windlass.journal.memory import MemoryJournal
from windlass.redact import Redactor
from windlass.server import stream
from windlass.server.connections import GOING_AWAY
from windlass.server.fanout import ENOUGH, MOST_BYTES, RecentEvents, TooSlow
from windlass.server.feed import Feed, Subscription, last_position
from windlass.server.stream_messages import MessageEncoder, StreamMessage, payload, text_frame

if TYPE_CHECKING:
    from conftest import Project


def sent(position: int, execution: str = "one", size: int = 100) -> StreamMessage:
    return StreamMessage(position, execution, position, b"x" * size)


def positions(batch: list[StreamMessage]) -> list[int]:
    return [one.position for one in batch]


@pytest.fixture
async def engine(project: Project) -> AsyncIterator[Engine]:
    async with windlass.open(tools=[quick]) as engine:
        yield engine


@pytest.fixture
async def feed(engine: Engine) -> AsyncIterator[Feed]:
    feed = Feed(engine)
    await feed.start()
    yield feed
    await feed.close()


async def take(subscription: Subscription, count: int) -> list[StreamMessage]:
    got: list[StreamMessage] = []
    async with asyncio.timeout(PATIENCE), aclosing(subscription.__aiter__()) as batches:  # type: ignore[type-var]
        async for batch in batches:
            got += batch
            if len(got) >= count:
                return got
    return got


# ── frames ───────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 100_000])
def test_a_frame_is_the_one_that_the_websockets_library_makes(size: int) -> None:
    text = b"e" * size
    assert text_frame(text) == Frame(Opcode.TEXT, text).serialize(mask=False)
    assert payload(text_frame(text)) == text


# ── the ring ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_cursor_is_given_what_follows_it_and_only_its_own_executions_events() -> None:
    ring = RecentEvents(10)
    for position in (11, 13, 14, 20):  # positions of removed executions are missing
        ring.add(sent(position, "one" if position != 14 else "two"))
    assert [(positions(batch), cursor) for batch, cursor in [ring.since(10, None, 9999)]] == [([11, 13, 14, 20], 20)]
    assert positions(ring.since(12, None, 9999)[0]) == [13, 14, 20]
    assert positions(ring.since(12, "two", 9999)[0]) == [14]
    assert ring.since(14, "two", 9999) == ([], 20)


def test_a_batch_ends_where_there_is_enough_and_the_next_goes_on_from_there() -> None:
    ring = RecentEvents(0)
    for position in range(1, 11):
        ring.add(sent(position, "one" if position % 2 else "two"))
    batch, cursor = ring.since(0, "one", 250)
    assert (positions(batch), cursor) == ([1, 3, 5], 5)
    batch, cursor = ring.since(cursor, "one", 9999)
    assert (positions(batch), cursor) == ([7, 9], 10)


def test_a_cursor_ahead_of_the_ring_waits_for_it_and_is_given_nothing_twice() -> None:
    ring = RecentEvents(0)
    ring.add(sent(1))
    assert ring.since(3, None, 9999) == ([], 3)
    for position in (2, 3, 4):
        ring.add(sent(position))
    assert positions(ring.since(3, None, 9999)[0]) == [4]


@pytest.mark.parametrize("limits", [{"most_bytes": 1000}, {"most_events": 10}])
def test_the_ring_stays_within_its_limits_and_whoever_fell_behind_is_told(limits: dict[str, int]) -> None:
    ring = RecentEvents(0, **limits)
    for position in range(1, 20_001):
        ring.add(sent(position))
    assert (ring.floor, ring.tip) == (19_990, 20_000)
    assert positions(ring.since(19_990, None, 10**6)[0]) == list(range(19_991, 20_001))
    with pytest.raises(TooSlow):
        ring.since(19_989, None, 10**6)
    assert len(ring._events) < 5000, "what was dropped is let go of"


def test_an_event_larger_than_the_ring_is_still_given_out() -> None:
    ring = RecentEvents(0, most_bytes=100)
    ring.add(sent(1))
    ring.add(sent(2, size=5000))
    assert positions(ring.since(1, None, 10)[0]) == [2]


# ── the feed ─────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 8, 9, 100])
async def test_the_journals_end_is_found_by_halving(count: int) -> None:
    memory = MemoryJournal()
    whole: list[int] = []

    class Counted(MemoryJournal):
        async def read(self, execution: str | None, after: int = 0, limit: int = 0) -> list[object]:  # type: ignore[override]
            whole.append(after)
            return list(range(after + 1, count + 1))[:limit]

    assert await last_position(memory) == 0
    assert await last_position(Counted()) == count
    assert len(whole) <= 2 * (count.bit_length() + 1)


async def test_the_journals_end_is_found_where_executions_were_removed(engine: Engine) -> None:
    kept = await engine.start(chain(3))
    await kept.wait()
    gone = await engine.start(chain(30))
    await gone.wait()
    end = (await journal(engine, kept.id))[-1][0]
    await engine.forget(gone.id)
    assert await last_position(engine.journal) == end


async def test_while_nobody_listens_the_journal_is_not_read(engine: Engine, feed: Feed) -> None:
    execution = await engine.start(chain(5))
    await execution.wait()
    assert feed.position == 0
    async with feed.subscribe(0) as subscription:
        assert len(await take(subscription, 5)) >= 5
    assert feed.position > 0


async def test_i3_who_comes_back_after_a_silence_misses_nothing(engine: Engine, feed: Feed) -> None:
    got: list[int] = []
    for _ in range(5):
        execution = await engine.start(chain(4))
        await execution.wait()
        expected = [position for position, _e, _s in await journal(engine)]
        async with feed.subscribe(got[-1] if got else 0) as subscription:
            got += positions(await take(subscription, len(expected) - len(got)))
        # Nobody listens now: the feed rests, and the next one is served from where the last one was.
    assert got == expected


async def test_i3_a_listener_far_behind_is_served_from_the_journal_until_the_ring_has_the_rest(
    engine: Engine,
) -> None:
    await asyncio.gather(*[(await engine.start(chain(60))).wait() for _ in range(10)])
    feed = Feed(engine, most_events=20)
    await feed.start()
    async with feed.subscribe(0) as subscription:
        running = await engine.start(chain(20))
        got: list[int] = []
        async for batch in subscription.past():
            got += positions(batch)
        await running.wait()
    assert got == [position for position, _e, _s in await journal(engine)][: len(got)]
    assert len(got) > 1000
    await feed.close()


async def test_i3_a_listener_that_does_not_listen_is_told_that_it_is_too_slow(engine: Engine) -> None:
    feed = Feed(engine, most_events=10)
    await feed.start()
    async with feed.subscribe() as slow, feed.subscribe() as quick_one:
        async for _batch in slow.past():
            """From now on."""
        execution = await engine.start(chain(30))
        taking = asyncio.create_task(take(quick_one, 1))
        await execution.wait()
        await taking
        await wait_until_async(lambda: slow.cursor < feed.ring.floor)
        with pytest.raises(TooSlow):
            await slow.more(None)
    await feed.close()


async def test_listeners_end_when_the_feed_is_closed(engine: Engine, feed: Feed) -> None:
    async with feed.subscribe() as subscription:
        waiting = asyncio.create_task(take(subscription, 1))
        await asyncio.sleep(0)
        await feed.close()
        assert await waiting == []


async def test_a_commit_only_leaves_a_note_with_the_feed(engine: Engine, feed: Feed) -> None:
    """Nothing on the way of a commit reads, makes or sends anything: that is another task's work."""
    async with feed.subscribe() as _subscription:
        before = feed.position
        engine.commits.publish("anything", [], 0)
        assert feed._news.is_set()
        assert feed.position == before


async def test_an_execution_whose_journal_breaks_the_rules_is_told_all_the_same(engine: Engine) -> None:
    execution = await engine.start(chain(2))
    await execution.wait()
    entries = await engine.journal.read(execution.id)
    twice = [entries[0], entries[1], entries[1]._replace(seq=3, position=entries[1].position + 1), *entries[2:3]]
    told = await MessageEncoder(engine.journal, Redactor({})).encode(twice)
    messages = [json.loads(one.text) for one in told]
    assert [message["status"] for message in messages] == ["pending", "running", None, None]
    assert messages[3]["type"] == "attempt.started"


async def test_an_execution_is_forgotten_when_too_many_steps_are_held_and_told_right_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.server.stream_messages.MOST_STEPS", 5)
    await asyncio.gather(*[(await engine.start(chain(4))).wait() for _ in range(3)])
    entries = await engine.journal.read(None)
    told = [json.loads(one.text) for one in await MessageEncoder(engine.journal, Redactor({})).encode(entries)]
    finished = [m for m in told if m["type"] == "execution.finished"]
    assert [m["progress"] for m in finished] == [100.0] * 3
    assert all(message["status"] is not None for message in told)


def test_the_frame_of_a_large_event_has_the_long_header() -> None:
    assert struct.unpack("!BBQ", text_frame(b"x" * 70_000)[:10]) == (0x81, 127, 70_000)


def test_the_page_about_the_stream_states_the_limits_and_codes_as_they_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "streaming.md").read_text()
    stall = inspect.signature(Feed).parameters["stall"].default
    beat = inspect.signature(stream.stream_routes).parameters["heartbeat"].default
    silence = inspect.signature(Client).parameters["silence"].default
    for said in (
        f"the last {MOST_BYTES // 2**20} MiB of events",
        f"takes nothing for {stall:g} seconds while more than\n  {ENOUGH // 1024} KiB wait",
        f"for {beat:g} seconds. ",
        f"No word for {silence:g} seconds",
    ):
        assert said in page
    codes = {int(code) for code in re.findall(r"^\| (\d{4}) \|", page, re.MULTILINE)}
    assert codes == {GOING_AWAY, stream.BAD_REQUEST, stream.INTERNAL, stream.NOT_FOUND, stream.TOO_SLOW}


async def test_i3_now_is_after_everything_that_was_read_though_not_all_of_it_is_in_the_ring(engine: Engine) -> None:
    await (await engine.start(chain(50))).wait()
    feed = Feed(engine, most_events=10)
    await feed.start()
    async with feed.subscribe() as subscription:
        execution = await engine.start(chain(1))
        got = await take(subscription, 1)
        await execution.wait()
    assert got[0].execution == execution.id
    assert got[0].seq == 1
    await feed.close()


async def test_i3_a_listener_may_come_back_to_what_was_removed_since(engine: Engine, feed: Feed) -> None:
    execution = await engine.start(chain(3))
    await execution.wait()
    async with feed.subscribe(0) as subscription:
        last = (await take(subscription, len(await journal(engine))))[-1].position
    await engine.forget(execution.id)
    assert await feed.check(last, None) is None
    with pytest.raises(UsageError, match="beyond the end"):
        await feed.check(last + 1, None)


async def test_i6_secrets_do_not_leave_in_the_stream(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "canary-4711-canary")
    execution = await engine.start(
        windlass.Plan.model_validate({"steps": [{"id": "a", "run": "echo canary-4711-canary"}]})
    )
    await execution.wait()
    entries = await engine.journal.read(execution.id)
    told = [one.text for one in await MessageEncoder(engine.journal, Redactor()).encode(entries)]
    assert not any("canary-4711" in text for text in told)
    assert any("[SOME_API_KEY]" in json.loads(text).get("text", "") for text in told)
