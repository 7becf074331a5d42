"""The files of Gemini CLI's conversations: the one to go on with gets a name that is not overwritten (A9)."""

from __future__ import annotations

from pathlib import Path

from windlass.runners.acp.gemini_chats import keep_chat

SESSION = "0123abcd-0000-4000-8000-000000000000"


def test_a9_the_first_file_of_a_session_is_kept_once_and_no_other_is_touched(tmp_path: Path) -> None:
    chats = tmp_path / ".gemini/tmp/work/chats"
    chats.mkdir(parents=True)
    for minute, text in (("2026-01-02T03-04", "talk"), ("2026-01-02T03-05", "empty")):
        (chats / f"session-{minute}-0123abcd.jsonl").write_text(text)
    (chats / "session-2026-01-02T03-04-9999ffff.jsonl").write_text("another")
    kept = [
        ("session-2026-01-02T03-04-9999ffff.jsonl", "another"),
        ("session-2026-01-02T03-05-0123abcd.jsonl", "empty"),
    ]
    for _ in range(2):
        keep_chat(SESSION, {"HOME": str(tmp_path)})
        found = sorted((file.name, file.read_text()) for file in chats.iterdir())
        assert found == [*kept, ("session-kept-0123abcd.jsonl", "talk")]


def test_a9_without_files_or_a_home_nothing_is_done(tmp_path: Path) -> None:
    keep_chat(SESSION, {"HOME": str(tmp_path)})
    keep_chat(SESSION, {})
    keep_chat("../../*", {"HOME": str(tmp_path)})
    assert list(tmp_path.iterdir()) == []
