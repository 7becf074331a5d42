"""Rules of triggers: each time is decided on once, and every decision has its reason (L1)."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.budget import Amount
from windlass.core.triggers import (
    MOST_WAITING,
    Arrival,
    Firing,
    FiringStatus,
    TriggerContext,
    TriggerState,
    budget_left,
    day_start,
    delivery_of,
    first_state,
    hand_firing,
    is_by_hand,
    queue_room,
    refusal_now,
    state_now,
    take_turn,
    watched_file,
)
from windlass.plan.triggers import Trigger

NOON = 1_800_014_400.0
"""2027-01-15 12:00 UTC."""
PLAN = "/plan.yaml"
QUIET = TriggerContext()
DUE, STARTED, SKIPPED, MISSED, WAITING = (FiringStatus(s) for s in ("due", "started", "skipped", "missed", "waiting"))


def trigger(**given: Any) -> Trigger:
    return Trigger.model_validate({"id": "hourly", "cron": "0 * * * *", **given})


class Turns:
    """A trigger with its turns written down as a store does it."""

    def __init__(self, since: float = NOON, **given: Any) -> None:
        self.trigger = trigger(**given)
        self.state = first_state(self.trigger, since)

    def take(self, now: float, seen: TriggerContext = QUIET, **found: str) -> list[Firing]:
        """Take a turn; `found` is what became of the executions, by the hour of their time."""
        became = {one.execution: found.get(f"h{hour(one)}", "") for one in self.state.firings}
        turn = take_turn(self.trigger, PLAN, self.state, now, became, seen)
        kept = {one.key: one for one in (*self.state.firings, *turn.firings)}
        newest = sorted(kept.values(), key=lambda one: one.at, reverse=True)
        self.state = msgspec.structs.replace(turn.state, firings=tuple(newest))
        return turn.firings

    def start(self) -> None:
        """Let all that is due be started."""
        started = [
            msgspec.structs.replace(one, status=STARTED) if one.status is DUE else one for one in self.state.firings
        ]
        self.state = msgspec.structs.replace(self.state, firings=tuple(started))


def hour(firing: Firing) -> int:
    return 12 + round((firing.at - NOON) / 3600)


def told(firings: list[Firing]) -> list[tuple[int, str]]:
    return [(hour(one), one.status.value) for one in firings]


def test_l1_a_time_is_due_once_and_not_before_it_has_come() -> None:
    turns = Turns()
    assert turns.take(NOON + 3599) == []
    assert told(turns.take(NOON + 3600)) == [(13, "due")]
    assert turns.take(NOON + 3660) == []


def test_l1_a_clock_that_was_far_ahead_and_is_set_back_keeps_nothing_from_starting() -> None:
    turns, year = Turns(overlap="allow"), 365 * 86400
    turns.take(NOON + year)
    assert turns.take(NOON) == []
    assert told(turns.take(NOON + 3600)) == [(13, "due")]


@pytest.mark.parametrize(("hours", "again"), [(3, []), (4, [(13, "due")])])
def test_l1_after_a_clock_that_was_more_than_three_hours_ahead_times_begin_again(
    hours: int, again: list[tuple[int, str]]
) -> None:
    turns = Turns(overlap="allow")
    turns.take(NOON + hours * 3600)
    assert turns.take(NOON) == []
    assert told(turns.take(NOON + 3600)) == again


def test_l1_a_time_that_a_clock_ahead_has_started_does_not_come_again() -> None:
    turns = Turns(overlap="allow", catch_up="1d")
    assert len(turns.take(NOON + 5 * 3600)) == 5
    turns.start()
    assert turns.take(NOON + 1) == []
    assert turns.take(NOON + 3600) == []


def test_l1_nothing_from_before_it_was_scheduled_is_caught_up_with() -> None:
    assert Turns(since=NOON + 1).take(NOON + 60) == []


def test_l1_the_id_is_that_of_the_trigger_and_its_time_whoever_asks() -> None:
    (one,) = Turns().take(NOON + 3600)
    (same,) = Turns().take(NOON + 3700)
    (other,) = Turns(id="other").take(NOON + 3600)
    assert one.execution == same.execution != other.execution
    assert one.execution[14] == "7", "it is an id like the others"
    assert int(one.execution.replace("-", "")[:12], 16) == (NOON + 3600) * 1000, "and sorts by its time"


def test_l1_a_late_tick_starts_what_is_not_too_late_and_says_what_is_missed() -> None:
    turns = Turns(catch_up="2h", overlap="allow")
    found = turns.take(NOON + 5 * 3600 + 60, TriggerContext(last_tick=NOON + 60))
    assert told(found) == [(13, "missed"), (16, "due"), (17, "due")]
    assert found[0].reason == (
        "3 times, the last at 2027-01-15 15:00+00:00: at 2027-01-15 17:01+00:00 no tick had come "
        "since 2027-01-15 12:01+00:00; a start may be 2 h late (catch_up)"
    )
    assert turns.take(NOON + 5 * 3600 + 120) == []


def test_l1_missed_times_are_counted_however_many_there_are_and_also_those_that_are_not_caught_up_with() -> None:
    turns = Turns(cron="* * * * *", overlap="allow", catch_up="3h")
    too_late, left_out, *due = turns.take(NOON + 86400)
    assert too_late.reason.startswith("more than 1,000 times: ")
    assert left_out.reason.startswith("81 times, the last at 2027-01-16 10:20+00:00: ")
    assert left_out.reason.endswith("; only the newest times are caught up with")
    assert (len(due), due[0].at, due[-1].at) == (100, NOON + 86400 - 99 * 60, NOON + 86400)
    assert turns.take(NOON + 86400 + 30) == []


def test_l1_two_times_and_a_thousand_are_counted_and_one_is_not() -> None:
    for minutes, told_first in ((4, "at "), (5, "2 times, the last at "), (1003, "1,000 times, the last at ")):
        turns = Turns(cron="* * * * *", overlap="allow", catch_up=0)
        missed, *due = turns.take(NOON + minutes * 60)
        assert missed.reason.startswith(told_first)
        assert (len(due), turns.state.version) == (3, 1)


def test_l1_the_times_that_are_due_are_the_same_however_long_nobody_looked() -> None:
    now, found = NOON + 3 * 86400, []
    for since in (NOON, now - 3 * 3600):
        turns = Turns(since=since, cron="* * * * *", overlap="allow", jitter="10m", catch_up="1h")
        found.append([one.at for one in turns.take(now) if one.status is DUE])
    assert found[0] == found[1]
    assert min(found[0]) < now - 3600 <= min(found[0]) + 600, "one that starts late is not missed"


def test_l1_what_was_missed_because_of_a_broken_plan_says_so() -> None:
    (missed, *_due) = Turns().take(NOON + 3 * 3600, TriggerContext(trouble="plan.yaml:1: no steps"))
    assert missed.reason.startswith("the plan could not be started: plan.yaml:1: no steps; ")


def test_l1_without_catch_up_a_tick_may_still_be_a_minute_late() -> None:
    assert told(Turns(catch_up=0).take(NOON + 3600 + 90)) == [(13, "due")]
    assert told(Turns(catch_up=0).take(NOON + 3600 + 150)) == [(13, "missed")]


def test_l1_of_several_times_that_have_come_only_the_last_is_started() -> None:
    assert told(Turns(catch_up="1d").take(NOON + 3 * 3600)) == [(13, "skipped"), (14, "skipped"), (15, "due")]


def test_l1_a_changed_schedule_begins_when_it_is_seen() -> None:
    turns = Turns()
    turns.trigger = trigger(cron="30 * * * *")
    assert turns.take(NOON + 3600) == [], "neither 13:00 of the old one, nor 12:30 of the new one"
    assert [one.at for one in turns.take(NOON + 5400)] == [NOON + 5400]


def test_l1_overlap_skip_starts_nothing_beside_an_unfinished_execution() -> None:
    turns = Turns()
    (first,) = turns.take(NOON + 3600)
    (beside_due,) = turns.take(NOON + 2 * 3600)
    turns.start()
    (beside_started,) = turns.take(NOON + 3 * 3600)
    for skipped in (beside_due, beside_started):
        assert skipped.status is SKIPPED
        assert skipped.reason == f"execution {first.execution} was unfinished (overlap: skip)"
    assert told(turns.take(NOON + 4 * 3600, h13="completed")) == [(13, "completed"), (16, "due")]


def test_l1_of_several_times_beside_an_unfinished_execution_none_says_that_a_later_one_is_started() -> None:
    turns = Turns(catch_up="1d")
    (first,) = turns.take(NOON + 3600)
    skipped = turns.take(NOON + 3 * 3600)
    assert told(skipped) == [(14, "skipped"), (15, "skipped")]
    assert {one.reason for one in skipped} == {f"execution {first.execution} was unfinished (overlap: skip)"}


def test_l1_overlap_queue_starts_one_after_the_other() -> None:
    turns = Turns(overlap="queue")
    for number in range(1, 4):
        turns.take(NOON + number * 3600)
        turns.start()
    assert told(list(turns.state.firings)) == [(15, "waiting"), (14, "waiting"), (13, "started")]
    assert told(turns.take(NOON + 3 * 3600 + 60, h13="failed")) == [(13, "failed"), (14, "due")]
    turns.start()
    assert turns.take(NOON + 3 * 3600 + 120) == []
    assert told(turns.take(NOON + 3 * 3600 + 180, h14="completed")) == [(14, "completed"), (15, "due")]


def test_l1_a_queue_has_an_end() -> None:
    turns = Turns(overlap="queue", catch_up="2d")
    assert MOST_WAITING == 10, "as the docs say"
    found = turns.take(NOON + (MOST_WAITING + 3) * 3600)
    assert [one.status for one in found] == [DUE, *[WAITING] * MOST_WAITING, SKIPPED, SKIPPED]


def test_l1_overlap_allow_starts_all() -> None:
    turns = Turns(overlap="allow", catch_up="1d")
    assert told(turns.take(NOON + 2 * 3600)) == [(13, "due"), (14, "due")]
    turns.start()
    assert told(turns.take(NOON + 3 * 3600)) == [(15, "due")]


def test_l1_an_execution_whose_process_died_is_started_again_twice() -> None:
    turns = Turns()
    turns.take(NOON + 3600)
    for tries in (1, 2):
        turns.start()
        (again,) = turns.take(NOON + 3600 + tries * 60, h13="cut off")
        assert (again.status, again.tries) == (DUE, tries)
    turns.start()
    (left,) = turns.take(NOON + 3900, h13="cut off")
    assert (left.status, left.reason) == (STARTED, f"its process died 3 times: windlass resume {left.execution}")
    assert turns.take(NOON + 3960, h13="cut off") == [], "it is said once"


def test_l1_jitter_delays_each_time_by_a_share_that_stays_the_same() -> None:
    starts = []
    for hours in range(1, 6):
        turns = Turns(since=NOON + (hours - 1) * 3600 + 60, jitter="30m")
        at = NOON + hours * 3600
        late = next(seconds for seconds in range(0, 1801, 10) if turns.take(at + seconds))
        assert told(list(turns.state.firings)) == [(12 + hours, "due")]
        assert not Turns(since=at - 60, jitter="30m").take(at + late - 10), "another process comes to the same time"
        assert Turns(since=at - 60, jitter="30m").take(at + late)
        starts.append(late)
    assert len(set(starts)) > 1
    assert max(starts) > 900, "up to the whole of it"


def test_l1_a_time_with_jitter_is_missed_by_the_time_it_was_to_start() -> None:
    for seconds in range(0, 3 * 3600, 60):
        turns = Turns(jitter="50m", catch_up="10m", overlap="allow")
        found = [*turns.take(NOON + 3600), *turns.take(NOON + 3600 + seconds)]
        early = [one for one in found if hour(one) == 13]
        assert len(early) == 1 or (seconds < 3000 and not early), "neither lost nor decided on twice"


def test_l1_executions_that_fail_in_a_row_pause_their_trigger() -> None:
    turns = Turns(pause_after=2)
    for number, became in enumerate(["failed", "completed", "partial", "cancelled"], 1):
        turns.take(NOON + number * 3600)
        turns.start()
        turns.take(NOON + number * 3600 + 60, **{f"h{12 + number}": became})
        assert turns.state.paused == ""
    turns.take(NOON + 5 * 3600)
    turns.start()
    found = turns.take(NOON + 6 * 3600, h17="failed")
    assert turns.state.paused == "none of the last 2 executions completed (pause_after)"
    assert told(found) == [(17, "failed"), (18, "skipped")]
    assert found[1].reason == "paused: none of the last 2 executions completed (pause_after)"
    turns.state = msgspec.structs.replace(turns.state, paused="", resumed_at=NOON + 6 * 3600 + 1)
    assert told(turns.take(NOON + 7 * 3600)) == [(19, "due")], "failures before it was resumed do not count"


def test_l1_a_paused_trigger_starts_nothing_of_its_queue() -> None:
    turns = Turns(overlap="queue", catch_up="1d")
    turns.take(NOON + 2 * 3600)
    turns.start()
    turns.state = msgspec.structs.replace(turns.state, paused="by ana")
    assert told(turns.take(NOON + 2 * 3600 + 60, h13="completed")) == [(13, "completed"), (14, "skipped")]


def test_l1_a_trigger_starts_nothing_beyond_the_budget_of_its_day() -> None:
    turns = Turns(budget={"usd": 2, "tokens": 1000})
    assert told(turns.take(NOON + 3600, TriggerContext(spent=Amount(1.99, 999)))) == [(13, "due")]
    assert told(Turns(budget={"tokens": 1}).take(NOON + 3600, TriggerContext(spent=Amount(0.0)))) == [(13, "due")]
    assert told(Turns(budget=2).take(NOON + 3600, TriggerContext(spent=Amount(2.0, 0)))) == [(13, "skipped")]
    dollars = Turns(budget=2).take(NOON + 3600, TriggerContext(spent=Amount(2.5, 0)))
    assert [one.reason for one in dollars] == ["$2.50 of $2.00 for the day are spent (budget)"]
    none = Turns(budget={"tokens": 0}).take(NOON + 3600, TriggerContext(spent=Amount(0.0)))
    assert [one.reason for one in none] == ["0 of 0 tokens for the day are used (budget)"]
    tokens = Turns(budget={"tokens": 1000}).take(NOON + 3600, TriggerContext(spent=Amount(0.0, 1000)))
    assert [one.reason for one in tokens] == ["1,000 of 1,000 tokens for the day are used (budget)"]


def test_l1_an_execution_gets_what_is_left_of_the_day_or_less() -> None:
    day = trigger(budget={"usd": 2, "tokens": 1000})
    assert budget_left(day, None, Amount(1.5, 1200)) == Amount(0.5, 0)
    assert budget_left(day, Amount(0.2), Amount(0.0, 0)) == Amount(0.2, 1000)
    assert budget_left(trigger(), Amount(0.2), Amount(9.0, 9)) == Amount(0.2, None)


def test_l1_the_day_of_a_budget_begins_at_midnight_in_the_zone_of_the_trigger() -> None:
    assert day_start(trigger(), NOON) == NOON - 12 * 3600
    assert day_start(trigger(zone="Asia/Tokyo"), NOON) == NOON - 21 * 3600
    noon = datetime(2026, 11, 1, 17, tzinfo=UTC).timestamp()
    assert day_start(trigger(zone="America/Havana"), noon) == noon - 13 * 3600, "the first of two midnights"


@given(st.lists(st.floats(1, 4 * 3600), max_size=30), st.sampled_from(["skip", "queue", "allow"]))
def test_l1_every_time_is_decided_on_exactly_once_however_the_ticks_come(waits: list[float], overlap: str) -> None:
    turns = Turns(overlap=overlap, catch_up="1d", cron="*/30 * * * *")
    now, decided = NOON, []
    for wait in waits:
        now += wait
        decided += [one.key for one in turns.take(now) if one.decided_at == now and one.tries == 0]
        turns.start()
    assert len(decided) == len(set(decided)) == int((now - NOON) // 1800)


def test_l1_a_state_has_the_firings_by_their_status() -> None:
    state = TriggerState(NOON, "", (Firing("1", NOON, "a", DUE), Firing("2", NOON, "b", MISSED)))
    assert [one.key for one in state.of(MISSED)] == ["2"]


# -- files, deliveries, and firings by hand -------------------------------------------------------


def watching(**given: Any) -> Turns:
    turns = Turns()
    turns.trigger = Trigger.model_validate({"id": "files", "watch": "in", **given})
    turns.state = first_state(turns.trigger, NOON)
    return turns


def names(firings: list[Firing]) -> list[tuple[str, str]]:
    return [(watched_file(one), one.status.value) for one in firings]


def test_l1_a_file_starts_one_execution_for_each_of_its_contents() -> None:
    turns = watching(overlap="allow")
    first, same = Arrival("a.csv", "1" * 64, NOON + 1), Arrival("a.csv", "1" * 64, NOON + 9)
    changed = Arrival("a.csv", "2" * 64, NOON + 9)
    assert names(turns.take(NOON + 5, TriggerContext(arrived=[first]))) == [("a.csv", "due")]
    turns.start()
    assert turns.take(NOON + 10, TriggerContext(arrived=[same])) == []
    (again,) = turns.take(NOON + 20, TriggerContext(arrived=[same, changed]))
    assert (again.at, again.key, turns.state.until) == (NOON + 9, f"{'2' * 16} a.csv", NOON + 20)


def test_l1_a_file_that_is_refused_is_skipped_with_its_reason_and_may_be_put_there_again() -> None:
    turns = watching()
    refused = Arrival("a.csv", "1" * 64, NOON + 1, "it is too large")
    (skipped,) = turns.take(NOON + 5, TriggerContext(arrived=[refused]))
    assert (skipped.status, skipped.reason) == (SKIPPED, "it is too large")
    assert names(turns.take(NOON + 9, TriggerContext(arrived=[refused._replace(refusal="")]))) == [("a.csv", "due")]


def test_l1_files_stay_in_the_queue_while_their_trigger_is_paused_and_say_why() -> None:
    turns = watching()
    arrived = [Arrival(name, "1" * 64, NOON + 1) for name in ("a", "b", "c")]
    found = turns.take(NOON + 5, TriggerContext(arrived=arrived))
    assert names(found) == [("a", "due"), ("b", "waiting"), ("c", "waiting")]
    assert queue_room(turns.state) == MOST_WAITING - 3
    turns.start()
    turns.state = msgspec.structs.replace(turns.state, paused="by ana")
    became = {found[0].execution: "completed"}
    refusal = refusal_now(turns.trigger, turns.state, NOON + 9, became, Amount(0.0, 0))
    assert refusal == "paused: by ana"
    shown = state_now(turns.trigger, turns.state, became, refusal).firings
    assert {one.status.value: one.reason for one in shown} == {"completed": "", "waiting": "paused: by ana"}
    cut = state_now(turns.trigger, turns.state, {found[0].execution: "cut off"}, "").firings
    assert [one.status.value for one in cut] == [one.status.value for one in turns.state.firings]
    assert {one.reason for one in cut} == {"", f"waits for the end of execution {found[0].execution} (overlap: queue)"}
    assert names(turns.take(NOON + 9, QUIET)) == [], "neither started nor skipped"


def test_l1_a_trigger_that_its_failures_pause_says_so_before_its_turn() -> None:
    turns = watching(pause_after=1)
    (found,) = turns.take(NOON + 5, TriggerContext(arrived=[Arrival("a", "1" * 64, NOON + 1)]))
    turns.start()
    refusal = refusal_now(turns.trigger, turns.state, NOON + 9, {found.execution: "failed"}, Amount(0.0, 0))
    assert refusal == "paused: none of the last 1 executions completed (pause_after)"
    assert refusal_now(turns.trigger, turns.state, NOON + 9, {}, Amount(0.0, 0)) == ""


def test_l1_a_firing_says_if_it_is_for_a_file_a_delivery_or_by_hand() -> None:
    turns = watching()
    (file,) = turns.take(NOON + 5, TriggerContext(arrived=[Arrival("a b.csv", "1" * 64, NOON)]))
    hook = Turns()
    hook.trigger = Trigger.model_validate({"id": "hook", "webhook": {"secret": {"from": "SECRET"}}})
    hook.state = first_state(hook.trigger, NOON)
    (delivery,) = hook.take(NOON + 5, TriggerContext(arrived=[Arrival.delivery("d-1", NOON)]))
    again = msgspec.structs.replace(delivery, key=f"{delivery.key} {file.execution}")
    hand, of_file = (hand_firing(name, "an-id", NOON) for name in ("", "a.csv"))
    every = [file, delivery, again, hand, of_file]
    assert [watched_file(one) for one in every] == ["a b.csv", "", "", "", "a.csv"]
    assert [delivery_of(one) for one in every] == ["", "d-1", "d-1", "", ""]
    assert [is_by_hand(one) for one in every] == [False, False, False, True, True]
    assert {one.status for one in every} == {DUE}
