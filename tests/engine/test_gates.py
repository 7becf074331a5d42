"""The gates before every use of a tool (C8, H1, H2, H3): the same for steps, agents and programs."""

from __future__ import annotations

import asyncio
import gc
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from gate_worlds import Scripted, World, down
from waiting import PATIENCE, settled

import windlass
from windlass import ToolError
from windlass.core.breaker import FAILURES
from windlass.engine.gates import Gates, TookTooLong, ending, outflow
from windlass.engine.gates.circuit import NotBegun
from windlass.engine.gates.ending import UseTookTooLong, await_or_abandon
from windlass.engine.gates.memory import MemoryGateStore
from windlass.engine.gates.outflow import OutputCap
from windlass.engine.gates.places import Slots, take_place
from windlass.engine.gates.terms import TermsOfUse
from windlass.plan.model import Effect
from windlass.ports import Call, ComposedTool, Rate, Terms
from windlass.settings import ToolSettings

if TYPE_CHECKING:
    from conftest import Project


async def test_h3_a_failing_tool_falls_back_to_its_substitute_and_says_so(tmp_path: Path) -> None:
    first, second = Scripted("a", down(), terms=Terms(fallback="b")), Scripted("b", "instead")
    world = World(tmp_path, first, second)
    assert await world.use("a") == "instead"
    assert world.notes == ["a cannot be used (no answer): using b instead\n"]


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
    with pytest.raises(NotBegun, match="retry in 86400 s"):
        await rare.use("b")
    patient = World(tmp_path, Scripted("c", terms=Terms(rate=Rate(1, 300.0))))
    await patient.use("c")
    late = asyncio.ensure_future(patient.use("c"))
    await settled()
    assert [wait.gate for wait in patient.gates.waits] == ["rate"], "it waits for up to five minutes"
    late.cancel()


async def test_c8_no_more_uses_at_a_time_than_there_are_places(tmp_path: Path) -> None:
    at_once, most = 0, 0

    async def work() -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await settled()
        at_once -= 1

    many = Scripted("a", *(work() for _ in range(8)), terms=Terms(concurrent=2))
    world = World(tmp_path, many)
    await asyncio.gather(*(world.use("a") for _ in range(8)))
    assert most == 2


async def test_c8_processes_share_the_places_and_a_dead_one_holds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.engine.gates.places.LOOK_AGAIN", 0.0)
    one, other = Slots(tmp_path), Slots(tmp_path)  # as in two processes: locks are by descriptor
    entered = asyncio.Event()

    async def second() -> None:
        async with other.one_of("a", 1):
            entered.set()

    async with one.one_of("a", 1):
        waiting = asyncio.ensure_future(second())
        await settled()
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


async def test_h1_what_is_not_enabled_nobody_has_whatever_kind_of_tool_it_is(project: Project) -> None:
    (project.user / ".config/windlass").mkdir(parents=True, exist_ok=True)
    off = "".join(f'[tools."{name}"]\nenabled = false\n' for name in ("http.*", "counted", "mcp.time.now", "shell"))
    server = '[mcp.time]\ncommand = "no-such-server"\n'
    (project.user / ".config/windlass/config.toml").write_text(off + server)
    async with windlass.open() as engine:
        assert engine.shelf is not None
        engine.shelf.save(ComposedTool("counted", "return 1", {"type": "object"}))
        box = engine.attempt_runner.tools
        gone = ("http.get", "counted", "mcp.time.now", "shell")
        assert [box.get(name) for name in gone] == [None] * len(gone)
        assert not {*gone} & {*box.names()}
        assert box.get("mcp.time.later") is not None, "the rest of the server is there"


async def test_h2_what_depends_on_what_was_done_before_is_never_answered_from_memory(tmp_path: Path) -> None:
    page = Scripted("browser.text", 1, 2, terms=Terms(cache=60.0))
    page.stateful = True  # type: ignore[attr-defined]
    world = World(tmp_path, page)
    assert [await world.use("browser.text"), await world.use("browser.text")] == [1, 2]


def test_c8_to_look_for_a_place_leaves_no_file_open(tmp_path: Path) -> None:
    def next_descriptor() -> int:
        os.close(found := os.open(tmp_path, os.O_RDONLY))
        return found

    held = take_place(tmp_path, "slow", 1)
    assert held is not None
    free = next_descriptor()
    assert take_place(tmp_path, "slow", 1) is None
    assert next_descriptor() == free
    os.close(held)


async def test_h1_the_wait_for_a_turn_is_told_apart_from_the_work(tmp_path: Path, eventually: Any) -> None:
    began, go = asyncio.Event(), asyncio.Event()

    async def work() -> None:
        began.set()
        await go.wait()

    world = World(tmp_path, Scripted("a", work(), terms=Terms(concurrent=1)))
    first = asyncio.ensure_future(world.use("a"))
    await began.wait()
    assert world.meter.queued == 0.0
    second = asyncio.ensure_future(world.use("a"))
    await eventually(lambda: [(wait.gate, wait.tool, wait.step) for wait in world.gates.waits])
    (wait,) = world.gates.waits
    assert (wait.gate, wait.tool, wait.execution, wait.step, wait.since) == ("place", "a", "e", "s", 1000.0)
    world.clock.advance(7.0)
    go.set()
    await asyncio.gather(first, second)
    assert world.meter.queued == 7.0
    assert list(world.gates.waits) == []


async def test_h3_a_substitute_that_cannot_take_the_arguments_or_is_not_there_is_not_used(tmp_path: Path) -> None:
    class Strict(Scripted):
        def validate(self, arguments: Any) -> list[str]:
            return ["it takes no text"]

    for other in (Strict("b"), Scripted("c")):
        world = World(tmp_path, Scripted("a", down(), terms=Terms(fallback="b")), other)
        with pytest.raises(ToolError, match="no answer"):
            await world.use("a")
        assert other.uses == 0
    world = World(tmp_path, Scripted("a", ToolError("no such file"), terms=Terms(fallback="b")), Scripted("b"))
    with pytest.raises(ToolError, match="no such file"):
        await world.use("a")


async def test_h3_of_substitutes_for_an_approved_use_only_the_one_that_was_shown_is_used(tmp_path: Path) -> None:
    first, hidden = Scripted("a", down(), down(), terms=Terms(fallback="b")), Scripted("c")
    shown = Scripted("b", "instead", down(), terms=Terms(fallback="c"))
    world = World(tmp_path, first, shown, hidden)
    world.approved = world.gates.basis(world.registry.get("a"), {}, tmp_path, world.registry)
    assert await world.use("a") == "instead"
    with pytest.raises(ToolError, match="no answer"):
        await world.use("a")
    assert (shown.uses, hidden.uses) == (2, 0)


async def test_h2_a_cached_result_is_that_of_the_same_folder_and_tool(tmp_path: Path) -> None:
    terms = Terms(cache=60.0)
    world = World(tmp_path, Scripted("a", 1, 2, terms=terms), Scripted("b", 3, terms=terms))
    assert [await world.use("a", x=1), await world.use("a", x=1), await world.use("b", x=1)] == [1, 1, 3]
    world._tmp = tmp_path / "other"
    assert await world.use("a", x=1) == 2


async def test_h3_a_use_that_was_stopped_is_not_made_by_the_substitute(tmp_path: Path, eventually: Any) -> None:
    async def work() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            raise down() from None

    slow, other = Scripted("a", work(), terms=Terms(fallback="b")), Scripted("b")
    world = World(tmp_path, slow, other)
    task = asyncio.ensure_future(world.use("a"))
    await eventually(lambda: slow.uses)
    task.cancel()
    with pytest.raises((ToolError, asyncio.CancelledError)):
        await task
    assert (other.uses, world.notes) == (0, [])


async def test_c8_a_use_waits_for_the_rest_of_a_second_too(tmp_path: Path) -> None:
    tool = Scripted("a", terms=Terms(rate=Rate(1, 0.05)))
    world = World(tmp_path, tool)
    await world.use("a")
    second = asyncio.ensure_future(world.use("a"))
    await settled()
    assert tool.uses == 1
    assert [(wait.gate, wait.tool) for wait in world.gates.waits] == [("rate", "a")]
    world.clock.advance(0.05)
    await second
    assert (tool.uses, world.meter.queued) == (2, pytest.approx(0.05))


class Deaf:
    """A use that swallows its cancellation, until it is let go."""

    def __init__(self, error: BaseException | None = None) -> None:
        self.begun, self.let_go, self.error = asyncio.Event(), asyncio.Event(), error
        self.over = False

    async def use(self) -> str:
        self.begun.set()
        while not self.let_go.is_set():
            try:
                await self.let_go.wait()
            except asyncio.CancelledError:
                continue
        self.over = True
        if self.error is not None:
            raise self.error
        return "late"


async def test_h1_a_use_out_of_time_that_swallows_its_cancellation_is_left_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ending, "LEAVE_AFTER", 0.0)
    deaf, said = Deaf(), list[str]()
    with pytest.raises(UseTookTooLong):
        await await_or_abandon(deaf.use(), 0.0, lambda: said.append("left behind"), 0.0)
    assert said == ["left behind"]
    assert asyncio.all_tasks() == {asyncio.current_task()}, "`asyncio.run` would wait for it, and never end"
    deaf.let_go.set()
    await settled()
    assert deaf.over


async def test_h1_a_cancelled_use_that_swallows_its_cancellation_does_not_keep_the_one_who_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ending, "LEAVE_AFTER", 0.0)
    deaf, said = Deaf(), list[str]()
    waiting = asyncio.ensure_future(await_or_abandon(deaf.use(), 0.0, lambda: said.append("left behind")))
    await deaf.begun.wait()
    waiting.cancel()
    await asyncio.wait({waiting})
    assert waiting.cancelled()
    assert said == ["left behind"]
    deaf.let_go.set()
    await settled()


async def test_h1_a_tool_that_does_not_stop_when_its_time_is_over_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ending, "LEAVE_AFTER", 0.0)
    deaf = Deaf()
    world = World(tmp_path, Scripted("a", deaf.use(), terms=Terms(timeout=0.0)))
    world.grace = 0.0
    with pytest.raises(TookTooLong, match="a took longer than 0 s and was stopped"):
        await world.use("a")
    assert world.notes == [
        "a did not stop when cancelled: the engine no longer waits for it, and it may still be running\n"
    ]
    deaf.let_go.set()
    await settled()


@pytest.mark.parametrize("error", [ValueError("late"), asyncio.CancelledError()], ids=["an error", "cancelled"])
async def test_h1_nothing_is_heard_of_how_a_use_that_was_left_behind_ended(
    monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    monkeypatch.setattr(ending, "LEAVE_AFTER", 0.0)
    heard = list[Any]()
    asyncio.get_running_loop().set_exception_handler(lambda loop, about: heard.append(about))
    deaf = Deaf(error)
    with pytest.raises(UseTookTooLong):
        await await_or_abandon(deaf.use(), 0.0, lambda: None, 0.0)
    deaf.let_go.set()
    await settled()
    assert deaf.over
    gc.collect()
    assert heard == []


@pytest.mark.parametrize("seconds", [None, 0.0], ids=["cancelled", "out of time"])
async def test_h1_a_use_that_tidies_up_in_its_grace_is_waited_for_and_its_result_kept(
    monkeypatch: pytest.MonkeyPatch, seconds: float | None
) -> None:
    monkeypatch.setattr(ending, "LEAVE_AFTER", PATIENCE)
    begun, said = asyncio.Event(), list[str]()

    async def tidy() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await settled()
        return "tidied up"

    waiting = asyncio.ensure_future(await_or_abandon(tidy(), 0.0, lambda: said.append("left behind"), seconds))
    if seconds is None:
        await begun.wait()
        waiting.cancel()
    assert await waiting == "tidied up"
    assert said == []


def test_c8_as_much_output_is_stored_as_the_note_of_the_rest_says() -> None:
    shown = list[tuple[str, str]]()
    cap = OutputCap(lambda stream, text: shown.append((stream, text)))
    for _ in range(3):
        cap("stdout", "x" * (5 * 1024 * 1024))
    cap("stdout", "more")
    (stored, note) = shown
    assert stored[0] == "stdout"
    assert note == ("note", f"more than {len(stored[1]) / 2**20:g} MiB of output: the rest is not stored\n")


@pytest.mark.parametrize(("bound", "stored"), [(2 * 65, 2), (2 * 65 + 1, 3)])
def test_c8_each_piece_of_output_counts_as_64_characters_more(
    monkeypatch: pytest.MonkeyPatch, bound: int, stored: int
) -> None:
    monkeypatch.setattr(outflow, "MOST_SHOWN", bound)
    shown = list[str]()
    cap = OutputCap(lambda stream, text: shown.append(stream))
    for _ in range(5):
        cap("stdout", "x")
    assert shown == ["stdout"] * stored + ["note"]


async def test_c8_the_output_of_every_use_has_the_cap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Talks(Scripted):
        async def execute(self, arguments: Any, call: Call) -> None:
            call.output("stdout", "a lot of text")

    monkeypatch.setattr(outflow, "MOST_SHOWN", 5)
    world = World(tmp_path, Talks("a"))
    await world.use("a")
    assert world.notes[0] == "a lot"
    assert "the rest is not stored" in world.notes[1]


async def test_h1_another_tool_of_the_same_name_has_its_own_terms() -> None:
    terms = TermsOfUse()
    one, other = Scripted("a", terms=Terms(timeout=1.0)), Scripted("a", terms=Terms(timeout=2.0))
    assert [terms.of(tool).timeout for tool in (one, one, other)] == [1.0, 1.0, 2.0]


def test_h2_of_many_results_the_ones_learned_last_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("windlass.engine.gates.memory.MOST_KEPT", 3)
    book = MemoryGateStore()
    for key in ("a", "b", "c", "a", "d"):
        book.learn(key, key, until=10.0)
    assert [key for key in "abcd" if book.known(key, 0.0, 10.0)] == ["a", "c", "d"]
