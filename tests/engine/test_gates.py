"""The gates before every use of a tool (C4, C8, H1, H3): the same for steps, agents and programs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Plan, Step, ToolError, tool
from windlass.core.breaker import FAILURES, Breaker, Circuit
from windlass.engine.gates import Gates, TookTooLong
from windlass.engine.gates.circuit import CircuitOfUse, NotBegun
from windlass.engine.gates.places import Places
from windlass.engine.gates.terms import TermsOfUse
from windlass.errors import Category
from windlass.journal.gatebook import SqliteGateBook
from windlass.plan.model import Effect
from windlass.ports import Call, ComposedTool, Rate, Terms
from windlass.process import Supervisor
from windlass.settings import ToolSettings
from windlass.testing import FakeClock
from windlass.tools.registry import Registry

if TYPE_CHECKING:
    from conftest import Project


class Scripted:
    """A tool that does what it is told next, and counts."""

    description = "scripted"
    schema: dict[str, Any] = {"type": "object"}

    def __init__(self, name: str, *outcomes: Any, terms: Terms | None = None, effect: Effect = Effect.NONE) -> None:
        self.name, self.terms, self._effect = name, terms or Terms(), effect
        self.outcomes = list(outcomes)
        self.uses = 0

    def effect(self, arguments: Any) -> Effect:
        return self._effect

    def validate(self, arguments: Any) -> list[str]:
        return []

    async def execute(self, arguments: Any, call: Call) -> Any:
        self.uses += 1
        outcome = self.outcomes.pop(0) if self.outcomes else "fine"
        if isinstance(outcome, BaseException):
            raise outcome
        if asyncio.iscoroutine(outcome):
            return await outcome
        return outcome


class World:
    def __init__(self, tmp_path: Path, *tools: Scripted, **settings: ToolSettings) -> None:
        self.clock = FakeClock(1000.0)
        self.gates = Gates(terms=TermsOfUse(settings), clock=self.clock)
        self.registry = Registry(tools)
        self.notes: list[str] = []
        self._tmp = tmp_path

    async def use(self, name: str, **arguments: Any) -> Any:
        found = self.registry.get(name)
        assert found is not None
        async with Supervisor() as processes:
            call = Call(
                execution="e",
                step="s",
                attempt=1,
                workdir=self._tmp,
                folder=self._tmp,
                processes=processes,
                output=lambda stream, text: self.notes.append(text),
            )
            return await self.gates.use(found, arguments, call, self.registry)


def down() -> ToolError:
    return ToolError("no answer", category=Category.TRANSIENT)


async def test_c4_a_tool_that_fails_again_and_again_is_left_alone_and_then_tried_once(tmp_path: Path) -> None:
    broken = Scripted("a", *(down() for _ in range(FAILURES)))
    world = World(tmp_path, broken)
    for _ in range(FAILURES):
        with pytest.raises(ToolError, match="no answer"):
            await world.use("a")
    assert world.gates.book.breaker("a").circuit(world.clock.now()) is Circuit.OPEN
    with pytest.raises(NotBegun, match="left alone for 30 s") as refused:
        await world.use("a")
    assert broken.uses == FAILURES, "it was not used"
    assert refused.value.failure.retry_after == pytest.approx(30.0)
    world.clock.advance(30.0)
    assert await world.use("a") == "fine"
    assert world.gates.book.breakers() == {}


async def test_c4_who_is_asked_for_nonsense_is_not_broken(tmp_path: Path) -> None:
    world = World(tmp_path, Scripted("a", *(ToolError("no such file") for _ in range(FAILURES * 2))))
    for _ in range(FAILURES * 2):
        with pytest.raises(ToolError, match="no such file"):
            await world.use("a")
    assert world.gates.book.breakers() == {}


async def test_h3_a_failing_tool_falls_back_to_its_substitute_and_says_so(tmp_path: Path) -> None:
    first, second = Scripted("a", down(), terms=Terms(fallback="b")), Scripted("b", "instead")
    world = World(tmp_path, first, second)
    assert await world.use("a") == "instead"
    assert world.notes == ["a cannot be used (no answer): b takes its place\n"]


async def test_h3_while_the_breaker_is_open_the_substitute_is_used_at_once(tmp_path: Path) -> None:
    first = Scripted("a", *(down() for _ in range(FAILURES)), terms=Terms(fallback="b"))
    world = World(tmp_path, first, Scripted("b"))
    for _ in range(FAILURES + 3):
        assert await world.use("a") == "fine"
    assert first.uses == FAILURES


async def test_h3_what_may_have_taken_effect_is_not_done_again_by_another_tool(tmp_path: Path) -> None:
    first, second = Scripted("a", down(), terms=Terms(fallback="b"), effect=Effect.ONCE), Scripted("b")
    with pytest.raises(ToolError, match="no answer"):
        await World(tmp_path, first, second).use("a")
    assert second.uses == 0


async def test_h3_substitutes_in_a_circle_end(tmp_path: Path) -> None:
    one, two = Scripted("a", down(), terms=Terms(fallback="b")), Scripted("b", down(), terms=Terms(fallback="a"))
    with pytest.raises(ToolError, match="no answer"):
        await World(tmp_path, one, two).use("a")
    assert (one.uses, two.uses) == (1, 1)


async def test_h1_a_tool_has_its_own_time(tmp_path: Path) -> None:
    slow = Scripted("a", asyncio.sleep(3600), terms=Terms(timeout=0.01))
    with pytest.raises(TookTooLong, match=r"took longer than 0\.01 s"):
        await World(tmp_path, slow).use("a")


async def test_h2_a_result_is_kept_for_as_long_as_it_is_good_and_by_its_arguments(tmp_path: Path) -> None:
    looked = Scripted("a", 1, 2, 3, terms=Terms(cache=60.0))
    world = World(tmp_path, looked)
    assert [await world.use("a", q=1), await world.use("a", q=1), await world.use("a", q=2)] == [1, 1, 2]
    world.clock.advance(61.0)
    assert await world.use("a", q=1) == 3


async def test_h2_what_has_an_effect_is_never_answered_from_memory(tmp_path: Path) -> None:
    done = Scripted("a", 1, 2, terms=Terms(cache=60.0), effect=Effect.REPEATABLE)
    world = World(tmp_path, done)
    assert [await world.use("a"), await world.use("a")] == [1, 2]


async def test_c8_a_rate_makes_uses_wait_and_a_long_wait_is_said_instead(tmp_path: Path) -> None:
    often = Scripted("a", terms=Terms(rate=Rate(1, 0.02)))
    world = World(tmp_path, often)
    world.gates = Gates()  # with the real clock: it waits for real
    assert [await world.use("a") for _ in range(3)] == ["fine"] * 3
    rare = World(tmp_path, Scripted("b", terms=Terms(rate=Rate(1, 86_400.0))))
    await rare.use("b")
    with pytest.raises(NotBegun, match="the next turn is in 86400 s"):
        await rare.use("b")


async def test_c8_no_more_uses_at_a_time_than_there_are_places(tmp_path: Path) -> None:
    at_once, most = 0, 0

    async def work() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.005)
        at_once -= 1

    many = Scripted("a", *(work() for _ in range(8)), terms=Terms(concurrent=2))
    world = World(tmp_path, many)
    await asyncio.gather(*(world.use("a") for _ in range(8)))
    assert most == 2


async def test_c8_processes_share_the_places_and_a_dead_one_holds_none(tmp_path: Path) -> None:
    one, other = Places(tmp_path), Places(tmp_path)  # as in two processes: locks are by descriptor
    entered = asyncio.Event()

    async def second() -> None:
        async with other.one_of("a", 1):
            entered.set()

    async with one.one_of("a", 1):
        waiting = asyncio.ensure_future(second())
        await asyncio.sleep(0.1)
        assert not entered.is_set()
    await waiting
    assert entered.is_set()


async def test_h1_the_users_settings_come_before_what_a_tool_says(tmp_path: Path) -> None:
    said = Terms(timeout=10.0, fallback="b")
    terms = TermsOfUse(
        {"http.*": ToolSettings(timeout=5.0, concurrent=2), "http.get": ToolSettings(timeout=1.0), "*": ToolSettings()}
    )
    assert terms.of(Scripted("http.get", terms=said)) == Terms(timeout=1.0, concurrent=2, fallback="b")
    assert terms.of(Scripted("http.put", terms=said)) == Terms(timeout=5.0, concurrent=2, fallback="b")
    assert terms.of(Scripted("other", terms=said)) == said


async def test_c4_a_cancelled_use_says_nothing_about_the_tool(tmp_path: Path) -> None:
    world = World(tmp_path, Scripted("a", *(asyncio.sleep(3600) for _ in range(FAILURES + 1))))
    for _ in range(FAILURES + 1):
        task = asyncio.ensure_future(world.use("a"))
        await asyncio.sleep(0.01)
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


async def test_c4_a_probe_that_a_person_stopped_found_nothing_out_and_another_is_made(
    tmp_path: Path, eventually: Any
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
    with pytest.raises(NotBegun, match="somebody else tries it"):
        await world.use("a")
    probe.cancel()
    await asyncio.wait({probe})
    assert world.gates.book.breaker("a").opened == 1, "it did not fail"
    world.clock.advance(30.0)
    assert await world.use("a") == "fine"
    assert world.gates.book.breakers() == {}


def test_c4_of_two_processes_that_find_it_half_open_in_the_same_moment_one_tries(tmp_path: Path) -> None:
    rested = Breaker(FAILURES, 1, 1000.0, because="no answer")
    book = SqliteGateBook(tmp_path / "gates.db")
    book.keep_breaker("a", rested)

    class Behind(SqliteGateBook):
        """As in a process that has read the breaker right before the other one wrote."""

        def breakers(self) -> dict[str, Breaker]:
            return {"a": rested}

    behind = Behind(tmp_path / "gates.db")
    clock = FakeClock(1000.0)
    one, other = CircuitOfUse(book, "a", clock), CircuitOfUse(behind, "a", clock)
    assert not other.closed
    one.enter()
    with pytest.raises(NotBegun, match="somebody else tries it"):
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


async def test_c4_steps_and_programs_meet_the_same_breaker_and_it_is_known_to_the_next_engine(project: Project) -> None:
    @tool(name="flaky")
    def flaky() -> None:
        raise ToolError("no answer", category=Category.TRANSIENT)

    steps = [Step(id=f"s{n}", tool="flaky", retry={"max": 0}, importance="optional") for n in range(FAILURES)]
    program = Step(id="p", code="await tools.flaky()", needs=[s.id for s in steps], retry={"max": 0})
    async with windlass.open(tools=[flaky]) as engine:
        plan = Plan(steps=[*steps, program])
        result = await (await engine.start(plan)).result()
        assert "left alone" in result["steps"][-1]["error"]["message"]
    async with windlass.open(tools=[flaky]) as engine:
        assert list(engine.performer.gates.book.breakers()) == ["flaky"]


async def test_h1_what_is_not_enabled_nobody_has_whatever_kind_of_tool_it_is(project: Project) -> None:
    (project.user / ".config/windlass").mkdir(parents=True, exist_ok=True)
    off = "".join(f'[tools."{name}"]\nenabled = false\n' for name in ("http.*", "counted", "mcp.time.now", "shell"))
    server = '[mcp.time]\ncommand = "no-such-server"\n'
    (project.user / ".config/windlass/config.toml").write_text(off + server)
    async with windlass.open() as engine:
        assert engine.shelf is not None
        engine.shelf.save(ComposedTool("counted", "return 1", {"type": "object"}))
        box = engine.performer.tools
        gone = ("http.get", "counted", "mcp.time.now", "shell")
        assert [box.get(name) for name in gone] == [None] * len(gone)
        assert not {*gone} & {*box.names()}
        assert box.get("mcp.time.later") is not None, "the rest of the server is there"


async def test_h2_what_depends_on_what_was_done_before_is_never_answered_from_memory(tmp_path: Path) -> None:
    page = Scripted("browser.text", 1, 2, terms=Terms(cache=60.0))
    page.stateful = True  # type: ignore[attr-defined]
    world = World(tmp_path, page)
    assert [await world.use("browser.text"), await world.use("browser.text")] == [1, 2]
