"""Starts executions by the triggers of scheduled plans: `tick` looks once, and whoever calls it looks again (L1).

    turn of each trigger (decided, written once) → claim → create, by an id that is always the same → drive → settle

A process that dies anywhere between leaves a firing that is due, and the next tick takes it up where it is.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from windlass.clock import Clock
from windlass.core.budget import NOTHING, Amount
from windlass.core.transitions import ExecutionStatus
from windlass.core.triggers import (
    Arrival,
    Firing,
    FiringStatus,
    TriggerContext,
    TriggerState,
    budget_left,
    day_start,
    delivery_of,
    first_state,
    queue_room,
    take_turn,
    watched_file,
)
from windlass.engine.engine import Engine
from windlass.engine.folders import folder_trouble, look_into, seen_files
from windlass.engine.hooks import arrival_of
from windlass.engine.observer import STARTING
from windlass.engine.plans import Prerequisites, value_sources
from windlass.engine.run_request import RunRequest
from windlass.engine.starting import check_workdir
from windlass.errors import Conflict, JournalError, NotFound, UsageError, WindlassError
from windlass.faults import fault_point
from windlass.plan.triggers import FolderWatch, Trigger, triggers_of
from windlass.ports import Head
from windlass.ports.deliveries import HookRefusal
from windlass.ports.triggers import ScheduledPlan, TriggerFiring, TriggerStore, WatchedFile

__all__ = ["Schedule", "ScheduleView", "TriggerView"]


_log = logging.getLogger("windlass.engine")
LONGEST = 30 * 86400.0
"""Seconds before a day in which an execution may have begun that spends on it."""


class TriggerView(NamedTuple):
    """A trigger of a scheduled plan, with all that is known of it."""

    plan: ScheduledPlan
    trigger: Trigger
    state: TriggerState
    refused: HookRefusal | None = None
    """Requests to its webhook that were refused."""
    trouble: str = ""
    """The reason why no file can come from its folder now."""


class ScheduleView(NamedTuple):
    """Scheduled plans, and who looks after them."""

    triggers: list[TriggerView]
    unread: list[ScheduledPlan]
    """Plans whose triggers cannot be read, with the reason."""
    ticks: dict[str, float]
    """The times of the last looks at the triggers, by who looked."""
    now: float

    def of(self, trigger: str | None, path: Path) -> list[TriggerView]:
        """One trigger of a plan, or all; none where the plan cannot be read."""
        chosen = [view for view in self.triggers if trigger in (None, view.trigger.id)]
        if self.triggers and not chosen:
            known = ", ".join(view.trigger.id for view in self.triggers)
            raise UsageError(f"{path} has no trigger {trigger!r}; it has: {known}")
        return chosen


class Schedule:
    """The scheduled plans of a home."""

    def __init__(
        self,
        engine: Engine,
        store: TriggerStore,
        drive: Callable[[str], Awaitable[object]],
        clock: Clock | None = None,
    ) -> None:
        """`drive` begins to drive an execution, here or in another process. Without a clock, it is the engine's."""
        self._engine = engine
        self._store = store
        self._drive = drive
        self._now = (clock or engine.clock).now

    async def add(self, path: Path, workdir: Path) -> ScheduleView:
        """Schedule a plan: its triggers start it from now on."""
        plan = ScheduledPlan(str(path.resolve()), str(workdir.resolve()), self._now())
        check_workdir(plan.workdir)
        triggers = await self._read(plan)
        if not triggers:
            raise UsageError(
                f"{path} has no `triggers`, so nothing would start it",
                advice=("add some, as in: windlass docs triggers", f"start it now: windlass run {path}"),
            )
        await self._store.add_plan(plan)
        for trigger in triggers:
            await self._state(plan, trigger)
        return await self.view(path)

    async def lacks(self, path: Path, workdir: Path) -> Prerequisites:
        """Programs and runtimes without which a plan could not start here now."""
        loaded = await asyncio.to_thread(self._engine.read, path, workdir)
        return await self._engine.find_prerequisites(loaded, workdir)

    async def variables(self, path: Path | None = None) -> list[str]:
        """The variables from which steps of one scheduled plan, or of all that can be read, have values."""
        names: dict[str, None] = {}
        for plan in await self._store.plans() if path is None else [await self._scheduled(path)]:
            with suppress(WindlassError):
                loaded = await asyncio.to_thread(self._engine.read, plan.path, plan.workdir)
                names |= dict.fromkeys(value_sources(loaded.plan))
        return list(names)

    async def remove(self, path: Path) -> None:
        """Let a plan start by itself no more. What it has started goes on."""
        await self._store.remove_plan((await self._scheduled(path)).path)

    async def view(self, path: Path | None = None) -> ScheduleView:
        """All scheduled plans, or one."""
        plans = await self._store.plans() if path is None else [await self._scheduled(path)]
        found = ScheduleView([], [], await self._store.ticks(), self._now())
        for plan in plans:
            try:
                triggers = await self._read(plan)
            except JournalError:
                raise
            except Exception as error:  # one that cannot be read hides no other
                found.unread.append(plan._replace(trouble=_trouble(error)))
                continue
            refused = await self._store.deliveries.refusals(plan.path) if any(one.webhook for one in triggers) else {}
            for trigger in triggers:
                state = await self._store.state(plan.path, trigger.id) or first_state(trigger, found.now)
                trouble = await asyncio.to_thread(folder_trouble, trigger.watch, plan.workdir) if trigger.watch else ""
                found.triggers.append(TriggerView(plan, trigger, state, refused.get(trigger.id), trouble))
        return found

    async def pause(self, path: Path, trigger: str | None, reason: str) -> list[str]:
        """Let a trigger of a plan, or all, start nothing until they are resumed; an empty reason resumes them."""
        chosen = (await self.view(path)).of(trigger, path)
        if not chosen:
            raise UsageError(f"{path} cannot be read", advice=(f"see why: windlass schedule why {path}",))
        for view in chosen:
            written = False
            while not written:  # a tick may take a turn meanwhile
                state = await self._state(view.plan, view.trigger)
                changed = msgspec.structs.replace(state, version=state.version + 1, paused=reason)
                if not reason:  # it begins with its next time, and with no failure
                    changed = msgspec.structs.replace(changed, until=self._now(), resumed_at=self._now())
                written = await self._store.write(view.plan.path, view.trigger.id, changed, ())
        return [view.trigger.id for view in chosen]

    async def tick(self, by: str = "tick") -> tuple[list[TriggerFiring], list[ScheduledPlan]]:
        """Start everything that is due; gives what came of it, and the plans that nothing can start."""
        now = self._now()
        last = max((await self._store.ticks()).values(), default=None)
        await self._store.ticked(by, now)
        reports: list[TriggerFiring] = []
        unread: list[ScheduledPlan] = []
        readable: dict[str, tuple[ScheduledPlan, dict[str, Trigger]]] = {}
        for plan in await self._store.plans():
            try:
                triggers = await self._read(plan)
                for trigger in triggers:
                    reports += await self._turn(plan, trigger, now, last)
            except JournalError:
                raise
            except Exception as error:  # whatever it is: it is this plan's, and the others have their times
                trouble = _trouble(error)
                unread.append(plan._replace(trouble=trouble))
                if trouble != plan.trouble:
                    await self._store.note_trouble(plan.path, trouble)
                continue
            readable[plan.path] = plan, {trigger.id: trigger for trigger in triggers}
            if plan.trouble:
                await self._store.note_trouble(plan.path, "")
        for claimed in await self._store.claim(self._engine.driver, self._engine.journal.alive):
            if claimed.plan in readable:  # else it stays due until its plan can be read
                reports.append(await self._start(claimed, *readable[claimed.plan]))
        return reports, unread

    async def _scheduled(self, path: Path) -> ScheduledPlan:
        """The scheduled plan of a file; where there is no such file, the one plan that has this name."""
        plans = await self._store.plans()
        for plan in plans:
            if plan.path == str(path.resolve()):
                return plan
        named = [] if path.exists() else [plan for plan in plans if await self._name(plan) == str(path)]
        if len(named) > 1:
            listed = ", ".join(plan.path for plan in named)
            raise UsageError(f"several scheduled plans have the name {path}: {listed}", advice=("name its file",))
        if not named:
            raise UsageError(f"{path} is not scheduled", advice=("see the scheduled plans: windlass schedule list",))
        return named[0]

    async def _name(self, plan: ScheduledPlan) -> str:
        try:
            return (await asyncio.to_thread(self._engine.read, plan.path, plan.workdir)).plan.name
        except WindlassError:
            return ""  # one that cannot be read is found by its path

    async def _read(self, plan: ScheduledPlan) -> list[Trigger]:
        # In a thread: a plan of thousands of steps takes its time to check, and a server serves others meanwhile.
        loaded = await asyncio.to_thread(self._engine.read, plan.path, plan.workdir)
        return triggers_of(loaded.plan)

    async def _state(self, plan: ScheduledPlan, trigger: Trigger) -> TriggerState:
        """The state of a trigger; a new one begins now."""
        found = await self._store.state(plan.path, trigger.id)
        if found is None:
            found = first_state(trigger, self._now())
            files = None if trigger.watch is None else await asyncio.to_thread(seen_files, trigger.watch, plan.workdir)
            await self._store.write(plan.path, trigger.id, found, (), files)
        return found

    async def _turn(self, plan: ScheduledPlan, trigger: Trigger, now: float, last: float | None) -> list[TriggerFiring]:
        state = await self._state(plan, trigger)
        started = state.of(FiringStatus.STARTED)
        found = {firing.execution: await self._became(firing, now) for firing in started}
        seen = TriggerContext(last, plan.trouble, await self._spent(plan, trigger, now))
        files = None
        if trigger.watch is not None:
            arrived, files = await self._look(plan, trigger, trigger.watch, state, now)
            seen = seen._replace(arrived=arrived)
        elif trigger.webhook is not None:
            room = max(queue_room(state), 0)
            delivered = await self._store.deliveries.undecided(plan.path, trigger.id, room)
            seen = seen._replace(arrived=[arrival_of(one, trigger.webhook) for one in delivered])
        turn = take_turn(trigger, plan.path, state, now, found, seen)
        if not turn.firings and turn.state.schedule == state.schedule and files is None:
            return []
        if not await self._store.write(plan.path, trigger.id, turn.state, turn.firings, files):
            return []  # another process has taken this turn, and starts what is due
        settled = [firing for firing in turn.firings if firing.status is not FiringStatus.DUE]
        return [TriggerFiring(plan.path, trigger.id, firing) for firing in settled]

    async def _look(
        self, plan: ScheduledPlan, trigger: Trigger, watch: FolderWatch, state: TriggerState, now: float
    ) -> tuple[Sequence[Arrival], dict[str, WatchedFile] | None]:
        """Files that have come, and all that were seen, if that is news. What is in another folder was there before."""
        if state.schedule != trigger.schedule:
            return (), await asyncio.to_thread(seen_files, watch, plan.workdir)
        known = await self._store.files(plan.path, trigger.id)
        return await asyncio.to_thread(look_into, watch, plan.workdir, known, now, queue_room(state))

    async def _spent(self, plan: ScheduledPlan, trigger: Trigger, now: float) -> Amount:
        """The spending of the day by executions of a trigger that has a budget."""
        if trigger.budget is None:
            return NOTHING
        day = day_start(trigger, now)
        own = await self._store.executions(plan.path, trigger.id, day - LONGEST)
        spent = [one for one in await self._engine.ledger.spent("execution", day) if one.heading in own]
        return Amount(sum(one.usd for one in spent), sum(one.tokens_in + one.tokens_out for one in spent))

    async def _became(self, firing: Firing, now: float) -> str:
        head = await self._head(firing.execution)
        if head is None:
            return "removed"
        if ExecutionStatus(head.status).finished:
            return head.status
        return "cut off" if self._is_cut_off(head, now) else ""

    def _is_cut_off(self, head: Head, now: float) -> bool:
        if head.status == ExecutionStatus.PENDING:  # its driver may be about to begin
            return now - head.updated_at > STARTING
        return head.status == ExecutionStatus.RUNNING and not self._engine.driven(head)

    async def _head(self, execution: str) -> Head | None:
        return next(iter(await self._engine.journal.heads(prefix=execution, limit=1)), None)

    async def _start(self, claimed: TriggerFiring, plan: ScheduledPlan, triggers: dict[str, Trigger]) -> TriggerFiring:
        """Start a firing that this process has claimed, and write down what came of it."""
        firing = claimed.firing
        status, reason = FiringStatus.STARTED, ""
        head = await self._head(firing.execution)
        try:
            if head is None:
                await self._create(claimed, plan, triggers.get(claimed.trigger))
                fault_point("trigger.created")
        except JournalError:
            raise  # the next tick tries again
        except Exception as error:  # whatever it is: others are due, too
            status, reason = FiringStatus.REFUSED, _refusal(error)
        else:
            if head is None or (not ExecutionStatus(head.status).finished and not self._engine.driven(head)):
                reason = await self._driven(firing.execution)
        await self._store.settle(claimed, status, reason)
        return claimed._replace(firing=msgspec.structs.replace(firing, status=status, reason=reason))

    async def _driven(self, execution: str) -> str:
        """Begin to drive an execution; gives the reason why it cannot be."""
        try:
            await self._drive(execution)
            fault_point("trigger.driven")
        except JournalError:
            raise
        except Exception as error:  # whatever it is: others are due, too
            head = await self._head(execution)
            moved_on = head is not None and (ExecutionStatus(head.status).finished or self._engine.driven(head))
            return "" if moved_on else _trouble(error)
        return ""

    async def _create(self, claimed: TriggerFiring, plan: ScheduledPlan, trigger: Trigger | None) -> None:
        if trigger is None:
            raise NotFound(f"{claimed.plan} has no trigger {claimed.trigger} any more")
        inputs = dict(trigger.inputs)
        if trigger.watch is not None:
            inputs[trigger.watch.input] = os.path.join(trigger.watch.path, watched_file(claimed.firing))
        elif trigger.webhook is not None:
            body = await self._store.deliveries.body(plan.path, trigger.id, delivery_of(claimed.firing))
            if body is None:
                raise NotFound(f"the body of delivery {delivery_of(claimed.firing)} is gone")
            inputs[trigger.webhook.input] = msgspec.json.decode(body)
        request = RunRequest(plan_file=plan.path, workdir=plan.workdir, inputs=inputs)
        if trigger.budget is not None:
            own = await asyncio.to_thread(self._engine.read, plan.path, plan.workdir)
            left = budget_left(trigger, own.plan.budget, await self._spent(plan, trigger, self._now()))
            request = replace(request, budget=left.usd, budget_tokens=left.tokens)
        try:
            await request.create(self._engine, id=claimed.firing.execution)
        except Conflict:  # a process that was taken for dead has made it
            return


def _trouble(error: Exception) -> str:
    """An error as the reason why a plan did not start; one that nobody foresaw is logged with its place."""
    if isinstance(error, WindlassError):
        return error.message
    _log.error("a scheduled plan met an unexpected error", exc_info=error)
    return f"unexpected error: {type(error).__name__}: {error}"


def _refusal(error: Exception) -> str:
    """The reason of a refused start, with the advice that `windlass run` gives, but for its own option."""
    advice = error.failure.advice if isinstance(error, WindlassError) else ()
    return "\n".join([_trouble(error), *(f"→ {line}" for line in advice if "--anyway" not in line)])
