"""One line for a call of a tool, as progress shows it (I1)."""

from __future__ import annotations

from typing import Any

import pytest

from windlass.core.call_summary import LONGEST, call_summary


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ({}, ""),
        ({"content": "new", "path": "a.txt"}, "a.txt"),
        ({"path": "", "pattern": "x.*"}, "x.*"),
        ({"line": "make  all\n make test"}, "make all make test"),
        ({"size": "größe", "at": 1}, '{"size": "größe", "at": 1}'),
        ({"path": "x" * LONGEST}, "x" * LONGEST),
        ({"line": "x    " * LONGEST}, ("x " * LONGEST)[: LONGEST - 1] + "…"),
        ({"path": "x" * (LONGEST + 1)}, "x" * (LONGEST - 1) + "…"),
    ],
)
def test_i1_a_call_is_one_line_with_its_main_argument(arguments: dict[str, Any], line: str) -> None:
    assert call_summary(arguments) == line
