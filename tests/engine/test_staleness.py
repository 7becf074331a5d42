"""Verified work whose files have changed since is found, with one look at the files for all who ask (K2)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from windlass.core import events as ev
from windlass.core.state import State, fold
from windlass.engine.agents import staleness
from windlass.engine.agents.staleness import LOOK_AGAIN, StaleChecks
from windlass.errors import ToolError
from windlass.plan.model import Plan


def verified(*trees: str) -> State:
    """An execution with a step for each of these contents, as the checks of its agent left it."""
    steps = [
        {"id": f"s{number}", "agent": "developer", "prompt": "do it", "check": "true"} for number in range(len(trees))
    ]
    plan = Plan.model_validate({"name": "p", "steps": [*steps, {"id": "plain", "tool": "t"}]})
    state = fold(
        [ev.ExecutionCreated(1.0, "x", msgspec.Raw(plan.encoded), {}, "/"), ev.ExecutionStarted(1.0, "d")], plan
    )
    for number, tree in enumerate(trees):
        step = f"s{number}"
        for event in (
            ev.AttemptStarted(2.0, step, 1, "agent", {}, "once"),
            ev.AgentBegan(2.0, step, 1, "cli", "developer", "who", "what"),
            ev.AgentClaimed(2.0, step, 1, "done"),
            ev.AgentChecked(2.0, step, 1, 1, (ev.CheckResult("true", True, 0.1),), root="/work", tree=tree),
            ev.AttemptFinished(3.0, step, 1, "done"),
        ):
            state.apply(event)
    return state


class Files:
    """The files of a folder, and the looks at them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.tree: str | Exception = "git:1"
        self.looks: list[tuple[str, str]] = []
        self.now = 5000.0
        monkeypatch.setattr(staleness, "store_of", self.store_of)
        monkeypatch.setattr(staleness.time, "monotonic", lambda: self.now)
        self.checks = StaleChecks(Path("/home"))

    def store_of(self, root: Path, kind: str, home: Path) -> Any:
        self.looks.append((str(root), kind))
        return SimpleNamespace(record=self.record)

    def record(self) -> Any:
        if isinstance(self.tree, Exception):
            raise self.tree
        return SimpleNamespace(tree=self.tree)


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch) -> Files:
    return Files(monkeypatch)


def test_k2_work_whose_files_are_otherwise_than_its_checks_left_them_is_stale(files: Files) -> None:
    state = verified("git:1", "git:2", "")
    assert files.checks.find(state) == {"s1"}, "of s2 nothing was recorded"
    files.tree, files.now = "git:2", files.now + LOOK_AGAIN + 0.1
    assert files.checks.find(state) == {"s0"}


def test_k2_all_who_look_within_a_moment_share_one_look_at_the_files(files: Files) -> None:
    state = verified("git:1", "git:2")
    files.checks.find(state)
    files.tree, files.now = "git:2", files.now + LOOK_AGAIN
    assert files.checks.find(state) == {"s1"}
    assert files.looks == [("/work", "git")]
    files.now += 0.1
    assert files.checks.find(state) == {"s0"}
    assert files.looks == [("/work", "git")] * 2


@pytest.mark.parametrize("trouble", [ToolError("no repository"), PermissionError("read-only")])
def test_k2_of_files_that_cannot_be_looked_at_nothing_is_said(files: Files, trouble: Exception) -> None:
    files.tree = trouble
    assert files.checks.find(verified("git:1")) == frozenset()
