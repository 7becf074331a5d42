"""Places of a tool: so many uses at a time, in all processes of a home or on all machines of a journal (C8)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from waiting import settled

from windlass.engine.gates import places
from windlass.engine.gates.places import Slots, take_place


class MemoryPlaces:
    """Places that two machines share."""

    def __init__(self) -> None:
        self.taken: dict[int, str] = {}

    async def take(self, name: str, count: int) -> int | None:
        if list(self.taken.values()).count(name) >= count:
            return None
        place = len(self.taken)
        self.taken[place] = name
        return place

    async def give_back(self, place: int) -> None:
        del self.taken[place]

    async def close(self) -> None: ...


class World:
    """Two that share places."""

    def __init__(self, one: Slots, other: Slots) -> None:
        self.one, self.other = one, other
        self.waits: list[str] = []
        self.entered = 0

    @contextmanager
    def waiting(self) -> Iterator[None]:
        self.waits.append("begins")
        yield
        self.waits.append("is over")

    async def use(self, slots: Slots) -> None:
        async with slots.one_of("a", 1, self.waiting):
            self.entered += 1


@pytest.fixture(params=["processes", "machines"])
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(places, "LOOK_AGAIN", 0.0)
    monkeypatch.setattr(places, "SHARED_AGAIN", 0.0)
    if request.param == "processes":
        return World(Slots(tmp_path), Slots(tmp_path))
    shared = MemoryPlaces()
    return World(Slots(None, shared), Slots(None, shared))


async def test_c8_a_free_place_is_taken_without_a_wait_and_free_again_afterwards(world: World) -> None:
    for slots in (world.one, world.one, world.other):
        await world.use(slots)
    assert (world.entered, world.waits) == (3, [])


async def test_c8_a_use_waits_until_the_place_is_free(world: World) -> None:
    async with world.one.one_of("a", 1):
        waiting = asyncio.ensure_future(world.use(world.other))
        await settled()
        assert (world.entered, world.waits) == (0, ["begins"])
    await waiting
    assert (world.entered, world.waits) == (1, ["begins", "is over"])


async def test_c8_a_use_that_is_stopped_while_it_waits_has_no_place(world: World) -> None:
    async with world.one.one_of("a", 1):
        waiting = asyncio.ensure_future(world.use(world.other))
        await settled()
        waiting.cancel()
        await asyncio.wait({waiting})
        assert waiting.cancelled()
        assert world.entered == 0
    await world.use(world.other)
    assert world.entered == 1


def test_c8_files_of_places_are_private_and_their_folder_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "home" / "places"
    assert None not in (take_place(folder, "a", 2), take_place(folder, "a", 2))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert [file.stat().st_mode & 0o777 for file in folder.iterdir()] == [0o600, 0o600]
