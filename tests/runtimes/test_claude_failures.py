"""What the model API does wrong, as the real `claude` lives through it: each error a Failure that says what to do."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest
from claude_fixtures import SPEAKS, claude_world, program
from hosts import FakeHost

from windlass.core.budget import Amount
from windlass.errors import REFUSED_CONTENT, Category, Failure
from windlass.ports import AgentResult
from windlass.process import MemoryPool, containment
from windlass.testing.scripted_model import Reply

LONG = "prompt is too long: 250000 tokens > 200000 maximum"


def failure_of(result: AgentResult) -> Failure:
    assert result.failure is not None
    assert not result.success
    assert result.failure.message.startswith("claude-code: ")
    return result.failure


@pytest.mark.parametrize(
    ("status", "message", "category", "elsewhere", "advice"),
    [
        (400, LONG, Category.LOGIC, False, "fewer or smaller files"),
        (401, "invalid x-api-key", Category.PERMISSION, True, "windlass doctor"),
        (404, "model: claude-none", Category.CONFIGURATION, True, "`model`"),
        *(
            pytest.param(*case, marks=pytest.mark.soak)  # test_runner_endings.py has one of each kind
            for case in (
                (400, "tools.0: bad schema", Category.LOGIC, False, "the request itself was refused"),
                (403, "not for you", Category.PERMISSION, True, "windlass doctor"),
                (413, "request too large", Category.LOGIC, False, "fewer or smaller files"),
                (429, "slow down", Category.TRANSIENT, True, ""),
                (500, "internal", Category.TRANSIENT, True, ""),
                (529, "overloaded", Category.TRANSIENT, True, ""),
            )
        ),
    ],
)
async def test_a7_an_error_of_the_api_is_judged_by_its_status_and_keeps_what_there_was(
    tmp_path: Path, status: int, message: str, category: Category, elsewhere: bool, advice: str
) -> None:
    """The runtime itself calls such a result a success (`subtype`) with `is_error`."""
    read = {"file_path": str(tmp_path / "note.txt")}
    (tmp_path / "note.txt").write_text("a note")
    script = [
        Reply.use("Read", read, text="I look at it.", tokens_in=200, tokens_out=20),
        Reply.error(status, message, repeat=True),
    ]
    host = FakeHost()
    async with claude_world(tmp_path, script) as world:
        result = await world.runner.run(world.request(), host)
        assert world.left() == []
    failure = failure_of(result)
    assert (failure.category, failure.elsewhere) == (category, elsewhere)
    assert advice in " ".join(failure.advice)
    assert (result.output, host.said) == ("I look at it.", "I look at it.\n")
    assert (result.usage.tokens_in, result.usage.tokens_out) == (200, 20)
    assert result.usage.usd == pytest.approx((200 * 3 + 20 * 15) / 1e6)
    assert (failure.kind == REFUSED_CONTENT) == (status in (400, 413)), "every other failure keeps the conversation"
    retried = [note for note in host.notes if f"after {status}" in note]
    assert bool(retried) == (status in (401, 429, 500, 529))


async def test_a2_a_hiccup_that_a_retry_survives_is_a_note_and_no_failure(tmp_path: Path) -> None:
    host = FakeHost()
    script = [Reply.error(529, "overloaded"), Reply.say("here I am")]
    async with claude_world(tmp_path, script) as world:
        result = await world.runner.run(world.request(), host)
    world.model.check()
    assert (result.success, result.output) == (True, "here I am")
    assert len(host.notes) == 1
    assert "after 529 (1 of 1)" in host.notes[0]


async def test_a2_a_used_up_quota_says_when_it_comes_back(tmp_path: Path) -> None:
    """Only subscriptions have one; the runtime tells of it in an event of its own."""
    resets = int(time.time()) + 7200
    limits = {"status": "rejected", "reset": str(resets), "representative-claim": "five_hour"}
    headers = {f"anthropic-ratelimit-unified-{name}": value for name, value in limits.items()}
    login = {"CLAUDE_CODE_OAUTH_TOKEN": "scripted", "ANTHROPIC_API_KEY": ""}
    script = Reply.error(429, "limit reached", headers={**headers, "retry-after": "7200"}, repeat=True)
    async with claude_world(tmp_path, script, env=login) as world:
        result = await world.runner.run(world.request(), FakeHost())
    failure = failure_of(result)
    assert (failure.category, failure.resets_at, failure.elsewhere) == (Category.TRANSIENT, float(resets), False)


async def test_a2_a_connection_that_breaks_in_an_answer_is_transient_and_said_again_only_once(tmp_path: Path) -> None:
    heard = threading.Event()
    script = Reply.drop(after="half of it", repeat=True, tokens_in=300, hold=heard, hold_at="middle")
    host = FakeHost()
    async with claude_world(tmp_path, script) as world:
        run = asyncio.create_task(world.runner.run(world.request(), host))
        await host.until(lambda host: host.said == "half of it")
        heard.set()
        result = await run
    failure = failure_of(result)
    assert (failure.category, failure.elsewhere) == (Category.TRANSIENT, True)
    assert result.output == "half of it"
    assert result.usage.tokens_in >= 300


@pytest.mark.soak
async def test_a2_a_refusal_is_no_success_and_the_same_elsewhere(tmp_path: Path) -> None:
    async with claude_world(tmp_path, Reply.refuse("I would rather", repeat=True)) as world:
        result = await world.runner.run(world.request(), FakeHost())
    failure = failure_of(result)
    assert (failure.category, failure.elsewhere) == (Category.LOGIC, False)
    assert "the model refused this" in failure.message
    assert "word the task differently" in failure.advice[0]


@pytest.mark.soak
async def test_a2_an_answer_without_end_says_how_to_allow_a_longer_one(tmp_path: Path) -> None:
    async with claude_world(tmp_path, Reply.cut_short("and so on", repeat=True)) as world:
        result = await world.runner.run(world.request(), FakeHost())
    failure = failure_of(result)
    assert (failure.category, failure.elsewhere) == (Category.LOGIC, False)
    assert "CLAUDE_CODE_MAX_OUTPUT_TOKENS" in failure.advice[0]
    assert "and so on" in result.output


@pytest.mark.soak
async def test_a2_too_many_turns_is_a_failure_that_names_the_setting(tmp_path: Path) -> None:
    step = Reply.use("Write", {"file_path": str(tmp_path / "work" / "a.txt"), "content": "a"}, text="more")
    async with claude_world(tmp_path, [step, Reply.say("never said")]) as world:
        result = await world.runner.run(world.request(max_turns=1), FakeHost())
    failure = failure_of(result)
    assert (failure.category, failure.elsewhere) == (Category.LOGIC, False)
    assert "max_turns" in failure.advice[0]
    assert failure.kind != REFUSED_CONTENT
    assert result.output == "more"
    assert len(world.model.requests) == 1


async def test_e1_a_budget_that_is_used_up_is_told_apart_and_the_overspending_is_billed(tmp_path: Path) -> None:
    write = {"file_path": str(tmp_path / "work" / "a.txt"), "content": "a"}
    step = Reply.use("Write", write, text="dear", tokens_in=1_000_000)
    async with claude_world(tmp_path, [step, Reply.say("never said")]) as world:
        result = await world.runner.run(world.request(budget=Amount(usd=0.5)), FakeHost())
    failure = failure_of(result)
    assert (failure.category, failure.elsewhere) == (Category.RESOURCE, False)
    assert result.metadata["budget"] is True
    assert result.usage.usd == pytest.approx(3.0 + 5 * 15 / 1e6)
    assert result.output == "dear"


async def test_c5_who_is_not_logged_in_is_told_that_and_not_of_an_answer_that_nobody_gave(tmp_path: Path) -> None:
    async with claude_world(tmp_path, [], env={"ANTHROPIC_API_KEY": ""}) as world:
        failure = failure_of(await world.runner.run(world.request(), FakeHost()))
        assert world.model.requests == []
    assert failure.message.startswith("claude-code: Not logged in")
    assert (failure.category, failure.elsewhere) == (Category.PERMISSION, True)


async def test_c8_an_agent_that_grows_beyond_the_memory_of_its_execution_says_so(tmp_path: Path) -> None:
    if containment().mechanism != "subreaper":
        pytest.skip("memory is shared among keepers alone")
    path = program(tmp_path / "claude", f"{SPEAKS}x = []\nwhile True: x.append(bytearray(1 << 20))\n")
    pool = MemoryPool(f"test-pool-{tmp_path.name}", 64 << 20, str(tmp_path / "memory"))
    async with claude_world(tmp_path, path=path) as world:
        failure = failure_of(await world.runner.run(world.request(pool=pool), FakeHost()))
    assert (failure.category, failure.elsewhere) == (Category.RESOURCE, False)
    assert "the memory that all steps of the execution may use" in failure.message
