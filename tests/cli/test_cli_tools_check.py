"""`windlass tools check` and `try` (H1, H3, C4): what is ill is said, with what to do."""

from __future__ import annotations

import asyncio
from typing import Any

from server_process import serve

import windlass as library
from windlass.core.breaker import LONGEST_REST, Breaker

__all__ = ["serve"]


def test_h3_every_tool_that_can_be_ill_is_looked_at_and_what_nobody_set_up_is_not_ill(windlass: Any) -> None:
    found = windlass("tools", "check", "--json").json
    assert found["ok"] is True
    assert found["tools"]["http.get"]["ok"] is True
    assert found["tools"]["message.email"]["set_up"] is False
    assert found["breakers"] == {}
    assert found["kept"] is False
    ran = windlass("tools", "check")
    assert "no breaker state yet: the first run creates " in ran.err
    told = ran.out
    assert "– message.email: no mail service is set up" in told


def test_c4_a_breaker_that_is_open_is_shown_with_its_last_failure(windlass: Any, project: Any) -> None:
    windlass("tools", "run", "shell", "--with", '{"line": "true"}')

    async def break_it() -> None:
        async with library.open() as engine:
            book = engine.attempt_runner.gates.book
            book.keep_breaker(
                "http:example.com:443", Breaker(5, 1, engine.clock.now() + LONGEST_REST, because="no answer")
            )

    asyncio.run(break_it())
    ran = windlass("tools", "check", code=1)
    assert "! http:example.com:443: open" in ran.out
    assert "the last failure: no answer" in ran.out


def test_c8_what_holds_new_attempts_back_is_said_by_status_and_by_the_server(
    windlass: Any, project: Any, serve: Any, until: Any
) -> None:
    project.user_file("config.toml", '[load]\ndisk_floor = "900000gb"\n')
    held = windlass("run", project.plan("steps: [{id: a, run: echo hi}]"), "--detach", "--json").json
    assert "! no new attempts start: only " in windlass("status", held["id"]).out
    windlass("cancel", held["id"])
    until(lambda: project.state(held["id"]).status == "cancelled")
    assert "no new attempts start" not in windlass("status", held["id"]).out, "it is finished"
    (why,) = serve().api.get("/api/health").json["intake"]["held_back"]
    assert "must stay free" in why


def test_c4_a_home_that_can_only_be_read_can_be_looked_at(windlass: Any, project: Any) -> None:
    done = windlass("run", project.plan("steps: [{id: a, run: echo hi}]"), "--json", "--progress", "quiet").json["id"]
    for file in project.home.glob("gates.db*"):
        file.unlink()
    project.home.joinpath("gates.db").mkdir()  # whoever runs the tests may be root, who can write everywhere
    assert "completed" in windlass("status", done).out
    assert windlass("tools", "check", "--json").json["breakers"] == {}


def test_h1_try_uses_a_tool_once(windlass: Any) -> None:
    ran = windlass("tools", "try", "shell", "--with", '{"line": "echo hi"}', "--progress", "quiet")
    assert "hi" in ran.out
