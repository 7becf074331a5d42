"""I4: the stretches of each step's time, at every event of every stored journal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from core_plans import plan_of

from windlass.core import events as ev
from windlass.core.timeline import Stretch, Timeline
from windlass.core.transitions import ExecutionStatus

JOURNALS = sorted((Path(__file__).parents[1] / "journals").glob("*.jsonl"))


def events_of(path: Path) -> list[Any]:
    return [ev.decode(line) for line in path.read_bytes().splitlines() if line.strip()]


def of_kind(stretches: list[Stretch], kind: str) -> list[Stretch]:
    return [stretch for stretch in stretches if stretch.kind == kind]


def length(stretch: Stretch) -> float:
    assert stretch.end is not None
    return stretch.end - stretch.start


def overlap(one: Stretch, two: Stretch) -> float:
    assert one.end is not None
    assert two.end is not None
    return max(0.0, min(one.end, two.end) - max(one.start, two.start))


@pytest.mark.parametrize("path", JOURNALS, ids=lambda path: path.stem)
def test_i4_stretches_are_the_times_of_the_state_at_every_event(path: Path) -> None:
    created, *rest = events_of(path)
    timeline = Timeline(created)
    for event in rest:
        timeline.apply(event)
        state = timeline.state
        for name, stretches in timeline.stretches.items():
            step = state.steps[name]
            open_ones = [stretch for stretch in stretches if stretch.end is None]
            assert len([one for one in open_ones if one.kind == "work"]) <= 1
            assert all(one.start <= (one.end if one.end is not None else event.at) for one in stretches)
            ended = [one for one in stretches if one.end is not None]
            queued = sum(map(length, of_kind(ended, "queue")))
            assert queued == pytest.approx(step.queued, abs=1e-6)
            if not open_ones:
                work = [one for one in of_kind(ended, "work") if one.outcome != "lost"]
                off_work = sum(overlap(one, two) for one in work for two in of_kind(ended, "person"))
                worked = sum(map(length, work)) - off_work
                assert worked == pytest.approx(step.worked, abs=1e-6), f"{name} after {state.seq}"
    if timeline.state.status.finished:
        assert [one for found in timeline.stretches.values() for one in found if one.end is None] == []
        assert all(pause.end is not None for pause in timeline.pauses[:-1])


def test_i4_a_crash_ends_the_attempts_of_the_dead_driver_with_its_last_event() -> None:
    created, *rest = events_of(next(path for path in JOURNALS if path.stem == "v1-killed"))
    timeline = Timeline(created)
    for event in rest:
        timeline.apply(event)
    lost = [one for found in timeline.stretches.values() for one in found if one.outcome == "lost"]
    assert lost
    assert [pause.outcome for pause in timeline.pauses] == ["crash", "decision"]
    assert timeline.state.status is ExecutionStatus.COMPLETED


def test_i4_a_step_that_a_changed_plan_left_out_has_no_stretches_any_more() -> None:
    before, after = plan_of({"id": "a"}, {"id": "b"}), plan_of({"id": "a"})
    timeline = Timeline(ev.ExecutionCreated(1.0, id="x", plan=msgspec.Raw(before.encoded), inputs={}, workdir="/"))
    timeline.apply(ev.ExecutionStarted(1.0, "d"))
    for step in "ab":
        timeline.apply(ev.AttemptStarted(2.0, step, 1, "t", {}, "none"))
        timeline.apply(ev.AttemptStopped(3.0, step, 1, "paused"))
    timeline.apply(ev.ExecutionPaused(4.0, "pause"))
    timeline.apply(ev.ExecutionReplanned(5.0, msgspec.Raw(after.encoded), ev.Source()))
    assert timeline.stretches == {"a": [Stretch("work", 2.0, 3.0, 1, "paused")]}


def test_i4_a_stretch_is_an_array_in_json() -> None:
    assert msgspec.json.encode(Stretch("work", 1.0, None, 2)) == b'["work",1.0,null,2,""]'
