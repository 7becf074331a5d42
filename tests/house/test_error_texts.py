"""Every error text that a user can meet, collected and held to how we write them (C5)."""

from __future__ import annotations

import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from error_texts import error_texts

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
