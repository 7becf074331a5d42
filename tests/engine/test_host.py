"""What a runtime reports of its agent, as the journal and the people who watch it have it (A2, K8)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, occurred, plan
from test_shared import shared_world

from windlass.core import events as ev
from windlass.core.state import State
from windlass.core.view import snapshot
from windlass.errors import Category, Failure
from windlass.ports import AgentRequest, AgentResult, Host, SessionPlace, Usage
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project

Act = Callable[[Host], Awaitable[AgentResult | None]]


class Acting(ScriptedRunner):
    """A runtime whose agent does with the host what functions do, one for each run, in one conversation."""

    def __init__(self, *acts: Act, takes_messages: bool = False) -> None:
        super().__init__(name="cli")
        self.acts = list(acts)
        self.takes_messages = takes_messages

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        self.requests.append(request)
        if request.session is None:
            host.session("s1")
        return await self.acts.pop(0)(host) or AgentResult("done", session="s1", usage=Usage(1, 1, usd=0.0))


def acts(act: Callable[[Host], Any]) -> Act:
    async def run(host: Host) -> None:
        act(host)

    return run


async def reported(project: Project, act: Callable[[Any], Any], **more: Any) -> tuple[State, list[ev.Event]]:
    world = AgentWorld(project, Acting(acts(act)))
    state = await world.run(plan(agent(retry=0, **more)))
    return state, await world.events(state.id)


def told(events: list[ev.Event], kind: type[ev.Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def shown(events: list[ev.Event]) -> list[tuple[str, str]]:
    """Output by stream, as people are shown it."""
    return [(event.stream, event.text) for event in told(events, ev.OutputWritten)]


# -- texts ----------------------------------------------------------------------------------------


async def test_a2_notes_are_lines_and_waits_for_the_model_have_a_stream_of_their_own(project: Project) -> None:
    def act(host: Host) -> None:
        host.note("another model")
        host.note("a whole line\n")
        host.note("the API is busy", waits=True)
        host.text("said")

    _, events = await reported(project, act)
    assert shown(events) == [
        ("note", "another model\na whole line\n"),
        ("wait.model", "the API is busy\n"),
        ("agent", "said"),
    ]


@pytest.mark.parametrize("said", ["", "all of it"])
async def test_a2_the_result_is_shown_once_whether_the_agent_said_it_or_not(project: Project, said: str) -> None:
    _, events = await reported(project, lambda host: host.text(said) if said else None)
    assert [text for stream, text in shown(events) if stream == "agent"] == [said or "done"]


async def test_k8_what_an_agent_does_is_kept_as_it_was_told(project: Project) -> None:
    def act(host: Host) -> None:
        host.acted("Bash", "  make \n test  ", {"command": "make test"}, "c1")
        host.returned("c1", "Bash", "all passed")
        host.returned("c2", "Bash", "no", failed=True)
        host.acted("Odd", "x" * 400, object())
        host.spoke("It works.", "Does it?", Usage(5, 2), 7)
        host.spoke("")

    _, events = await reported(project, act)
    first, odd = told(events, ev.AgentActed)
    assert (first.tool, first.summary, first.input, first.call) == ("Bash", "make test", {"command": "make test"}, "c1")
    assert (odd.summary, odd.input, odd.file) == ("x" * 300, None, ""), "what is no JSON is not kept"
    passed, failed = told(events, ev.AgentReturned)
    assert (passed.text, passed.failed, passed.file, passed.size) == ("all passed", False, "", 0)
    assert (failed.call, failed.failed) == ("c2", True)
    whole, bare = told(events, ev.AgentSpoke)
    assert (whole.text, whole.thinking, whole.usage, whole.number) == ("It works.", "Does it?", Usage(5, 2), 7)
    assert (bare.text, bare.thinking, bare.usage, bare.number) == ("", "", None, 0)


async def test_i6_secrets_of_the_environment_are_in_no_text_of_the_transcript(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "wl-3cr3t-0123456789")

    def act(host: Host) -> None:
        host.returned("c1", "Bash", "SOME_API_KEY=wl-3cr3t-0123456789")
        host.spoke("it is wl-3cr3t-0123456789", "wl-3cr3t-0123456789, then")

    _, events = await reported(project, act)
    kept = [*told(events, ev.AgentReturned), *told(events, ev.AgentSpoke)]
    assert len(kept) == 2
    assert "wl-3cr3t" not in repr(kept)


# -- what is too long for the journal -------------------------------------------------------------


async def test_k8_what_is_too_long_for_the_journal_is_in_files_of_the_user_alone(project: Project) -> None:
    long = "ü" * 5000

    def act(host: Host) -> None:
        host.acted("Write", "long", long, "c1")
        host.returned("c1", "Write", long)
        host.returned("c2", "Write", "a" + long)
        host.returned("c3", "Write", "a" * 8192)

    state, events = await reported(project, act)
    (acted,) = told(events, ev.AgentActed)
    first, second, short = told(events, ev.AgentReturned)
    assert acted.input is None
    assert [one.file for one in (acted, first, second)] == [
        "work/transcript/1-1.json",
        "work/transcript/1-2.txt",
        "work/transcript/1-3.txt",
    ]
    assert (first.text, first.size) == ("ü" * 4096, 10_000)
    assert (second.text, second.size) == ("a" + "ü" * 4095, 10_001), "no letter is cut in two"
    assert (short.text, short.size, short.file) == ("a" * 8192, 0, "")
    folder = project.home / "artifacts" / state.id
    assert (folder / acted.file).read_text() == f'"{long}"'
    assert (folder / second.file).read_text() == "a" + long
    assert (folder / first.file).stat().st_mode & 0o777 == 0o600
    assert (folder / first.file).parent.stat().st_mode & 0o777 == 0o700


async def test_k8_an_input_of_just_the_longest_size_is_in_the_journal(project: Project) -> None:
    def act(host: Host) -> None:
        host.acted("Write", "most", "x" * 8190)
        host.acted("Write", "more", "x" * 8191)

    _, events = await reported(project, act)
    assert [(event.input is not None, event.file) for event in told(events, ev.AgentActed)] == [
        (True, ""),
        (False, "work/transcript/1-1.json"),
    ]


async def test_k8_a_file_that_cannot_be_written_is_told_and_the_agent_goes_on(project: Project) -> None:
    world = AgentWorld(project)

    async def act(host: Host) -> None:
        (state,) = await world.journal.heads()
        folder = project.home / "artifacts" / state.id / "work"
        folder.mkdir(parents=True)
        (folder / "transcript").write_text("in the way")
        host.returned("c1", "Bash", "x" * 20_000)

    world.runners["cli"] = Acting(act)
    state = await world.run(plan())
    assert state.status == "completed"
    events = await world.events(state.id)
    (returned,) = told(events, ev.AgentReturned)
    assert (len(returned.text), returned.file, returned.size) == (8192, "", 20_000)
    (note,) = [text for stream, text in shown(events) if stream == "note"]
    assert note.startswith("the transcript lacks 20,000 bytes: ")
    assert note.endswith("/work/transcript/1-1.txt cannot be written: File exists\n")


async def test_k8_the_history_of_a_fork_begins_with_the_conversation_that_it_was_forked_from(project: Project) -> None:
    long, seen = "x" * 9000, list[ev.Event]()

    async def look(host: Host) -> None:
        seen.extend(await host.history())

    runner = Acting(acts(lambda host: host.returned("c1", "Bash", long)), look, look)
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        state = await (await engine.start(plan())).wait()
        fork = await engine.fork(state.id, from_step="work")
        await (await engine.resume(fork, keep_plan=True)).wait()
        assert [event.text for event in told(seen, ev.AgentReturned)] == [long], "with the whole text of its file"
        assert len(told(seen, ev.AgentBegan)) == 2, "that of the first execution, and its own"
        (project.home / "artifacts" / state.id / "work" / "transcript" / "1-1.txt").unlink()
        seen.clear()
        other = await engine.fork(state.id, from_step="work")
        await (await engine.resume(other, keep_plan=True)).wait()
        assert [event.text for event in told(seen, ev.AgentReturned)] == [long[:8192]], "as far as it can be read"


# -- summaries ------------------------------------------------------------------------------------


async def test_f2_summaries_are_numbered_and_in_the_journal_at_once(project: Project) -> None:
    wanted: list[bool] = []
    asked, looked = asyncio.Event(), asyncio.Event()

    async def act(host: Host) -> None:
        wanted.append(host.summary_wanted())
        host.summarised(by="model", tokens_before=100, tokens_after=10, model="m", text="so far", pinned=["fact"])
        host.text("I go on")
        await asked.wait()
        wanted.append(host.summary_wanted())
        host.summarised(by="runtime", tokens_before=None, tokens_after=None, messages=4, usage=Usage(3, 1))
        await looked.wait()
        wanted.append(host.summary_wanted())

    world = AgentWorld(project, Acting(act))
    async with world.engine() as engine:
        execution = await engine.start(plan())
        one = await occurred(execution, ev.AgentSummarised)
        await engine.summarise(execution.id, "work")
        asked.set()
        two = await occurred(execution, ev.AgentSummarised, 2)
        looked.set()
        await execution.wait()
    assert wanted == [False, True, False]
    assert (one.number, one.messages, one.pinned, one.text, one.tokens_before) == (1, 0, ("fact",), "so far", 100)
    assert (two.number, two.messages, two.by, two.usage, two.tokens_before) == (2, 4, "runtime", Usage(3, 1), None)


# -- messages -------------------------------------------------------------------------------------


@pytest.mark.parametrize("answer", ["text", "acted", "usage"])
async def test_k1_messages_of_a_prompt_are_heard_once_with_the_first_sign_of_the_model(
    project: Project, answer: str
) -> None:
    left: list[list[str]] = []

    async def fail(host: Host) -> AgentResult:
        return AgentResult(failure=Failure(Category.LOGIC, "no"), session="s1")

    async def act(host: Host) -> None:
        signs = {
            "text": lambda: host.text("I see"),
            "acted": lambda: host.acted("Bash", "ls"),
            "usage": lambda: host.usage(Usage(5, 1, usd=0.0)),
        }
        left.append([one.text for one in host.told()])
        signs[answer]()
        left.append([one.text for one in host.told()])
        signs[answer]()

    world = AgentWorld(project, Acting(fail, act))
    async with world.engine() as engine:
        state = await (await engine.start(plan(agent(retry=0)))).wait()
        await engine.say(state.id, "work", "hello")
        resumed = await engine.resume(state.id)
        await resumed.wait()
    assert left == [["hello"], []]
    heard = told(await world.events(state.id), ev.AgentHeard)
    assert [(event.how, len(event.ids)) for event in heard] == [("prompt", 1)]


async def test_k1_a_runtime_that_takes_messages_itself_waits_for_them_and_says_how_they_came(
    project: Project,
) -> None:
    got: list[str] = []

    async def act(host: Host) -> None:
        host.text("working")
        assert host.told() == []
        await host.wait_told()
        await host.wait_told()  # it is still not given
        got.extend(one.text for one in host.told())
        await host.heard([one.id for one in host.told()], "steer")
        assert host.told() == []

    world = AgentWorld(project, Acting(act, takes_messages=True))
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.AgentSession)
        receipt = await engine.say(execution.id, "work", "hurry", within=60.0)
        state = await execution.wait()
    assert state.status == "completed"
    assert got == ["hurry"]
    assert (receipt.how, receipt.text) == ("steer", "work has the message, in its running turn")


# -- usage ----------------------------------------------------------------------------------------


async def test_e1_the_usage_of_a_turn_that_follows_is_added_and_a_known_cost_stays_known(project: Project) -> None:
    async def begin(host: Host) -> AgentResult:
        host.usage(Usage(10, 1, usd=0.5))
        host.text("so far")
        await asyncio.wait_for(said.wait(), 60)
        return AgentResult("half", session="s1", usage=Usage(12, 1, usd=0.5))

    async def go_on(host: Host) -> AgentResult:
        host.usage(Usage(20, 2, usd=0.25))
        return AgentResult("whole", session="s1", usage=Usage(25, 3, usd=None))

    said = asyncio.Event()
    world = AgentWorld(project, Acting(begin, go_on))
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.UsageReported)
        await engine.say(execution.id, "work", "more")
        said.set()
        state = await execution.wait()
    assert state.steps["work"].output == "whole"
    reports = [(one.usage.tokens_in, one.usage.usd) for one in told(await world.events(state.id), ev.UsageReported)]
    assert (10, 0.5) in reports
    assert (32, 0.75) in reports
    (spent,) = await world.ledger.spent("execution")
    assert (spent.tokens_in, spent.tokens_out, spent.usd, spent.unknown) == (37, 4, 0.75, 1)


async def test_e1_an_agent_that_ends_with_the_reply_that_passed_its_budget_is_not_interrupted(project: Project) -> None:
    runner = ScriptedRunner([Turn().say("done").spend(tokens_in=1, tokens_out=1, usd=0.9)], name="cli")
    state = await AgentWorld(project, runner).run(plan(agent(budget=0.5)))
    assert (state.status, state.steps["work"].output) == ("completed", "done")
    assert runner.interrupts == []


async def test_e1_an_agent_that_goes_on_past_its_budget_is_interrupted_and_asked_about(project: Project) -> None:
    runner = ScriptedRunner([Turn().say("half").spend(tokens_in=1, tokens_out=1, usd=0.9).hang()], name="cli")
    state = await AgentWorld(project, runner).run(plan(agent(budget=0.5)))
    assert (state.status, state.paused_for) == ("paused", "budget")
    assert runner.interrupts == [f"{state.id}:work:1"]


class Keeping(ScriptedRunner):
    """A runtime whose conversations are copied for other machines."""

    def __init__(self) -> None:
        super().__init__([Turn(session="s1").say("done")], name="cli")
        self.kept: list[str] = []

    async def keep_session(self, place: SessionPlace) -> None:
        self.kept.append(place.session)


async def test_j2_the_conversation_of_an_agent_is_kept_for_other_machines_by_its_name(tmp_path: Path) -> None:
    runner = Keeping()
    step = {"id": "work", "agent": "developer", "prompt": "do work"}
    async with shared_world(tmp_path, runners=[runner], store=str(tmp_path / "store")) as world:
        state = await world.to_the_end(await world.begin(step), world.one)
    assert state.status == "completed"
    assert runner.kept == ["s1"]


async def test_h1_what_a_runtime_measures_of_its_processes_counts_for_its_step(project: Project) -> None:
    state, _ = await reported(project, lambda host: host.meter.add(cpu=7.5, memory=2**20))
    (step,) = snapshot(state)["steps"]
    assert (step["resources"]["cpu_s"], step["resources"]["memory_bytes"]) == (7.5, 2**20)
