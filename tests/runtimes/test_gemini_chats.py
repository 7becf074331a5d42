"""The files of Gemini CLI's conversations: the one to go on with gets a name that is not overwritten (A9)."""

from __future__ import annotations

from pathlib import Path

import pytest

from windlass.runners.acp.gemini_chats import keep_chat

SESSION = "0123abcd-0000-4000-8000-000000000000"


@pytest.mark.parametrize("began", ["2026-01-02T03-03", "2026-01-02T03-06"])
def test_a9_the_file_with_the_conversation_is_kept_once_and_no_other_is_touched(tmp_path: Path, began: str) -> None:
    """Also where an empty file is older: it began at the turn of a minute."""
    chats = tmp_path / ".gemini/tmp/work/chats"
    chats.mkdir(parents=True)
    for minute, text in ((began, "the conversation"), ("2026-01-02T03-05", "empty")):
        (chats / f"session-{minute}-0123abcd.jsonl").write_text(text)
    (chats / "session-2026-01-02T03-04-9999ffff.jsonl").write_text("another")
    kept = [
        ("session-2026-01-02T03-04-9999ffff.jsonl", "another"),
        ("session-2026-01-02T03-05-0123abcd.jsonl", "empty"),
    ]
    for _ in range(2):
        keep_chat(SESSION, {"HOME": str(tmp_path)})
        found = sorted((file.name, file.read_text()) for file in chats.iterdir())
        assert found == [*kept, ("session-kept-0123abcd.jsonl", "the conversation")]


def test_a9_without_files_or_a_home_nothing_is_done(tmp_path: Path) -> None:
    keep_chat(SESSION, {"HOME": str(tmp_path)})
    keep_chat(SESSION, {})
    keep_chat("../../*", {"HOME": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []
