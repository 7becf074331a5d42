"""A conversation with a command: its stdin stays open, and what is written to it arrives while it runs."""

from __future__ import annotations

import asyncio
import os
import signal

import process_trees as trees
import pytest
from process_probes import descriptors

from windlass.process import Supervisor
from windlass.process.pipes import PIPE

Env = dict[str, str]


async def test_a_command_answers_line_by_line_and_ends_when_its_stdin_does(supervisor: Supervisor, env: Env) -> None:
    process = await supervisor.spawn(trees.shell('while read l; do echo "got $l"; done'), cwd="/", env=env, stdin=PIPE)
    assert process.stdin is not None
    for word in (b"one", b"two"):
        await process.stdin.write(word + b"\n")
        assert await process.stdout.readline() == b"got " + word + b"\n"
    process.stdin.close()
    process.stdin.close()
    assert (await process.wait()).code == 0
    with pytest.raises(BrokenPipeError):
        await process.stdin.write(b"three\n")


async def test_writers_at_once_do_not_mix_and_more_than_a_pipe_holds_arrives_whole(
    supervisor: Supervisor, env: Env
) -> None:
    process = await supervisor.spawn(["cat"], cwd="/", env=env, stdin=PIPE)
    feed = process.stdin
    assert feed is not None
    pieces = [bytes([letter]) * 700_000 + b"\n" for letter in b"abcd"]

    async def give() -> None:
        await asyncio.gather(*(feed.write(piece) for piece in pieces))
        feed.close()

    giving = asyncio.create_task(give())
    received = await process.stdout.read()
    await giving
    assert sorted(received.splitlines(keepends=True)) == pieces
    assert (await process.wait()).code == 0


async def test_a_writer_is_told_when_the_command_has_ended_or_no_longer_reads(supervisor: Supervisor, env: Env) -> None:
    process = await supervisor.spawn(["sleep", "1000"], cwd="/", env=env, stdin=PIPE)
    assert process.stdin is not None
    writing = asyncio.create_task(process.stdin.write(bytes(3_000_000)))  # it waits: no one reads
    await asyncio.sleep(0)  # its turn
    assert not writing.done()
    assert (await process.stop(grace=0)).signal == signal.SIGKILL
    with pytest.raises(BrokenPipeError):
        await writing
    with pytest.raises(BrokenPipeError):
        await process.stdin.write(b"more")


async def test_a_cancelled_writer_leaves_the_next_one_its_turn(supervisor: Supervisor, env: Env) -> None:
    process = await supervisor.spawn(trees.shell("read l; cat >/dev/null; echo end"), cwd="/", env=env, stdin=PIPE)
    assert process.stdin is not None
    first = asyncio.create_task(process.stdin.write(bytes(5_000_000)))
    await asyncio.sleep(0)  # its turn
    assert not first.done()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    await process.stdin.write(b"\nthe rest\n")
    process.stdin.close()
    assert await process.stdout.readline() == b"end\n"


async def test_an_open_stdin_holds_up_no_end_and_leaves_no_descriptor(warded: Supervisor, env: Env) -> None:
    await (await warded.spawn(["true"], cwd="/", env=env)).wait()  # the warden is there now
    before = descriptors()
    process = await warded.spawn(["true"], cwd="/", env=env, stdin=PIPE)
    assert (await process.wait()).code == 0
    assert descriptors() == before
    other = await warded.spawn(["cat"], cwd="/", env=env, stdin=os.urandom(10))
    assert other.stdin is None
    assert (await other.wait()).code == 0
