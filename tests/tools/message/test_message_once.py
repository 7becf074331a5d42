"""H1, D2: a message leaves once: across attempts, processes and kill -9; and where nobody knows, a person is asked."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sqlite3
import stat
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from message_child import plan, tools
from message_world import MailServer, World

import windlass
from windlass.core import events as ev
from windlass.errors import Category
from windlass.tools.message.once import KEPT, MessageLog

if TYPE_CHECKING:
    from conftest import Project

CHILD = str(Path(__file__).with_name("message_child.py"))


async def test_h1_a_second_attempt_gets_the_recorded_result_and_sends_nothing(world: World, server: MailServer) -> None:
    first = await world.email()
    for attempt in (1, 2, 7):
        assert await world.email(attempt=attempt) == {**first, "repeated": True}
    assert len(server.mails) == 1
    assert any("sent already" in said for said in world.said)
    server.refuse["MAIL"] = "421 closing"
    assert (await world.email())["repeated"], "nobody is asked for what is known"


async def test_h1_two_steps_and_two_contents_are_two_messages(world: World, server: MailServer) -> None:
    for step, text in (("a", "x"), ("b", "x"), ("b", "y"), ("b.1", "x")):
        await world.email(step=step, text=text)
    ids = {str(mail.parsed["Message-ID"]) for mail in server.mails}
    assert (len(server.mails), len(ids)) == (4, 4)


async def test_h1_a_repetition_that_a_person_wants_has_the_same_message_id(world: World, server: MailServer) -> None:
    server.refuse["END"] = "hang up"
    assert (await world.failing("message.email")).kind == "cut_off"
    assert (await world.failing("message.email", attempt=1)).kind == "cut_off"
    server.refuse.clear()
    result = await world.email(attempt=2)
    one, other = server.mails
    assert one.parsed["Message-ID"] == other.parsed["Message-ID"] == result["message_id"]
    assert (await world.email(attempt=3))["repeated"]


async def test_h1_a_late_attempt_does_not_overtake_a_newer_one(world: World, server: MailServer) -> None:
    server.refuse["END"] = "hang up"
    assert (await world.failing("message.email", attempt=2)).kind == "cut_off"
    server.refuse.clear()
    assert (await world.failing("message.email", attempt=1)).kind == "cut_off"
    assert len(server.mails) == 1


async def test_h1_the_book_is_private_and_holds_no_content(world: World, server: MailServer) -> None:
    await world.email(subject="a subject of ours", text="a text of ours")
    assert stat.S_IMODE(world.book.stat().st_mode) == 0o600
    assert stat.S_IMODE(world.book.parent.stat().st_mode) == 0o700
    assert b"of ours" not in world.book.read_bytes()


async def test_h1_without_its_book_nothing_is_sent(world: World, server: MailServer) -> None:
    world.book.parent.mkdir()
    world.book.write_bytes(b"this is no database, and was never one" * 100)
    failure = await world.failing("message.email")
    assert failure.category is Category.RESOURCE
    assert str(world.book) in " ".join(failure.advice)
    assert server.mails == []


async def test_h1_a_book_that_breaks_after_the_message_left_does_not_hide_that_it_did(
    world: World, server: MailServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> None:
        with MessageLog(world.work)._open():  # a folder is no book
            """Never gets here."""

    monkeypatch.setattr(MessageLog, "sent", full)
    assert (await world.email())["code"] == 250
    assert any("the message was sent, but" in said for said in world.said)


def test_h1_what_was_sent_long_ago_is_forgotten_and_what_nobody_knows_is_not(tmp_path: Path) -> None:
    book = MessageLog(tmp_path / "messages.db")
    for effect in ("sent", "unknown"):
        assert book.begin(effect, "d", 1, "mail", 1.0) is None
    book.sent("sent", "d", {"code": 250}, 1.0)
    book.begin("new", "d", 1, "mail", 2.0 + KEPT)
    assert book.look("sent", "d") is None
    assert book.look("unknown", "d") is not None
    book.withdraw("unknown", "d")
    assert book.look("unknown", "d") is None


async def test_h1_processes_with_the_same_effect_id_send_it_once(world: World, server: MailServer) -> None:
    told = {"settings": {"services": world.services, "recipients": world.recipients}, "book": str(world.book)}
    children = [await _child("use", told) for _ in range(3)]
    for child in children:
        assert child.stdout is not None
        assert await child.stdout.readline() == b"ready\n"
    ends = [json.loads((await done)[0]) for done in [asyncio.ensure_future(c.communicate(b"\n")) for c in children]]
    assert len(server.mails) == 1
    assert sum(end.get("repeated") is False for end in ends) == 1
    assert all(end.get("repeated") is not None or end["kind"] == "cut_off" for end in ends), ends


async def _child(what: str, told: dict[str, Any], cwd: Path | None = None, **env: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    variables = {**os.environ, **env}
    return await asyncio.create_subprocess_exec(
        sys.executable, CHILD, what, json.dumps(told), stdin=pipe, stdout=pipe, cwd=cwd, env=variables
    )


# Where the plug is pulled; how many mails have left by then; how many there are once a person says `again`.
PLUGS = {"message.begun": (0, 1), "message.handed": (1, 2), "message.sent": (1, 1)}


@pytest.mark.parametrize("choice", ["again", "done"])
@pytest.mark.parametrize("plug", PLUGS)
async def test_d2_kill_9_around_the_handover_asks_a_person_and_never_sends_unasked(
    plug: str, choice: Literal["again", "done"], world: World, server: MailServer, project: Project
) -> None:
    before, after = PLUGS[plug]
    told = {"settings": {"services": world.services, "recipients": world.recipients}, "book": str(world.book)}
    child = await _child("plan", told, project.path, WINDLASS_FAULT=f"{plug}:1")
    await child.communicate()
    assert child.returncode == -signal.SIGKILL
    assert len(server.mails) == before
    (execution,) = project.ids()
    async with windlass.open(tools=tools(told)) as engine:
        result = await (await engine.resume(execution, hold=False)).result()
        assert (result["status"], result["steps"][0]["status"]) == ("paused", "waiting")
        assert (await engine.state(execution)).steps["mail"].waiting_for == "outcome"
        assert len(server.mails) == before, "it is not sent unasked"
        decided = ev.DecisionMade(0.0, "mail", choice, "ana", None)
        result = await (await engine.resume(execution, hold=False, decisions=[decided])).result()
    assert result["status"] == "completed"
    assert len(server.mails) == (after if choice == "again" else before)
    if choice == "again":
        assert result["steps"][0]["output"]["repeated"] is (plug == "message.sent")
        assert len({str(mail.parsed["Message-ID"]) for mail in server.mails}) == 1


async def test_h1_in_a_plan_a_hiccup_is_tried_again_and_arrives_once(
    world: World, server: MailServer, project: Project
) -> None:
    class Once(dict[str, str]):
        def get(self, key: str, default: Any = None) -> Any:
            return self.pop(key, default)

    server.refuse = Once(END="451 4.3.0 later")
    told = {"settings": {"services": world.services, "recipients": world.recipients}, "book": str(world.book)}
    async with windlass.open(tools=tools(told)) as engine:
        result = await (await engine.start(plan(retry={"max": 2, "delay": "1ms"}), hold=False)).result()
    assert (result["status"], result["steps"][0]["attempts"]) == ("completed", 2)
    assert len(server.mails) == 2, "the one that was refused, and the one that was taken"


async def test_h1_in_a_plan_a_server_that_hangs_up_is_not_tried_again(
    world: World, server: MailServer, project: Project
) -> None:
    server.refuse["END"] = "hang up"
    told = {"settings": {"services": world.services, "recipients": world.recipients}, "book": str(world.book)}
    async with windlass.open(tools=tools(told)) as engine:
        result = await (await engine.start(plan(retry={"max": 3, "delay": "1ms"}), hold=False)).result()
    assert result["steps"][0]["attempts"] == 1
    assert result["steps"][0]["status"] != "completed"
    assert len(server.mails) == 1


async def test_h1_in_a_plan_a_mail_that_is_stopped_half_way_is_put_to_a_person(
    world: World, server: MailServer, project: Project
) -> None:
    server.refuse["END"] = "hang"
    told = {"settings": {"services": world.services, "recipients": world.recipients}, "book": str(world.book)}
    async with windlass.open(tools=tools(told), grace=0.2) as engine:
        execution = await engine.start(plan(), hold=False)
        await server.reached.wait()
        await execution.pause(now=True)
        await execution.wait()
        result = await (await engine.resume(execution.id, hold=False)).result()
        assert (result["status"], result["steps"][0]["status"]) == ("paused", "waiting")
        assert (await engine.state(execution.id)).steps["mail"].waiting_for == "outcome"
    assert len(server.mails) == 1
    entry = sqlite3.connect(world.book)
    assert entry.execute("SELECT attempt, sent FROM message").fetchall() == [(1, None)]
    entry.close()
