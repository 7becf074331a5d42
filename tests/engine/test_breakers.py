"""Breakers before tools (C4): when they open, who tries them, and what changes nothing about them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from gate_worlds import Scripted, World, down

import windlass
from windlass import Plan, Step, ToolError, tool
from windlass.core.breaker import FAILURES, LONGEST_REST, Breaker, Circuit
from windlass.engine.gates import circuit
from windlass.engine.gates.circuit import CircuitOfUse, NotBegun
from windlass.engine.gates.memory import MemoryGateStore
from windlass.engine.gates.view import breakers, manner, open_breakers, standing, told_line
from windlass.errors import Category
from windlass.journal.gatebook import SqliteGateStore
from windlass.ports import Rate, Terms, Tool
from windlass.testing import FakeClock
from windlass.tools.built_in import Registry

if TYPE_CHECKING:
    from conftest import Project


async def test_c4_a_tool_that_fails_again_and_again_is_left_alone_and_then_tried_once(tmp_path: Path) -> None:
    broken = Scripted("a", *(down() for _ in range(FAILURES)))
    world = World(tmp_path, broken)
    for _ in range(FAILURES):
        with pytest.raises(ToolError, match="no answer"):
            await world.use("a")
    assert world.gates.book.breaker("a").circuit(world.clock.now()) is Circuit.OPEN
    with pytest.raises(NotBegun, match="retry in 30 s") as refused:
        await world.use("a")
    assert broken.uses == FAILURES, "it was not used"
    assert refused.value.failure.retry_after == pytest.approx(30.0)
    world.clock.advance(30.0)
    assert await world.use("a") == "fine"
    assert world.gates.book.breakers() == {}


async def test_c4_a_probe_that_is_answered_with_a_no_has_found_the_tool_at_work(tmp_path: Path) -> None:
    broken = Scripted("a", *(down() for _ in range(FAILURES)), ToolError("no such file"))
    world = World(tmp_path, broken)
    for _ in range(FAILURES):
        with pytest.raises(ToolError, match="no answer"):
            await world.use("a")
    world.clock.advance(30.0)
    with pytest.raises(ToolError, match="no such file"):
        await world.use("a")
    assert world.gates.book.breakers() == {}
    assert await world.use("a") == "fine"


async def test_c4_an_open_breaker_says_how_often_it_failed_with_what_and_when_it_is_tried(tmp_path: Path) -> None:
    world = World(tmp_path, Scripted("a", *(down() for _ in range(FAILURES + 1))))
    for _ in range(FAILURES):
        with pytest.raises(ToolError):
            await world.use("a")
    world.clock.advance(10.0)
    with pytest.raises(NotBegun) as refused:
        await world.use("a")
    said = f"a: circuit open after {FAILURES} failures (last: no answer); "
    assert refused.value.failure.message == f"{said}retry in 20 s"
    assert refused.value.failure.retry_after == pytest.approx(20.0)
    assert refused.value.failure.advice[0] == "check its health: windlass tools check"
    world.clock.advance(20.0)
    with pytest.raises(ToolError, match=r"^no answer"):
        await world.use("a")
    with pytest.raises(NotBegun, match=f"circuit open after {FAILURES + 1} failures"):
        await world.use("a")


async def test_c4_who_is_asked_for_nonsense_is_not_broken(tmp_path: Path) -> None:
    world = World(tmp_path, Scripted("a", *(ToolError("no such file") for _ in range(FAILURES * 2))))
    for _ in range(FAILURES * 2):
        with pytest.raises(ToolError, match="no such file"):
            await world.use("a")
    assert world.gates.book.breakers() == {}


async def test_c4_a_cancelled_use_says_nothing_about_the_tool(tmp_path: Path, eventually: Any) -> None:
    tool = Scripted("a", *(asyncio.sleep(3600) for _ in range(FAILURES + 1)))
    world = World(tmp_path, tool)
    for used in range(FAILURES + 1):
        task = asyncio.ensure_future(world.use("a"))
        await eventually(lambda before=used: tool.uses > before)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert world.gates.book.breakers() == {}


async def test_c4_ten_failures_at_once_open_a_breaker_once_and_late_news_change_nothing(tmp_path: Path) -> None:
    go = asyncio.Event()

    async def later(error: ToolError | None) -> str:
        await go.wait()
        if error is not None:
            raise error
        return "late"

    fails = [later(down()) for _ in range(10)]
    world = World(tmp_path, Scripted("a", later(None), *fails, later(None)))
    uses = [asyncio.ensure_future(world.use("a")) for _ in range(12)]
    await asyncio.sleep(0)
    go.set()
    await asyncio.wait(uses)
    breaker = world.gates.book.breaker("a")
    assert (breaker.opened, breaker.until) == (1, world.clock.now() + 30.0)


async def test_c4_failures_between_which_something_worked_are_not_in_a_row(tmp_path: Path) -> None:
    turns = [asyncio.Event() for _ in range(FAILURES * 2)]

    async def at(turn: asyncio.Event, error: ToolError | None) -> None:
        await turn.wait()
        if error is not None:
            raise error

    script = [at(turn, down() if number % 2 else None) for number, turn in enumerate(turns)]
    world = World(tmp_path, Scripted("a", *script))
    uses = [asyncio.ensure_future(world.use("a")) for _ in turns]
    await asyncio.sleep(0)
    for turn, use in zip(turns, uses, strict=True):  # all began at once, when nothing was known of any failure
        turn.set()
        await asyncio.wait({use})
    assert world.gates.book.breaker("a").failures == 1


async def test_c4_who_waited_for_a_turn_while_the_breaker_opened_does_not_use_it(
    tmp_path: Path, eventually: Any
) -> None:
    go = asyncio.Event()

    async def fail() -> None:
        await go.wait()
        raise down()

    broken = Scripted("a", *(fail() for _ in range(FAILURES)), terms=Terms(concurrent=FAILURES))
    world = World(tmp_path, broken)
    uses = [asyncio.ensure_future(world.use("a")) for _ in range(FAILURES + 3)]
    await eventually(lambda: broken.uses == FAILURES)
    go.set()
    await asyncio.wait(uses)
    assert broken.uses == FAILURES
    assert all(isinstance(use.exception(), NotBegun) for use in uses[FAILURES:])


async def test_c8_who_is_refused_by_a_breaker_takes_no_turn_of_a_rate(tmp_path: Path) -> None:
    broken = Scripted("a", *(down() for _ in range(FAILURES)), terms=Terms(rate=Rate(FAILURES + 1, 3600.0)))
    world = World(tmp_path, broken)
    for _ in range(FAILURES + 5):
        with pytest.raises(ToolError):
            await world.use("a")
    world.clock.advance(30.0)
    assert await world.use("a") == "fine"


async def test_c4_others_wait_for_what_comes_of_a_probe(tmp_path: Path, eventually: Any) -> None:
    """Three uses at once after a rest: one tries, and the others go on when it has worked, without a failure."""
    go = asyncio.Event()
    broken = Scripted("a", *(down() for _ in range(FAILURES)), go.wait())
    world = World(tmp_path, broken)
    for _ in range(FAILURES):
        with pytest.raises(ToolError):
            await world.use("a")
    world.clock.advance(30.0)
    uses = [asyncio.ensure_future(world.use("a")) for _ in range(3)]
    await eventually(lambda: broken.uses > FAILURES)
    assert broken.uses == FAILURES + 1
    go.set()
    assert await asyncio.gather(*uses) == [True, "fine", "fine"]


async def test_c4_a_probe_that_a_person_stopped_found_nothing_out_and_another_is_made(
    tmp_path: Path, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = asyncio.sleep(3600)
    broken = Scripted("a", *(down() for _ in range(FAILURES)), hangs)
    world = World(tmp_path, broken)
    for _ in range(FAILURES):
        with pytest.raises(ToolError):
            await world.use("a")
    world.clock.advance(30.0)
    probe = asyncio.ensure_future(world.use("a"))
    await eventually(lambda: broken.uses > FAILURES)
    assert world.gates.book.breaker("a").circuit(world.clock.now()) is Circuit.HALF_OPEN
    monkeypatch.setattr(circuit, "LOOKS", 1)
    with pytest.raises(NotBegun, match="another use is probing it"):
        await world.use("a")
    probe.cancel()
    await asyncio.wait({probe})
    assert world.gates.book.breaker("a").opened == 1, "it did not fail"
    world.clock.advance(30.0)
    assert await world.use("a") == "fine"
    assert world.gates.book.breakers() == {}


def test_c4_of_two_processes_that_find_it_half_open_in_the_same_moment_one_tries(tmp_path: Path) -> None:
    rested = Breaker(FAILURES, 1, 1000.0, because="no answer")
    book = SqliteGateStore(tmp_path / "gates.db")
    book.keep_breaker("a", rested)

    class Behind(SqliteGateStore):
        """As in a process that has read the breaker right before the other one wrote."""

        def breakers(self) -> dict[str, Breaker]:
            return {"a": rested}

    behind = Behind(tmp_path / "gates.db")
    clock = FakeClock(1000.0)
    one, other = CircuitOfUse(book, "a", clock), CircuitOfUse(behind, "a", clock)
    assert not other.closed
    one.enter()
    with pytest.raises(NotBegun, match="another use is probing it"):
        other.enter()
    assert book.breakers()["a"].probing
    book.close()
    behind.close()


async def test_c4_breakers_of_things_without_number_do_not_grow_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.engine.gates.circuit.MOST_BREAKERS", 3)
    hosts = Scripted("a", *(down() for _ in range(20)))
    hosts.circuit = lambda arguments: f"host {arguments['n']}"  # type: ignore[attr-defined]
    world = World(tmp_path, hosts)
    for number in range(20):
        with pytest.raises(ToolError):
            await world.use("a", n=number)
    assert len(world.gates.book.breakers()) <= 4
    assert "host 19" in world.gates.book.breakers()


async def test_c4_steps_and_programs_meet_the_same_breaker_and_it_is_known_to_the_next_engine(
    project: Project, long_rest: None
) -> None:
    @tool(name="flaky")
    def flaky() -> None:
        raise ToolError("no answer", category=Category.TRANSIENT)

    steps = [Step(id=f"s{n}", tool="flaky", retry={"max": 0}, importance="optional") for n in range(FAILURES)]
    program = Step(id="p", code="await tools.flaky()", needs=[s.id for s in steps], retry={"max": 0})
    async with windlass.open(tools=[flaky]) as engine:
        plan = Plan(steps=[*steps, program])
        result = await (await engine.start(plan)).result()
        assert "circuit open" in result["steps"][-1]["error"]["message"]
    async with windlass.open(tools=[flaky]) as engine:
        assert list(engine.attempt_runner.gates.book.breakers()) == ["flaky"]


async def test_c4_a_no_between_failures_is_neither_a_failure_nor_a_success(tmp_path: Path) -> None:
    outcomes = [*(down() for _ in range(FAILURES - 1)), ToolError("no such file"), down()]
    world = World(tmp_path, Scripted("a", *outcomes))
    for _ in outcomes:
        with pytest.raises(ToolError):
            await world.use("a")
    with pytest.raises(NotBegun):
        await world.use("a")


@pytest.mark.parametrize("terms", [None, Terms(timeout=3600.0)], ids=["without terms", "with terms"])
async def test_c4_a_use_that_fails_because_it_was_stopped_says_nothing_about_the_tool(
    tmp_path: Path, eventually: Any, terms: Terms | None
) -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise down() from None

    tool = Scripted("a", *(work() for _ in range(FAILURES)), terms=terms)
    world = World(tmp_path, tool)
    for used in range(FAILURES):
        task = asyncio.ensure_future(world.use("a"))
        await eventually(lambda before=used: tool.uses > before)
        task.cancel()
        with pytest.raises((ToolError, asyncio.CancelledError)):
            await task
    assert world.gates.book.breakers() == {}


async def test_c4_a_use_that_the_limit_of_its_step_ended_counts_as_a_failure() -> None:
    store, clock = MemoryGateStore(), FakeClock(1000.0)
    for count in range(1, FAILURES + 1):
        use = CircuitOfUse(store, "a", clock)
        use.enter()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0) as limit:
                await use.watch(asyncio.sleep(3600), limit)
        assert store.breaker("a").failures == count
    assert store.breaker("a").because == "its step timed out before it finished"
    with pytest.raises(NotBegun):
        CircuitOfUse(store, "a", clock).enter()


async def test_c4_the_limit_of_a_step_counts_against_a_tool_that_has_no_terms_too(tmp_path: Path) -> None:
    world = World(tmp_path, Scripted("a", *(asyncio.Event().wait() for _ in range(FAILURES))))

    async def attempt() -> None:
        async with asyncio.timeout(0) as limit:
            world.contact = SimpleNamespace(limit=limit)
            await world.use("a")

    for _ in range(FAILURES):
        with pytest.raises(TimeoutError):
            await attempt()
    assert world.gates.book.breaker("a").because == "its step timed out before it finished"
    with pytest.raises(NotBegun):
        await world.use("a")


def test_c4_what_has_no_breaker_is_never_refused() -> None:
    use = CircuitOfUse(MemoryGateStore(), None, FakeClock(1000.0))
    assert use.closed
    use.look()
    use.enter()
    use.worked()
    use.called_off()


async def test_c4_breakers_are_told_as_the_gate_would_find_them_now(tmp_path: Path) -> None:
    world = World(tmp_path)
    failing, opened = Breaker(2, because="slow"), Breaker(5, 1, 1030.0, because="no answer")
    for name, breaker in (("b", opened), ("a", failing)):
        world.gates.book.keep_breaker(name, breaker)
    told = breakers(world.gates)
    assert list(told) == ["a", "b"]
    assert told["a"] == {"circuit": "closed", "failures": 2, "because": "slow", "until": None, "probing": False}
    assert open_breakers(world.gates) == {"b": told["b"]}
    until = "1970-01-01T00:17:10.000Z"
    assert (told["b"]["circuit"], told["b"]["until"]) == ("open", until)
    lines = [told_line(name, one) for name, one in told.items()]
    assert lines == [
        "a: closed, 2 failures in a row; the last failure: slow",
        f"b: open, next probe at {until}; the last failure: no answer",
    ]
    world.clock.advance(30.0)
    rested = open_breakers(world.gates)["b"]
    assert told_line("b", rested) == "b: half-open, the next use probes it; the last failure: no answer"
    world.gates.book.keep_breaker("b", opened.probe(world.clock.now()))
    probed = open_breakers(world.gates)["b"]
    assert told_line("b", probed) == "b: half-open, a probe is running; the last failure: no answer"


async def test_c4_an_execution_is_told_with_the_breakers_that_may_hold_it_up_until_it_has_finished(
    project: Project,
) -> None:
    async with windlass.open() as engine:
        gates = engine.attempt_runner.gates
        plan = Plan(steps=[Step(id="a", run="true", approve="always")])
        state = await (await engine.start(plan, hold=False)).wait()
        assert "breakers" not in standing(state, gates)
        until = gates.clock.now() + LONGEST_REST
        gates.book.keep_breaker("x", Breaker(5, 1, until, because="no answer"))
        assert standing(state, gates)["breakers"] == open_breakers(gates)
        await engine.cancel(state.id)
        assert "breakers" not in standing(await engine.state(state.id), gates)


def test_c4_a_tool_is_told_with_its_terms_and_with_a_breaker_where_it_has_one_for_all_arguments(
    tmp_path: Path,
) -> None:
    terms = Terms(timeout=5.0, rate=Rate(30, 60.0), concurrent=2, cache=9.0, fallback="b", sensitive=True)
    world, limited, plain = World(tmp_path), Scripted("a", terms=terms), Scripted("c")
    world.gates.book.keep_breaker("a", Breaker(5, 1, 1030.0, because="no answer"))
    found = manner(world.gates, named(limited))
    assert found["terms"] == {
        "timeout": 5.0,
        "rate": "30/60s",
        "concurrent": 2,
        "cache": 9.0,
        "fallback": "b",
        "sensitive": True,
    }
    assert found["breaker"]["circuit"] == "open"
    found = manner(world.gates, named(plain))
    assert set(found["terms"].values()) == {None, False}
    assert found["breaker"]["circuit"] == "closed"
    by_host = Scripted("d")
    by_host.circuit = lambda arguments: arguments["host"]  # type: ignore[attr-defined]
    assert manner(world.gates, named(by_host))["breaker"] is None


def named(tool: Scripted) -> Tool:
    """As the registry has it."""
    found = Registry([tool]).get(tool.name)
    assert found is not None
    return found
