"""The arguments of a program: what surely fits is not held against its JSON Schema, everything else is (G1)."""

from __future__ import annotations

from collections import UserDict
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from windlass.clock import SystemClock
from windlass.core.decide import Policy
from windlass.engine.code.running import ProgramDeps
from windlass.engine.code.tool import CodeTool, refuse_unreadable
from windlass.errors import PlanInvalid
from windlass.plan.model import Plan
from windlass.plan.report import Report
from windlass.ports import ProgramError
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


STEPS = [
    {"id": "fine", "code": "return 1"},
    {"id": "bad", "code": "let = 1"},
    {"id": "same", "code": "let = 1"},
    {"id": "work", "prompt": "x", "check": ["true", {"code": "half"}, {"code": "return 1"}]},
    {"id": "several", "prompt": "x", "foreach": [1], "pick": {"check": [{"code": "odd"}]}},
]
SAID = {
    "let = 1": "SyntaxError: no\n    at program.js:2:7",
    "half": "SyntaxError: half\n    at program.js:3",
    "odd": "it is odd\nvery odd",
}


async def test_g1_each_program_that_cannot_be_read_is_refused_once_with_its_place() -> None:
    async def check(source: str) -> str | None:
        return SAID.get(source)

    sandbox: Any = SimpleNamespace(check=check)
    report = Report("plan.yaml", lambda path, inside=None: inside)
    with pytest.raises(PlanInvalid) as caught:
        await refuse_unreadable(sandbox, Plan.model_validate({"name": "p", "steps": STEPS}), report)
    assert [(one.message, one.where, one.line, one.column) for one in caught.value.problems] == [
        ("step bad: SyntaxError: no in line 2 of the program", "steps[1].code", 2, 7),
        ("step work: SyntaxError: half in line 3 of the program", "steps[3].check[1].code", 3, 1),
        ("step several: it is odd", "steps[4].pick.check[0].code", None, None),
    ]


async def test_g1_where_there_is_no_sandbox_the_steps_say_so_and_no_plan_is_refused() -> None:
    async def check(source: str) -> str | None:
        raise ProgramError("lost", "there is none")

    sandbox: Any = SimpleNamespace(check=check)
    await refuse_unreadable(sandbox, Plan.model_validate({"name": "p", "steps": STEPS}), Report("plan.yaml", None))
