"""`trust`: folders whose own code and settings may take part, because their user says so."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from windlass.cli.command import Argument, Group, Option
from windlass.cli.session import AsJson, out, print_json, say
from windlass.errors import UsageError

__all__ = ["register"]


def register(app: Group) -> None:
    app.add(trust)


def trust(
    folder: Annotated[
        Path | None, Argument(metavar="DIR", help="Folder; without one, list all trusted folders")
    ] = None,
    revoke: Annotated[bool, Option("--revoke", help="No longer")] = False,
    as_json: AsJson = False,
) -> None:
    """Trust a folder: load its Python tools and its settings for Claude Code and OpenCode."""
    from windlass.engine.requests import refusal_of
    from windlass.homes import user_folder
    from windlass.process import attempt_above
    from windlass.trust import Trust

    known = Trust(user_folder())
    if folder is not None:
        if not revoke and not folder.is_dir():
            raise UsageError(f"{folder} is not a folder")
        if not revoke and (source := attempt_above()) is not None:
            raise refusal_of(source)
        (known.remove if revoke else known.add)(folder)
        say(f"{folder.resolve()} is {'no longer ' if revoke else ''}trusted")
    elif revoke:
        raise UsageError("name the folder to stop trusting: windlass trust --revoke DIR")
    if as_json:
        print_json(known.folders())
    elif folder is None:
        for trusted in known.folders():
            out(str(trusted))
