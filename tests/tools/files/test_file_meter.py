"""What file tools take: bytes that they read and write, and what they compute; also when they fail (H1)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from file_world import TOOLS, World

from windlass.core.resources import Resources
from windlass.errors import ToolError

SIZE = 3_000_000


async def used(world: World, tool: str, arguments: dict[str, Any], **about: Any) -> tuple[int | None, int | None]:
    """Bytes in and out of one use, whether it worked or failed."""
    return _bytes(await _used(world, tool, arguments, **about))


async def _used(world: World, tool: str, arguments: dict[str, Any], **about: Any) -> Resources | None:
    call = world.call(**about)
    with suppress(ToolError):
        await TOOLS[f"files.{tool}"].execute(arguments, call)
    return call.meter.used


def _bytes(took: Resources | None) -> tuple[int | None, int | None]:
    assert took is not None
    return took.received, took.sent


async def test_h1_reading_and_writing_count_by_the_byte(world: World) -> None:
    world.write("old.txt", "o" * SIZE)
    assert await used(world, "read", {"path": "old.txt", "max_bytes": SIZE}) == (SIZE, 0)
    assert await used(world, "write", {"path": "new.txt", "content": "é" * 500}, step="w") == (0, 1_000)
    more = {"path": "old.txt", "content": "more", "mode": "append"}
    assert await used(world, "write", more, step="a") == (SIZE, SIZE + 4)


async def test_h1_an_edit_a_copy_and_a_patch_count_what_they_read_and_write(world: World) -> None:
    world.write("text.txt", "head\n" + "b" * SIZE)
    edit = {"path": "text.txt", "edits": [{"old": "head", "new": "header"}]}
    assert await used(world, "edit", edit, step="e") == (SIZE + 5, SIZE + 7)
    assert await used(world, "copy", {"from": "text.txt", "to": "twin.txt"}, step="c") == (SIZE + 7, SIZE + 7)
    diff = "--- a/note.txt\n+++ b/note.txt\n@@ -1 +1 @@\n-a note\n+a longer note\n"
    assert await used(world, "patch", {"patch": diff}, step="p") == (len("a note\n"), len("a longer note\n"))


async def test_h1_a_search_counts_every_file_that_it_looked_into_and_what_it_computed(world: World) -> None:
    for number in range(20):
        world.write(f"many/{number}.txt", "nothing here\n" * 10_000)
    took = await _used(world, "search", {"path": "many", "pattern": "n[a-z]+g h.re!"})
    assert _bytes(took) == (20 * 130_000, 0)
    assert took is not None
    assert (took.cpu or 0) > 0


async def test_h1_names_and_moves_are_no_bytes_of_files(world: World) -> None:
    world.write("large.bin", "x" * SIZE)
    assert await used(world, "list", {"path": "."}) == (0, 0)
    assert await used(world, "move", {"from": "large.bin", "to": "moved.bin"}, step="m") == (0, 0)
    assert await used(world, "delete", {"path": "moved.bin"}, step="d") == (0, 0)


async def test_h1_a_use_that_fails_has_told_what_it_took(world: World) -> None:
    world.write("text.txt", "b" * SIZE)
    edit = {"path": "text.txt", "edits": [{"old": "not there", "new": ""}]}
    assert await used(world, "edit", edit, step="e") == (SIZE, 0)
    changes = [
        {"do": "write", "path": "one.txt", "content": "x" * 1_000},
        {"do": "delete", "path": "missing.txt"},
    ]
    assert await used(world, "apply", {"changes": changes}, step="a") == (0, 1_000), "although it was taken back"


async def test_h1_a_use_that_is_cancelled_has_told_what_it_took(world: World) -> None:
    world.write("text.txt", "b" * SIZE)
    call = world.call()
    using = asyncio.create_task(TOOLS["files.read"].execute({"path": "text.txt"}, call))
    await asyncio.sleep(0)  # it has begun
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    assert call.meter.used is not None


async def test_h1_uses_at_the_same_time_do_not_count_for_each_other(world: World) -> None:
    sizes = [1_000 * (n + 1) for n in range(8)]
    for size in sizes:
        world.write(f"{size}.txt", "x" * size)
    found = await asyncio.gather(*(used(world, "read", {"path": f"{size}.txt"}) for size in sizes))
    assert found == [(size, 0) for size in sizes]
