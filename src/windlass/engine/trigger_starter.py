"""Start the executions of triggers, and find out what became of them (L1).

claimed firing → create, by an id that is always the same → drive → settle
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import msgspec

from windlass.core.budget import NOTHING, Amount
from windlass.core.transitions import ExecutionStatus
from windlass.core.triggers import Firing, FiringStatus, TriggerState, budget_left, day_start, delivery_of, watched_file
from windlass.engine.engine import Engine
from windlass.engine.observer import STARTING
from windlass.engine.run_request import RunRequest
from windlass.errors import Conflict, JournalError, NotFound, WindlassError
from windlass.faults import fault_point
from windlass.plan.triggers import Trigger
from windlass.ports import Head
from windlass.ports.triggers import ScheduledPlan, TriggerFiring, TriggerStore

__all__ = ["TriggerStarter", "trouble_of"]

_log = logging.getLogger("windlass.engine")
LONGEST = 30 * 86400.0
"""Seconds before a day in which an execution may have begun that spends on it."""


class TriggerStarter:
    """The executions of the triggers of a home."""

    def __init__(
        self,
        engine: Engine,
        store: TriggerStore,
        drive: Callable[[str], Awaitable[object]],
        now: Callable[[], float],
    ) -> None:
        self._engine = engine
        self._store = store
        self._drive = drive
        self._now = now

    async def spent(self, plan: ScheduledPlan, trigger: Trigger, now: float) -> Amount:
        """The spending of the day by executions of a trigger that has a budget."""
        if trigger.budget is None:
            return NOTHING
        day = day_start(trigger, now)
        own = await self._store.executions(plan.path, trigger.id, day - LONGEST)
        spent = [one for one in await self._engine.ledger.spent("execution", day) if one.heading in own]
        return Amount(sum(one.usd for one in spent), sum(one.tokens_in + one.tokens_out for one in spent))

    async def became(self, state: TriggerState, now: float) -> dict[str, str]:
        """Find what became of the started executions of a trigger, by their ids; see `take_turn`."""
        return {firing.execution: await self._became(firing, now) for firing in state.of(FiringStatus.STARTED)}

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

    async def start(
        self, claimed: TriggerFiring, plan: ScheduledPlan, triggers: Mapping[str, Trigger]
    ) -> TriggerFiring:
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
            return "" if moved_on else trouble_of(error)
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
            left = budget_left(trigger, own.plan.budget, await self.spent(plan, trigger, self._now()))
            request = replace(request, budget=left.usd, budget_tokens=left.tokens)
        try:
            await request.create(self._engine, id=claimed.firing.execution)
        except Conflict:  # a process that was taken for dead has made it
            return


def trouble_of(error: Exception) -> str:
    """An error as the reason why a plan did not start; one that nobody foresaw is logged with its place."""
    if isinstance(error, WindlassError):
        return error.message
    _log.error("a scheduled plan met an unexpected error", exc_info=error)
    return f"unexpected error: {type(error).__name__}: {error}"


def _refusal(error: Exception) -> str:
    """The reason of a refused start, with the advice of a run, but for `anyway`, which a trigger has not."""
    advice = error.failure.advice if isinstance(error, WindlassError) else ()
    return "\n".join([trouble_of(error), *(f"→ {line}" for line in advice if "`anyway`" not in line)])
