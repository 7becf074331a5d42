"""The scripted runner: a `Runner` that plays turns, and keeps the port's promises while it does."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from windlass.core.events import AgentTold
from windlass.errors import Category, Failure
from windlass.plan.model import Effect
from windlass.ports import AgentRequest, AgentResult, Answer, Brief, Health, Runner, ToolReturn, ToolSpec, Usage
from windlass.testing import ScriptedRunner, Turn


class Listener:
    """A `Host` that takes notes, and answers as it was told to."""

    def __init__(self, allow: bool = True) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.allow = allow
        self.asked = asyncio.Event()
        self.answer_at: asyncio.Event | None = None
        """When a person will answer; None is at once."""
        self.given_up = 0

    def session(self, session: str) -> None:
        self.events.append(("session", session))

    def text(self, text: str) -> None:
        self.events.append(("text", text))

    def acted(self, tool: str, summary: str, input: Any = None, call: str = "") -> None:
        self.events.append(("acted", tool, summary, input))

    def returned(self, call: str, tool: str, text: str, *, failed: bool = False) -> None:
        """Not looked at here."""

    def spoke(self, text: str, thinking: str = "", usage: Usage | None = None, number: int = 0) -> None:
        """Not looked at here."""

    def summarised(self, **about: Any) -> None:
        """Not looked at here."""

    def told(self) -> list[AgentTold]:
        return []

    async def heard(self, ids: Sequence[str], how: str) -> None:
        """Nothing is told here."""

    async def wait_told(self) -> None:
        await asyncio.Event().wait()

    def usage(self, usage: Usage) -> None:
        self.events.append(("usage", usage))

    def note(self, text: str, *, waits: bool = False) -> None:
        self.events.append(("note", text))

    async def ask(self, tool: str, input: Any) -> Answer:
        self.events.append(("ask", tool, input))
        self.asked.set()
        try:
            if self.answer_at is not None:
                await self.answer_at.wait()
        except asyncio.CancelledError:
            self.given_up += 1
            raise
        return Answer(self.allow, "" if self.allow else "not today")

    def tools(self) -> list[ToolSpec]:
        return []

    def effect(self, tool: str, arguments: Mapping[str, Any]) -> Effect:
        return Effect.NONE

    async def use(self, tool: str, arguments: Mapping[str, Any], use_id: str) -> ToolReturn:
        self.events.append(("use", tool, dict(arguments), use_id))
        return ToolReturn(f"{tool} did it")


def request(task: str = "build it", id: str = "x:s:1", **more: Any) -> AgentRequest:
    brief = Brief(system="you are a developer", prompt=f"the task: {task}")
    return AgentRequest(id=id, task=task, brief=brief, workdir=Path(), scratch=Path("scratch"), env={}, **more)


# -- moves and ends ----------------------------------------------------------------------------------


async def test_a_turn_tells_the_host_everything_in_order_and_gives_the_sum() -> None:
    usage = Usage(900, 40, 100, 50, usd=0.01, source="runtime", model="m")
    turn = (
        Turn(session="talk-1")
        .say("I ", "look. ")
        .act("Read", "a.txt", {"path": "a.txt"})
        .spend(tokens_in=900, tokens_out=40, cache_read=100, cache_write=50, usd=0.01, model="m")
        .note("the model is slow today")
        .ask("Bash", {"command": "ls"})
        .call("files.read", {"path": "b"})
        .say("Done.")
    )
    runner, host = ScriptedRunner([turn]), Listener()
    result = await runner.run(request(), host)
    assert host.events == [
        ("session", "talk-1"),
        ("text", "I "),
        ("text", "look. "),
        ("acted", "Read", "a.txt", {"path": "a.txt"}),
        ("usage", usage),
        ("note", "the model is slow today"),
        ("ask", "Bash", {"command": "ls"}),
        ("use", "files.read", {"path": "b"}, "scripted-1"),
        ("text", "Done."),
    ]
    assert result == AgentResult("I look. Done.", usage=usage, session="talk-1")
    assert result.success
    assert runner.answers == [Answer(True)]
    assert runner.returns == [ToolReturn("files.read did it")]
    assert runner.requests == [request()]
    runner.check()


async def test_what_nobody_priced_is_unknown_and_not_free() -> None:
    result = await ScriptedRunner([Turn().spend(tokens_in=5)]).run(request(), Listener())
    assert (result.usage.usd, result.usage.source) == (None, "unknown")


async def test_an_output_of_its_own_stands_in_place_of_what_was_said() -> None:
    result = await ScriptedRunner([Turn().say("thinking").done("42")]).run(request(), Listener())
    assert result.output == "42"


async def test_a_failure_keeps_what_there_was_before_it() -> None:
    turn = (
        Turn().say("half").spend(tokens_out=9).fail("overloaded", category="transient", elsewhere=True, resets_at=5.0)
    )
    result = await ScriptedRunner([turn]).run(request(), Listener())
    assert not result.success
    assert result.failure == Failure(Category.TRANSIENT, "overloaded", elsewhere=True, resets_at=5.0)
    assert (result.output, result.usage.tokens_out) == ("half", 9)


async def test_a_result_is_given_as_it_is_after_the_host_has_heard_of_it() -> None:
    wanted = AgentResult("ready", usage=Usage(1, 2), session="s", duration=3.0, adjustments=("another model",))
    host = Listener()
    assert await ScriptedRunner([wanted]).run(request(), host) is wanted
    assert host.events == [("session", "s"), ("text", "ready"), ("usage", Usage(1, 2))]


async def test_a_denial_is_an_adjustment_and_may_change_the_course() -> None:
    script = [
        Turn().ask("Bash", "rm").say("went on"),
        Turn().ask("Bash", "rm", if_denied=Turn().say("stopped").fail("may not")).say("never"),
    ]
    runner = ScriptedRunner(script)
    first, second = [await runner.run(request(), Listener(allow=False)) for _ in script]
    assert (first.output, first.success, first.adjustments) == ("went on", True, ("Bash was denied: not today",))
    assert (second.output, second.success) == ("stopped", False)


@pytest.mark.parametrize(("asked_for", "named"), [("talk-7", "talk-7"), (None, "scripted-x:s:1")])
async def test_a_conversation_goes_on_under_the_name_that_was_asked_for(asked_for: str | None, named: str) -> None:
    result = await ScriptedRunner([Turn().say("on")]).run(request(session=asked_for), Listener())
    assert result.session == named


# -- interrupts and cancellation ---------------------------------------------------------------------


async def test_a_hanging_turn_ends_when_it_is_interrupted_with_what_there_was() -> None:
    runner, host = ScriptedRunner([Turn().say("half").spend(tokens_out=3).hang().say("never")]), Listener()
    run = asyncio.create_task(runner.run(request(), host))
    await runner.wait_for(1)
    await runner.interrupt("somebody else")
    await runner.interrupt("x:s:1")
    result = await run
    assert result.interrupted
    assert not result.success
    assert result.failure is None
    assert ("text", "never") not in host.events
    assert runner.interrupts == ["somebody else", "x:s:1"]


async def test_an_interrupt_ends_a_question_too() -> None:
    runner, host = ScriptedRunner([Turn().say("may I? ").ask("Bash").say("never")]), Listener()
    host.answer_at = asyncio.Event()
    run = asyncio.create_task(runner.run(request(), host))
    await host.asked.wait()
    await runner.interrupt("x:s:1")
    result = await run
    assert (result.interrupted, result.output) == (True, "may I? ")
    assert host.given_up == 1


async def test_a_cancelled_run_leaves_nothing_running() -> None:
    runner, host = ScriptedRunner([Turn().ask("Bash")]), Listener()
    host.answer_at = asyncio.Event()
    run = asyncio.create_task(runner.run(request(), host))
    await host.asked.wait()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert host.given_up == 1
    assert asyncio.all_tasks() == {asyncio.current_task()}
    await runner.interrupt("x:s:1")  # it is forgotten: nothing to do, and no error


# -- who gets which turn -----------------------------------------------------------------------------


async def test_conditions_come_first_then_the_order() -> None:
    script = [Turn().say("any"), Turn(when="kettle").say("tea"), Turn(when=lambda r: r.role == "reviewer").say("fine")]
    runner = ScriptedRunner(script)
    asked = [request("mend"), request("a kettle"), request("look", role="reviewer")]
    assert [(await runner.run(one, Listener())).output for one in asked] == ["any", "tea", "fine"]
    runner.check()


async def test_times_and_repeat() -> None:
    runner = ScriptedRunner([Turn(times=2).fail("no"), Turn(repeat=True).say("yes")])
    assert [(await runner.run(request(), Listener())).success for _ in range(4)] == [False, False, True, True]


async def test_a_function_may_decide() -> None:
    runner = ScriptedRunner(lambda asked: AgentResult(asked.task.upper()))
    assert (await runner.run(request("build"), Listener())).output == "BUILD"


async def test_a_script_that_ran_out_is_a_failure_and_check_tells() -> None:
    runner = ScriptedRunner([])
    result = await runner.run(request(), Listener())
    assert result.failure is not None
    assert "x:s:1: the script has no turn left for 'build it'" in result.failure.message
    with pytest.raises(AssertionError, match="no turn left"):
        runner.check()


def test_check_names_the_turns_that_nobody_asked_for() -> None:
    with pytest.raises(AssertionError, match=r"entry 1 of the script \(say, fail: no, when 'x'\) served 0 of 1"):
        ScriptedRunner([Turn(when="x").say("a").fail("no")]).check()


def test_a_script_is_made_of_turns_and_results() -> None:
    with pytest.raises(TypeError, match="this is neither: 'text'"):
        ScriptedRunner(["text"])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="at least once"):
        Turn(times=0)


# -- as a runtime ------------------------------------------------------------------------------------


async def test_it_is_a_runner_whose_name_and_health_can_be_chosen() -> None:
    runner: Runner = ScriptedRunner(name="claude-code", health=Health(False, "not installed", "install it"))
    assert runner.name == "claude-code"
    assert await runner.available() == Health(False, "not installed", "install it")


async def test_its_health_may_change_and_it_knows_that_it_was_closed() -> None:
    runner = ScriptedRunner()
    assert (await runner.available()).ok
    runner.health = Health(False, "gone")
    assert not (await runner.available()).ok
    await runner.close()
    assert runner.closed


async def test_wait_for_gives_up_in_the_end() -> None:
    with pytest.raises(TimeoutError):
        await ScriptedRunner().wait_for(1, timeout=0.01)
