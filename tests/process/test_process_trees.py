"""A8: a command's process tree is owned, and nothing of it outlives its stop, its end or its engine.

Tests with `supervisor` hold for both mechanisms; those with `warded` need subreapers, and may expect more: when `wait`
and `stop` return, the tree is gone, so they look at once. Elsewhere two seconds are allowed.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import process_trees as trees
import pytest
from process_probes import asleep, bearing, children, command_line, descriptors, lives, parent, ready, wardens
from waiting import PATIENCE, settled, wait_until_async

from windlass.errors import Category
from windlass.process import Exit, Process, ProcessLost, SpawnError, Supervisor, containment
from windlass.process.warden_client import WardenClient

Env = dict[str, str]

ENGINE = Path(__file__).with_name("process_engine.py")


# --- what a command gets, and what comes back -----------------------------------------------------


async def test_a_command_returns_its_code_and_both_outputs(supervisor: Supervisor, env: Env) -> None:
    process = await supervisor.spawn(trees.shell("echo out; echo err >&2; exit 3"), cwd="/", env=env)
    assert await process.wait() == Exit(code=3, signal=None, killed=False)
    assert (await process.stdout.read(), await process.stderr.read()) == (b"out\n", b"err\n")


async def test_a_death_by_signal_is_told_from_an_exit_code(supervisor: Supervisor, env: Env) -> None:
    process = await supervisor.spawn(trees.shell("kill -SEGV $$"), cwd="/", env=env)
    assert await process.wait() == Exit(code=None, signal=signal.SIGSEGV, killed=False)


async def test_a_command_reads_the_stdin_it_was_given_and_nothing_otherwise(supervisor: Supervisor, env: Env) -> None:
    text = os.urandom(3_000_000)  # many times what a pipe holds, in both directions at once
    process = await supervisor.spawn(["cat"], cwd="/", env=env, stdin=text)
    assert await process.stdout.read() == text
    assert (await process.wait()).code == 0
    process = await supervisor.spawn(["cat"], cwd="/", env=env)
    assert (await process.wait()).code == 0
    assert await process.stdout.read() == b""


async def test_a_command_need_not_read_its_stdin(supervisor: Supervisor, env: Env) -> None:
    process = await supervisor.spawn(["true"], cwd="/", env=env, stdin=bytes(3_000_000))
    assert (await process.wait()).code == 0


async def test_output_that_no_one_reads_does_not_hold_up_the_end(supervisor: Supervisor, env: Env) -> None:
    script = trees.python("import os; os.write(1, b'x' * 60_000); os.write(2, b'y' * 60_000)")
    process = await supervisor.spawn(script, cwd="/", env=env, limit=1000)
    assert (await process.wait()).code == 0
    assert (len(await process.stdout.read()), len(await process.stderr.read())) == (60_000, 60_000)


async def test_a_reader_that_falls_behind_slows_the_command_down(supervisor: Supervisor, env: Env, mark: str) -> None:
    script = trees.shell("echo ready; dd if=/dev/zero bs=1000000 count=20 2>/dev/null")
    process = await supervisor.spawn(script, cwd="/", env=env, limit=1000)
    await ready(process)
    waiting = asyncio.create_task(process.wait())
    await wait_until_async(lambda: asleep(mark, "dd"), "it sleeps until it may write on")
    assert not waiting.done()
    assert len(await process.stdout.read()) == 20_000_000
    assert (await waiting).code == 0


async def test_a_command_can_close_its_output_before_it_ends(supervisor: Supervisor, env: Env) -> None:
    process = await supervisor.spawn(trees.shell(f"echo out; exec >&- 2>&-; {trees.FOREVER}"), cwd="/", env=env)
    async with asyncio.timeout(PATIENCE):
        assert (await process.stdout.read(), await process.stderr.read()) == (b"out\n", b"")
    assert (await process.stop(grace=PATIENCE)).signal == signal.SIGTERM


async def test_the_environment_is_exactly_as_given(supervisor: Supervisor) -> None:
    process = await supervisor.spawn(["/usr/bin/env"], cwd="/", env={"ONE": "1", "UMLAUT": "ä\nö", "EMPTY": ""})
    await process.wait()
    assert sorted((await process.stdout.read()).decode().split("\n")) == sorted(
        ["ONE=1", "UMLAUT=ä", "ö", "EMPTY=", ""]
    )


async def test_a_command_starts_in_its_directory(supervisor: Supervisor, env: Env, tmp_path: Path) -> None:
    process = await supervisor.spawn(["/bin/pwd"], cwd=str(tmp_path), env=env)
    await process.wait()
    assert (await process.stdout.read()).decode().strip() == str(tmp_path.resolve())


async def test_no_descriptor_but_the_standard_streams_reaches_a_command(supervisor: Supervisor, env: Env) -> None:
    read, write = os.pipe()
    os.set_inheritable(write, True)
    try:
        script = trees.python(
            "import os; found = os.listdir('/proc/self/fd')\n"  # and so the descriptor that listed them, closed now
            "print(sorted(fd for fd in found if os.path.exists(f'/proc/self/fd/{fd}')))"
        )
        process = await supervisor.spawn(script, cwd="/", env=env)
        await process.wait()
        assert (await process.stdout.read()).decode() == "['0', '1', '2']\n"
    finally:
        os.close(read)
        os.close(write)


async def test_a_command_starts_with_default_signals_and_none_blocked(env: Env) -> None:
    ignored = [signal.SIGHUP, signal.SIGINT, signal.SIGPIPE, signal.SIGUSR1, signal.SIGRTMIN]
    before = {number: signal.signal(number, signal.SIG_IGN) for number in ignored}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGTERM})
    try:
        async with Supervisor("subreaper") as supervisor:
            process = await supervisor.spawn(["grep", "^Sig[BI]", "/proc/self/status"], cwd="/", env=env)
            await process.wait()
            states = [int(line.split()[1], 16) for line in (await process.stdout.read()).splitlines()]
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
    ours_to_set = sum(1 << number - 1 for number in signal.valid_signals())  # glibc keeps 32 and 33 to itself
    assert [state & ours_to_set for state in states] == [0, 0]


# --- what cannot be started -----------------------------------------------------------------------


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """Files that are not quite programs."""
    (tmp_path / "plain").write_text("text")
    (tmp_path / "unreadable-format").write_bytes(b"\x00\x01\x02")
    (tmp_path / "orphan").write_text("#!/nowhere/interpreter\n")
    for name in ("unreadable-format", "orphan"):
        (tmp_path / name).chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("argv", "number", "category", "text"),
    [
        (["no-such-program"], errno.ENOENT, Category.CONFIGURATION, "PATH has no such program"),
        (["./missing"], errno.ENOENT, Category.CONFIGURATION, "there is no such file"),
        (["./orphan"], errno.ENOENT, Category.CONFIGURATION, "interpreter that its first line"),
        (["./plain"], errno.EACCES, Category.PERMISSION, "not executable"),
        (["./unreadable-format"], errno.ENOEXEC, Category.CONFIGURATION, "not a program for this system"),
        (["true", "x" * 3_000_000], errno.E2BIG, Category.LOGIC, "too long"),
        (["true", "a\0b"], errno.EINVAL, Category.LOGIC, "NUL"),
        ([], errno.EINVAL, Category.LOGIC, "empty command"),
    ],
)
async def test_what_cannot_be_started_says_why(
    supervisor: Supervisor, env: Env, programs: Path, argv: list[str], number: int, category: Category, text: str
) -> None:
    with pytest.raises(SpawnError, match=text) as caught:
        await supervisor.spawn(argv, cwd=str(programs), env=env)
    assert (caught.value.errno, caught.value.category) == (number, category)


async def test_a_missing_working_directory_is_told_from_a_missing_program(
    supervisor: Supervisor, env: Env, tmp_path: Path
) -> None:
    with pytest.raises(SpawnError, match=f"working directory {tmp_path}/gone cannot be entered") as caught:
        await supervisor.spawn(["true"], cwd=f"{tmp_path}/gone", env=env)
    assert caught.value.errno == errno.ENOENT


async def test_a_variable_that_cannot_be_named_so_is_refused(supervisor: Supervisor) -> None:
    with pytest.raises(SpawnError, match="cannot name a variable"):
        await supervisor.spawn(["true"], cwd="/", env={"A=B": "c"})


async def test_a_command_of_a_megabyte_is_handed_over(supervisor: Supervisor, env: Env) -> None:
    arguments = ["x" * 100_000] * 10
    process = await supervisor.spawn([*trees.shell("echo $#"), "sh", *arguments], cwd="/", env=env)
    assert (await process.wait()).code == 0
    assert (await process.stdout.read()) == b"10\n"


# --- stopping -------------------------------------------------------------------------------------


async def test_a_stopped_command_may_clean_up_and_choose_its_code(supervisor: Supervisor, env: Env) -> None:
    script = trees.shell("trap 'echo clean; exit 7' TERM; echo ready; while :; do sleep 0.01; done")
    process = await supervisor.spawn(script, cwd="/", env=env)
    await ready(process)
    assert await process.stop(grace=PATIENCE) == Exit(code=7, signal=None, killed=True)
    assert await process.stdout.read() == b"clean\n"


async def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(
    supervisor: Supervisor, env: Env, mark: str
) -> None:
    process = await supervisor.spawn(trees.STUBBORN, cwd="/", env=env)
    await ready(process)
    began = time.monotonic()
    assert await process.stop(grace=0.3) == Exit(code=None, signal=signal.SIGKILL, killed=True)
    assert 0.3 <= time.monotonic() - began < 60
    await wait_until_async(lambda: bearing(mark) == [])


async def test_stop_without_grace_kills_at_once(supervisor: Supervisor, env: Env, mark: str) -> None:
    process = await supervisor.spawn(trees.SLEEPER, cwd="/", env=env)
    await ready(process)
    assert await process.stop(grace=0) == Exit(code=None, signal=signal.SIGKILL, killed=True)
    await wait_until_async(lambda: bearing(mark) == [])


async def test_a_later_stop_can_shorten_the_grace_but_not_lengthen_it(supervisor: Supervisor, env: Env) -> None:
    process = await supervisor.spawn(trees.STUBBORN, cwd="/", env=env)
    await ready(process)
    async with asyncio.timeout(PATIENCE):
        exits = await asyncio.gather(process.stop(60), process.stop(0.1), process.stop(60), process.wait())
    assert set(exits) == {Exit(code=None, signal=signal.SIGKILL, killed=True)}


async def test_stop_after_the_end_returns_how_it_ended(supervisor: Supervisor, env: Env) -> None:
    process = await supervisor.spawn(["false"], cwd="/", env=env)
    assert await process.wait() == await process.stop(grace=1) == Exit(code=1, signal=None, killed=False)


async def test_a_setsid_child_is_gone_after_stop(supervisor: Supervisor, env: Env, mark: str) -> None:
    """A8, where killing the process group is not enough."""
    process = await supervisor.spawn(trees.SETSID, cwd="/", env=env)
    await ready(process)
    await process.stop(grace=1)
    await wait_until_async(lambda: bearing(mark) == [])


async def test_a_double_forked_daemon_is_gone_after_stop(warded: Supervisor, env: Env, mark: str) -> None:
    """A8, where walking from parent to child is not enough."""
    process = await warded.spawn(trees.DAEMON, cwd="/", env=env)
    await ready(process)
    await wait_until_async(lambda: len(bearing(mark)) == 2, "the process in between has ended")
    await process.stop(grace=1)
    assert bearing(mark) == []


async def test_a_daemon_gets_sigterm_and_its_grace_too(warded: Supervisor, env: Env, tmp_path: Path) -> None:
    bye = tmp_path / "bye"
    daemon = f"trap 'echo bye > {bye}; exit' TERM; echo ready; while :; do sleep 0.01; done"
    process = await warded.spawn(trees.shell(f'setsid sh -c "{daemon}" & {trees.FOREVER}'), cwd="/", env=env)
    await ready(process)
    await process.stop(grace=PATIENCE)
    assert bye.read_text() == "bye\n"


async def test_a_frozen_child_is_ended_politely(warded: Supervisor, env: Env) -> None:
    script = trees.shell("trap 'exit 5' TERM; echo ready; while :; do sleep 0.01; done")
    process = await warded.spawn(script, cwd="/", env=env)
    await ready(process)
    os.kill(process.pid, signal.SIGSTOP)
    assert await process.stop(grace=PATIENCE) == Exit(code=5, signal=None, killed=True)


# --- what a command leaves behind -----------------------------------------------------------------


async def test_a_background_child_does_not_outlive_its_step(supervisor: Supervisor, env: Env, mark: str) -> None:
    process = await supervisor.spawn(trees.shell("sleep 1000 & echo started; exit 4"), cwd="/", env=env)
    assert await process.wait() == Exit(code=4, signal=None, killed=False)
    assert await process.stdout.read() == b"started\n"
    await wait_until_async(lambda: bearing(mark) == [])


async def test_a_daemon_left_behind_with_stdout_is_gone_and_does_not_hang_the_reader(
    warded: Supervisor, env: Env, mark: str
) -> None:
    process = await warded.spawn(trees.DAEMON_LEFT_BEHIND, cwd="/", env=env)
    async with asyncio.timeout(PATIENCE):
        await process.stdout.read()
        assert (await process.wait()).code == 0
    assert bearing(mark) == []


async def test_without_subreapers_a_daemon_escapes_but_does_not_hang_the_reader(env: Env, mark: str) -> None:
    """The limit that `containment` admits."""
    async with Supervisor("process group") as supervisor:
        process = await supervisor.spawn(trees.DAEMON_LEFT_BEHIND, cwd="/", env=env)
        async with asyncio.timeout(PATIENCE):
            await process.stdout.read()
            assert (await process.wait()).code == 0
    await wait_until_async(lambda: len(bearing(mark)) == 1, "the process in between has ended")
    assert len(bearing(mark)) == 1, "and the daemon has not"


@pytest.mark.parametrize("bomb", ["BROAD_BOMB", "DEEP_BOMB", "HOPPER"])
async def test_a_fork_bomb_is_gone_after_stop(warded: Supervisor, env: Env, mark: str, bomb: str) -> None:
    process = await warded.spawn(getattr(trees, bomb), cwd="/", env=env)
    await ready(process)
    await process.stop(grace=0)
    assert bearing(mark) == []


# --- who else may die -----------------------------------------------------------------------------


@contextmanager
def engine(mark: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """An engine in a process of its own, with all kinds of trees running."""
    process = subprocess.Popen(
        [sys.executable, str(ENGINE), mark, *options], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        with suppress(ProcessLookupError):  # the test has ended it
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def owned_by(process: subprocess.Popen[str], mark: str) -> list[int]:
    """Its warden, the keepers, and all that they keep."""
    (warden,) = [pid for pid in children(process.pid) if "warden.py" in command_line(pid)]
    return [warden, *children(warden), *bearing(mark)]


@pytest.mark.parametrize("options", [[], ["forked"], ["idle"], ["idle", "forked"]])
async def test_nothing_survives_a_killed_engine_by_two_seconds(mark: str, options: list[str]) -> None:
    """A8: crash of the engine. With `forked`, someone else still holds the engine's sockets."""
    with engine(mark, *options) as process:
        if "idle" in options:
            await wait_until_async(lambda: len(owned_by(process, mark)) == 1, "the warden has buried the keepers")
        owned = owned_by(process, mark)
        assert "idle" in options or len(owned) > 2 * len(trees.ALL)
        process.kill()
        await wait_until_async(lambda: not any(map(lives, owned)) and bearing(mark) == [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_nothing_survives_an_interrupted_engine(mark: str, number: signal.Signals) -> None:
    """A8: interrupt. Ctrl-C signals the engine's whole group, in which the warden is not."""
    with engine(mark) as process:
        owned = owned_by(process, mark)
        os.killpg(process.pid, number)
        await wait_until_async(lambda: not any(map(lives, owned)) and bearing(mark) == [])
        assert process.wait() != 0


@contextmanager
def unreapable(pid: int) -> Iterator[None]:
    """Trace a process, so that even when it is killed no one but us can be told that it is dead."""
    ptrace_seize, error = 0x4206, -1
    if ctypes.CDLL(None).ptrace(ptrace_seize, pid, None, None) == error:
        pytest.skip("ptrace is not allowed here")
    try:
        yield
    finally:
        os.waitpid(pid, 0)


@pytest.mark.parametrize("killed_too", [None, "its keeper"])
async def test_what_cannot_be_killed_is_reported_by_pid_and_does_not_hang_wait(
    warded: Supervisor, env: Env, killed_too: str | None
) -> None:
    process = await warded.spawn(trees.SLEEPER, cwd="/", env=env)
    await ready(process)
    with unreapable(process.pid):
        if killed_too:
            os.kill(parent(process.pid), signal.SIGKILL)
        with pytest.raises(ProcessLost, match=f"SIGKILL did not end these.*{process.pid}"):
            await process.stop(grace=0)
    await wait_until_async(lambda: not lives(process.pid) and children(wardens()[0]) == [])


async def test_a_killed_warden_is_reported_replaced_and_survived_by_no_one(
    warded: Supervisor, env: Env, mark: str
) -> None:
    running = [await warded.spawn(argv, cwd="/", env=env) for argv in trees.ALL]
    for process in running:
        await ready(process)
    (warden,) = wardens()
    os.kill(warden, signal.SIGKILL)
    for process in running:
        with pytest.raises(ProcessLost, match=f"warden .pid {warden}. was killed by SIGKILL"):
            await process.wait()
    assert bearing(mark) == []
    assert (await (await warded.spawn(["true"], cwd="/", env=env)).wait()).code == 0
    assert len(wardens()) == 1


@pytest.mark.parametrize("tree", ["DAEMON", "DEEP_BOMB"])
async def test_a_killed_keeper_is_reported_and_the_warden_kills_what_it_left(
    warded: Supervisor, env: Env, mark: str, tree: str
) -> None:
    bystander = await warded.spawn(trees.SLEEPER, cwd="/", env=env)
    await ready(bystander)
    process = await warded.spawn(getattr(trees, tree), cwd="/", env=env)
    await ready(process)
    os.kill(parent(process.pid), signal.SIGKILL)
    with pytest.raises(ProcessLost, match="its keeper was killed"):
        await process.wait()
    assert bearing(mark) == [bystander.pid]


async def test_a_step_cannot_escape_by_freezing_its_keeper(warded: Supervisor, env: Env, mark: str) -> None:
    process = await warded.spawn(trees.shell(f"kill -STOP $PPID; echo ready; {trees.FOREVER}"), cwd="/", env=env)
    await ready(process)
    async with asyncio.timeout(PATIENCE):
        await process.stop(grace=1)
    assert bearing(mark) == []


async def test_signals_do_not_end_wardens_and_keepers(warded: Supervisor, env: Env) -> None:
    """A service manager that stops the engine signals everyone; steps must end by the engine's order even then."""
    process = await warded.spawn(trees.SLEEPER, cwd="/", env=env)
    await ready(process)
    (warden,) = wardens()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGUSR1):
        os.kill(warden, number)
        os.kill(parent(process.pid), number)
    after = await warded.spawn(["true"], cwd="/", env=env)
    assert (await after.wait()).code == 0
    assert wardens() == [warden]
    assert await process.stop(grace=PATIENCE) == Exit(code=None, signal=signal.SIGTERM, killed=True)


async def test_a_warden_is_in_a_session_of_its_own(warded: Supervisor, env: Env) -> None:
    process = await warded.spawn(["true"], cwd="/", env=env)
    await process.wait()
    (warden,) = wardens()
    assert os.getsid(warden) == warden


async def test_a_keeper_that_fails_says_why() -> None:
    """What goes wrong in the other process is not lost: here, a request that it cannot read."""
    line = WardenClient()
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            line.hand_over(theirs, [theirs.fileno()] * 3)
        ours.sendall((3).to_bytes(8, "big") + b"???")
        report = await asyncio.to_thread(ours.makefile("rb").read)
    await line.close()
    assert report.startswith(b"error ")
    assert b"ValueError: bad marshal data" in report


# --- cancelling and closing -----------------------------------------------------------------------


async def test_a_cancelled_spawn_leaves_nothing_running(supervisor: Supervisor, env: Env, mark: str) -> None:
    warm = await supervisor.spawn(["true"], cwd="/", env=env)
    await warm.wait()
    before = descriptors()
    for turns in (*range(16), *range(20, 400, 40)):  # so that the cancellation falls on every point of the way
        spawning = asyncio.create_task(supervisor.spawn(trees.SLEEPER, cwd="/", env=env, stdin=bytes(200_000)))
        for _ in range(turns):
            await asyncio.sleep(0)
        if spawning.cancel():
            with pytest.raises(asyncio.CancelledError):
                await spawning
        else:
            await (await spawning).stop(grace=0)
    await wait_until_async(lambda: bearing(mark) == [] and descriptors() == before)


async def test_a_cancelled_wait_leaves_the_command_owned(supervisor: Supervisor, env: Env, mark: str) -> None:
    process = await supervisor.spawn(trees.SLEEPER, cwd="/", env=env)
    await ready(process)
    waiting = asyncio.create_task(process.wait())
    await settled()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert bearing(mark) == [process.pid]
    assert (await process.stop(grace=PATIENCE)).signal == signal.SIGTERM


async def test_close_kills_everything_and_may_be_called_again(supervisor: Supervisor, env: Env, mark: str) -> None:
    running = [await supervisor.spawn(argv, cwd="/", env=env) for argv in (trees.SLEEPER, trees.SETSID, trees.STUBBORN)]
    for process in running:
        await ready(process)
    await supervisor.close()
    await wait_until_async(lambda: bearing(mark) == [])
    assert wardens() == []
    assert {(await process.wait()).killed for process in running} == {True}
    await supervisor.close()
    with pytest.raises(RuntimeError, match="closed"):
        await supervisor.spawn(["true"], cwd="/", env=env)


async def test_close_ends_spawns_that_are_under_way(supervisor: Supervisor, env: Env, mark: str) -> None:
    spawning = [asyncio.create_task(supervisor.spawn(trees.SLEEPER, cwd="/", env=env)) for _ in range(50)]
    await asyncio.sleep(0)
    await supervisor.close()
    for outcome in await asyncio.gather(*spawning, return_exceptions=True):
        if isinstance(outcome, Process):
            assert (await outcome.wait()).killed
        else:
            assert isinstance(outcome, ProcessLost | RuntimeError)
    await wait_until_async(lambda: bearing(mark) == [])
    assert wardens() == []


# --- many -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [60, pytest.param(200, marks=pytest.mark.soak)])
async def test_hundreds_of_commands_run_at_once(supervisor: Supervisor, env: Env, mark: str, count: int) -> None:
    """Without keepers each of them looks through all processes."""
    running = await asyncio.gather(*(supervisor.spawn(trees.SLEEPER, cwd="/", env=env) for _ in range(count)))
    await asyncio.gather(*(ready(process) for process in running))
    assert len(bearing(mark)) == count
    exits = await asyncio.gather(*(process.stop(grace=PATIENCE) for process in running))
    assert set(exits) == {Exit(code=None, signal=signal.SIGTERM, killed=True)}
    await wait_until_async(lambda: bearing(mark) == [])


async def test_two_hundred_commands_leave_no_descriptor_and_no_zombie(supervisor: Supervisor, env: Env) -> None:
    async def run() -> None:
        process = await supervisor.spawn(trees.shell("echo out; sleep 1000 &"), cwd="/", env=env, stdin=b"in")
        assert (await process.wait()).code == 0

    await run()
    before = descriptors()
    for _ in range(10):
        await asyncio.gather(*(run() for _ in range(20)))
    assert descriptors() == before
    assert [pid for pid in children(os.getpid()) if not lives(pid)] == []
    await wait_until_async(lambda: not [pid for warden in wardens() for pid in children(warden)], "none is left")


@contextmanager
def descriptor_limit(limit: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


async def test_running_out_of_descriptors_is_a_clear_error_and_leaks_none(supervisor: Supervisor, env: Env) -> None:
    await (await supervisor.spawn(["true"], cwd="/", env=env)).wait()
    before = descriptors()
    taken = {int(name.split()[0]) for name in before}
    free = [number for number in range(1000) if number not in taken]
    refusals = []
    for spare in range(8):
        with descriptor_limit(free[spare]):
            try:
                process = await supervisor.spawn(["true"], cwd="/", env=env, stdin=b"in")
            except SpawnError as error:
                refusals.append((error.errno, error.category))
            else:
                await process.wait()
    assert set(refusals) == {(errno.EMFILE, Category.RESOURCE)}
    assert descriptors() == before


async def test_a_warden_out_of_descriptors_refuses_and_recovers(env: Env, mark: str) -> None:
    ours = {int(name.split()[0]) for name in descriptors()}
    limit = max(40, [number for number in range(1000) if number not in ours][30])  # the warden inherits it
    with descriptor_limit(limit):
        supervisor = Supervisor("subreaper")
        await (await supervisor.spawn(["true"], cwd="/", env=env)).wait()
    async with supervisor:
        spawning = (supervisor.spawn(trees.SLEEPER, cwd="/", env=env) for _ in range(limit + 20))
        outcomes = await asyncio.gather(*spawning, return_exceptions=True)
        refusals = [outcome for outcome in outcomes if isinstance(outcome, SpawnError)]
        running = [outcome for outcome in outcomes if isinstance(outcome, Process)]
        assert (len(refusals) + len(running), {error.errno for error in refusals}) == (limit + 20, {errno.EMFILE})
        assert len(running) > limit // 2
        for process in running:
            await process.stop(grace=0)
        assert (await (await supervisor.spawn(["true"], cwd="/", env=env)).wait()).code == 0
        assert bearing(mark) == []


def test_containment_names_its_mechanism_and_its_limits() -> None:
    here = containment()
    assert here.mechanism == ("subreaper" if sys.platform == "linux" else "process group")
    assert here.limits.startswith("It does not catch")
