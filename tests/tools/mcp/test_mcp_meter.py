"""What uses of MCP servers take: their messages, both ways, each on the meter of the use that it belongs to (H1)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from mcp_world import World, odd, world
from test_mcp_at_address import at, hosted

from windlass.core.resources import Resources
from windlass.errors import ToolError
from windlass.ports import Call, Meter


async def used(mcp: World, tool: str, **arguments: Any) -> Resources:
    """What one use took, whether it worked or failed."""
    meter = Meter()
    await using(mcp, meter, tool, **arguments)
    assert meter.used is not None
    return meter.used


async def using(mcp: World, meter: Meter, tool: str, **arguments: Any) -> None:
    call = Call(
        execution="e",
        step="s",
        attempt=1,
        workdir=mcp.folder,
        folder=mcp.folder / "home" / "executions" / "e",
        processes=mcp.processes,
        meter=meter,
    )
    with suppress(ToolError):
        await mcp[tool].execute(arguments, call)


async def test_h1_a_use_counts_its_messages_and_not_the_start_of_the_server(tmp_path: Path) -> None:
    async with world(tmp_path, odd()) as mcp:
        first, second = [await used(mcp, "mcp.odd.add", a=2, b=3) for _ in range(2)]
        large = await used(mcp, "mcp.odd.echo", text="x" * 100_000)
    assert first == second
    assert 50 < (first.sent or 0) < 1_000
    assert 50 < (first.received or 0) < 1_000
    assert 100_000 < (large.sent or 0) < 101_000
    assert 100_000 < (large.received or 0) < 101_000
    assert large.cpu is None, "the server works for all: nobody knows for whom"


async def test_h1_progress_counts_for_the_use_that_it_is_of(tmp_path: Path) -> None:
    async with world(tmp_path, odd()) as mcp:
        short, long = [(await used(mcp, "mcp.odd.work", steps=steps)).received or 0 for steps in (1, 101)]
    assert long > short + 100 * 80


async def test_h1_uses_at_the_same_time_do_not_count_for_each_other(tmp_path: Path) -> None:
    sizes = [20_000 * (n + 1) for n in range(5)]
    async with world(tmp_path, odd()) as mcp:
        found = await asyncio.gather(*(used(mcp, "mcp.odd.echo", text="x" * size) for size in sizes))
    for size, took in zip(sizes, found, strict=True):
        assert size < (took.sent or 0) < size + 1_000
        assert size < (took.received or 0) < size + 1_000


async def test_h1_a_use_that_fails_or_is_cancelled_has_told_what_it_took(tmp_path: Path, eventually: Any) -> None:
    async with world(tmp_path, odd()) as mcp:
        failed = await used(mcp, "mcp.odd.refuse")
        assert (failed.sent or 0) > 50
        assert (failed.received or 0) > 50
        meter = Meter()
        hanging = asyncio.create_task(using(mcp, meter, "mcp.odd.hang"))
        await eventually((tmp_path / "hanging").exists)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert meter.used is not None
        assert (meter.used.sent or 0) > 50


async def test_h1_a_server_at_an_address_counts_heads_and_bodies(tmp_path: Path) -> None:
    async with hosted(tmp_path) as port, world(tmp_path, at(f"http://127.0.0.1:{port}/mcp")) as mcp:
        small = await used(mcp, "mcp.web.add", a=2, b=3)
        large = await used(mcp, "mcp.web.echo", text="x" * 100_000)
        failed = await used(mcp, "mcp.web.refuse")
    assert 100 < (small.sent or 0) < 2_000
    assert 100 < (small.received or 0) < 2_000
    assert 100_000 < (large.sent or 0) < 102_000
    assert 100_000 < (large.received or 0) < 102_000
    assert (failed.received or 0) > 100
