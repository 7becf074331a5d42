"""Workers come, die and go, and the programs in them notice nothing (G1)."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from sandbox_runs import NOW, answer, finish, program, run_program

from windlass.ports import Delivery, Program, ProgramError, ProgramLimits, ProgramRun, ProgramTurn
from windlass.process import Supervisor
from windlass.sandbox import workers
from windlass.sandbox.programs import WasmSandbox

Eventually = Callable[..., Awaitable[Any]]

WAITING = "const r = await tools.echo({ n: inputs.n }); return [r.n, Math.random(), (await tools.echo({ n: 2 })).n]"
LONG = ProgramLimits(cpu=60.0)
ENDLESS = program("for (;;);", LONG)


def computed(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def computing(sandbox: WasmSandbox, eventually: Eventually, but: int = 0) -> int:
    """The worker in which a program computes; none of its own work takes as long."""

    started: dict[int, float] = {}

    def found() -> int:
        since = {pid: computed(pid) - started.setdefault(pid, computed(pid)) for pid in sandbox.workers if pid != but}
        return next((pid for pid, seconds in since.items() if seconds > 0.1), 0)

    return int(await eventually(found, "a program computes"))


async def opened(sandbox: WasmSandbox, what: Program) -> tuple[ProgramRun, ProgramTurn]:
    run = await sandbox.open(what)
    return run, await run.begin()


async def test_g1_programs_that_wait_in_a_worker_that_is_killed_go_on_elsewhere(narrow: WasmSandbox) -> None:
    expected = (await run_program(narrow, WAITING)).value
    runs = [await opened(narrow, program(WAITING)) for _ in range(5)]
    (pid,) = narrow.workers
    os.kill(pid, signal.SIGKILL)
    ended = await asyncio.gather(*(finish(run, turn) for run, turn in runs))
    assert [one.value for one in ended] == [expected] * 5
    assert [len(one.calls) for one in ended] == [2] * 5
    assert pid not in narrow.workers


async def test_g1_new_programs_do_not_suffer_from_workers_that_died_unnoticed(
    sandbox: WasmSandbox, eventually: Eventually
) -> None:
    await asyncio.gather(*(run_program(sandbox, "for (let i = 0; i < 1e6; i++); return 1") for _ in range(4)))
    await eventually(lambda: len(sandbox.workers) == 2, "the second one is there, which may have had nothing to do")
    pids = sandbox.workers
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    await eventually(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), "they are gone")
    assert (await run_program(sandbox, "return 1")).value == 1


async def test_g1_a_worker_that_is_killed_in_the_middle_of_a_turn_is_replaced(
    narrow: WasmSandbox, eventually: Eventually
) -> None:
    source = "await tools.echo(); let n = 0; for (let i = 0; i < 4e6; i++) n++; return n"
    run, turn = await opened(narrow, program(source, LONG))
    going = asyncio.create_task(run.deliver([answer(turn.calls[0])]))
    pid = await computing(narrow, eventually)
    os.kill(pid, signal.SIGKILL)
    assert (await going).value == 4_000_000
    await run.close()

    async def replaced() -> bool:  # if its turn had ended just before, the next program finds out
        return (await run_program(narrow, "return 1")).value == 1 and pid not in narrow.workers

    await eventually(replaced, "another worker is there")


async def test_g1_a_program_that_takes_every_worker_with_it_is_called_lost(
    narrow: WasmSandbox, eventually: Eventually
) -> None:
    going = asyncio.create_task(run_program(narrow, ENDLESS))
    killed = 0
    for _ in range(3):  # the one that was there before, which may have been ill already, and two new ones
        killed = await computing(narrow, eventually, but=killed)
        os.kill(killed, signal.SIGKILL)
    ended = await going
    assert (ended.trouble, ended.message) == ("lost", "the worker that ran it has ended")
    assert (await run_program(narrow, "return 1")).value == 1


async def test_g1_a_beginning_that_is_cancelled_leaves_the_pool_usable(
    narrow: WasmSandbox, eventually: Eventually
) -> None:
    waiting, turn = await opened(narrow, program(WAITING))
    run = await narrow.open(ENDLESS)
    going = asyncio.create_task(run.begin())
    pid = await computing(narrow, eventually)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    await run.close()
    assert not Path(f"/proc/{pid}").exists()
    assert (await finish(waiting, turn)).value[::2] == [1, 2]


async def test_g1_a_delivery_that_is_cancelled_can_be_made_again(narrow: WasmSandbox, eventually: Eventually) -> None:
    run, _ = await opened(narrow, program("if ((await tools.echo()).stays) for (;;); return 7", LONG))
    going = asyncio.create_task(run.deliver([Delivery(1, NOW, {"stays": True})]))
    await computing(narrow, eventually)
    going.cancel()
    with pytest.raises(asyncio.CancelledError):
        await going
    assert (await run.deliver([Delivery(1, NOW, {"stays": False})])).value == 7
    await run.close()


async def test_g1_whoever_waits_for_a_worker_can_be_cancelled(narrow: WasmSandbox, eventually: Eventually) -> None:
    long = asyncio.create_task(run_program(narrow, ENDLESS))
    await computing(narrow, eventually)
    queued = [asyncio.create_task(run_program(narrow, "return 1")) for _ in range(3)]
    await asyncio.sleep(0)
    queued[1].cancel()
    long.cancel()
    await asyncio.wait([long, *queued])
    assert [task.cancelled() for task in queued] == [False, True, False]
    assert [queued[0].result().value, queued[2].result().value] == [1, 1]


async def test_g1_there_are_more_workers_while_one_computes_for_long(
    sandbox: WasmSandbox, eventually: Eventually
) -> None:
    long = asyncio.create_task(run_program(sandbox, ENDLESS))
    pid = await computing(sandbox, eventually)
    assert (await run_program(sandbox, "return 1")).value == 1
    assert len(sandbox.workers) == 2
    assert pid in sandbox.workers
    assert not long.done()
    long.cancel()
    await asyncio.wait([long])


async def test_g1_workers_with_nothing_in_them_are_ended(compiled_cache: Path, eventually: Eventually) -> None:
    """Programs that ended badly are nothing, too; one that waits is something."""
    async with Supervisor() as supervisor:
        sandbox = WasmSandbox(supervisor, compiled_cache, most=2, idle=0.01)
        for source in ("return 1", "await new Promise(() => {})", "throw 1", "Promise.reject(1); return 1", "("):
            await run_program(sandbox, source)
        await eventually(lambda: not sandbox.workers, "the worker is ended")
        run, turn = await opened(sandbox, program(WAITING))
        # One more may come up that was started for a program which had found a place meanwhile.
        await eventually(lambda: len(sandbox.workers) == 1, "the one that holds a program stays")
        (holder,) = sandbox.workers
        work = "for (let i = 0; i < 1e6; i++); return 1"
        await asyncio.gather(*(run_program(sandbox, work) for _ in range(4)))
        await eventually(lambda: sandbox.workers == [holder], "the other one is ended")
        assert (await finish(run, turn)).value[::2] == [1, 2]
        await run.close()
        await eventually(lambda: not sandbox.workers, "nothing is in it any more")
        await sandbox.close()


async def test_g1_more_programs_wait_than_a_worker_holds(narrow: WasmSandbox) -> None:
    count = workers.MOST_RUNS * 2
    runs = [await opened(narrow, program(WAITING, data={"inputs": {"n": n}})) for n in range(count)]
    await narrow.check("")  # the worker has nothing to do any more: those that had to make room come first now
    ended = await asyncio.gather(*(finish(run, turn) for run, turn in runs))
    assert [one.value[0] for one in ended] == list(range(count))
    assert len({one.value[1] for one in ended}) == 1
    assert len(narrow.workers) == 1


async def test_g1_programs_that_hold_much_memory_make_room_for_each_other(
    narrow: WasmSandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workers, "MOST_MEMORY", 64 * 1024 * 1024)
    source = "const held = new Uint8Array(2e7).fill(1); const r = await tools.echo({ n: 5 }); return held[9] + r.n"
    runs = [await opened(narrow, program(source)) for _ in range(12)]
    (pid,) = narrow.workers
    assert (await run_program(narrow, "return 1")).value == 1
    (kilobytes,) = re.findall(r"^VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert int(kilobytes) * 1024 < 200_000_000
    assert [(await finish(run, turn)).value for run, turn in runs] == [6] * 12


async def test_g1_a_closed_sandbox_ends_what_is_open(compiled_cache: Path, eventually: Eventually) -> None:
    async with Supervisor() as supervisor:
        sandbox = WasmSandbox(supervisor, compiled_cache, most=2)
        waiting, turn = await opened(sandbox, program(WAITING))
        going = [asyncio.create_task(run_program(sandbox, ENDLESS)) for _ in range(3)]
        await computing(sandbox, eventually)
        await eventually(lambda: len(sandbox.workers) == 2, "there are two workers")
        pids = sandbox.workers
        await sandbox.close()
        assert {(await task).trouble for task in going} == {"lost"}
        with pytest.raises(ProgramError, match="the sandbox is closed"):
            await waiting.deliver([answer(turn.calls[0])])
        with pytest.raises(ProgramError, match="the sandbox is closed"):
            await sandbox.check("")
        assert not (await sandbox.health()).ok
        assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
        await sandbox.close()


async def test_g1_a_sandbox_without_workers_says_why(compiled_cache: Path) -> None:
    supervisor = Supervisor()
    await supervisor.close()
    sandbox = WasmSandbox(supervisor, compiled_cache)
    assert (await run_program(sandbox, "return 1")).trouble == "lost"
    assert "closed" in (await sandbox.health()).detail
    await sandbox.close()


@pytest.mark.parametrize("count", [200, pytest.param(1000, marks=pytest.mark.soak)])
async def test_g1_many_programs_at_once_each_get_their_own(
    sandbox: WasmSandbox, eventually: Eventually, count: int
) -> None:
    source = """
        let sum = 0;
        for (let i = 0; i < 3; i++) sum += (await tools.echo({ n: inputs.n + i })).n;
        const both = await Promise.all([tools.echo({ n: sum }), tools.echo({ n: inputs.n })]);
        return both.map((one) => one.n)
    """
    ended = await asyncio.gather(
        *(run_program(sandbox, program(source, data={"inputs": {"n": n}})) for n in range(count))
    )
    assert [one.value for one in ended] == [[3 * n + 3, n] for n in range(count)]
    await eventually(lambda: len(sandbox.workers) == 2, "there are two workers")
