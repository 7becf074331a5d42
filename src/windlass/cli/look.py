"""`list`: many executions, a line each.

They are shown without the engine: only the journal is opened, and nothing is imported that understands a plan.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

from windlass.cli.command import Group, Option
from windlass.cli.session import (
    AsJson,
    CommandEnd,
    Home,
    as_typed,
    out,
    print_json,
    say,
    suggest,
    with_observer,
)
from windlass.cli.terminal import clip
from windlass.core.transitions import NOT_STARTED, ExecutionStatus
from windlass.errors import Damaged, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from windlass.engine.observer import Observer
    from windlass.ports import Head

__all__ = ["list_line", "register", "show_list"]

MOST_READ = 100
"""Executions that a list reads to find damage; a longer list shows only the damage that is known."""


def register(app: Group) -> None:
    app.add(list_executions, "list")


def list_executions(
    statuses: Annotated[list[str] | None, Option("--status", "-s", help="Filter by status (repeatable)")] = None,
    plan: Annotated[str, Option("--plan", metavar="NAME", help="Only executions of this plan")] = "",
    since: Annotated[str | None, Option("--since", metavar="TIME", help="Not older: 2h, 30d, today or a date")] = None,
    text: Annotated[str, Option("--text", metavar="TEXT", help="Only with this text in the name or id")] = "",
    limit: Annotated[int, Option("--limit", "-n", min=0, help="Maximum to show (0 = all)")] = 20,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """List executions, newest first.

    \b
    windlass list --status failed --since 7d
    windlass list --plan nightly --json
    """
    known = [str(s) for s in ExecutionStatus]
    for given in statuses or ():
        if given not in known:
            raise UsageError(f"unknown status {given!r}: use {', '.join(known)}")
    begun = _moment(since) if since is not None else 0.0

    async def work(observer: Observer, folder: Path) -> int:
        heads = await observer.executions(statuses or [], limit, name=plan, text=text, since=begun)
        if not heads and not as_json:
            kind = f"{' or '.join(statuses)} " if statuses else ""
            say(f"No {kind}executions{' that fit' if plan or text or since else ''}.")
        if not (heads or statuses or plan or text or since):
            _warn_of_loss(folder)
        await show_list(observer, heads, as_json)
        return 0

    raise CommandEnd(with_observer(work, home))


def _warn_of_loss(home: Path) -> None:
    """Say that a journal without executions had some."""
    from windlass.homes import has_checkpoints
    from windlass.homes.journal_url import find_journal

    if find_journal() is None and has_checkpoints(home):
        suggest("warning: there were some, and the journal has lost them: windlass doctor")


def _moment(text: str) -> float:
    """`2h` and `30d` before now, or the first moment of a day."""
    from windlass.plan.quantities import parse_duration

    today = date.today()
    words = {"today": today, "yesterday": today - timedelta(1)}
    try:
        day = words.get(text) or date.fromisoformat(text)
    except ValueError:
        try:
            return time.time() - parse_duration(text)
        except ValueError:
            raise UsageError(
                f"--since {text!r} is not a time: use 2h, 30d, today, yesterday or a date like {today}"
            ) from None
    return datetime.combine(day, datetime.min.time()).timestamp()


async def show_list(observer: Observer, heads: Sequence[Head], as_json: bool) -> None:
    from windlass.engine.damage import DAMAGED

    if as_json:
        waiting = await observer.waiting(heads)
        etas = await observer.etas((head for head in heads if head.id not in waiting), time.time())
        views = [await _head_view(observer, head, etas.get(head.id)) for head in heads]
        print_json([view | {"waiting": waiting.get(head.id)} for head, view in zip(heads, views, strict=True)])
        return
    for head in heads if len(heads) <= MOST_READ else ():
        await observer.verify(head.id)
    waiting = await observer.waiting(heads)
    for head in heads:
        remark = f" ({head.detail})" if head.detail else ""
        if head.status == ExecutionStatus.RUNNING and (asked := waiting.get(head.id)):
            remark = as_typed(_ASKS[asked].format(head.id))
        if head.detail == NOT_STARTED:
            remark = as_typed(f" ({NOT_STARTED}: windlass resume {head.id})")
        elif head.status in ("running", "pending") and not observer.alive(head):
            remark = as_typed(f" (its process is gone: windlass resume {head.id})")
        damage = observer.damaged.get(head.id)
        if damage is not None:
            remark = f" (was {head.status}; event {damage.seq}: {clip(damage.reason, 80)})"
        out(f"{list_line(head, DAMAGED if damage else head.status)}{remark}")
    if any(head.id in observer.damaged for head in heads):
        suggest("damaged executions: restore one with windlass restore FILE, or remove them: windlass clean --damaged")


def list_line(head: Head, status: str) -> str:
    when = datetime.fromtimestamp(head.created_at).strftime("%Y-%m-%d %H:%M")
    return f"{head.id}  {when}  {status:<9}  {head.name}"


_ASKS = {
    "approval": " (waits for approval: windlass approvals)",
    "budget": " (waits for budget: windlass status {})",
    "outcome": " (waits for a decision: windlass status {})",
}
_BRIEFLY = ("id", "status", "attempts", "duration_s", "items")


async def _head_view(observer: Observer, head: Head, eta: float | None) -> dict[str, Any]:
    """The same object as `status ID --json`, without the steps' contents."""
    from windlass.core.view import snapshot
    from windlass.engine.damage import damaged_view

    try:
        state, _entries = await observer.record(head.id)
    except Damaged as damage:
        return {**damaged_view(head, damage), "driven": observer.driven(head)}
    view = snapshot(state)
    view["steps"] = [{key: step[key] for key in _BRIEFLY if key in step} for step in view["steps"]]
    view["driven"], view["eta"] = observer.driven(head), eta
    return view
