"""Arguments that name an execution or a step of one, the same in every command, and their completion in a shell."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import click

from windlass.cli.command import Argument
from windlass.cli.session import with_observer
from windlass.errors import WindlassError

if TYPE_CHECKING:
    from pathlib import Path

    from click.shell_completion import CompletionItem

    from windlass.engine.observer import Observer

__all__ = ["AgentStepName", "ExecutionId", "OptionalExecutionId", "OptionalStepName", "StepName"]

OFFERED = 50
"""Executions that a shell offers: the newest."""


def _executions(context: click.Context, begun: str) -> list[CompletionItem]:
    async def work(observer: Observer, _home: Path) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from windlass.engine.lookup import LATEST

        ids = [
            CompletionItem(head.id, help=f"{head.name}, {head.status}")
            for head in await observer.executions([], OFFERED)
        ]
        words = [CompletionItem(word, help=about.help) for word, about in LATEST.items()] if ids else []
        return [*words, *ids]

    return [item for item in _offered(context, work) if item.value.startswith(begun)]


def _steps(context: click.Context, begun: str) -> list[CompletionItem]:
    execution = context.params.get("execution")
    if not execution:
        return []

    async def work(observer: Observer, _home: Path) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        state, _entries = await observer.record((await observer.find(execution)).id)
        return [CompletionItem(name, help=str(step.status)) for name, step in state.steps.items()]

    return [item for item in _offered(context, work) if item.value.startswith(begun)]


def _offered(
    context: click.Context, work: Callable[[Observer, Path], Awaitable[list[CompletionItem]]]
) -> list[CompletionItem]:
    """Look into the home. While a line is typed nothing may be said: what cannot be read offers nothing."""
    home = context.params.get("home") or context.find_root().params.get("home")
    try:
        return with_observer(work, home)
    except WindlassError:
        return []


_ID = "Execution: its id, the beginning or the end of it, @last or @last-failed"
_STEP = "The step; STEP[N] is one item of a foreach"

ExecutionId = Annotated[str, Argument(metavar="ID", help=_ID, complete=_executions)]
OptionalExecutionId = Annotated[str | None, Argument(metavar="ID", help=_ID, complete=_executions)]
StepName = Annotated[str, Argument(metavar="STEP", help=_STEP, complete=_steps)]
AgentStepName = Annotated[
    str | None, Argument(metavar="STEP", help="The agent's step; not needed where there is one", complete=_steps)
]
OptionalStepName = Annotated[
    str | None, Argument(metavar="STEP", help="Only this step, with its items", complete=_steps)
]
