"""Executions that several workers share: turns and attempts of one journal, from engines of their own (D2, D3, J2).

Each worker here has its own engine on the same file, as processes on several machines have it on one database.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from waiting import wait_until_async

import windlass
from windlass import AgentRequest, AgentResult, Host
from windlass.core import events as ev
from windlass.core.state import State, fold
from windlass.engine.commit_writer import head_of
from windlass.engine.engine import Engine
from windlass.engine.shared import SharedExecutions
from windlass.journal.stores import HomeStores
from windlass.testing import ScriptedRunner

DRIVER = "temporal"


class SharedWorld:
    """Two workers, and an engine for people."""

    def __init__(self, engines: list[Engine], workdir: Path) -> None:
        self.person, *others = engines
        self.one, self.two = (engine.shared(DRIVER, name) for engine, name in zip(others, ("one", "two"), strict=True))
        self.journal = self.person.journal
        self.workdir = workdir

    async def begin(self, *steps: dict[str, Any], **plan: Any) -> str:
        """Write an execution of these steps down, as begun by the workers."""
        made = windlass.Plan.model_validate({"name": "shared", "steps": list(steps), **plan})
        id = await self.person.create(made, workdir=self.workdir)
        state = await self.person.state(id)
        state.apply(started := ev.ExecutionStarted(self.person.clock.now(), DRIVER))
        await self.journal.append(id, 1, [started], head=head_of(state))
        return id

    async def events(self, id: str, *kinds: type) -> list[Any]:
        return [one.event for one in await self.journal.read(id) if isinstance(one.event, kinds)]

    async def until(self, id: str, *kinds: type, count: int = 1) -> list[Any]:
        """Wait until the journal has so many events of these kinds."""

        async def enough() -> list[Any]:
            found = await self.events(id, *kinds)
            return found if len(found) >= count else []

        return await wait_until_async(enough)

    async def to_the_end(self, id: str, worker: SharedExecutions) -> State:
        """Do everything that is to be done, one after the other."""
        while not (turn := await worker.turn(id, hold=False)).over:
            for due in turn.active:
                await worker.attempt(id, due.step, due.attempt)
        return await self.person.state(id)


@asynccontextmanager
async def shared_world(folder: Path, **given: Any) -> AsyncIterator[SharedWorld]:
    async with AsyncExitStack() as stack:
        home = folder / "home"
        engines = [await stack.enter_async_context(windlass.open(home, **given)) for _ in range(3)]
        yield SharedWorld(engines, folder)


async def test_j2_two_workers_take_turns_and_perform_steps_of_one_execution(tmp_path: Path) -> None:
    async with shared_world(tmp_path) as world:
        id = await world.begin({"id": "a", "run": "echo a"}, {"id": "b", "run": "echo b"})
        first = await world.one.turn(id, hold=False)
        assert [(due.step, due.attempt, due.tag) for due in first.active] == [("a", 1, ""), ("b", 1, "")]
        await asyncio.gather(world.one.attempt(id, "a", 1), world.two.attempt(id, "b", 1))
        assert (await world.two.turn(id, hold=False)).over
        placed = {event.step: event.worker for event in await world.events(id, ev.AttemptPlaced)}
        assert placed == {"a": "one", "b": "two"}
        assert (await world.person.state(id)).status == "completed"


async def test_j2_one_worker_performs_all_steps_that_a_turn_has_started(tmp_path: Path) -> None:
    async with shared_world(tmp_path) as world:
        steps = [{"id": f"s{n}", "run": f"echo s{n} >> ran"} for n in range(4)]
        id = await world.begin(*steps, {"id": "end", "needs": ["s0", "s3"], "run": "echo end >> ran"})
        state = await world.to_the_end(id, world.one)
        assert state.status == "completed"
        assert (tmp_path / "ran").read_text().split() == ["s0", "s1", "s2", "s3", "end"]


async def test_j2_a_tag_of_a_step_comes_with_its_attempt(tmp_path: Path) -> None:
    async with shared_world(tmp_path) as world:
        id = await world.begin({"id": "a", "run": "echo a", "tag": "gpu"})
        assert [due.tag for due in (await world.one.turn(id, hold=False)).active] == ["gpu"]


async def test_d2_an_attempt_that_has_an_outcome_is_not_performed_again(tmp_path: Path) -> None:
    async with shared_world(tmp_path) as world:
        id = await world.begin({"id": "a", "run": "echo a >> ran"}, {"id": "b", "needs": ["a"], "run": "true"})
        await world.one.turn(id, hold=False)
        await world.one.attempt(id, "a", 1)
        await world.two.attempt(id, "a", 1)
        await world.two.turn(id, hold=False)
        await world.two.attempt(id, "a", 1)
        assert (tmp_path / "ran").read_text() == "a\n"


async def test_d2_a_lost_attempt_is_repeated_and_its_late_result_refused(tmp_path: Path) -> None:
    async with shared_world(tmp_path) as world:
        id = await world.begin({"id": "a", "run": 'echo "$WINDLASS_ATTEMPT"; while [ ! -e go ]; do sleep 0.02; done'})
        await world.one.turn(id, hold=False)
        frozen = asyncio.create_task(world.one.attempt(id, "a", 1))
        await world.until(id, ev.AttemptPlaced)
        await world.two.attempt(id, "a", 1)  # Temporal gave it to another worker: the first one was silent
        lost = await world.events(id, ev.AttemptStopped)
        assert [(event.attempt, event.reason) for event in lost] == [(1, "lost")]
        (tmp_path / "go").touch()
        await frozen
        state = await world.to_the_end(id, world.two)
        assert [event.attempt for event in await world.events(id, ev.AttemptFinished)] == [2]
        assert state.status == "completed"


async def test_d2_a_lost_attempt_that_may_happen_only_once_is_put_to_a_person(tmp_path: Path) -> None:
    async with shared_world(tmp_path) as world:
        id = await world.begin({"id": "pay", "run": "sleep 60", "effect": "once"})
        await world.one.turn(id, hold=False)
        performed = asyncio.create_task(world.one.attempt(id, "pay", 1))
        await world.until(id, ev.AttemptPlaced)
        performed.cancel()
        await asyncio.wait({performed})
        await world.two.attempt(id, "pay", 1)
        assert (await world.two.turn(id, hold=False)).over
        state = await world.person.state(id)
        assert (state.status, state.paused_for) == ("paused", "decision")
        assert len(await world.events(id, ev.AttemptStarted)) == 1


async def test_d2_an_attempt_that_was_started_and_never_placed_is_performed(tmp_path: Path) -> None:
    async with shared_world(tmp_path) as world:
        id = await world.begin({"id": "pay", "run": "echo paid", "effect": "once"})
        await world.one.turn(id, hold=False)  # this worker is lost before it can pass the attempt on
        again = await world.two.turn(id, hold=False)
        assert [(due.step, due.attempt) for due in again.active] == [("pay", 1)]
        assert (await world.to_the_end(id, world.two)).status == "completed"


async def test_d3_an_interrupt_stops_attempts_on_every_worker(tmp_path: Path) -> None:
    async with shared_world(tmp_path) as world:
        id = await world.begin({"id": "a", "run": "sleep 60"}, {"id": "b", "run": "sleep 60"})
        await world.one.turn(id, hold=False)
        both = [asyncio.create_task(w.attempt(id, s, 1)) for w, s in ((world.one, "a"), (world.two, "b"))]
        await world.until(id, ev.AttemptPlaced, count=2)
        await world.journal.send(id, 0.0, {"kind": "interrupt", "now": True, "by": "ann"})
        await world.two.turn(id, hold=False)
        await asyncio.gather(*both)
        assert (await world.two.turn(id, hold=False)).over
        assert {event.reason for event in await world.events(id, ev.AttemptStopped)} == {"paused"}
        assert (await world.person.state(id)).status == "paused"
        assert await world.journal.receive() == []


async def test_d6_a_worker_that_leaves_hands_its_step_over(tmp_path: Path) -> None:
    async with shared_world(tmp_path) as world:
        id = await world.begin({"id": "a", "run": "test $WINDLASS_ATTEMPT = 2 || sleep 60"})
        await world.one.turn(id, hold=False)
        leaving = asyncio.Event()
        performed = asyncio.create_task(world.one.attempt(id, "a", 1, leaving.wait))
        await world.until(id, ev.AttemptPlaced)
        leaving.set()
        await performed
        assert (await world.to_the_end(id, world.two)).status == "completed"
        assert [event.worker for event in await world.events(id, ev.AttemptPlaced)] == ["one", "two"]


async def test_d6_another_driver_ends_the_turns_and_attempts_of_the_workers(tmp_path: Path) -> None:
    async with shared_world(tmp_path) as world:
        id = await world.begin({"id": "a", "run": "test $WINDLASS_ATTEMPT = 2 || sleep 60"})
        await world.one.turn(id, hold=False)
        performed = asyncio.create_task(world.one.attempt(id, "a", 1))
        await world.until(id, ev.AttemptPlaced)
        taken = await world.person.resume(id, take_over=True)
        await performed
        assert (await world.two.turn(id, hold=False)).over
        assert (await taken.wait()).status == "completed"


async def test_c6_an_approval_is_asked_and_answered_between_turns(tmp_path: Path) -> None:
    async with shared_world(tmp_path) as world:
        id = await world.begin({"id": "a", "run": "echo a", "approve": "always"})
        assert not (await world.one.turn(id, hold=True)).over
        assert [one.execution for one in await world.journal.questions()] == [id]
        asked = (await world.events(id, ev.ApprovalAsked))[0]
        answer = {"kind": "approve", "step": "a", "digest": asked.digest, "allow": True, "by": "ann"}
        await world.journal.send(id, 0.0, answer)
        state = await world.to_the_end(id, world.two)
        assert state.status == "completed"
        assert await world.journal.questions() == []


class Asking(ScriptedRunner):
    """An agent that asks a person in the middle of its work."""

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        said = await host.ask("Bash", {"command": "make"})
        return AgentResult("allowed" if said.allow else "denied")


async def test_c6_an_agents_question_on_one_worker_is_answered_from_anywhere(tmp_path: Path) -> None:
    told = {"notify": [{"to": "desktop", "on": "approval", "after": 3600}]}  # nobody is told while this test runs
    async with shared_world(tmp_path, runners=[Asking([], name="cli")], settings=told) as world:
        id = await world.begin({"id": "a", "agent": "developer", "prompt": "Build it.", "runtime": "cli"})
        await world.one.turn(id, hold=True)
        performed = asyncio.create_task(world.one.attempt(id, "a", 1))
        asked = (await world.until(id, ev.ApprovalAsked))[0]
        notes = [entry.note.key for entry in await HomeStores(tmp_path / "home").outbox().entries()]
        assert any("approval" in key for key in notes), notes
        assert [one.question.step for one in await world.journal.questions()] == ["a"]
        answer = {"kind": "approve", "step": "a", "digest": asked.digest, "allow": True, "by": "ann"}
        await world.journal.send(id, 0.0, answer)
        await world.two.turn(id, hold=True)
        await performed
        state = await world.to_the_end(id, world.two)
        assert (state.status, state.steps["a"].output) == ("completed", "allowed")
        assert await world.journal.questions() == []


async def test_d2_output_of_many_steps_at_once_is_in_the_journal_without_loss(tmp_path: Path) -> None:
    async with shared_world(tmp_path) as world:
        steps = [{"id": f"s{n}", "run": f"for i in 1 2 3 4 5; do echo s{n}-$i; sleep 0.05; done"} for n in range(6)]
        id = await world.begin(*steps, limits={"parallel": 6})
        turn = await world.one.turn(id, hold=False)
        workers = (world.one, world.two)
        await asyncio.gather(*(workers[n % 2].attempt(id, due.step, 1) for n, due in enumerate(turn.active)))
        assert (await world.one.turn(id, hold=False)).over
        said: dict[str, str] = {}
        for event in await world.events(id, ev.OutputWritten):
            said[event.step] = said.get(event.step, "") + event.text
        assert said == {f"s{n}": "".join(f"s{n}-{i}\n" for i in range(1, 6)) for n in range(6)}
        entries = await world.journal.read(id)
        assert fold([one.event for one in entries]).status == "completed"


async def test_j2_a_step_whose_folder_is_not_on_the_worker_says_so(tmp_path: Path) -> None:
    async with shared_world(tmp_path) as world:
        world.workdir = tmp_path / "elsewhere"
        world.workdir.mkdir()
        id = await world.begin({"id": "a", "run": "echo a"})
        world.workdir.rmdir()
        state = await world.to_the_end(id, world.one)
        error = state.steps["a"].error
        assert error is not None
        assert "does not exist on worker one" in error.message
