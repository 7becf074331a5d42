"""The arguments of a program: what surely fits is not held against its JSON Schema, everything else is (G1)."""

from __future__ import annotations

from collections import UserDict
from typing import TYPE_CHECKING, Any

import pytest

from windlass.clock import SystemClock
from windlass.core.decide import Policy
from windlass.engine.code.running import ProgramDeps
from windlass.engine.code.tool import CodeTool
from windlass.schemas import misfits

if TYPE_CHECKING:
    from windlass.ports import Sandbox

FITTING: list[dict[str, Any]] = [
    {"source": "return 1"},
    {"source": "return 1", "grants": []},
    {"source": "return 1", "grants": ["files.*", "greet"], "limits": {"wall": "9s"}},
    {"source": "return args", "args": {"x": [1, None]}},
    {"source": "return 1", "limits": UserDict(wall="9s")},
]
WRONG: list[dict[str, Any]] = [
    {},
    {"source": None},
    {"source": ["return 1"]},
    {"sourec": "return 1"},
    {"source": "return 1", "grants": "files.*"},
    {"source": "return 1", "grants": ["files.*", 1]},
    {"source": "return 1", "grants": None},
    {"source": "return 1", "limits": []},
    {"source": "return 1", "limits": None},
    {"source": "return 1", "timeout": 3},
    {"source": "return 1", "args": float("nan")},
    {"source": "return 1", "args": {1: 2}},
]


@pytest.mark.parametrize("given", [*FITTING, *WRONG], ids=str)
def test_g1_the_arguments_of_a_program_are_judged_as_its_schema_says(sandbox: Sandbox, given: dict[str, Any]) -> None:
    tool = CodeTool(ProgramDeps(sandbox, SystemClock()), Policy())
    assert tool.validate(given) == misfits(tool.schema, given)
    assert bool(tool.validate(given)) is (given in WRONG)
    assert tool.validate({**given, "workdir": "sub"}) == tool.validate(given)
