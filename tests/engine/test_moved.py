"""Conversations that go with their step to another machine, and only those (K1)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from code_worlds import plain_call

from windlass.engine.agents.moved import keep_session
from windlass.ports import SessionPlace
from windlass.testing import ScriptedRunner


class Keeps(ScriptedRunner):
    """Notes the conversations that it is to keep for another machine."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[str] = []

    async def keep_session(self, place: SessionPlace) -> None:
        self.kept.append(place.session)


@pytest.mark.parametrize(
    ("files", "session", "kept"), [("here", "s1", ["s1"]), ("here", None, []), (None, "s1", []), (None, None, [])]
)
async def test_k1_a_conversation_is_kept_for_other_machines_where_there_are_some(
    tmp_path: Path, files: str | None, session: str | None, kept: list[str]
) -> None:
    runner = Keeps()
    contact: Any = SimpleNamespace(files=files)
    await keep_session(runner, session, plain_call(tmp_path), contact)
    assert runner.kept == kept
