"""`clean --damaged`: removing executions whose record cannot be read."""

from __future__ import annotations

import sys

import click

from windlass.cli.session import attended, print_json, report_error, say
from windlass.engine.engine import Engine
from windlass.errors import NotPermitted, UsageError

__all__ = ["clean_damaged"]


async def clean_damaged(engine: Engine, *, yes: bool, dry_run: bool, as_json: bool) -> int:
    """Read every execution, and remove the damaged ones after asking. Gives the exit code."""
    async for _state in engine.states(await engine.executions()):
        """Read for damage alone."""
    found = sorted(engine.damaged.values(), key=lambda damage: damage.execution)
    for damage in found:
        say(f"{damage.execution}: event {damage.seq} cannot be read: {damage.reason}")
    if not (dry_run or yes) and found:
        _ask(len(found))
    gone, code = [], 0
    for damage in found:
        try:
            if not dry_run:
                await engine.forget(damage.execution)
            gone.append(damage.execution)
        except UsageError as error:  # it is being driven; the others go all the same
            code = max(code, report_error(error, as_json=False))
    if as_json:
        print_json({"removed": gone, "expired": []})
    say(f"{'would remove' if dry_run else 'removed'} {len(gone)} damaged executions")
    return code


def _ask(count: int) -> None:
    if not attended():
        raise NotPermitted(
            f"{count} damaged executions would be removed for good, with their checkpoint files",
            advice=("keep the checkpoint files that you may want to restore, then: windlass clean --damaged --yes",),
        )
    sys.stderr.flush()
    if not click.confirm(f"Remove {count} damaged executions for good, with their checkpoint files?", err=True):
        raise NotPermitted("nothing was removed")
