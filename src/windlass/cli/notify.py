"""`notify test|list`: try the rules for notifications, and see what became of notifications."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from windlass.cli.command import Argument, Group, Option
from windlass.cli.install_advice import fitting_install
from windlass.cli.session import AsJson, CommandEnd, Home, out, print_json, remember_home, say, stores_of
from windlass.errors import ToolError, UsageError

if TYPE_CHECKING:
    from windlass.ports.notify import OutboxEntry
    from windlass.settings import Settings

__all__ = ["register"]


def register(app: Group) -> None:
    group = Group("notify", help="Test the notifications of your settings, and list sent ones.", no_args_is_help=True)
    group.add(send_tests, "test")
    group.add(list_notes, "list")
    app.add_command(group)


def send_tests(
    name: Annotated[
        str | None, Argument(metavar="NAME", help="Only this one: desktop, bell, a message service, a recipient")
    ] = None,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """Send one test message to each place that your rules name, and say what happened; exit code 1 if one failed."""
    from windlass.homes import find_home
    from windlass.settings import load_settings
    from windlass.settings.tables import nearest

    if home:
        remember_home(home)
    folder = find_home(home)
    settings = load_settings(folder)
    if not settings.notify:
        raise UsageError(
            "your settings have no rules for notifications", advice=("add one, as in: windlass docs notifications",)
        )
    places = dict.fromkeys((rule.to, to) for rule in settings.notify for to in rule.recipients or ("",))
    chosen = [place for place in places if name is None or name in place]
    if not chosen:
        known = list(dict.fromkeys(one for place in places for one in place if one))
        raise UsageError(f"no rule for notifications names {name!r}; {nearest(str(name), known)}")
    with tempfile.TemporaryDirectory() as aside:  # looking makes no home
        results = asyncio.run(_send_tests(settings, folder if folder.exists() else Path(aside), chosen))
    if as_json:
        print_json(results)
    else:
        for result in results:
            out(f"{'✓' if result['ok'] else '✗'} {result['to']}: {result['detail']}")
            if result["advice"]:
                out(f"    → {fitting_install(str(result['advice']))}")
    raise CommandEnd(0 if all(result["ok"] for result in results) else 1)


async def _send_tests(settings: Settings, home: Path, places: list[tuple[str, str]]) -> list[dict[str, str | bool]]:
    from windlass.clock import SystemClock
    from windlass.ids import new_id
    from windlass.notify.channels import Channels
    from windlass.ports import Note
    from windlass.process import Supervisor
    from windlass.redact import Redactor

    clock = SystemClock()
    results: list[dict[str, str | bool]] = []
    async with Supervisor() as processes:
        channels = Channels(settings.messages, settings.notify, home, processes, clock.now)
        clean = Redactor(more=channels.secrets()).text
        title, text = "Windlass: a test", "This is a test of the notifications in your settings. Nothing happened."
        for to, recipient in places:
            now, shown = clock.now(), f"{to} ({recipient})" if recipient else to
            facts = {"kind": "test", "title": title}
            note = Note(f"test {new_id()}", "", "test", to, recipient, now, now, now, title, text, facts, "")
            try:
                if to == "bell" and not sys.stderr.isatty():
                    raise ToolError("there is no terminal here")
                said, ok, advice = f"sent ({clean(await channels.deliver(note, 1))})", True, ""
            except ToolError as error:
                said, ok, advice = clean(str(error)), False, next(iter(error.failure.advice), "")
            results.append({"to": shown, "ok": ok, "detail": said, "advice": advice})
    return results


def list_notes(
    limit: Annotated[int, Option("--limit", "-n", min=0, help="Maximum to show (0 = all)")] = 20,
    as_json: AsJson = False,
    home: Home = None,
) -> None:
    """List notifications, newest first, with what became of each."""
    from windlass.clock import iso
    from windlass.homes import find_home
    from windlass.journal.database import EVERYTHING

    if home:
        remember_home(home)
    entries = asyncio.run(entries_of(find_home(home), limit=limit or EVERYTHING))
    if as_json:
        print_json([{**entry.note.data, **_row(entry), "at": iso(entry.note.at)} for entry in entries])
        return
    for entry in entries:
        note = entry.note
        detail = f" ({entry.detail})" if entry.detail and entry.status != "sent" else ""
        out(f"{iso(note.at)}  {entry.status:<8}{note.recipient or note.to}: {note.title}{detail}")
    if not entries:
        say("no notifications yet")


def _row(entry: OutboxEntry) -> dict[str, str | int]:
    note = entry.note
    told = {"to": note.to, "recipient": note.recipient, "status": entry.status, "detail": entry.detail}
    return {**told, "execution": note.execution, "kind": note.kind, "title": note.title, "tries": entry.tries}


async def entries_of(home: Path, since: float = 0.0, limit: int = 1000) -> list[OutboxEntry]:
    """The notes in the journal of a home; none where there is no journal."""
    stores = stores_of(home)
    if not stores.exist:
        return []
    outbox = stores.outbox()
    try:
        return await outbox.entries(since, limit)
    finally:
        await outbox.close()
