"""Notifications (I8): sent once, across kill -9 and several processes; tried again while nobody has taken them."""

from __future__ import annotations

import sqlite3
import time
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Project, Windlass
    from notify_world import Receivers

WORKS = "name: nightly\nsteps: [{id: build, run: 'true'}]"
PLACES = ("post", "hook", "chat", "desktop")


def arrived(receivers: Receivers, to: str) -> int:
    """How many notes have reached a place."""
    found = {"post": receivers.mails, "hook": receivers.posted, "chat": receivers.chats, "desktop": receivers.desk}
    return len(found[to])


def killed_at(windlass: Windlass, point: str, plan: str, **env: str) -> None:
    """Run the plan in a process that kills itself there."""
    windlass("run", plan, code=-9, WINDLASS_FAULT=f"{point}:1", **env)


@pytest.mark.parametrize("to", PLACES)
@pytest.mark.parametrize("point", ["notify.recorded", "notify.claimed"])
def test_i8_d2_killed_before_the_sending_the_next_process_sends_it_once(
    project: Project, windlass: Windlass, receivers: Receivers, to: str, point: str
) -> None:
    receivers.rules({"to": to, "on": ["done"], "plans": ["nightly"]})
    env = receivers.desktop()
    killed_at(windlass, point, project.plan(WORKS), **env)
    assert arrived(receivers, to) == 0
    for _ in range(2):
        windlass("run", project.plan(WORKS.replace("nightly", "next")), **env)
    assert receivers.outbox() == [("done", to, "sent")]
    assert arrived(receivers, to) == 1


@pytest.mark.parametrize("to", PLACES)
def test_i8_d2_killed_between_the_sending_and_its_record_it_is_not_sent_again(
    project: Project, windlass: Windlass, receivers: Receivers, to: str
) -> None:
    """The message's own record says that it was sent: nobody has to be told that nobody knows."""
    receivers.rules({"to": to, "on": ["done"], "plans": ["nightly"]})
    env = receivers.desktop()
    killed_at(windlass, "notify.sent", project.plan(WORKS), **env)
    assert (arrived(receivers, to), receivers.outbox()) == (1, [("done", to, "claimed")])
    windlass("run", project.plan(WORKS.replace("nightly", "next")), **env)
    assert (arrived(receivers, to), receivers.outbox()) == (1, [("done", to, "sent")])


@pytest.mark.parametrize("to", ["post", "chat", "desktop"])
@pytest.mark.parametrize("point", ["message.begun", "message.handed"])
def test_i8_d2_killed_in_the_middle_of_the_sending_it_is_reported_and_never_repeated(
    project: Project, windlass: Windlass, receivers: Receivers, to: str, point: str
) -> None:
    receivers.rules({"to": to, "on": ["done"], "plans": ["nightly"]})
    env = receivers.desktop()
    killed_at(windlass, point, project.plan(WORKS), **env)
    before = arrived(receivers, to)
    assert before == (1 if point == "message.handed" else 0)
    ran = windlass("run", project.plan(WORKS.replace("nightly", "next")), **env)
    assert "warning: notification may have been sent, and is not sent again: nightly: completed" in ran.err
    assert (arrived(receivers, to), receivers.outbox()) == (before, [("done", to, "unknown")])
    assert "may have been sent" in windlass("notify", "list", **env).out or "unknown" in windlass("notify", "list").out
    assert "may have been sent" in windlass("doctor", **env).out


def test_i8_d2_a_webhook_is_repeated_with_the_same_key(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "on": ["done"], "plans": ["nightly"]})
    killed_at(windlass, "message.handed", project.plan(WORKS))
    windlass("run", project.plan(WORKS.replace("nightly", "next")))
    one, other = receivers.posted
    assert one.headers["idempotency-key"] == other.headers["idempotency-key"]
    assert one.body == other.body
    assert receivers.outbox() == [("done", "hook", "sent")]


def test_i8_d2_killed_before_its_commit_neither_event_nor_note_is_there(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "on": ["done"]})
    # The commits of this run: created and started, the step's outcome with the end.
    for count in range(1, 5):
        ran = windlass.background("run", project.plan(WORKS), WINDLASS_FAULT=f"journal.before_commit:{count}")
        code = ran.ended().code
        execution = project.ids()[-1] if project.ids() else ""
        finished = bool(execution) and project.state(execution).status == "completed"
        if code == 0:
            break
        assert not finished
        assert receivers.hooks == []
    assert count > 1
    assert len(receivers.hooks) == 1
    for execution in project.ids()[:-1]:
        windlass("resume", execution)
    assert sorted(told["execution"] for told in receivers.hooks) == project.ids()


def test_i8_two_processes_and_a_server_send_each_note_once(
    project: Project, windlass: Windlass, receivers: Receivers, until: Any
) -> None:
    receivers.rules({"to": "hook", "on": ["done"]}, {"to": "post", "on": ["done"]})
    receivers.add('[messages]\nrate = "1000/h"\n')
    windlass.background("serve", "--port", "0", "--json")
    plan = project.plan(WORKS)
    killed_at(windlass, "notify.claimed", plan)
    runs = [windlass.background("run", plan) for _ in range(6)]
    for run in runs:
        assert run.ended().code == 0
    until(lambda: {status for *_, status in receivers.outbox()} == {"sent"}, "all are sent")
    assert len(receivers.outbox()) == 14
    executions = [told["execution"] for told in receivers.hooks]
    assert sorted(executions) == project.ids()
    assert len(receivers.mails) == 7
    assert len({mail["Message-ID"] for mail in receivers.mails}) == 7


def test_i8_a_service_that_is_down_holds_nothing_up_and_gets_it_later(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "on": ["done"], "plans": ["nightly"]})
    receivers.web.answers = ["HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n"] * 2
    ran = windlass("run", project.plan(WORKS), "--json")
    assert ran.json["status"] == "completed"
    assert "warning: notification not sent yet: nightly: completed (to hook: " in ran.err
    assert receivers.outbox() == [("done", "hook", "waiting")]
    for _ in range(2):
        receivers.bring_forward()
        windlass("run", project.plan(WORKS.replace("nightly", "next")))
    assert receivers.outbox() == [("done", "hook", "sent")]
    keys = {one.headers["idempotency-key"] for one in receivers.posted}
    assert (len(receivers.posted), len(keys)) == (3, 1)


def test_i8_what_cannot_be_sent_at_all_is_said_and_not_tried_again(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "post", "on": ["done"], "plans": ["nightly"]})
    receivers.mail.refuse["ana@example.com"] = "550 5.1.1 nobody of that name"
    ran = windlass("run", project.plan(WORKS))
    assert "warning: notification not sent: nightly: completed (to ana@example.com): " in ran.err
    assert "550 5.1.1 nobody of that name" in ran.err
    windlass("run", project.plan(WORKS.replace("nightly", "next")))
    assert receivers.outbox() == [("done", "post", "failed")]
    (listed,) = windlass("notify", "list", "--json").json
    assert (listed["status"], listed["recipient"], listed["tries"]) == ("failed", "ana@example.com", 1)
    assert "nobody of that name" in windlass("doctor").out


def test_i8_old_news_is_not_sent(project: Project, windlass: Windlass, receivers: Receivers) -> None:
    receivers.rules({"to": "hook", "on": ["done"], "plans": ["nightly"]})
    killed_at(windlass, "notify.claimed", project.plan(WORKS))
    db = sqlite3.connect(project.home / "windlass.db")
    with db:
        db.execute("UPDATE notes SET status = 'waiting', at = at - 9000, due = due - 9000, until = until - 9000")
    db.close()
    windlass("run", project.plan(WORKS.replace("nightly", "next")))
    assert (receivers.hooks, receivers.outbox()) == ([], [("done", "hook", "stale")])
    assert "nobody could while it was news: nightly: completed" in windlass("doctor").out


def test_i8_a_clock_that_was_set_back_does_not_hold_a_note_up(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "on": ["done"], "plans": ["nightly"]})
    killed_at(windlass, "notify.recorded", project.plan(WORKS))
    db = sqlite3.connect(project.home / "windlass.db")
    with db:
        db.execute("UPDATE notes SET at = ?, due = ?, until = ?", (time.time() + 9e6,) * 3)
    db.close()
    windlass("run", project.plan(WORKS.replace("nightly", "next")))
    assert receivers.outbox() == [("done", "hook", "sent")]


def test_i8_what_was_tried_or_sent_while_the_clock_was_ahead_holds_no_note_up(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "on": ["done"]})
    receivers.add('[messages]\nrate = "1/h"\n')
    windlass("run", project.plan(WORKS))
    db = sqlite3.connect(project.home / "windlass.db")
    with db:
        db.execute("UPDATE notes SET changed_at = ?", (time.time() + 9e6,))
    receivers.web.answer = "HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n"
    windlass("run", project.plan(WORKS))
    assert [status for *_, status in receivers.outbox()] == ["sent", "waiting"]
    assert len(receivers.posted) == 2
    with db:
        db.execute("UPDATE notes SET due = ?, changed_at = ?", (time.time() + 9e6,) * 2)
    db.close()
    receivers.web.answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
    windlass("run", project.plan("name: other\nsteps: [{id: a, run: 'true'}]"))
    assert [status for *_, status in receivers.outbox()][:2] == ["sent", "sent"]


def test_i8_no_more_go_to_a_service_than_its_rate_allows(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "on": ["done"]})
    receivers.add('[messages]\nrate = "2/h"\n')
    for _ in range(4):
        windlass("run", project.plan(WORKS))
    assert [status for *_, status in receivers.outbox()] == ["sent", "sent", "waiting", "waiting"]
    assert len(receivers.hooks) == 2


def test_i8_notes_of_a_removed_execution_are_gone(project: Project, windlass: Windlass, receivers: Receivers) -> None:
    receivers.rules({"to": "hook", "on": ["done"], "plans": ["nightly"]})
    receivers.web.answer = "HTTP/1.1 503 Later\r\nContent-Length: 0\r\n\r\n"
    windlass("run", project.plan(WORKS))
    windlass("clean", "--older-than", "1ms", "--keep", "0", "--yes")
    assert receivers.outbox() == []


def test_i8_a_place_that_no_rule_names_any_more_gets_nothing(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "on": ["done"]})
    killed_at(windlass, "notify.recorded", project.plan(WORKS))
    receivers.rules({"to": "chat", "on": ["failed"]})
    windlass("run", project.plan(WORKS))
    assert (receivers.outbox(), receivers.web.requests) == ([("done", "hook", "moot")], [])


def test_i8_a_restored_backup_sends_nothing_of_what_was_unsent(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "on": ["done"], "plans": ["nightly"]})
    killed_at(windlass, "notify.recorded", project.plan(WORKS))
    windlass("backup", "all.zip")
    windlass("run", project.plan(WORKS.replace("nightly", "next")))
    assert len(receivers.hooks) == 1
    copy = project.path / "copy"
    windlass("--home", copy, "restore", "all.zip")
    windlass("--home", copy, "run", project.plan(WORKS.replace("nightly", "next")))
    assert len(receivers.hooks) == 1
    assert "stale" in windlass("--home", copy, "notify", "list").out


def test_i8_an_adopted_home_sends_nothing_of_what_a_stranger_wrote(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "on": ["done"], "plans": ["nightly"]})
    killed_at(windlass, "notify.recorded", project.plan(WORKS))
    (project.home / "home.json").unlink()
    windlass("adopt", "--yes")
    windlass("run", project.plan(WORKS.replace("nightly", "next")))
    assert (receivers.outbox(), receivers.hooks) == ([("done", "hook", "stale")], [])
