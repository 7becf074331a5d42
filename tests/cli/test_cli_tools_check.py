"""`windlass tools check` and `try` (H1, H3, C4): what is ill is said, with what to do."""

from __future__ import annotations

import asyncio
from typing import Any

import windlass as library
from windlass.core.breaker import Breaker


def test_h3_every_tool_that_can_be_ill_is_looked_at_and_what_nobody_set_up_is_not_ill(windlass: Any) -> None:
    found = windlass("tools", "check", "--json").json
    assert found["ok"] is True
    assert found["tools"]["http.get"]["ok"] is True
    assert found["tools"]["message.email"]["set_up"] is False
    assert found["breakers"] == {}
    told = windlass("tools", "check").out
    assert "– message.email: no mail service is set up" in told


def test_c4_a_breaker_that_is_open_is_shown_with_its_last_failure(windlass: Any, project: Any) -> None:
    windlass("tools", "run", "shell", "--with", '{"line": "true"}')

    async def break_it() -> None:
        async with library.open() as engine:
            book = engine.performer.gates.book
            book.keep_breaker("http:example.com:443", Breaker(5, 1, engine.clock.now() + 60, because="no answer"))

    asyncio.run(break_it())
    ran = windlass("tools", "check", code=1)
    assert "! http:example.com:443: open" in ran.out
    assert "the last failure: no answer" in ran.out


def test_h1_try_uses_a_tool_once(windlass: Any) -> None:
    ran = windlass("tools", "try", "shell", "--with", '{"line": "echo hi"}', "--progress", "quiet")
    assert "hi" in ran.out
