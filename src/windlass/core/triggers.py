"""Rules of triggers: which executions are due, which are skipped, and why. Pure: no clock, no disk (L1).

A trigger has a nominal time for each execution. `take_turn` decides on every nominal time that has come since its last
turn and writes one `Firing` for each, so that each is decided on once: the turn is stored only if no other process took
one meanwhile. An execution's id is made of the plan, the trigger and the nominal time.

    due → started → completed | partial | failed | cancelled | removed
    due → refused          waiting → due          missed: never started
    skipped: never started, unless it is a file that is put there again
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from windlass.core.budget import NOTHING, Amount, BudgetLimit, money
from windlass.core.trigger_times import TimesSince, id_of_time, shown_time, times_since
from windlass.ids import derived_id
from windlass.plan.triggers import Trigger

__all__ = [
    "Arrival",
    "Firing",
    "FiringStatus",
    "TriggerContext",
    "TriggerState",
    "TriggerTurn",
    "budget_left",
    "day_start",
    "delivery_of",
    "first_state",
    "hand_firing",
    "is_by_hand",
    "over_budget",
    "queue_room",
    "refusal_now",
    "state_now",
    "take_turn",
    "watched_file",
]

MOST_WAITING = 10
"""Executions that wait in the queue of a trigger."""
MOST_STARTS = 3
"""Times that an execution is started whose process dies each time."""


class FiringStatus(StrEnum):
    DUE = "due"
    """Decided on, and not started yet."""
    WAITING = "waiting"
    """In the queue behind an unfinished one."""
    STARTED = "started"
    """Its execution is unfinished."""
    COMPLETED = "completed"
    PARTIAL = "partial"
    FAILED = "failed"
    CANCELLED = "cancelled"
    REMOVED = "removed"
    """Its execution is not in the journal any more."""
    SKIPPED = "skipped"
    """Not started, by a rule."""
    MISSED = "missed"
    """Nobody looked at the time, or not early enough."""
    REFUSED = "refused"
    """It could not be started."""

    @property
    def unfinished(self) -> bool:
        return self in (FiringStatus.DUE, FiringStatus.STARTED)


_COUNTED = (FiringStatus.COMPLETED, FiringStatus.PARTIAL, FiringStatus.FAILED, FiringStatus.REFUSED)
"""Ends that say whether a plan works."""


class Firing(msgspec.Struct, frozen=True):
    """One nominal time of a trigger, and what became of it."""

    key: str
    """Names it among those of its trigger."""
    at: float
    """The nominal time."""
    execution: str
    """The id that its execution has or would have."""
    status: FiringStatus
    reason: str = ""
    decided_at: float = 0.0
    tries: int = 0
    """Starts after the first one, because the process that drove it died."""


SET_BACK = 3 * 3600.0
"""Seconds by which decided times may lie ahead; with more, the clock was wrong, as in Debian's cron."""


class TriggerState(msgspec.Struct, frozen=True):
    """All that is known of a trigger."""

    until: float
    """The nominal times up to here are decided on."""
    schedule: str
    """The schedule that they are times of."""
    firings: tuple[Firing, ...] = ()
    """The unfinished and the last ones, newest first."""
    version: int = 0
    """Counts the turns."""
    paused: str = ""
    """The reason why it is paused; empty if it is not."""
    resumed_at: float = 0.0
    """The time when it was last resumed: failures before that do not count."""

    def of(self, *statuses: FiringStatus) -> list[Firing]:
        return [firing for firing in self.firings if firing.status in statuses]

    def decided_until(self, now: float) -> float:
        """`until`, or now if the clock was set back since by more than what a change of an hour or two explains.

        A clock that was behind for a while has drawn `until` back with it: a time that was decided on before that has
        come tells how far it really is.
        """
        if self.until > now + SET_BACK:
            return now
        decided = (one.at for one in self.firings if not is_by_hand(one) and max(one.at, one.decided_at) <= now)
        return max(self.until, *decided, 0.0)


DELIVERY = "delivery"
"""Stands for the digest in the keys of deliveries, which are known by their ids."""


BY_HAND = "hand:"
"""Begins the keys of firings by a person."""


class Arrival(NamedTuple):
    """A file that has come or was changed, or a delivery of a webhook."""

    name: str
    """Of the file, or the id of the delivery."""
    digest: str
    """Of its content: the same file with the same content comes once."""
    at: float
    """The time when it came, or was first seen changed."""
    refusal: str = ""
    """The reason why it starts nothing, whatever the trigger says."""

    @classmethod
    def delivery(cls, name: str, at: float, refusal: str = "") -> Arrival:
        return cls(name, DELIVERY, at, refusal)

    @property
    def key(self) -> str:
        return f"{self.digest[:16]} {self.name}"

    def execution(self, plan: str, trigger: str) -> str:
        """The id of the execution that it starts."""
        return derived_id(self.at, plan, trigger, self.key)


class TriggerContext(NamedTuple):
    """Facts that a turn depends on, besides the trigger's own."""

    last_tick: float | None = None
    """The time of the last look at the triggers before this one."""
    trouble: str = ""
    """The reason why nothing could start the plan until now."""
    spent: Amount = NOTHING
    """Spending of the day by executions of a trigger that has a budget."""
    arrived: Sequence[Arrival] = ()
    """New and changed files of a trigger that watches a folder, or new deliveries of its webhook.

    There are no files while `refusal_now` says something: they stay in their folder for a later turn.
    """


class TriggerTurn(NamedTuple):
    """A turn of a trigger."""

    state: TriggerState
    """The state after it, with the firings from before it."""
    firings: list[Firing]
    """New and changed firings, oldest first."""


def first_state(trigger: Trigger, now: float) -> TriggerState:
    """The state of a trigger that was just scheduled: nothing before that is caught up with."""
    return TriggerState(now, trigger.schedule)


def take_turn(
    trigger: Trigger, plan: str, state: TriggerState, now: float, found: Mapping[str, str], seen: TriggerContext
) -> TriggerTurn:
    """Decide on all times until now. `found` is what became of started executions, by their ids.

    It is an execution's status, `removed`, or `cut off` for one whose process died; empty is that it goes on.
    """
    if state.schedule != trigger.schedule:  # times of a schedule that was changed begin now
        state = msgspec.structs.replace(state, until=max(state.until, now), schedule=trigger.schedule)
    changed, known = _looked_up(state, found, now)
    paused = state.paused or _failing(trigger, known, state.resumed_at)
    refusal = _refusal(trigger, paused, seen.spent)
    busy = next((firing for firing in known if firing.status.unfinished), None)
    waiting = sorted((f for f in known if f.status is FiringStatus.WAITING), key=lambda firing: firing.at)
    if refusal and trigger.watch is None:  # files stay in the queue until the reason is gone
        changed |= {firing.key: _skipped(firing, refusal) for firing in waiting}
    elif waiting and busy is None and not refusal:
        busy = msgspec.structs.replace(waiting.pop(0), status=FiringStatus.DUE, reason="", decided_at=now)
        changed[busy.key] = busy
    if trigger.cron is None:
        came = {firing.key for firing in known if firing.status is not FiringStatus.SKIPPED}
        fresh = [one for one in seen.arrived if one.key not in came]
        due = [_arrived(trigger, plan, one, now) for one in fresh if not one.refusal]
        missed = [_skipped(_arrived(trigger, plan, one, now), one.refusal) for one in fresh if one.refusal]
        until = now  # what is older than is kept is forgotten from here
    else:
        began = {firing.key for firing in known if firing.status not in (FiringStatus.SKIPPED, FiringStatus.MISSED)}
        times = times_since(trigger, trigger.cron, plan, state.decided_until(now), now)
        due = [one for at in times.due if (one := _at_time(trigger, plan, at, now)).key not in began]
        missed = list(_missed(trigger, plan, times, now, seen))
        until = times.until
    new = [_skipped(firing, refusal) for firing in due] if refusal else _decided(trigger, due, busy, len(waiting))
    after = msgspec.structs.replace(state, until=until, version=state.version + 1, paused=paused)
    return TriggerTurn(after, [*changed.values(), *missed, *new])


def _at_time(trigger: Trigger, plan: str, at: float, now: float) -> Firing:
    return Firing(f"{at:.0f}", at, id_of_time(trigger, plan, at), FiringStatus.DUE, decided_at=now)


def _missed(trigger: Trigger, plan: str, times: TimesSince, now: float, seen: TriggerContext) -> Iterator[Firing]:
    """One firing for all times that are too late, and one for those that are not caught up with."""
    why = f"the plan could not be started: {seen.trouble}"
    if not seen.trouble:
        last = f"since {shown_time(seen.last_tick, trigger.zone)}" if seen.last_tick is not None else "before"
        why = f"at {shown_time(now, trigger.zone)} no tick had come {last}"
    late = f"{why}; a start may be {_minutes(times.window)} late (catch_up)"
    for row, reason in ((times.missed, late), (times.left_out, f"{why}; only the newest times are caught up with")):
        if row is not None:
            firing = _at_time(trigger, plan, row.first, now)
            told = row.counted(trigger.zone) + reason
            yield msgspec.structs.replace(firing, status=FiringStatus.MISSED, reason=told)


def _arrived(trigger: Trigger, plan: str, file: Arrival, now: float) -> Firing:
    return Firing(file.key, file.at, file.execution(plan, trigger.id), FiringStatus.DUE, decided_at=now)


def refusal_now(trigger: Trigger, state: TriggerState, now: float, found: Mapping[str, str], spent: Amount) -> str:
    """The reason why a turn would start nothing: a pause or the budget; empty if there is none."""
    _changed, known = _looked_up(state, found, now)
    return _refusal(trigger, state.paused or _failing(trigger, known, state.resumed_at), spent)


def state_now(trigger: Trigger, state: TriggerState, found: Mapping[str, str], refusal: str) -> TriggerState:
    """The state between two turns: with the ends of executions, and with the refusal for which files wait."""

    def shown(firing: Firing) -> Firing:
        became = found.get(firing.execution, "")
        if firing.status is FiringStatus.STARTED and became not in ("", "cut off"):
            return msgspec.structs.replace(firing, status=FiringStatus(became), reason="")
        if firing.status is FiringStatus.WAITING and refusal and trigger.watch is not None:
            return msgspec.structs.replace(firing, reason=refusal)
        return firing

    return msgspec.structs.replace(state, firings=tuple(shown(firing) for firing in state.firings))


def queue_room(state: TriggerState) -> int:
    """The number of files or deliveries that a turn may take up: the others stay where they are until there is room."""
    return MOST_WAITING - len(state.of(FiringStatus.WAITING, FiringStatus.DUE))


def hand_firing(file: str, execution: str, now: float) -> Firing:
    """A firing by a person now, of a watched file if one is named. It is no time and no arrival of its trigger."""
    key = BY_HAND + execution
    return Firing(f"{key} {file}" if file else key, now, execution, FiringStatus.DUE, decided_at=now)


def is_by_hand(firing: Firing) -> bool:
    """True for a firing by a person."""
    return firing.key.startswith(BY_HAND)


def watched_file(firing: Firing) -> str:
    """The name of the file that a firing of a watched folder is for; empty for another firing."""
    kind, _, name = firing.key.partition(" ")
    return "" if kind == DELIVERY else name


def delivery_of(firing: Firing) -> str:
    """The id of the delivery that a firing of a webhook is for; empty for another firing.

    After the id stands the execution, if the delivery was sent again.
    """
    kind, _, name = firing.key.partition(" ")
    return name.partition(" ")[0] if kind == DELIVERY else ""


def _failing(trigger: Trigger, firings: Sequence[Firing], since: float) -> str:
    """The reason to pause a trigger of whose last executions none completed. Cancelled ones do not count.

    Neither do those by hand: they are tried by somebody who sees what becomes of them.
    """
    if not trigger.pause_after:
        return ""
    ended = [one.status for one in firings if one.status in _COUNTED and one.decided_at > since and not is_by_hand(one)]
    last = ended[: trigger.pause_after]
    if len(last) < trigger.pause_after or FiringStatus.COMPLETED in last:
        return ""
    return f"none of the last {len(last)} executions completed (pause_after)"


def _refusal(trigger: Trigger, paused: str, spent: Amount) -> str:
    return f"paused: {paused}" if paused else over_budget(trigger, spent)


def over_budget(trigger: Trigger, spent: Amount) -> str:
    """The reason why its budget for the day lets nothing start; empty if it does."""
    limit = trigger.budget
    if limit is None:
        return ""
    if limit.usd is not None and (spent.usd or 0.0) >= limit.usd:
        return f"{money(spent.usd or 0.0)} of {money(limit.usd)} for the day are spent (budget)"
    if limit.tokens is not None and (spent.tokens or 0) >= limit.tokens:
        return f"{spent.tokens or 0:,} of {limit.tokens:,} tokens for the day are used (budget)"
    return ""


def budget_left(trigger: Trigger, own: BudgetLimit | None, spent: Amount) -> Amount:
    """The limit of an execution: the plan's own, and what is left of the trigger's for the day; the smaller counts."""
    day = trigger.budget
    usd = [one.usd for one in (own,) if one is not None and one.usd is not None]
    tokens = [one.tokens for one in (own,) if one is not None and one.tokens is not None]
    if day is not None and day.usd is not None:
        usd.append(max(day.usd - (spent.usd or 0.0), 0.0))
    if day is not None and day.tokens is not None:
        tokens.append(max(day.tokens - (spent.tokens or 0), 0))
    return Amount(min(usd, default=None), min(tokens, default=None))


def day_start(trigger: Trigger, now: float) -> float:
    """The beginning of the day in the trigger's zone."""
    today = datetime.fromtimestamp(now, ZoneInfo(trigger.zone))
    return today.replace(hour=0, minute=0, second=0, microsecond=0, fold=0).timestamp()


def _looked_up(state: TriggerState, found: Mapping[str, str], now: float) -> tuple[dict[str, Firing], list[Firing]]:
    """Firings that are changed by what became of their executions, by their keys; and all, with these changes."""
    changed = {firing.key: firing for firing in _settled(state, found, now)}
    return changed, [changed.get(firing.key, firing) for firing in state.firings]


def _settled(state: TriggerState, found: Mapping[str, str], now: float) -> Iterator[Firing]:
    """Started executions that have ended, or have to be started again."""
    for firing in state.of(FiringStatus.STARTED):
        became = found.get(firing.execution, "")
        if became == "cut off":
            tries = firing.tries + 1
            if tries < MOST_STARTS:
                yield msgspec.structs.replace(firing, status=FiringStatus.DUE, tries=tries, decided_at=now)
            elif not firing.reason:
                reason = f"its process died {tries} times: windlass resume {firing.execution}"
                yield msgspec.structs.replace(firing, reason=reason)
        elif became:
            yield msgspec.structs.replace(firing, status=FiringStatus(became), reason="")


def _decided(trigger: Trigger, due: Sequence[Firing], busy: Firing | None, waiting: int) -> Iterator[Firing]:
    """Apply the rule for overlaps to times that have come, oldest first."""
    if trigger.overlap == "allow":
        yield from due
        return
    queue = trigger.overlap == "queue"
    for number, firing in enumerate(due, 1):
        if busy is None and not queue and number < len(due):
            yield _skipped(firing, "a later one had come, too, and only that is started (overlap: skip)")
        elif busy is None:
            busy = firing
            yield firing
        elif not queue:
            yield _skipped(firing, f"execution {busy.execution} was unfinished (overlap: skip)")
        elif waiting >= MOST_WAITING:
            yield _skipped(firing, f"{MOST_WAITING} executions were waiting already (overlap: queue)")
        else:
            waiting += 1
            reason = f"waits for the end of execution {busy.execution} (overlap: queue)"
            yield msgspec.structs.replace(firing, status=FiringStatus.WAITING, reason=reason)


def _skipped(firing: Firing, reason: str) -> Firing:
    return msgspec.structs.replace(firing, status=FiringStatus.SKIPPED, reason=reason)


def _minutes(seconds: float) -> str:
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes} min" if hours and minutes else f"{hours} h" if hours else f"{minutes} min"
