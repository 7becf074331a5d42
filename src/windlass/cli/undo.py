"""`undo`: have what a step changed in files taken back."""

from __future__ import annotations

from typing import Annotated

from windlass.cli.command import Argument, Group
from windlass.cli.session import AsJson, CommandEnd, Home, out, print_json, say, who, with_engine
from windlass.cli.text import plural
from windlass.engine.engine import Engine

__all__ = ["register"]


def register(app: Group) -> None:
    app.add(undo)


def undo(
    execution: Annotated[str, Argument(metavar="ID", help="Execution, or the beginning of its id")],
    step: Annotated[str, Argument(metavar="STEP")],
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Undo the file changes of a finished step, unless a file was changed since."""

    async def work(engine: Engine) -> int:
        found = await engine.find(execution)
        changes = await engine.undo(found.id, step, by=who())
        if as_json:
            print_json({"id": found.id, "step": step, "changes": changes})
            return 0
        for change in changes:
            to = f" to {change['to']}" if "to" in change else ""
            out(f"{change['path']}  {change['undone']}{to}")
        say(f"{step} is undone: {plural(len(changes), 'path')}")
        return 0

    raise CommandEnd(with_engine(work, home))
