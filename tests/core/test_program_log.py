"""What the events of programs fold to (G1): the path that is taken again, and what is at hand beside it."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.core import events as ev
from windlass.core.program import CUT_OFF, ProgramLog
from windlass.core.state import State, fold
from windlass.errors import Category, Failure
from windlass.plan.model import Plan, Step

PLAN = Plan(name="p", steps=[Step(id="s", code="return 1;")])


class History:
    """Events of one step, told shortly; `log` is what they fold to."""

    def __init__(self) -> None:
        raw = ev.decode(_created())
        self.events: list[ev.Event] = [raw, ev.ExecutionStarted(1.0, "d")]
        self._attempt = 0

    def attempt(self) -> History:
        """A further attempt, after a failure or after a crash."""
        if isinstance(self.events[-1], ev.AttemptFailed):
            self._add(ev.StepWaiting(5.0, "s", "retry", 6.0))
        elif self._attempt:
            self._add(ev.AttemptStopped(5.0, "s", self._attempt, "lost"))
        self._attempt += 1
        return self._add(ev.AttemptStarted(2.0, "s", self._attempt, "code", {}, "repeatable"))

    def began(self, digest: str = "a", program: str = "") -> History:
        return self._add(ev.ProgramBegan(2.0, "s", program, digest))

    def call(self, name: str, text: str, effect: str = "repeatable") -> History:
        return self._add(ev.CallStarted(3.0, "s", self._attempt, name, "note", {"text": text}, effect))

    def finished(self, name: str, output: Any = None) -> History:
        return self._add(ev.CallFinished(4.0, "s", self._attempt, name, output))

    def failed(self, name: str, kind: str = "") -> History:
        failure = Failure(Category.TRANSIENT, "down", kind=kind)
        return self._add(ev.CallFailed(4.0, "s", self._attempt, name, failure, "note failed"))

    def attempt_failed(self) -> History:
        return self._add(ev.AttemptFailed(5.0, "s", self._attempt, Failure(Category.TRANSIENT, "down")))

    def _add(self, event: ev.Event) -> History:
        self.events.append(event)
        return self

    @property
    def state(self) -> State:
        return fold(self.events)

    @property
    def log(self) -> ProgramLog:
        found = self.state.steps["s"].programs
        assert found is not None
        return found

    def reused(self, name: str, text: str) -> Any:
        found = self.log.find_reusable(name, "note", {"text": text})
        return found and (found.output if found.ended else "in doubt")


def _created() -> bytes:
    head = b'{"type":"execution.created","at":1.0,"id":"x","inputs":{},"workdir":"/","plan":'
    return head + PLAN.encoded + b"}"


def test_calls_are_kept_in_the_order_in_which_they_ended() -> None:
    history = History().attempt().began().call("1", "a").call("2", "b").finished("2", "B").failed("1")
    assert history.state.steps["s"].last_output == 'note {"text": "b"}', (
        "the last call that began is what one sees of the step"
    )
    calls = history.log.of("")
    assert [(number, call.order, call.output, call.seen) for number, call in sorted(calls.items())] == [
        (1, 2, None, "note failed"),
        (2, 1, "B", ""),
    ]


def test_the_calls_of_programs_inside_each_other_are_kept_apart() -> None:
    history = History().attempt().call("1", "a").call("1.1", "b").call("1.1.2", "c").call("use_1.1", "d")
    log = history.log
    assert {path: list(log.of(path)) for path in ("", "1", "1.1", "use_1")} == {
        "": [1],
        "1": [1],
        "1.1": [2],
        "use_1": [1],
    }


def test_after_a_failed_attempt_what_worked_is_at_hand_wherever_it_is_wanted() -> None:
    history = History().attempt().call("1", "a").finished("1", "A").call("2", "b").failed("2").attempt_failed()
    assert history.log.of("") == {}
    assert (history.reused("1", "a"), history.reused("7", "a"), history.reused("3.1", "a")) == ("A", "A", "A")
    assert history.reused("2", "b") is None, "what failed is done again"


def test_the_same_place_comes_first_and_each_is_taken_once() -> None:
    history = History().attempt()
    for number in "123":
        history.call(number, "a").finished(number, f"A{number}")
    history.attempt_failed().attempt()
    assert (history.reused("2", "a"), history.reused("9", "a")) == ("A2", "A1")
    history.call("2", "a").finished("2", "A2")
    assert (history.reused("2", "a"), history.reused("9", "a")) == ("A1", "A1")
    assert [call.output for call in history.log.of("").values()] == ["A2"]


def test_a_result_of_the_same_program_comes_before_that_of_another() -> None:
    history = History().attempt()
    for name, output in (("1.1", "of 1"), ("2.1", "of 2")):
        history.call(name, "a").finished(name, output)
    history.attempt_failed()
    assert {name: history.reused(name, "a") for name in ("1.7", "2.7", "3.7")} == {
        "1.7": "of 1",
        "2.7": "of 2",
        "3.7": "of 1",
    }


@pytest.mark.parametrize(("effect", "expected"), [("once", "in doubt"), ("repeatable", None), ("none", None)])
def test_what_was_under_way_or_cut_off_is_in_doubt_if_it_may_happen_once(effect: str, expected: str | None) -> None:
    under_way = History().attempt().call("1", "a", effect).attempt_failed()
    assert under_way.reused("1", "a") == expected
    cut_off = History().attempt().call("1", "a", effect).failed("1", CUT_OFF).attempt_failed()
    assert cut_off.reused("1", "a") == expected


def test_another_program_leaves_the_path_of_the_one_before_and_of_nobody_else() -> None:
    history = History().attempt().began("a").call("1", "a").finished("1", "A").call("2", "b")
    history.began("x", "2").call("2.1", "c").finished("2.1", "C").began("y", "2")
    assert (list(history.log.of("")), list(history.log.of("2"))) == ([1, 2], [])
    assert (history.reused("2.1", "c"), history.reused("1", "a")) == ("C", None)
    history.began("b")
    assert list(history.log.of("")) == []
    assert history.reused("5", "a") == "A"


def test_the_same_program_goes_on_where_it_was() -> None:
    history = History().attempt().began("a").call("1", "a").finished("1", "A").attempt().began("a")
    assert list(history.log.of("")) == [1]


def test_programs_of_an_agent_take_nothing_from_each_other() -> None:
    """An agent that reads a file again wants to see what is in it now."""
    history = History().attempt().call("use_1.1", "a").finished("use_1.1", "A").attempt_failed()
    assert (history.reused("use_1.2", "a"), history.reused("use_2.1", "a"), history.reused("1", "a")) == (
        "A",
        None,
        None,
    )
