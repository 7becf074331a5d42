"""The workflow of an execution. It knows no rule and never changes, so that every release can go on with it.

It asks for turns and has the attempts performed that a turn names. Everything else is in the journal: its history
holds ids, numbers and tags.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

__all__ = ["ATTEMPT", "EXECUTION", "HEARTBEAT_TIMEOUT", "LOOK", "TURN", "AttemptOrder", "Order", "TurnReply"]

EXECUTION, TURN, ATTEMPT, LOOK = "windlass.execution", "windlass.turn", "windlass.attempt", "look"
HEARTBEAT_TIMEOUT = timedelta(seconds=5)
"""A worker that is silent for this long is lost."""
LONGEST_HISTORY = 10_000
"""Events of the history after which nothing new is scheduled until it can be cut: the server ends it at 51,200."""
_AGAIN = RetryPolicy(initial_interval=timedelta(milliseconds=200), maximum_interval=timedelta(seconds=5))


@dataclass
class Order:
    """An execution to go on with."""

    execution: str
    hold: bool
    """Stay while only a person can go on, instead of pausing it."""


@dataclass
class AttemptOrder:
    """An attempt to perform."""

    execution: str
    step: str
    attempt: int
    queue: str
    waits: float | None = None
    """Seconds that it may wait in its queue before another turn; None is for ever."""


@dataclass
class TurnReply:
    """The result of a turn."""

    over: bool
    active: list[AttemptOrder]
    wake: float | None


@workflow.defn(name=EXECUTION, sandboxed=False)
class ExecutionWorkflow:
    def __init__(self) -> None:
        self._asked = False

    @workflow.signal(name=LOOK)
    def look(self) -> None:
        """Take a turn: the journal has something new."""
        self._asked = True

    @workflow.run
    async def run(self, order: Order) -> None:
        running: dict[str, asyncio.Task[None]] = {}
        while True:
            self._asked = False
            turn = await workflow.execute_local_activity(
                TURN,
                order,
                result_type=TurnReply,
                start_to_close_timeout=timedelta(minutes=3),
                retry_policy=_AGAIN,
            )
            info = workflow.info()
            if not running or info.get_current_history_length() < LONGEST_HISTORY:
                for due in turn.active:
                    name = f"{due.execution}/{due.step}/{due.attempt}"
                    if name not in running:
                        running[name] = asyncio.create_task(_performed(due, name))
            if not running:
                if turn.over:
                    return
                if info.is_continue_as_new_suggested():
                    workflow.continue_as_new(order)
            wake = None if turn.wake is None else timedelta(seconds=max(turn.wake, 0.01))
            try:
                await workflow.wait_condition(
                    lambda: self._asked or any(task.done() for task in running.values()), timeout=wake
                )
            except asyncio.TimeoutError:  # noqa: UP041 - Temporal raises its own class in older Pythons
                continue
            finally:
                for name in [name for name, task in running.items() if task.done()]:
                    del running[name]


async def _performed(due: AttemptOrder, name: str) -> None:
    await workflow.execute_activity(
        ATTEMPT,
        due,
        activity_id=name,
        task_queue=due.queue,
        schedule_to_start_timeout=None if due.waits is None else timedelta(seconds=due.waits),
        start_to_close_timeout=timedelta(days=365),
        heartbeat_timeout=HEARTBEAT_TIMEOUT,
        retry_policy=_AGAIN,
    )
