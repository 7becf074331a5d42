"""`journal copy`: move the journal of a home into PostgreSQL, out of it, or into another home."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from windlass.cli.command import Argument, Group
from windlass.cli.session import AsJson, out, print_json, say
from windlass.errors import UsageError

if TYPE_CHECKING:
    from windlass.journal.copying import JournalCopy
    from windlass.journal.stores import HomeStores

__all__ = ["register"]


def register(app: Group) -> None:
    group = Group("journal", help="Copy a journal to another home or database.", no_args_is_help=True)
    group.add(copy)
    app.add_command(group)


def copy(
    source: Annotated[str, Argument(metavar="FROM", help="A home, or postgresql://…")],
    target: Annotated[str, Argument(metavar="TO", help="A home, or postgresql://…")],
    as_json: AsJson = False,
) -> None:
    """Copy all executions of a journal, and compare both by a digest. The source is not changed.

    What each execution spent and its forecasts are copied, too; its files are not.
    """
    here, there = _stores(source, make=False), _stores(target, make=True)
    if here.shown == there.shown:
        raise UsageError("both are the same journal")
    done = asyncio.run(_copy(here, there))
    if as_json:
        print_json(done._asdict())
    else:
        out(f"copied {done.copied} executions; {done.present} were there; {done.events} events, SHA-256 {done.digest}")


def _stores(text: str, *, make: bool) -> HomeStores:
    from windlass.assembly import make_home
    from windlass.homes import find_home
    from windlass.homes.journal_url import PostgresUrl, is_postgres
    from windlass.journal.stores import HomeStores

    if is_postgres(text):
        return HomeStores(find_home(None), PostgresUrl(text))
    folder = find_home(text)
    if make:
        make_home(folder)
    stores = HomeStores(Path(folder))
    if not make and not stores.exist:
        raise UsageError(f"{folder} has no journal", advice=("name a home, or postgresql://USER@HOST/DATABASE",))
    return stores


async def _copy(here: HomeStores, there: HomeStores) -> JournalCopy:
    from windlass.journal.copying import copy_journal

    source, target = here.journal(), there.journal()
    tables = (here.tables(), there.tables())
    try:
        return await copy_journal(source, tables[0], target, tables[1], lambda name: say(f"copied {name}"))
    finally:
        for store in tables:
            await store.aclose()
        await source.close()
        await target.close()
