"""`status`: one execution, or all that are not finished.

A finished one is shown from its journal alone. Others need the engine, which takes twice as long to begin: for their
forecast, and for what keeps them waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence, Set
from typing import TYPE_CHECKING, Any

from windlass.cli.command import Group
from windlass.cli.look import show_list
from windlass.cli.names import OptionalExecutionId
from windlass.cli.session import (
    AsJson,
    CommandEnd,
    Home,
    as_typed,
    out,
    print_json,
    say,
    stores_of,
    with_engine,
    with_observer,
)
from windlass.cli.terminal import clip
from windlass.errors import Damaged

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.core.state import State
    from windlass.engine.engine import Engine
    from windlass.engine.observer import Observer

__all__ = ["register"]

UNFINISHED = ["pending", "running", "paused"]


def register(app: Group) -> None:
    app.add(status)


def status(
    execution: OptionalExecutionId = None,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Show an execution's status; without ID, list unfinished ones."""

    async def show_all(observer: Observer, folder: Path) -> bool:
        unfinished = await observer.executions(UNFINISHED)
        if not unfinished and not as_json:
            say("No unfinished executions.")
        await show_list(observer, unfinished, as_json)
        return not as_json and (bool(unfinished) or _has_breakers(folder))

    async def show_gates(engine: Engine) -> int:
        from windlass.cli.tool_text import gate_lines

        for line in gate_lines(engine):
            out(line)
        return 0

    async def show_finished(observer: Observer, folder: Path) -> int | None:
        return await _show_finished(observer, folder, str(execution), as_json)

    async def show_unfinished(engine: Engine) -> int:
        return await _show_unfinished(engine, str(execution), as_json)

    if execution is None:
        raise CommandEnd(with_engine(show_gates, home) if with_observer(show_all, home) else 0)
    code = with_observer(show_finished, home)
    raise CommandEnd(with_engine(show_unfinished, home) if code is None else code)


def _has_breakers(home: Path) -> bool:
    """Tell whether a breaker may keep the next execution waiting."""
    stores = stores_of(home)
    if not stores.has_gates:
        return False
    book = stores.gates()
    try:
        return bool(book.breakers())
    finally:
        book.close()


async def _show_finished(observer: Observer, home: Path, execution: str, as_json: bool) -> int | None:
    """Print it; returns the exit code, or None if it is not finished."""
    try:
        state = await observer.state(execution)
    except Damaged as damage:
        if not as_json:
            raise
        from windlass.engine.damage import damaged_view

        print_json(damaged_view(await observer.find(execution), damage))
        return damage.exit_code
    if not state.status.finished:
        return None
    from windlass.core.view import has_verified_work, snapshot

    stale: Set[str] = frozenset()
    if has_verified_work(state):
        from windlass.engine.agents.staleness import StaleChecks

        stale = await asyncio.to_thread(StaleChecks(home).find, state)
    if as_json:
        print_json(snapshot(state, None, stale))
    else:
        _print(state, stale)
    return 0


async def _show_unfinished(engine: Engine, execution: str, as_json: bool) -> int:
    from windlass.cli.tool_text import gate_lines
    from windlass.engine.gates.view import standing

    state = await engine.state(execution)
    stale = await engine.stale(state)
    driven = engine.driven(state)
    forecast = await engine.forecast_view(state) if as_json or driven else None
    if as_json:
        print_json(standing(state, engine.attempt_runner.gates, forecast, stale))
    else:
        waits = () if state.status.finished else gate_lines(engine)
        _print(state, stale, driven, str(forecast["text"]) if forecast is not None else "", waits)
    return 0


def _print(state: State, stale: Set[str], driven: bool = False, forecast: str = "", waits: Sequence[str] = ()) -> None:
    """`waits` are the lines that tell what keeps it waiting."""
    from windlass.cli.text import MARKS, items_text, next_commands, standing_of, summary, time_text
    from windlass.cli.used_text import used_text
    from windlass.core.resources import summed
    from windlass.core.transitions import StepStatus
    from windlass.core.view import progress, shows_progress, verdict_of, whole_percent

    for line in summary(state, driven, stale):
        out(line)
    out(f"{whole_percent(progress(state))}%  in {state.workdir}" if shows_progress(state) else f"in {state.workdir}")
    if forecast:
        out(f"forecast: {forecast}")
    if used := used_text(summed(step.used for step in state.steps.values())):
        out(used)
    for step in state.top_level():
        undone = " (undone)" if step.undone else ""
        checked = step.agent is not None and step.agent.checked is not None
        found = verdict_of(step, stale) if checked else None
        verdict = f" ({found})" if found is not None else ""
        more = f"{undone}{verdict}{items_text(step)}{time_text(step)}{_remark(step)}"
        word = standing_of(step, state, driven)
        mark = MARKS[step.status if word == step.status else StepStatus.PAUSED]
        out(f"  {mark} {step.id}  {word}{more}")
    for line in waits:
        out(line)
    for line in next_commands(state, driven):
        out(as_typed(f"next: {line}"))


def _remark(step: Any) -> str:
    from windlass.cli.text import shown

    if step.output is not None and step.status == "completed":
        return f"  {clip(shown(step.output), 80)}"
    if step.error is not None:
        return f"  {clip(step.error.message, 80)}"
    return f"  {step.skipped_because}" if step.skipped_because else ""
