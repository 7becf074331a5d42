"""The types of the public API, proven by the type checker itself (I5)."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import windlass
from windlass import Budget, Limits, Permits, Plan, Retry, Step
from windlass.plan import model
from windlass.plan.model import Pick, ToolCheck, WorkspaceChoice
from windlass.values import CheckedValue, ValueField

HERE = Path(__file__).parent


def test_i5_a_strictly_typed_program_can_use_the_public_api() -> None:
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(HERE / "api.py")],
        cwd=HERE.parent.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_i5_the_program_uses_every_public_name() -> None:
    text = (HERE / "api.py").read_text()
    assert [name for name in windlass.__all__ if name not in text and not name.startswith("__")] == []
    assert (Path(windlass.__file__).parent / "py.typed").exists()


def test_i5_the_forms_that_a_plan_file_may_have_are_typed_and_taken_in_python() -> None:
    """The type checker accepts each line here, and the values do, too."""
    plan = Plan(
        inputs={"words": ["rope"]},
        limits=Limits(parallel=2, timeout="5m", memory="1 GB"),
        budget=1.5,
        tools="tools.py",
        triggers=[{"every": "5m"}],
        steps=[
            Step(id="a", run=["echo", "a"], timeout="2m", retry=3, importance="critical", effect="once"),
            Step(id="b", needs="a", tool="shout", foreach=["x", "y"], with_={"text": "{{ item }}"}, retry={"max": 1}),
            Step(
                id="c",
                needs=["a", "b"],
                agent="developer",
                prompt="Build it.",
                permissions=Permits(allow=["files.write"]),
                check=["true", ToolCheck(run="make", timeout="1m")],
                workspace="worktree",
                budget=Budget(usd=0.5),
                files="README.md",
            ),
            Step(id="d", run="true", retry=Retry(max=1, delay="1s", on=["transient"]), approve="always"),
        ],
    )
    assert (plan.limits.timeout, plan.steps[0].run, plan.steps[1].needs) == (300.0, ("echo", "a"), ("a",))


@pytest.mark.parametrize("kind", [Plan, Step, Limits, Retry, Permits, Pick, ToolCheck, WorkspaceChoice])
def test_i5_the_typed_arguments_of_a_value_are_its_fields(kind: type[CheckedValue]) -> None:
    classes = [one for one in ast.parse(Path(model.__file__).read_text()).body if isinstance(one, ast.ClassDef)]
    written = next(one for one in classes if one.name == kind.__name__)
    made = next(one for one in ast.walk(written) if isinstance(one, ast.FunctionDef) and one.name == "__init__")
    assert [argument.arg for argument in made.args.kwonlyargs] == list(kind.model_fields)
    pairs = zip(made.args.kwonlyargs, made.args.kw_defaults, strict=True)
    unset = ValueField()
    needed = [
        name for name, one in kind.model_fields.items() if one.default is unset.default and one.default_factory is None
    ]
    assert [argument.arg for argument, default in pairs if default is None] == needed
