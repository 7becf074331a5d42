"""Notifications (I8): hostile names, secrets, rules of strangers; and the link that answers one question."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from server_process import Serve, Server, serve, server

from windlass.core import events as ev
from windlass.notify.texts import plain

if TYPE_CHECKING:
    from conftest import Project, Windlass
    from notify_world import Receivers

__all__ = ["serve", "server"]

ASKS = "name: release\nsteps: [{id: push, run: 'echo pushed >> ran', approve: always}]"
WORKS = "name: nightly\nsteps: [{id: build, run: 'true'}]"
SECRET = "correct-horse-battery-staple-9"
HOSTILE = (
    "x\r\nBcc: eve@example.com\r\n\r\n<b>\x1b[31m\u202e</b> @everyone <!channel> [click](https://evil.example) `*~`"
)


def link_in(text: str) -> str:
    return re.findall(r"https?://\S*/approve\?\S+", text.replace("\r\n", "\n"))[0]


# -- links ---------------------------------------------------------------------------------------


def test_i8_c6_the_link_in_a_mail_answers_exactly_this_question_once(
    project: Project, windlass: Windlass, receivers: Receivers, serve: Serve
) -> None:
    running = serve()
    receivers.rules(
        {"to": "post", "on": ["approval"], "recipients": ["ana@example.com", "bo@example.com"]},
        public_url=running.address,
    )
    windlass("run", project.plan(ASKS), code=3)
    (execution,) = project.ids()
    links = {str(mail["To"]): link_in(mail.get_content()) for mail in receivers.mails}
    assert set(links) == {"ana@example.com", "bo@example.com"}, "each has a link of their own"
    link = links["bo@example.com"].removeprefix(running.address)
    running.api.token = ""
    for _ in range(3):  # scanners of mail fetch links
        page = running.api.get(link)
        assert page.status == 200
        assert "echo pushed" in page.body.decode(), "it shows exactly what is asked"
        assert running.api("HEAD", link).status == 200
    assert project.lines("ran") == []
    own = {"Origin": running.address, "Content-Type": "application/x-www-form-urlencoded"}
    assert running.api("POST", link, raw=b"answer=allow", headers=own).status == 200
    assert running.api("POST", link, raw=b"answer=deny", headers=own).status == 410, "it is used up"
    other = links["ana@example.com"].removeprefix(running.address)
    assert running.api("POST", other, raw=b"answer=deny", headers=own).status == 410
    (answer,) = [event for event in project.events(execution) if isinstance(event, ev.ApprovalAnswered)]
    assert (answer.allow, answer.by) == (True, "link sent to bo@example.com")
    assert "approved by link sent to bo@example.com" in windlass("logs", execution).out
    windlass("resume", execution)
    assert project.lines("ran") == ["pushed"]


@pytest.mark.parametrize("changed", ["execution", "step", "digest", "until", "to"])
def test_i8_c6_a_link_that_was_changed_is_void(
    project: Project, windlass: Windlass, receivers: Receivers, server: Server, changed: str
) -> None:
    receivers.rules({"to": "hook", "on": ["approval"]}, public_url=server.address)
    windlass("run", project.plan(ASKS), code=3)
    link = receivers.hooks[0]["link"].removeprefix(server.address)
    value = parse_qs(urlsplit(link).query)[changed][0]
    server.api.token = ""
    own = {"Origin": server.address, "Content-Type": "application/x-www-form-urlencoded"}
    forged = link.replace(f"{changed}={value}", f"{changed}={value[:-1]}{'1' if value[-1] != '1' else '2'}")
    assert forged != link
    assert server.api("POST", forged, raw=b"answer=allow", headers=own).status == 403
    without = re.sub(rf"&?{changed}=[^&]*", "", link)
    assert server.api("POST", without, raw=b"answer=allow", headers=own).status == 403
    foreign = {**own, "Origin": "https://evil.example"}
    assert server.api("POST", link, raw=b"answer=allow", headers=foreign).status == 403
    assert server.api("POST", link, raw=b"answer=allow", headers={"Content-Type": own["Content-Type"]}).status == 403


def test_i8_c6_a_step_cannot_answer_with_the_link(
    project: Project, windlass: Windlass, receivers: Receivers, server: Server
) -> None:
    receivers.rules({"to": "hook", "on": ["approval"]}, public_url=server.address)
    windlass("run", project.plan(ASKS), code=3)
    (asked,) = project.ids()
    link = receivers.hooks[0]["link"]
    program = (
        "import urllib.request, urllib.error\n"
        f"asked = urllib.request.Request({link!r}, b'answer=allow', {{'Origin': {server.address!r}}})\n"
        "try:\n    urllib.request.urlopen(asked)\n"
        "except urllib.error.HTTPError as error:\n    print(error.code, error.read())\n"
    )
    project.file("answer.py", program)
    ran = windlass("run", project.plan("steps: [{id: sly, run: python3 answer.py}]", "sly.yaml"), "--json")
    assert "403" in str(ran.json["steps"][0]["output"])
    assert "only a person can answer that" in str(ran.json["steps"][0]["output"])
    assert not any(isinstance(event, ev.ApprovalAnswered) for event in project.events(asked))


def test_i8_c6_a_question_that_changed_makes_the_old_link_void(
    project: Project, windlass: Windlass, receivers: Receivers, server: Server
) -> None:
    receivers.rules({"to": "hook", "on": ["approval"]}, public_url=server.address)
    windlass("run", project.plan(ASKS), code=3)
    (execution,) = project.ids()
    project.plan(ASKS.replace("pushed", "something-else"))
    windlass("resume", execution, "--accept-changes", code=3)
    old, new = (told["link"].removeprefix(server.address) for told in receivers.hooks)
    server.api.token = ""
    own = {"Origin": server.address, "Content-Type": "application/x-www-form-urlencoded"}
    assert server.api("POST", old, raw=b"answer=allow", headers=own).status == 410
    assert server.api("POST", new, raw=b"answer=allow", headers=own).status == 200


def test_i8_the_name_in_the_public_address_is_one_of_the_servers(
    project: Project, windlass: Windlass, receivers: Receivers, serve: Serve
) -> None:
    receivers.rules({"to": "hook", "on": ["approval"]}, public_url="https://windlass.example.com/")
    running = serve()
    windlass("run", project.plan(ASKS), code=3)
    link = receivers.hooks[0]["link"]
    assert link.startswith("https://windlass.example.com/approve?")
    path = link.removeprefix("https://windlass.example.com")
    running.api.token = ""
    through_proxy = {"Host": "windlass.example.com", "X-Forwarded-Proto": "https"}
    assert running.api("GET", path, headers=through_proxy).status == 200
    posted = {**through_proxy, "Origin": "https://windlass.example.com"}
    form = {**posted, "Content-Type": "application/x-www-form-urlencoded"}
    assert running.api("POST", path, raw=b"answer=allow", headers=form).status == 200


# -- hostile names and secrets ------------------------------------------------------------------------------


def test_i8_a_hostile_name_is_text_in_every_place(project: Project, windlass: Windlass, receivers: Receivers) -> None:
    receivers.rules(*({"to": to} for to in ("post", "hook", "chat", "desktop")))
    env = receivers.desktop()
    project.file("plan.json", json.dumps({"name": HOSTILE, "steps": [{"id": "a", "run": "true"}]}))
    windlass("run", "plan.json", **env)
    (mail,) = receivers.mails
    assert [mail["Bcc"], mail["To"]] == [None, "ana@example.com"]
    assert receivers.mail.mails[0].recipients == ["ana@example.com"]
    titles = [mail["Subject"], receivers.hooks[0]["title"], receivers.chats[0]["title"], receivers.desk[0][2]]
    for title in titles:
        assert title.isprintable()
        assert "@everyone" not in title
        assert not set(title) & set("<>`*~|&\x1b\u202e\r\n")
        assert "https://" not in title
        assert "](" not in title
    everything = receivers.mail.mails[0].raw + receivers.web.requests[0].body + receivers.web.requests[1].body
    assert b"\x1b" not in everything


@pytest.mark.parametrize(
    ("hostile", "tame"),
    [
        ("a\nb", "a\\nb".replace("\\", "/")),
        ("@here", "@ here"),
        ("javascript:alert(1)", "javascript: alert(1)"),
        ("HTTPS://evil", "HTTPS: evil"),
        ("deploy[3]", "deploy[3]"),
        ("Bücher – 本", "Bücher – 本"),
        ("\ud800", "?"),
        ("x" * 300, "x" * 119 + "…"),
    ],
)
def test_i8_names_are_tamed(hostile: str, tame: str) -> None:
    assert plain(hostile) == tame


@pytest.mark.parametrize("to", ["post", "hook", "chat", "desktop"])
def test_i8_no_secret_is_in_it_with_content_neither(
    project: Project, windlass: Windlass, receivers: Receivers, to: str
) -> None:
    receivers.rules({"to": to, "content": True})
    env = {**receivers.desktop(), "DEPLOY_TOKEN": SECRET}
    plan = f"name: run {SECRET}\nsteps: [{{id: a, run: 'echo {SECRET}', approve: always}}]"
    windlass("run", project.plan(plan), code=3, **env)
    sent = str(receivers.mails) + str(receivers.hooks) + str(receivers.chats) + str(receivers.desk)
    for mail in receivers.mails:
        sent += mail.get_content() + str(mail["Subject"])
    assert "[DEPLOY_TOKEN]" in sent
    assert SECRET not in sent


def test_i8_a_key_that_the_settings_hold_for_an_mcp_server_is_not_in_it(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "content": True})
    env = {"WINDLASS_MCP": json.dumps({"notes": {"command": "true", "env": {"NOTES_API_KEY": SECRET}}})}
    windlass("run", project.plan(f"steps: [{{id: a, run: 'echo {SECRET}', approve: always}}]"), code=3, **env)
    assert "[mcp.notes.NOTES_API_KEY]" in str(receivers.hooks)
    assert SECRET not in str(receivers.hooks)


# -- rules -------------------------------------------------------------------------------------------


def test_i8_a_projects_rules_are_refused_by_name(project: Project, windlass: Windlass, receivers: Receivers) -> None:
    receivers.rules()
    project.file(".windlass/config.toml", '[[notify]]\nto = "hook"\n')
    ran = windlass("run", project.plan(WORKS), code=2)
    assert "`notify` is allowed only in your own settings, not in a project's: a project must not send" in ran.err
    project.file(".windlass/config.toml", 'public_url = "https://evil.example"\n')
    ran = windlass("run", project.plan(WORKS), code=2)
    assert "`public_url` is allowed only in your own settings" in ran.err
    assert receivers.web.requests == []


@pytest.mark.parametrize(
    ("rules", "error"),
    [
        ('[[notify]]\nto = "dekstop"', "`notify.0.to`: 'dekstop' is not a message service; did you mean `desktop`?"),
        ('[[notify]]\nto = "bell"\non = ["aproval"]', "`on`: there is no 'aproval'; did you mean `approval`?"),
        ('[[notify]]\nto = "bell"\nplan = "x"', "`plan` is not a key of a rule; did you mean `plans`?"),
        ('[[notify]]\nto = "bell"\non = []', "`on` is empty"),
        ('[[notify]]\nto = "bell"\nrecipients = "a@b.c"', "`notify.0.recipients` is for mail, and 'bell' sends none"),
        ('[[notify]]\non = "done"', "`notify.0.to` is missing"),
        ('public_url = "windlass.example.com"', "`public_url`: it is an address like https://windlass.example.com"),
        ('public_url = "https://u:p@windlass.example.com"', "`public_url`: it is an address like"),
    ],
)
def test_i8_a_rule_with_a_mistake_is_named_with_the_nearest_word(
    project: Project, windlass: Windlass, rules: str, error: str
) -> None:
    project.user_file("config.toml", rules + "\n")
    assert error in windlass("run", project.plan(WORKS), code=2).err


def test_i8_notify_test_sends_one_message_to_each_place_and_says_what_happened(
    project: Project, windlass: Windlass, receivers: Receivers, refusing: int
) -> None:
    receivers.rules({"to": "hook"}, {"to": "hook", "on": "done"}, {"to": "post"}, {"to": "desktop"}, {"to": "gone"})
    receivers.add(f'[messages.services.gone]\nurl = "http://localhost:{refusing}/x"\n')
    env = receivers.desktop()
    results = windlass("notify", "test", "--json", code=1, **env).json
    assert [(one["to"], one["ok"]) for one in results] == [
        ("hook", True),
        ("post (ana@example.com)", True),
        ("desktop", True),
        ("gone", False),
    ]
    assert (len(receivers.hooks), len(receivers.mails), len(receivers.desk)) == (1, 1, 1)
    assert receivers.hooks[0]["kind"] == "test"
    assert not project.home.exists(), "a test leaves nothing behind"
    assert "✓ hook: sent (HTTP 200)" in windlass("notify", "test", "hook").out
    assert "did you mean `hook`?" in windlass("notify", "test", "hok", code=2).err
    assert "no connection" in windlass("notify", "test", "gone", code=1).out


def test_i8_doctor_checks_the_rules(project: Project, windlass: Windlass, receivers: Receivers) -> None:
    receivers.rules({"to": "hook"}, {"to": "post", "recipients": ["Ana <ana@example.com>"]}, {"to": "desktop"})
    path = os.pathsep.join(one for one in project.env["PATH"].split(os.pathsep) if "bin" in one)
    found: Any = {one["name"]: one for one in windlass("doctor", "--json", code=1, PATH=path).json["checks"]}
    assert (found["notify 1"]["ok"], found["notify 1"]["detail"]) == (
        True,
        "hook: a webhook, on approval, failed, done, budget, quota",
    )
    assert "is not one plain mail address" in found["notify 2"]["detail"]
    assert (found["notify 3"]["ok"], "notify-send" in found["notify 3"]["mend"]) == (False, True)


def test_i8_without_rules_nothing_of_it_is_there(project: Project, windlass: Windlass) -> None:
    windlass("run", project.plan(ASKS), code=3)
    assert not any("notify" in name["name"] for name in windlass("doctor", "--json").json["checks"])
    assert "no notifications yet" in windlass("notify", "list").err
    assert "no rules for notifications" in windlass("notify", "test", code=2).err
