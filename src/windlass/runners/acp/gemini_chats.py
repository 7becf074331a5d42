"""The files in which Gemini CLI keeps conversations: keeps it from losing one that an agent goes on with.

Gemini CLI 0.61 names such a file by the minute and the first eight characters of the session. When it loads a session,
it first begins an empty file for it: in the minute in which the conversation began that is the same file, which then
counts as empty. And where there is an empty file, the next start deletes all files of that session.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

__all__ = ["chat_settings", "keep_chat"]

SYSTEM = Path("/Library/Application Support/GeminiCli" if sys.platform == "darwin" else "/etc/gemini-cli")


def chat_settings() -> dict[str, str]:
    """Variables by which it deletes no sessions at its start, unless the user's or the machine's settings say more."""
    if (SYSTEM / "system-defaults.json").exists():
        return {}
    return {"GEMINI_CLI_SYSTEM_DEFAULTS_PATH": str(Path(__file__).with_name("gemini_defaults.json"))}


def keep_chat(session: str, env: Mapping[str, str]) -> None:
    """Give the file of a conversation a name that no minute has: the largest one, as the others are empty.

    It need not be the oldest: a conversation that begins at the turn of a minute has an empty one before it.
    """
    home = env.get("GEMINI_CLI_HOME") or env.get("HOME")
    if home is None or not session[:8].isalnum():
        return
    with suppress(OSError):  # if it is lost for that, the agent says so when it is told to load it
        found = list(Path(home, ".gemini/tmp").glob(f"*/chats/session-*-{session[:8]}.jsonl"))
        if found and not any(file.name.startswith("session-kept-") for file in found):
            largest = max(found, key=lambda file: file.stat().st_size)
            largest.rename(largest.with_name(f"session-kept-{session[:8]}.jsonl"))
