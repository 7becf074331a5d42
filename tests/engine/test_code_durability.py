"""The power goes at every commit that a program makes, before it and after it: nothing done is done again (G1, D2).

Here the power is cut in the journal, which is quick; `tests/crash/test_program_kills.py` kills real processes. Whatever
was under way is lost with its end, as it would be.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from code_worlds import CodeWorld, Notes, PowerCut, code, failure, kept, of, plan

import windlass
from windlass.core import events as ev
from windlass.core.program import CallRecord
from windlass.core.state import State, fold
from windlass.engine.commit_writer import head_of
from windlass.ports import Sandbox, Tool
from windlass.testing import MemoryJournal

if TYPE_CHECKING:
    from conftest import Project

pytestmark = pytest.mark.asyncio(loop_scope="module")

TWENTY = """
const chance = () => `%${Math.floor(Math.random() * 900) + 100}`;
const first = await tools.note({text: `first ${chance()} ${new Date().getFullYear() > 2000}`});
const three = await Promise.all([1, 2, 3].map((n) => tools.note({text: `group ${n} ${first}`})));
let many = 0;
for (const one of three) {
  if (one.startsWith("GROUP 2")) many += await tools.look({text: `look at ${one}`});
  else many += await tools.look({text: `look well at ${one}`}) + 1;
}
const paid = await tools.pay({text: `pay ${many} ${chance()}`});
const raced = await Promise.race(["x", "y", "z"].map((n) => tools.note({text: `race ${n} ${paid}`})));
let failures = 0;
await Promise.all([0, 1, 2, 3].map(async (n) => {
  try { await tools.fails({text: `${raced} ${n}`}); }
  catch (error) {
    failures += 1;
    await tools.note({text: `after ${n} ${error.category} ${Date.now()}`});
  }
}));
const late = await tools.pay({text: `pay late ${chance()}`});
if (failures === 2) await tools.note({text: "both failed"});
const last = await tools.note({text: `last ${late}`});
return {first, three, many, paid, raced, failures, last, chance: chance()};
"""
COMPOSED = """
const one = await tools.nested({text: "a"});
const two = await Promise.all([tools.nested({text: "b"}), tools.note({text: "beside"}), tools.twice({text: "c"})]);
return [one, ...two];
"""
TWICE = kept(
    "twice",
    "return [await tools.note({text: `${args.text} noted`}), await tools.pay({text: `${args.text} paid`})].join();",
    "note",
    "pay",
)
NESTED = kept(
    "nested",
    "const all = await Promise.all([1, 2].map((n) => tools.twice({text: `${args.text} ${n}`})));"
    "return all.join() + await tools.note({text: `${args.text} end`});",
    "*",
)


class Left:
    """What a cut left: calls whose end is on disk, and those under way."""

    def __init__(self, events: list[ev.Event]) -> None:
        self.state = fold(events)
        log = self.state.steps["work"].programs
        calls = [call for call in log.calls.values() if call.tool not in ("twice", "nested")] if log else []
        self.ended = {written(call) for call in calls if call.ended}
        self.begun = {written(call) for call in calls}
        self.doubtful = [call for call in calls if not call.ended and call.effect == "once"]


def written(call: CallRecord) -> str:
    """What the call writes down when it is made."""
    return f"{'fails ' if call.tool == 'fails' else ''}{call.input['text']}"


class World:
    """A home with notes in it, and composed tools."""

    def __init__(self, project: Project, sandbox: Sandbox) -> None:
        self.notes = Notes()
        self.code = CodeWorld(project, sandbox, [*self.notes.tools, self._failing()])
        for tool in (TWICE, NESTED):
            self.code.shelf.save(tool)

    def _failing(self) -> Tool:
        @windlass.tool
        async def fails(text: str) -> None:
            self.notes.done.append(f"fails {text}")
            if text[-1] in "02":
                raise windlass.ToolError("the disk at /home/ann/secret", category="permission")

        return fails

    async def undisturbed(self, source: str) -> Any:
        state = await self.code.run(plan(code(source)))
        assert state.status == "completed", state.steps["work"].error
        return state.steps["work"].output

    async def cut(self, source: str, expected: Any, *cuts: tuple[int, bool]) -> bool:
        """A run that is cut at these commits, by one engine after another. False if the first of them never comes."""
        self.notes.done.clear()
        journal = PowerCut()
        world = self.code.with_journal(journal)
        journal.cut_at(*cuts[0])
        if await powered(start(world, source)):
            return False
        if not (heads := await journal.heads()):
            assert self.notes.done == [], "nothing happens before the execution is on disk"
            return True
        execution = heads[0].id
        for cut in (*cuts[1:], (0, True)):
            left, done = Left(await world.events(execution)), Counter(self.notes.done)
            assert {text for text in done if not text.startswith("look")} <= left.begun, "it was not on disk as begun"
            if left.state.status.finished:
                break
            journal.cut_at(*cut)
            await powered(self._resume(world, execution, left))
            again = {text for text in left.ended if Counter(self.notes.done)[text] != done[text]}
            assert again == set(), "what was done is done again"
        state = fold(await world.events(execution))
        assert state.status == "completed", state.steps["work"].error
        assert max(Counter(self.notes.done).values()) <= 1 + len(cuts), "a crash repeats a call at most once"
        assert without_chance(state.steps["work"].output) == without_chance(expected)
        await self._the_same_again(world, execution, state)
        return True

    async def _resume(self, world: CodeWorld, execution: str, left: Left) -> None:
        """Go on with it; whoever is asked says yes."""
        questions = [call.input for call in left.doubtful]
        open_now = left.state.steps["work"].asks_in_attempt
        state = await world.resume(execution)
        while state.paused_for == "approval":
            approval = state.steps["work"].approval
            assert approval is not None
            assert open_now or approval.input in questions, "only what may happen once and was cut off is asked about"
            open_now, questions = False, [given for given in questions if given != approval.input]
            async with world.engine() as engine:
                await engine.approve(execution, "work")
            state = await world.resume(execution)

    async def _the_same_again(self, world: CodeWorld, execution: str, state: State) -> None:
        """From the journal alone, with nothing left to do, it comes to the same end: nothing in it is by chance."""
        history, done = await world.events(execution), len(self.notes.done)
        names = [event.call for event in of(history, ev.CallFinished, ev.CallFailed)]
        assert len(names) == len(set(names)), "each call ends once"
        end = next(number for number, event in enumerate(history) if isinstance(event, ev.AttemptFinished))
        journal = MemoryJournal()
        await journal.append(execution, 0, history[:end], head=head_of(fold(history[:end])))
        again = await world.with_journal(journal).resume(execution)
        assert again.steps["work"].output == state.steps["work"].output
        assert len(self.notes.done) == done


async def test_d6_a_program_that_ends_with_a_failed_call_fails_like_it_also_over_a_crash(
    project: Project, sandbox: Sandbox
) -> None:
    @windlass.tool
    async def fails() -> None:
        raise windlass.ToolError("the tap is shut", category="permission", advice=("open it",))

    world = CodeWorld(project, sandbox, [fails])
    state = await world.run(plan(code("await tools.fails();", retry={"max": 0})))
    history = await world.events(state.id)
    end = next(number for number, event in enumerate(history, 1) if isinstance(event, ev.CallFailed))
    journal = MemoryJournal()
    await journal.append(state.id, 0, history[:end], head=head_of(fold(history[:end])))
    again = await world.with_journal(journal).resume(state.id)
    assert failure(again) == failure(state)
    assert "call 1 (fails): the tap is shut" in failure(again).message


async def start(world: CodeWorld, source: str) -> None:
    async with world.engine() as engine:
        state = await (await engine.start(plan(code(source)), hold=False)).wait()
        assert state.status == "completed"


async def powered(work: Any) -> bool:
    """Whether it came to its end before the power went."""
    try:
        await work
    except OSError:
        return False
    return True


def without_chance(output: Any) -> Any:
    """The result, but for what is another number in each execution."""
    return json.loads(re.sub(r"%\d{3}", "%", json.dumps(output)))


async def test_g1_d2_no_power_cut_at_any_commit_repeats_a_call_that_is_done(project: Project, sandbox: Sandbox) -> None:
    world = World(project, sandbox)
    expected = await world.undisturbed(TWENTY)
    assert len(world.notes.done) == 20
    at = 1
    while all([await world.cut(TWENTY, expected, (at, before)) for before in (True, False)]):
        at += 1
    assert at > 15, "there were many commits to be cut at"


async def test_g1_g3_no_power_cut_inside_a_composed_tool_repeats_what_it_did(
    project: Project, sandbox: Sandbox
) -> None:
    """By turns before a commit and after it; the long form does both at each."""
    world = World(project, sandbox)
    expected = await world.undisturbed(COMPOSED)
    assert len(world.notes.done) == 13
    at = 1
    while await world.cut(COMPOSED, expected, (at, at % 2 == 0)):
        at += 1
    assert at > 15, "there were many commits to be cut at"


async def test_g1_d2_a_program_that_is_cut_off_again_and_again_comes_to_its_end(
    project: Project, sandbox: Sandbox
) -> None:
    world = World(project, sandbox)
    expected = await world.undisturbed(TWENTY)
    for pace in (3, 4, 5):
        assert await world.cut(TWENTY, expected, *((pace, before) for before in [True, False] * 6))


def random_program(chance: Random) -> str:
    """Calls one after another, at once, in a race, by composed tools, and such that fail."""
    lines, number = ["let seen = '';"], 0
    for _ in range(chance.randint(3, 8)):
        tools = [
            chance.choice(["note", "pay", "look", "twice", "fails", "nested"]) for _ in range(chance.randint(1, 4))
        ]
        calls = []
        for tool in tools:
            number += 1
            text = f"{'look ' if tool == 'look' else ''}{number} ${{seen.length}}"
            caught = ".catch((error) => error.category)" if tool == "fails" else ""
            calls.append(f"tools.{tool}({{text: `{text} ${{Math.random().toFixed(3)}} {number}`}}){caught}")
        together = chance.choice(["all", "all", "race"])
        lines.append(f"seen += await Promise.{together}([{', '.join(calls)}]);")
    return "\n".join([*lines, "return seen.length;"])


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(40))
async def test_g1_d2_the_long_form_random_programs_cut_at_every_commit(
    project: Project, sandbox: Sandbox, seed: int
) -> None:
    chance, world = Random(seed), World(project, sandbox)
    source = random_program(chance)
    print(f"seed {seed}\n{source}")
    expected, at = await world.undisturbed(source), 1

    def further() -> list[tuple[int, bool]]:
        return [(chance.randint(1, 8), chance.random() < 0.5) for _ in range(chance.randint(0, 3))]

    while all([await world.cut(source, expected, (at, before), *further()) for before in (True, False)]):
        at += 1
