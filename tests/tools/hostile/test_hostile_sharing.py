"""Terms that all processes of a home share (C8): how many uses at a time, and how many in a time."""

from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING

from hostile_world import Other, other

if TYPE_CHECKING:
    from conftest import Project

USES = 5


async def test_c8_two_processes_share_the_places_of_a_tool(project: Project) -> None:
    project.user_file("config.toml", "[tools.scripted]\nconcurrent = 1\n")
    async with other(project) as one, other(project) as two:

        async def use_often(process: Other) -> list[tuple[float, float]]:
            for _ in range(USES):
                process.tell("end", "fine")
                process.tell("use")
            heard = [await process.hear() for _ in range(2 * USES)]
            assert [told["output"] for told in heard if told["event"] == "done"] == ["fine"] * USES
            process.tell("spans")
            return [(begun, ended) for begun, ended in (await process.hear())["all"]]

        spans = sorted(itertools.chain(*await asyncio.gather(use_often(one), use_often(two))))
    assert len(spans) == 2 * USES
    assert all(ended <= begun for (_, ended), (begun, _) in itertools.pairwise(spans)), "never two at a time"


async def test_c8_a_process_that_dies_gives_its_place_back(project: Project) -> None:
    project.user_file("config.toml", "[tools.scripted]\nconcurrent = 1\n")
    async with other(project) as one:
        async with other(project) as two:
            assert (await two.use())["event"] == "using"
            one.tell("use")
        assert (await one.hear())["event"] == "using"
        one.tell("end", "second")
        assert (await one.hear())["output"] == "second"


async def test_c8_two_processes_share_the_rate_of_a_tool(project: Project) -> None:
    project.user_file("config.toml", '[tools.scripted]\nrate = "4/d"\n')
    async with other(project) as one, other(project) as two:
        told = [await (one, two)[number % 2].use("fine") for number in range(6)]
    assert [use["output"] for use in told[:4]] == ["fine"] * 4
    assert all("is limited to 4/86400s; retry in" in use["error"] for use in told[4:])
