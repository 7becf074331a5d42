"""C8: memory is bounded by the kernel where a cgroup can be made, and watched as closely as may be where none can.

How a place for cgroups is found under version 2 is shown with folders that are laid out like one.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import process_trees as trees
import pytest
from process_probes import bearing, parent, ready
from waiting import wait_until_async

from windlass.process import Exit, ProcessLimits, ProcessLost, SpawnError, Supervisor, cgroups, containment
from windlass.process.pipes import PIPE

Env = dict[str, str]

MB = 1024 * 1024


def found() -> tuple[str, str]:
    """The folder for cgroups of commands, and why there is none. Asked in another process, for that forks."""
    said = subprocess.run([sys.executable, "-I", "-S", cgroups.__file__], capture_output=True, text=True, check=False)
    return said.stdout.strip().partition(", ")[2], said.stderr.strip()


PLACE, REASON = found()
bounded = pytest.mark.skipif(not PLACE or containment().mechanism != "subreaper", reason=f"no cgroups: {REASON}")

FILL = "x = []\nwhile True: x.append(bytearray(b'x' * 100_000))"
RUNAWAYS = {
    "leap": trees.python("x = b'x' * (1 << 34)"),
    "creep": trees.python(FILL),
    "many": trees.python(f"import os\nfor _ in range(9):\n    if os.fork() == 0: break\n{FILL}"),
    "daemon": trees.python(f"import os\nif os.fork(): os.wait()\nos.setsid()\n{FILL}"),
    "shared": trees.python("import mmap\nm = mmap.mmap(-1, 1 << 32)\nwhile True: m.write(b'x' * 100_000)"),
}
UNMAPPED = """
import os
file = open(f"/dev/shm/windlass-test-{os.getpid()}", "wb")
os.unlink(file.name)
while True: file.write(b"x" * 100_000)
"""
"""Fills memory through a file that no one maps: no look at processes sees it."""

INSIDE = trees.python(
    """
path = [line.rstrip().split(":", 2) for line in open("/proc/self/cgroup")]
print(next(where for _, kinds, where in path if "memory" in kinds.split(",") or not kinds).rpartition("/")[2])
"""
)
"""Says which cgroup it is in."""


def left() -> list[str]:
    """The cgroups of commands whose keeper is dead."""
    names = [name for name in os.listdir(PLACE) if name.startswith(cgroups.PREFIX)]
    return [name for name in names if not Path(f"/proc/{name.removeprefix(cgroups.PREFIX)}").exists()]


def limited_to(memory: int) -> ProcessLimits:
    return ProcessLimits(memory=memory * MB)


async def run(supervisor: Supervisor, argv: list[str], env: Env, memory: int, cwd: str = "/") -> tuple[Exit, str]:
    process = await supervisor.spawn(argv, cwd=cwd, env=env, limits=limited_to(memory))
    return await process.wait(), (await process.stdout.read()).decode()


@pytest.fixture
async def watched() -> AsyncIterator[Supervisor]:
    """As it is where no cgroup can be made."""
    if containment().mechanism != "subreaper":
        pytest.skip("this system has no subreapers")
    async with Supervisor(cgroups=False) as supervisor:
        yield supervisor


# --- what the kernel holds ------------------------------------------------------------------------


@bounded
@pytest.mark.parametrize("memory", [100, 200])
@pytest.mark.parametrize("kind", RUNAWAYS)
async def test_c8_a_runaway_keeps_within_a_tenth_of_its_memory(
    warded: Supervisor, env: Env, mark: str, kind: str, memory: int
) -> None:
    ended, _ = await run(warded, RUNAWAYS[kind], env, memory)
    assert ended == Exit(code=None, signal=signal.SIGKILL, killed=True, limit="memory")
    assert ended.used is not None
    assert memory * MB < ended.used.memory <= memory * MB * 1.1
    assert not bearing(mark)
    await wait_until_async(lambda: left() == [])


@bounded
async def test_c8_files_in_memory_count_and_their_writer_is_ended(warded: Supervisor, env: Env) -> None:
    ended, _ = await run(warded, trees.python(UNMAPPED), env, 64)
    assert ended == Exit(code=None, signal=signal.SIGKILL, killed=True, limit="memory")
    assert ended.used is not None
    assert 64 * MB < ended.used.memory <= 64 * MB * 1.1


@bounded
async def test_c8_a_death_at_the_limit_is_told_even_if_the_rest_of_the_command_ended_well(
    warded: Supervisor, env: Env
) -> None:
    script = [*trees.shell('"$0" -I -S -c "$1"; exit 0'), sys.executable, UNMAPPED]
    ended, _ = await run(warded, script, env, 64)
    assert ended == Exit(code=None, signal=signal.SIGKILL, killed=True, limit="memory")


@bounded
async def test_c8_the_command_is_in_its_cgroup_before_it_runs_and_its_keeper_is_not(
    warded: Supervisor, env: Env
) -> None:
    waits = [*trees.shell('"$0" "$@"; cat'), *INSIDE]  # until its input ends: else its keeper may be gone already
    process = await warded.spawn(waits, cwd="/", env=env, limits=limited_to(64), stdin=PIPE)
    assert process.stdin is not None
    name = (await process.stdout.readline()).decode().strip()
    keeper = parent(process.pid)
    assert name == f"{cgroups.PREFIX}{keeper}"
    assert name not in Path(f"/proc/{keeper}/cgroup").read_text()
    process.stdin.close()
    await process.wait()


# --- what it leaves as it is ----------------------------------------------------------------------


@bounded
async def test_c8_the_cache_of_files_is_not_held_against_a_command(
    warded: Supervisor, env: Env, tmp_path: Path
) -> None:
    script = trees.shell("head -c 150000000 /dev/zero > large && cat large large | wc -c")
    ended, said = await run(warded, script, env, 32, cwd=str(tmp_path))
    assert ended == Exit(code=0, signal=None, killed=False)
    assert said.strip() == "300000000"
    assert ended.used is not None
    assert ended.used.memory < 32 * MB * 0.9


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("exit 0", Exit(code=0, signal=None, killed=False)),
        ("exit 137", Exit(code=137, signal=None, killed=False)),
        ("kill -TERM $$", Exit(code=None, signal=signal.SIGTERM, killed=False)),
        ("kill -KILL $$", Exit(code=None, signal=signal.SIGKILL, killed=False)),
        ("sh -c 'kill -KILL $$'; exit 5", Exit(code=5, signal=None, killed=False)),
    ],
    ids=["ok", "137", "terminated", "killed", "child killed"],
)
async def test_c8_an_innocent_command_ends_as_it_does_without_limits(
    warded: Supervisor, env: Env, script: str, expected: Exit
) -> None:
    limits = ProcessLimits(memory=64 * MB, cpu=10, processes=20)
    for bounds in (None, limits):
        process = await warded.spawn(trees.shell(script), cwd="/", env=env, limits=bounds)
        assert await process.wait() == expected


async def test_c8_threads_that_reserve_more_than_the_limit_and_use_little_are_let_be(
    warded: Supervisor, env: Env
) -> None:
    source = "import threading as t\nall = [t.Thread(target=e.wait) for e in [t.Event()] for _ in range(20)]\n"
    source += "for one in all: one.daemon = True; one.start()\nprint(len(all))"
    ended, said = await run(warded, trees.python(source), env, 64)
    assert (ended.code, ended.limit, said) == (0, None, "20\n")


# --- what is left behind: nothing -----------------------------------------------------------------


@bounded
async def test_c8_its_cgroup_goes_with_a_command_that_ended_or_was_stopped_or_never_began(
    warded: Supervisor, env: Env
) -> None:
    assert (await run(warded, ["true"], env, 64))[0].code == 0
    await wait_until_async(lambda: left() == [])
    sleeper = await warded.spawn(trees.SLEEPER, cwd="/", env=env, limits=limited_to(64))
    await ready(sleeper)
    await sleeper.stop(grace=0)
    await wait_until_async(lambda: left() == [])
    with pytest.raises(SpawnError):
        await run(warded, ["no-such-program-anywhere"], env, 64)
    await wait_until_async(lambda: left() == [])


@bounded
async def test_c8_its_cgroup_goes_with_those_that_the_command_made_in_it(warded: Supervisor, env: Env) -> None:
    script = trees.shell(f"mkdir -p {PLACE}/{cgroups.PREFIX}$PPID/inner/most && echo made")
    ended, said = await run(warded, script, env, 64)
    assert (ended.code, said) == (0, "made\n")
    await wait_until_async(lambda: left() == [])


@bounded
async def test_c8_its_cgroup_goes_when_its_keeper_was_killed(warded: Supervisor, env: Env, mark: str) -> None:
    sleeper = await warded.spawn(trees.SLEEPER, cwd="/", env=env, limits=limited_to(64))
    await ready(sleeper)
    os.kill(parent(sleeper.pid), signal.SIGKILL)
    with pytest.raises(ProcessLost):
        await sleeper.wait()
    assert not bearing(mark)
    await wait_until_async(lambda: left() == [])


@pytest.fixture
def orphan() -> Iterator[Path]:
    """A cgroup whose keeper and warden have died."""
    dead = subprocess.Popen(["true"])
    dead.wait()
    folder = Path(PLACE, f"{cgroups.PREFIX}{dead.pid}")
    folder.mkdir()
    yield folder
    if folder.exists():
        folder.rmdir()


@bounded
async def test_c8_a_cgroup_that_was_left_behind_is_removed_by_the_next_who_needs_one(
    orphan: Path, warded: Supervisor, env: Env
) -> None:
    await run(warded, ["true"], env, 64)
    assert not orphan.exists()


# --- without cgroups ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RUNAWAYS)
async def test_c8_without_cgroups_a_runaway_is_seen_and_ended(
    watched: Supervisor, env: Env, mark: str, kind: str
) -> None:
    ended, _ = await run(watched, RUNAWAYS[kind], env, 100)
    assert ended == Exit(code=None, signal=signal.SIGKILL, killed=True, limit="memory")
    assert not bearing(mark)


async def test_c8_without_cgroups_a_command_stays_in_the_cgroup_of_the_engine(watched: Supervisor, env: Env) -> None:
    _, said = await run(watched, INSIDE, env, 100)
    assert not said.startswith(cgroups.PREFIX)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become someone else")
def test_c8_who_may_make_no_cgroup_is_told_so() -> None:
    source = """
import os
from windlass.process import cgroups
os.setgroups([]); os.setgid(65534); os.setuid(65534)
try: print(cgroups.find().folder)
except cgroups.NoCgroup as reason: print("none:", reason)
"""
    said = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True).stdout
    assert said.startswith("none: ")


# --- where there is a place, under version 2 ------------------------------------------------------


def laid_out(top: Path, *levels: tuple[str, str]) -> Path:
    """Folders in one another as cgroups are: what each hands down, and its bound of memory. Returns the innermost."""
    folder = top
    for name, (controllers, most) in enumerate(levels):
        folder = folder / str(name) if name else top
        folder.mkdir(exist_ok=True)
        (folder / "cgroup.subtree_control").write_text(f"{controllers}\n")
        (folder / "memory.max").write_text(f"{most}\n")
    return folder


def test_c8_the_nearest_cgroup_that_hands_memory_down_is_the_first_place(tmp_path: Path) -> None:
    ours = laid_out(tmp_path, ("cpu memory", "max"), ("memory pids", "max"), ("pids", "max"), ("", "max"))
    places = cgroups._handing_down(str(tmp_path), str(ours), "memory")
    assert [place.folder for place in places] == [str(tmp_path / "1"), str(tmp_path)]


def test_c8_no_command_is_let_out_of_a_bound_that_someone_else_set(tmp_path: Path) -> None:
    ours = laid_out(tmp_path, ("memory", "max"), ("memory", "1000000000"), ("", "max"))
    places = cgroups._handing_down(str(tmp_path), str(ours), "memory")
    assert [place.folder for place in places] == [str(tmp_path / "1")]


def test_c8_a_cgroup_outside_of_what_is_mounted_is_none_of_ours() -> None:
    assert cgroups._seen_from("/sys/fs/cgroup", "/", "/a/b") == "/sys/fs/cgroup/a/b"
    assert cgroups._seen_from("/sys/fs/cgroup", "/a", "/a/b") == "/sys/fs/cgroup/b"
    assert cgroups._seen_from("/sys/fs/cgroup", "/a", "/ab") is None
    assert cgroups._seen_from("/sys/fs/cgroup", "/", "/../a") is None
