"""What is kept of a step's files, and what is brought to another home: the same files, and nothing else (J2, K1)."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import msgspec
import pytest
from waiting import settled, wait_until_async

from windlass import Plan, Step
from windlass.blobs.folder import FolderBlobs
from windlass.core import events as ev
from windlass.core.state import State
from windlass.engine import kept_files as module
from windlass.engine.kept_files import AT_ONCE, KeptFile, KeptFiles, Manifest
from windlass.homes import prepare_home
from windlass.ports.blobs import BlobError, BlobMissing
from windlass.testing import Simulation

STEPS = [
    Step(id="work", agent="developer", prompt="Do it."),
    Step(id="each", foreach=[1, 2], agent="developer", prompt="Do {{ item }}."),
    Step(id="tests", run="true"),
]
PLAN = Plan(steps=STEPS)


class Store(FolderBlobs):
    """A folder that machines share, which notes what is put and got, and can hold up all but some of it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.puts: list[str] = []
        self.gets: list[str] = []
        self.waiting = 0
        self.never_held_up = ""
        self.open = asyncio.Event()
        self.open.set()

    async def put(self, execution: str, digest: str, data: bytes) -> None:
        self.puts.append(digest)
        await self._wait(digest)
        await super().put(execution, digest, data)

    async def get(self, execution: str, digest: str) -> bytes:
        self.gets.append(digest)
        await self._wait(digest)
        return await super().get(execution, digest)

    async def _wait(self, digest: str) -> None:
        if digest != self.never_held_up:
            self.waiting += 1
            await self.open.wait()
            self.waiting -= 1

    async def held_up(self) -> int:
        """Wait until as many parts are on their way as may be; returns how many there are after that."""
        await wait_until_async(lambda: self.waiting >= AT_ONCE)
        await settled()  # time for one more, if there were no bound
        return self.waiting


class World:
    """A store, and an execution whose attempts are begun on machines with homes of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "share").mkdir()
        self.store = Store(folder / "share")
        run = Simulation(PLAN)
        run.start()
        self.state: State = run.state
        for step in ("work", "each[0]", "each[1]", "tests"):
            self.stop(step)
        self.here, self.there = self.machine("here"), self.machine("there")

    def machine(self, name: str) -> KeptFiles:
        prepare_home(self.folder / name)
        return KeptFiles(self.store, self.folder / name)

    @property
    def id(self) -> str:
        return self.state.id

    def stop(self, step: str) -> None:
        self.state.apply(ev.AttemptStopped(1.0, step, self.state.steps[step].attempts, "paused"))

    def attempt(self, step: str = "work") -> None:
        """An agent does one more attempt, which is stopped."""
        number = self.state.steps[step].attempts + 1
        self.state.apply(ev.AttemptStarted(1.0, step, number, "agent", {}, "none"))
        self.state.apply(ev.AgentBegan(1.0, step, number, "cli", "developer", "", "Do it."))
        self.stop(step)

    def file(self, name: str, text: str, machine: str = "here") -> Path:
        """Write a file: `scratch/NAME` or `artifacts/NAME`."""
        path = self.path(name, machine)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def path(self, name: str, machine: str = "there") -> Path:
        label, _, rest = name.partition("/")
        home = self.folder / machine
        return (home / "executions" / self.id / "steps" if label == "scratch" else home / "artifacts" / self.id) / rest

    async def keep(self, step: str = "work", by: KeptFiles | None = None) -> ev.FilesKept:
        """Keep the files of the step's last attempt, and write that down."""
        found = self.state.steps[step]
        kept = await (by or self.here).keep(self.id, found, found.attempts, 2.0)
        assert kept is not None
        self.state.apply(kept)
        return kept

    async def bring(self, step: str = "work", to: KeptFiles | None = None) -> str:
        """Have the files there for the next attempt."""
        found = self.state.steps[step]
        return await (to or self.there).bring(self.id, found, found.attempts + 1)

    async def write_down(self, *files: tuple[str, bytes], step: str = "work") -> None:
        """Have the journal name a manifest with these files, which some other program made."""
        made = []
        for name, data in files:
            await self.store.put(self.id, digest := module._digest(data), data)
            made.append(KeptFile(name, len(data), (digest,)))
        manifest = msgspec.json.encode(Manifest(tuple(made)))
        await self.store.put(self.id, digest := module._digest(manifest), manifest)
        self.state.apply(ev.FilesKept(2.0, step, self.state.steps[step].attempts, digest, len(made), 1))

    def files(self, machine: str = "there") -> dict[str, str]:
        """The files of steps on a machine."""
        home = self.folder / machine
        places = [*(home / "executions").rglob("steps/**/*"), *(home / "artifacts").rglob("*")]
        found = [path for path in places if path.is_file()]
        return {path.relative_to(home).as_posix().replace(self.id, "ID"): path.read_text() for path in found}


@pytest.fixture
async def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_j2_files_of_an_agent_come_to_another_machine_as_they_are(world: World) -> None:
    world.attempt()
    for name, text in (
        ("scratch/work/conversation.jsonl", "{}\n"),
        ("scratch/work/deep/er/file", "deep"),
        ("scratch/work.files/notes", "of a tool"),
        ("artifacts/work/picture", "picture"),
        ("artifacts/work/empty", ""),
    ):
        world.file(name, text)
    for name in ("scratch/work2/file", "scratch/other/file", "artifacts/tests/file", "artifacts/wor/file"):
        world.file(name, "of another step")
    kept = await world.keep()
    assert (kept.step, kept.attempt, kept.files, kept.bytes) == ("work", 2, 5, 3 + 4 + 9 + 7)
    assert await world.bring() == "brought"
    assert world.files() == {
        "executions/ID/steps/work/conversation.jsonl": "{}\n",
        "executions/ID/steps/work/deep/er/file": "deep",
        "executions/ID/steps/work.files/notes": "of a tool",
        "artifacts/ID/work/picture": "picture",
        "artifacts/ID/work/empty": "",
    }
    path = world.path("scratch/work/deep/er/file")
    assert path.stat().st_mode & 0o777 == 0o600, "nobody else may read it"
    marks = world.folder / "there" / "executions" / world.id / "kept"
    assert [folder.stat().st_mode & 0o777 for folder in (path.parent, marks)] == [0o700, 0o700]
    assert await world.bring() == "here", "they are there by now"


async def test_j2_of_a_step_without_an_agent_its_artifacts_alone_are_kept(world: World) -> None:
    world.file("scratch/tests/file", "its own")
    world.file("artifacts/tests/report", "report")
    assert (await world.keep("tests")).files == 1
    await world.there.bring_artifacts(world.id, world.state.steps["tests"])
    assert world.files() == {"artifacts/ID/tests/report": "report"}


async def test_j2_of_a_step_without_files_nothing_is_put_into_the_store(world: World) -> None:
    world.path("scratch/work", "here").mkdir(parents=True)
    assert await world.here.keep(world.id, world.state.steps["work"], 1, 2.0) is None
    assert world.store.puts == []
    await world.there.bring_artifacts(world.id, world.state.steps["work"])
    assert world.store.gets == []


async def test_j2_links_pipes_and_files_that_are_not_whole_are_not_kept(world: World) -> None:
    world.attempt()
    secret = world.file("artifacts/other/secret", "not of this step")
    first = world.file("scratch/work/file", "mine")
    for link in ("link", "dangling"):
        (first.parent / link).symlink_to(secret if link == "link" else "nowhere")
    (first.parent / "folder").symlink_to(secret.parent)
    os.mkfifo(first.parent / "pipe")
    for name in (".file.brought", "worktree.new", "worktree.new.lock"):
        world.file(f"scratch/work/{name}", "half")
    world.file("scratch/work/worktree.bundle", "bundle")
    assert (await world.keep()).files == 2
    await world.bring()
    assert sorted(world.files()) == [f"executions/ID/steps/work/{name}" for name in ("file", "worktree.bundle")]


async def test_j2_an_agent_that_has_not_begun_needs_nothing(world: World) -> None:
    assert await world.bring() == "here"
    world.attempt()
    world.file("scratch/work/file", "mine")
    assert await world.bring(to=world.here) == "behind", "it has begun, and nobody has kept its files"
    assert await world.bring(to=world.here) == "behind"


async def test_j2_a_machine_that_has_the_last_attempts_files_is_brought_none(world: World) -> None:
    world.attempt()
    path = world.file("scratch/work/file", "one")
    await world.keep()
    path.write_text("two")  # as an agent leaves it that was killed
    world.store.gets.clear()
    assert await world.bring(to=world.here) == "here"
    assert world.store.gets == []
    world.attempt()
    assert await world.bring(to=world.here) == "here", "attempt 2 found its files here"
    assert path.read_text() == "two"


async def test_j2_where_the_last_attempts_files_were_not_kept_older_artifacts_are_brought_alone(world: World) -> None:
    world.attempt()
    world.file("scratch/work/conversation.jsonl", "{}")
    world.file("artifacts/work/picture", "picture")
    await world.keep()
    world.attempt()
    assert await world.bring() == "behind"
    assert world.files() == {"artifacts/ID/work/picture": "picture"}
    world.attempt()
    assert await world.bring() == "behind", "they are still not there"


async def test_j2_only_files_that_are_not_there_as_they_are_in_the_store_are_got(world: World) -> None:
    world.attempt()
    for name in ("same", "changed", "longer", "link", "missing"):
        world.file(f"artifacts/work/{name}", name)
    await world.keep()
    for name, text in (("same", "same"), ("changed", "another"), ("longer", "longer by far")):
        world.file(f"artifacts/work/{name}", text, "there")
    secret = world.file("artifacts/other/secret", "link", "there")
    world.path("artifacts/work/link").symlink_to(secret)
    world.store.gets.clear()
    await world.bring()
    assert len(world.store.gets) == 1 + 4, "the manifest, and four files"
    assert {name: world.path(f"artifacts/work/{name}").read_text() for name in ("same", "changed", "longer")} == {
        "same": "same",
        "changed": "changed",
        "longer": "longer",
    }
    assert not world.path("artifacts/work/link").is_symlink()
    assert secret.read_text() == "link"


async def test_j2_of_a_file_that_grows_the_last_part_alone_is_put_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART", 4)
    world.attempt()
    world.file("scratch/work/log", "aaaabbbbcc")
    assert (await world.keep()).bytes == 10
    assert len(world.store.puts) == 3 + 1, "three parts, and the manifest"
    assert await world.bring() == "brought"
    for by, machine, text in ((world.here, "here", "aaaabbbbccdd"), (world.there, "there", "aaaabbbbccddee")):
        world.store.puts.clear()
        path = world.file("scratch/work/log", text, machine)
        world.attempt()
        await world.keep(by=by)
        assert len(world.store.puts) == {"here": 1, "there": 2}[machine] + 1
        assert await world.bring(to=world.machine(f"third{machine}")) == "brought"
        assert world.path("scratch/work/log", f"third{machine}").read_text() == path.read_text() == text


async def test_j2_a_file_of_a_million_bytes_is_one_part(world: World) -> None:
    world.attempt()
    world.file("artifacts/work/large", "x" * 1_000_000)
    await world.keep()
    assert len(world.store.puts) == 2


async def test_j2_some_parts_are_on_their_way_at_the_same_time_and_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PART", 4)
    text = "".join(f"{number:04}" for number in range(3 * AT_ONCE + 1))
    world.attempt()
    world.file("artifacts/work/large", text)
    world.store.open.clear()
    keeping = asyncio.ensure_future(world.keep())
    assert await world.store.held_up() == AT_ONCE
    world.store.open.set()
    world.store.never_held_up = (await keeping).manifest
    world.store.open.clear()
    bringing = asyncio.ensure_future(world.bring())
    assert await world.store.held_up() == AT_ONCE
    world.store.open.set()
    assert await bringing == "brought"
    assert world.path("artifacts/work/large").read_text() == text


async def test_j2_bytes_that_are_not_what_was_put_are_refused(world: World) -> None:
    world.attempt()
    world.file("artifacts/work/file", "mine")
    kept = await world.keep()
    digest = next(put for put in world.store.puts if put != kept.manifest)
    (world.folder / "share" / world.id / digest).write_text("of a stranger")
    said = f"the store {world.folder / 'share'} has damaged bytes for {digest[:12]} of {world.id}"
    with pytest.raises(BlobError, match=said):
        await world.bring()
    assert "artifacts/ID/work/file" not in world.files()
    (world.folder / "share" / world.id / digest).write_text("mine")
    assert await world.bring() == "brought", "the next attempt tries again"


async def test_j2_a_list_of_files_that_leads_elsewhere_writes_nothing_there(world: World) -> None:
    world.attempt()
    await world.write_down(
        ("artifacts/work/../../../elsewhere", b"1"),
        ("artifacts/other/file", b"2"),
        ("artifacts//work/file", b"3"),
        ("artifacts/", b"4"),
        ("elsewhere/work/file", b"5"),
        (f"artifacts/{world.folder}/elsewhere", b"6"),
        ("artifacts/work/file", b"7"),
    )
    await world.bring()
    assert world.files() == {"artifacts/ID/work/file": "7"}
    assert not list(world.folder.rglob("elsewhere"))


async def test_j2_to_look_at_artifacts_brings_them_alone_and_is_no_attempt(world: World) -> None:
    world.attempt()
    world.file("scratch/work/conversation.jsonl", "{}")
    world.file("artifacts/work/picture", "picture")
    await world.keep()
    await world.there.bring_artifacts(world.id, world.state.steps["work"])
    assert world.files() == {"artifacts/ID/work/picture": "picture"}
    assert await world.bring() == "brought"
    assert "executions/ID/steps/work/conversation.jsonl" in world.files()


async def test_k4_bundles_of_a_step_and_of_its_items_are_brought_and_a_later_one_stays(world: World) -> None:
    steps = ("work", "each[0]", "each[1]")
    for step in steps:
        world.attempt(step)
        world.file(f"scratch/{step}/worktree.bundle", f"of {step}")
        world.file(f"scratch/{step}/conversation.jsonl", "{}")
        await world.keep(step)
    for step in ("work", "each"):
        await world.there.bring_bundles(world.id, world.state.steps[step])
    assert world.files() == {f"executions/ID/steps/{step}/worktree.bundle": f"of {step}" for step in steps}
    world.path("scratch/work/worktree.bundle", "here").unlink()
    await world.here.bring_bundles(world.id, world.state.steps["work"])
    assert world.path("scratch/work/worktree.bundle", "here").read_text() == "of work", "that of the same attempt"
    assert await world.bring("each[0]") == "brought"
    for step in steps[:2]:
        world.file(f"scratch/{step}/worktree.bundle", "later", "there")
    world.attempt("each[0]")
    await world.bring("each[0]")  # attempt 3 will have found its files there, and the store has those of attempt 2
    await world.there.bring_bundles(world.id, world.state.steps["each"])
    await world.there.bring_bundles(world.id, world.state.steps["work"])
    found = {step: world.path(f"scratch/{step}/worktree.bundle").read_text() for step in steps[:2]}
    assert found == {"work": "of work", "each[0]": "later"}


async def test_k4_a_merge_goes_on_without_a_bundle_that_the_store_has_lost(world: World) -> None:
    world.attempt()
    world.file("scratch/work/worktree.bundle", "bundle")
    await world.keep()
    await world.here.remove([world.id])
    with pytest.raises(BlobMissing):
        await world.bring()
    await world.there.bring_bundles(world.id, world.state.steps["work"])
    assert world.files() == {}


async def test_k1_a_forks_agent_is_brought_the_originals_last_files_once(world: World) -> None:
    events: list[ev.Event] = []
    for text in ("one", "two"):
        world.attempt()
        world.file("scratch/work/conversation.jsonl", text)
        events.append(await world.keep())
    assert await world.there.bring_conversation(world.id, "work", [ev.ControlRequested(1.0, "pause")]) == "here"
    assert world.files() == {}
    assert await world.there.bring_conversation(world.id, "work", events) == "brought"
    assert world.files() == {"executions/ID/steps/work/conversation.jsonl": "two"}
    world.store.gets.clear()
    assert await world.there.bring_conversation(world.id, "work", events) == "here"
    assert world.store.gets == []


async def test_k1_a_forks_step_is_brought_the_files_that_its_original_put_into_the_store(world: World) -> None:
    world.attempt()
    world.file("artifacts/work/picture", "picture")
    world.state.apply(msgspec.structs.replace(await world.keep(), origin=world.id))
    assert await world.there.bring("fork", world.state.steps["work"], 3) == "brought"
    assert world.files() == {"artifacts/fork/work/picture": "picture"}
    assert await world.bring() == "brought", "the original itself has had nothing brought"
