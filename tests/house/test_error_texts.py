"""Every error text that a user can meet, collected and held to how we write them (C5)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from error_texts import advice_texts, error_texts

NAMES = ("MCP", "OpenCode", "Python", "WINDLASS_", "PostgreSQL", "QuickJS", "Temporal", "Blocked: ")
"""What a text may begin with although it is written large."""
UNCLEAR = re.compile(
    r"\b(told|somebody|stood|mend(s|ed)?|an error occurred|went wrong|failed to|(?<!there )is no(?! longer))\b"
)


def test_c5_error_texts_say_what_is_wrong_in_the_same_form() -> None:
    found = list(error_texts())
    assert len(found) > 750, "the collector no longer finds them"
    wrong = [
        f"{one.file}:{one.line}: {one.text}"
        for one in found
        if UNCLEAR.search(one.text)
        or one.text.endswith((".", "!"))
        or (one.text[0].isupper() and not one.text.startswith(NAMES))
    ]
    assert not wrong, "begin small, end without a full stop, name the thing:\n" + "\n".join(wrong)


OPTION = re.compile(r"(?<![\w-])--[a-z]")
COMMAND = re.compile(r"\b(windlass|pip|git) |--(version|address)\b")
"""A whole command with its program, or an option of another program."""
AT_THE_TERMINAL = ("cli/", "journal/backup.py", "journal/stores.py", "plan/load.py")
"""What nothing but the command line reaches."""


def test_c5_a_text_for_every_door_names_no_option_of_the_command_line() -> None:
    """HTTP, MCP and Python have no `--since`: such a text says `since`, or a whole command to type."""
    wrong = [
        f"{one.file}:{one.line}: {one.text}"
        for one in (*error_texts(), *advice_texts())
        if OPTION.search(one.text) and not COMMAND.search(one.text) and not one.file.startswith(AT_THE_TERMINAL)
    ]
    assert not wrong, "name the field as every door does:\n" + "\n".join(wrong)
