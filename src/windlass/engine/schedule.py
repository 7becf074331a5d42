"""Starts executions by the triggers of scheduled plans: `tick` looks once, and whoever calls it looks again (L1).

    turn of each trigger (decided, written once) → claim → start, in `trigger_starter`

A process that dies anywhere between leaves a firing that is due, and the next tick takes it up where it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from windlass.clock import Clock
from windlass.core.triggers import (
    MOST_WAITING,
    FiringStatus,
    TriggerContext,
    TriggerState,
    first_state,
    hand_firing,
    over_budget,
    queue_room,
    refusal_now,
    state_now,
    take_turn,
)
from windlass.engine.engine import Engine
from windlass.engine.folders import FolderLook, folder_trouble, look_into, seen_files, watched_name
from windlass.engine.hooks import arrival_of
from windlass.engine.plans import Prerequisites, value_sources
from windlass.engine.starting import check_workdir
from windlass.engine.trigger_starter import TriggerStarter, trouble_of
from windlass.errors import JournalError, UsageError, WindlassError
from windlass.ids import new_id
from windlass.plan.triggers import FolderWatch, Trigger, triggers_of
from windlass.ports.deliveries import HookRefusal
from windlass.ports.triggers import ScheduledPlan, TriggerFiring, TriggerStore

__all__ = ["PendingFile", "PlanTrouble", "Schedule", "ScheduleView", "TriggerView"]

ALL_FILES = 1_000_000
"""Files of a folder that are looked for to show them."""


class PendingFile(NamedTuple):
    """A file in a watched folder that no tick has taken up yet."""

    name: str
    reason: str
    """The reason why it waits."""


class PlanTrouble(NamedTuple):
    """A plan, or one trigger of it, by which nothing can be started now."""

    path: str
    trouble: str
    trigger: str = ""
    """Empty for the whole plan."""


class TriggerView(NamedTuple):
    """A trigger of a scheduled plan, with all that is known of it."""

    plan: ScheduledPlan
    trigger: Trigger
    state: TriggerState
    refused: HookRefusal | None = None
    """Requests to its webhook that were refused."""
    trouble: str = ""
    """The reason why no file can come from its folder now."""
    pending: list[PendingFile] | None = None
    """The files that wait in its folder, if they were asked for."""


class ScheduleView(NamedTuple):
    """Scheduled plans, and who looks after them."""

    triggers: list[TriggerView]
    unread: list[PlanTrouble]
    """Plans whose triggers cannot be read."""
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
        self._now = (clock or engine.clock).now
        self._starter = TriggerStarter(engine, store, drive, self._now)

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

    async def view(self, path: Path | None = None, *, files: bool = False) -> ScheduleView:
        """All scheduled plans, or one; with `files`, also those that wait in watched folders."""
        plans = await self._store.plans() if path is None else [await self._scheduled(path)]
        found = ScheduleView([], [], await self._store.ticks(), self._now())
        for plan in plans:
            try:
                triggers = await self._read(plan)
            except Exception as error:  # one that cannot be read hides no other
                found.unread.append(PlanTrouble(plan.path, trouble_of(error)))
                continue
            refused = await self._store.deliveries.refusals(plan.path) if any(one.webhook for one in triggers) else {}
            for trigger in triggers:
                view = await self._view(plan, trigger, found.now, files)
                found.triggers.append(view._replace(refused=refused.get(trigger.id)))
        return found

    async def _view(self, plan: ScheduledPlan, trigger: Trigger, now: float, files: bool) -> TriggerView:
        state = await self._store.state(plan.path, trigger.id) or first_state(trigger, now)
        state = msgspec.structs.replace(state, until=state.decided_until(now))
        became = await self._starter.became(state, now)
        refusal = refusal_now(trigger, state, now, became, await self._starter.spent(plan, trigger, now))
        view = TriggerView(plan, trigger, state_now(trigger, state, became, refusal))
        if trigger.watch is None:
            return view
        if trouble := await asyncio.to_thread(folder_trouble, trigger.watch, plan.workdir):
            return view._replace(trouble=trouble)
        if not files:
            return view
        try:
            look = await self._look(plan, trigger, trigger.watch, state, now, ALL_FILES)
        except UsageError as error:  # one of its files cannot be read
            return view._replace(trouble=error.message)
        return view._replace(pending=_pending(look, state, refusal))

    async def pause(self, path: Path, trigger: str | None, reason: str) -> dict[str, bool]:
        """Let a trigger of a plan, or all, start nothing until they are resumed; an empty reason resumes them.

        Returns their ids, each with False if it was not paused: its times that are due stay so.
        """
        chosen = (await self.view(path)).of(trigger, path)
        if not chosen:
            raise _unreadable(path)
        found: dict[str, bool] = {}
        for view in chosen:
            written = False
            while not written:  # a tick may take a turn meanwhile
                state = await self._state(view.plan, view.trigger)
                found[view.trigger.id] = bool(reason or state.paused)
                if not found[view.trigger.id]:
                    break
                changed = msgspec.structs.replace(state, version=state.version + 1, paused=reason)
                if not reason:  # it begins with its next time, and with no failure
                    changed = msgspec.structs.replace(changed, until=self._now(), resumed_at=self._now())
                written = await self._store.write(view.plan.path, view.trigger.id, changed, ())
        return found

    async def fire(self, path: Path, trigger: str | None = None, file: str = "") -> TriggerFiring:
        """Start a plan once now as one of its triggers would. Its times and a pause do not count, its budget does."""
        chosen = (await self.view(path)).of(trigger, path)
        if not chosen:
            raise _unreadable(path)
        if len(chosen) > 1:
            names = ", ".join(view.trigger.id for view in chosen)
            raise UsageError(f"{path} has several triggers: {names}", advice=("name one of them behind the plan",))
        (view,) = chosen
        name = await asyncio.to_thread(_file_to_start, view, file)
        firing = hand_firing(name, new_id(), self._now())
        written = False
        while not written:  # a tick may take a turn meanwhile
            state = await self._state(view.plan, view.trigger)
            await self._check_free(view, state)
            changed = msgspec.structs.replace(state, version=state.version + 1)
            written = await self._store.write(view.plan.path, view.trigger.id, changed, (firing,))
        triggers = {view.trigger.id: view.trigger}
        for claimed in await self._store.claim(self._engine.driver, self._engine.journal.alive, firing.key):
            return await self._starter.start(claimed, view.plan, triggers)
        return TriggerFiring(view.plan.path, view.trigger.id, firing)  # a tick has claimed it, and starts it

    async def _check_free(self, view: TriggerView, state: TriggerState) -> None:
        """Raise if the trigger's budget is spent, or its rule for overlaps lets nothing start beside an execution."""
        now, trigger = self._now(), view.trigger
        if spent := over_budget(trigger, await self._starter.spent(view.plan, trigger, now)):
            raise UsageError(spent, advice=("raise the trigger's `budget`, or wait for the next day",))
        known = state_now(trigger, state, await self._starter.became(state, now), "").firings
        busy = next((firing.execution for firing in known if firing.status.unfinished), "")
        if busy and trigger.overlap != "allow":
            advice = (f"wait for its end: windlass watch {busy}", f"end it: windlass cancel {busy}")
            raise UsageError(f"execution {busy} of {trigger.id} is unfinished", advice=advice)

    async def tick(self, by: str = "tick") -> tuple[list[TriggerFiring], list[PlanTrouble]]:
        """Start everything that is due; gives what came of it, and the plans and triggers that can start nothing."""
        now = self._now()
        last = max((await self._store.ticks()).values(), default=None)
        await self._store.ticked(by, now)
        reports: list[TriggerFiring] = []
        troubles: list[PlanTrouble] = []
        readable: dict[str, tuple[ScheduledPlan, dict[str, Trigger]]] = {}
        for plan in await self._store.plans():
            trouble = ""
            try:
                triggers = await self._read(plan)
            except Exception as error:  # whatever it is: it is this plan's, and the others have their times
                trouble = trouble_of(error)
                troubles.append(PlanTrouble(plan.path, trouble))
            else:
                readable[plan.path] = plan, {trigger.id: trigger for trigger in triggers}
                for trigger in triggers:
                    await self._take_turn(plan, trigger, now, last, reports, troubles)
            if trouble != plan.trouble:
                await self._store.note_trouble(plan.path, trouble)
        for claimed in await self._store.claim(self._engine.driver, self._engine.journal.alive):
            if claimed.plan in readable:  # else it stays due until its plan can be read
                reports.append(await self._starter.start(claimed, *readable[claimed.plan]))
        return reports, troubles

    async def _take_turn(
        self,
        plan: ScheduledPlan,
        trigger: Trigger,
        now: float,
        last: float | None,
        reports: list[TriggerFiring],
        troubles: list[PlanTrouble],
    ) -> None:
        """Take the turn of a trigger, and add what came of it to the reports or the troubles."""
        try:
            reports += await self._turn(plan, trigger, now, last)
        except JournalError:
            raise
        except Exception as error:  # whatever it is: it is this trigger's, and the plan has others
            troubles.append(PlanTrouble(plan.path, trouble_of(error), trigger.id))

    async def _scheduled(self, path: Path) -> ScheduledPlan:
        """The scheduled plan of a file; where there is no such file, the one plan that has this name."""
        plans = await self._store.plans()
        # A file that was replaced by a link since is known by its own path.
        for place in (str(path.parent.resolve() / path.name), str(path.resolve())):
            for plan in plans:
                if plan.path == place:
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
        found = await self._starter.became(state, now)
        seen = TriggerContext(last, plan.trouble, await self._starter.spent(plan, trigger, now))
        files = None
        if trigger.watch is not None:
            room = 0 if refusal_now(trigger, state, now, found, seen.spent) else queue_room(state)
            look = await self._look(plan, trigger, trigger.watch, state, now, room)
            seen, files = seen._replace(arrived=look.arrived), look.seen
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
        self, plan: ScheduledPlan, trigger: Trigger, watch: FolderWatch, state: TriggerState, now: float, room: int
    ) -> FolderLook:
        """Look into the folder of a trigger. What is in another folder than until now was there before."""
        if state.schedule != trigger.schedule:
            return FolderLook([], await asyncio.to_thread(seen_files, watch, plan.workdir), {})
        known = await self._store.files(plan.path, trigger.id)
        return await asyncio.to_thread(look_into, watch, plan.workdir, known, now, room)


def _unreadable(path: Path) -> UsageError:
    return UsageError(f"{path} cannot be read", advice=(f"see why: windlass schedule why {path}",))


def _file_to_start(view: TriggerView, file: str) -> str:
    """The name of the file that a person wants to start a trigger with; empty where it needs none."""
    trigger, path = view.trigger, view.plan.path
    if trigger.webhook is not None:
        raise UsageError(
            f"{trigger.id} starts for a delivery of its webhook, so it needs the body of one",
            advice=("send it a signed request: windlass docs triggers", f"start the plan: windlass run {path}"),
        )
    if trigger.watch is None:
        if file:
            raise UsageError(f"{trigger.id} watches no folder, so no file starts it", advice=("leave out `file`",))
        return ""
    if not file:
        advice = (f"name one: windlass schedule fire {path} {trigger.id} --file NAME",)
        raise UsageError(f"{trigger.id} starts for a file in {trigger.watch.path}", advice=advice)
    return watched_name(trigger.watch, view.plan.workdir, file)


def _pending(look: FolderLook, state: TriggerState, refusal: str) -> list[PendingFile]:
    """The files that no tick has taken up, with the reasons."""
    came = {firing.key for firing in state.firings if firing.status is not FiringStatus.SKIPPED}
    full = f"{MOST_WAITING} executions are waiting already (overlap: queue)" if queue_room(state) <= 0 else ""
    reason = refusal or full or "for the next tick"
    waiting = [PendingFile(one.name, reason) for one in look.arrived if one.key not in came]
    return waiting + [PendingFile(name, reason) for name, reason in look.held.items()]
