"""Attempts whose files are kept in a store: each finds what the last one left, wherever that was (J2, K1).

A machine that has nothing of an execution is the same home without the files of its steps.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, NamedTuple

import pytest

import windlass
from windlass import AgentRequest, AgentResult, Call, Plan, Step, tool
from windlass.core import events as ev
from windlass.engine.engine import Engine
from windlass.errors import Category, Failure
from windlass.ports import Host, SessionPlace
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project

WORK = Step(id="work", agent="developer", prompt="Do it.", runtime="cli", retry=0)
PLAN = Plan(name="moves", steps=[WORK])


class Brought(NamedTuple):
    """A conversation that a runner was asked to go on with: its file, and whether it is the last one."""

    text: str
    current: bool


class Moving(ScriptedRunner):
    """An agent of a runtime that has its conversations elsewhere, and copies them to and from the step's folder."""

    def __init__(self, store: Path, *turns: Turn) -> None:
        super().__init__(turns, name="cli")
        self.store = store
        self.brought: list[Brought] = []
        self.leaves: Path | None = None
        """A file that a run leaves for people."""
        self.is_cut_off = self.is_full = False
        """Whether the store is out of reach from the next run on, and whether no conversation can be written here."""

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        if self.is_cut_off:
            self.store.rename(self.store.with_name("away"))
        if self.leaves is not None:
            self.leaves.parent.mkdir(parents=True, exist_ok=True)
            self.leaves.write_text("for people")
        return await super().run(request, host)

    async def keep_session(self, place: SessionPlace) -> None:
        place.scratch.mkdir(parents=True, exist_ok=True)
        (place.scratch / "conversation").write_text(f"{place.session} of run {len(self.requests)}")

    async def bring_session(self, place: SessionPlace, *, current: bool) -> bool:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        file = place.scratch / "conversation"
        self.brought.append(Brought(file.read_text() if file.exists() else "", current))
        return current


class World:
    """A home with a store, and an agent that fails until it is done."""

    def __init__(self, engine: Engine, runner: Moving) -> None:
        self.engine, self.runner = engine, runner
        self.id = ""

    async def begin(self) -> str:
        """Let attempt 1 fail."""
        self.id = await self.engine.create(PLAN)
        self.runner.leaves = self.engine.home / "artifacts" / self.id / "work" / "report"
        started = await self.engine.resume(self.id, hold=False)
        return (await started.wait()).status

    async def retry(self) -> Failure | None:
        """Have a person try the step again; returns why it failed."""
        await self.engine.retry(self.id, "work")
        return (await (await self.engine.resume(self.id)).wait()).steps["work"].error

    def move(self) -> None:
        """Go to a machine that has nothing of the execution."""
        home = self.engine.home
        shutil.rmtree(home / "executions" / self.id / "steps")
        shutil.rmtree(home / "executions" / self.id / "kept")
        shutil.rmtree(home / "artifacts" / self.id, ignore_errors=True)

    def reach_the_store_again(self) -> None:
        self.runner.is_cut_off = False
        self.runner.store.with_name("away").rename(self.runner.store)

    async def events(self, kind: type[ev.Event]) -> list[ev.Event]:
        return [entry.event for entry in await self.engine.journal.read(self.id) if isinstance(entry.event, kind)]

    async def kept(self) -> list[int]:
        """The attempts whose files are in the store, by the journal."""
        return [event.attempt for event in await self.events(ev.FilesKept) if isinstance(event, ev.FilesKept)]

    async def notes(self) -> str:
        events = await self.events(ev.OutputWritten)
        return "".join(one.text for one in events if isinstance(one, ev.OutputWritten) and one.stream == "note")


FAILS = Turn(session="s1").fail("not yet")
DONE = Turn(session="s1").done("done")


@pytest.fixture
async def world(project: Project) -> AsyncIterator[World]:
    (store := project.path / "share").mkdir()
    runner = Moving(store, FAILS, FAILS, FAILS, DONE)
    async with windlass.open(project.home, store=str(store), runners=[runner]) as engine:
        yield World(engine, runner)


async def test_j2_the_next_attempt_on_another_machine_is_brought_the_conversation(world: World) -> None:
    assert await world.begin() == "failed"
    world.move()
    await world.retry()
    assert world.runner.brought == [Brought("s1 of run 1", True)]
    await world.retry()
    assert len(world.runner.brought) == 1, "on the same machine it is there"
    world.move()
    assert await world.retry() is None
    assert world.runner.brought[1:] == [Brought("s1 of run 3", True)]
    assert await world.kept() == [1, 2, 3, 4]


async def test_k1_a_fork_on_another_machine_is_brought_the_originals_conversation(world: World) -> None:
    await world.begin()
    forked = await world.engine.fork(world.id, from_step="work")
    world.move()
    await (await world.engine.resume(forked)).wait()
    assert world.runner.brought == [Brought("s1 of run 1", True)]
    assert world.runner.requests[1].session == "s1"


async def test_j2_an_attempt_whose_files_cannot_be_put_into_the_store_says_where_they_are(world: World) -> None:
    world.runner.is_cut_off = True
    assert await world.begin() == "failed"
    said = f"the files of this attempt stay on {gethostname()}: the store {world.runner.store} cannot be used"
    assert said in await world.notes()
    assert await world.kept() == []


async def test_j2_an_attempt_that_lost_the_last_ones_files_has_its_own_kept_once_it_has_begun(world: World) -> None:
    await world.begin()
    world.runner.is_cut_off = True
    await world.retry()
    world.reach_the_store_again()
    world.move()  # the files of attempt 2 are lost, and the store has those of attempt 1
    world.runner.is_full = True
    failure = await world.retry()
    assert failure is not None
    assert "No space left on device" in failure.message
    assert world.runner.leaves is not None
    assert world.runner.leaves.read_text() == "for people", "what the store has for people is brought"
    assert await world.kept() == [1], "attempt 3 has not begun: the conversation is as it was"
    world.runner.is_full = False
    await world.retry()
    assert world.runner.brought == [Brought("", False)]
    assert await world.kept() == [1, 4]


async def test_j2_a_store_out_of_reach_is_trouble_that_passes_and_lost_files_are_for_a_person(world: World) -> None:
    await world.begin()
    world.move()
    away = world.runner.store.rename(world.runner.store.with_name("away"))
    advice = ("let every machine reach the store of the setting `store`",)
    said = f"{gethostname()} cannot bring the files of the step's last attempt: the store {world.runner.store}"
    failure = await world.retry()
    assert failure is not None
    assert (failure.category, failure.advice) == (Category.TRANSIENT, advice)
    assert failure.message == f"{said} cannot be used: the folder is not there"
    away.rename(world.runner.store)
    shutil.rmtree(world.runner.store / world.id)
    failure = await world.retry()
    assert failure is not None
    assert (failure.category, failure.advice) == (Category.CONFIGURATION, advice)
    assert failure.message.startswith(f"{said} has no ")
    assert len(world.runner.requests) == 1


async def test_j2_what_a_tool_left_for_people_is_kept_also_if_it_failed(project: Project) -> None:
    @tool
    async def draw(call: Call) -> str:
        call.artifacts.mkdir(parents=True)
        (call.artifacts / "picture").write_text("half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    (store := project.path / "share").mkdir()
    async with windlass.open(project.home, store=str(store), tools=[draw]) as engine:
        started = await engine.start(Plan(steps=[Step(id="a", tool="draw", retry=0)]))
        state = await started.wait()
        assert (state.status, state.steps["a"].kept is not None) == ("failed", True)
        picture = engine.home / "artifacts" / state.id / "a" / "picture"
        picture.unlink()
        await engine.bring_artifacts(state, "a")
        assert picture.read_text() == "half"
