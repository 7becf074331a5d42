"""Transcripts of agents are read from the journal, with what is too long for it from files (K8, J2)."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from windlass import Plan, Step
from windlass.blobs.folder import FolderBlobs
from windlass.core import events as ev
from windlass.core.state import State, fold
from windlass.core.transcript import TranscriptEntry
from windlass.engine.commit_writer import head_of
from windlass.engine.kept_files import KeptFiles
from windlass.engine.observer import Drivers, Observer
from windlass.engine.transcripts import Transcripts, read_below
from windlass.errors import UsageError
from windlass.ids import new_id
from windlass.testing import MemoryJournal

STEPS = [Step(id="write", agent="developer", prompt="Write it."), Step(id="tests", run="true")]
PLAN = Plan(steps=STEPS)
LONG = "all of it\n" * 500
TALK: list[ev.Event] = [
    ev.AttemptStarted(3.0, "write", 1, "agent", {}, "once"),
    ev.AgentBegan(4.0, "write", 1, "cli", "developer", "", "Write it."),
    ev.AgentActed(5.0, "write", 1, "files.write", "a.md", None, "c1", file="write/transcript/1-1.json"),
    ev.AgentReturned(6.0, "write", 1, "c1", "files.write", "all of", size=len(LONG), file="write/transcript/1-2.txt"),
]
"""The events 3 to 6."""
END: list[ev.Event] = [ev.AttemptFinished(7.0, "write", 1, "done"), ev.ExecutionFinished(8.0, "cancelled")]


class World:
    """A home with an execution whose agent has used a tool, with a long input and a long result."""

    def __init__(self, folder: Path, kept_files: KeptFiles | None = None) -> None:
        self.journal = MemoryJournal()
        self.execution = new_id()
        self.artifacts = folder / "artifacts"
        self.transcripts = Transcripts(Observer(Drivers(self.journal)), self.artifacts, kept_files)

    async def begin(self, *events: ev.Event) -> State:
        created = ev.ExecutionCreated(1.0, id=self.execution, plan=msgspec.Raw(PLAN.encoded), inputs={}, workdir="/")
        return await self.write(created, ev.ExecutionStarted(2.0, self.journal.enlist()), *events)

    async def write(self, *events: ev.Event) -> State:
        before = [entry.event for entry in await self.journal.read(self.execution)]
        state = fold([*before, *events])
        await self.journal.append(self.execution, len(before), events, head=head_of(state))
        return state

    def leave(self, input: bytes = b'{"text": "long"}', result: bytes = LONG.encode()) -> None:
        """Write the files that the events name."""
        folder = self.artifacts / self.execution / "write" / "transcript"
        folder.mkdir(parents=True)
        (folder / "1-1.json").write_bytes(input)
        (folder / "1-2.txt").write_bytes(result)

    def follow(self, step: str = "write", **options: Any) -> AsyncIterator[TranscriptEntry]:
        return self.transcripts.follow_transcript(self.execution, step, **options)

    async def read(self, step: str = "write", **options: Any) -> list[TranscriptEntry]:
        return await self.transcripts.transcript(self.execution, step, **options)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def told(entries: list[TranscriptEntry]) -> list[tuple[int, str]]:
    return [(entry.seq, entry.kind) for entry in entries]


ALL = [(4, "prompt"), (5, "call"), (6, "result"), (7, "end")]


async def test_k8_a_transcript_has_long_inputs_and_results_whole_and_cut_if_asked_for(world: World) -> None:
    await world.begin(*TALK, *END)
    world.leave()
    found = await world.read()
    assert told(found) == ALL
    assert (found[1].input, found[2].text) == ({"text": "long"}, LONG)
    assert [entry async for entry in world.follow()] == found
    cut = await world.read(whole=False)
    assert told(cut) == ALL
    assert (cut[1].input, cut[1].file) == (None, "write/transcript/1-1.json")
    assert (cut[2].text, cut[2].size) == ("all of", len(LONG))


async def test_k8_a_transcript_goes_on_after_an_entry(world: World) -> None:
    await world.begin(*TALK, *END)
    assert told(await world.read(after=5)) == ALL[2:]
    assert told([entry async for entry in world.follow(after=5)]) == ALL[2:]


async def test_k8_a_transcript_is_followed_until_the_execution_has_ended(world: World) -> None:
    await world.begin(*TALK)
    world.leave()
    following = world.follow()
    first = [await anext(following) for _ in range(3)]
    rest = asyncio.ensure_future(anext(following))
    await asyncio.sleep(0)
    assert not rest.done()
    await world.write(*END)
    assert told([*first, await rest]) == ALL
    assert [entry async for entry in following] == []


async def test_k8_an_entry_whose_file_is_gone_or_damaged_has_what_the_journal_has(world: World) -> None:
    await world.begin(*TALK, *END)
    cut = await world.read(whole=False)
    assert await world.read() == cut
    world.leave(input=b'{"text": "lo', result=b"all \xff")
    found = await world.read()
    assert (found[1], found[2].text) == (cut[1], "all \ufffd")


async def test_k8_a_step_without_an_agent_has_no_transcript_and_the_refusal_says_what_it_has(world: World) -> None:
    await world.begin()
    for ask in (world.read("tests"), anext(world.follow("tests"))):
        with pytest.raises(UsageError, match="has no agent, so it has no transcript") as refused:
            await ask
        assert refused.value.advice == (f"see its output: windlass logs {world.execution} --step tests",)


async def put_into_the_store(tmp_path: Path) -> World:
    """A person's machine, and an execution whose long texts another machine has put into the store."""
    (tmp_path / "share").mkdir()
    there, here = (KeptFiles(FolderBlobs(tmp_path / "share"), tmp_path / name) for name in ("there", "here"))
    world = World(tmp_path / "here", here)
    state = await world.begin(*TALK)
    world.artifacts = tmp_path / "there" / "artifacts"
    world.leave()
    kept = await there.keep(world.execution, state.steps["write"], 1, 6.5)
    assert kept is not None
    await world.write(kept, *END)
    return world


async def test_j2_a_transcript_has_the_long_texts_that_another_machine_put_into_the_store(tmp_path: Path) -> None:
    world = await put_into_the_store(tmp_path)
    assert (await world.read(whole=False))[2].text == "all of"
    assert not (tmp_path / "here").exists(), "nothing is brought for what nobody asked to see whole"
    assert (await world.read())[2].text == LONG


async def test_j2_a_transcript_that_is_followed_has_the_long_texts_of_another_machine(tmp_path: Path) -> None:
    world = await put_into_the_store(tmp_path)
    assert [one.text async for one in world.follow()][2] == LONG


def test_a_file_is_read_below_its_folder_alone_and_a_folder_is_no_file(tmp_path: Path) -> None:
    folder = tmp_path / "own"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "file").write_bytes(b"mine")
    (tmp_path / "secret").write_bytes(b"not mine")
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "inner").symlink_to(folder / "sub" / "file")
    os.mkfifo(folder / "pipe")
    assert read_below(folder, "sub/file") == b"mine"
    for name in ("../secret", str(tmp_path / "secret"), "link", "inner", "pipe", "sub", "", "missing"):
        assert read_below(folder, name) is None, name
    before = len(os.listdir("/dev/fd"))
    for _ in range(50):
        read_below(folder, "sub")
    assert len(os.listdir("/dev/fd")) < before + 50, "no folder stays open"
