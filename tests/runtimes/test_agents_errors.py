"""What the model API does wrong, as a step of the command line ends of it (C3): each with its category and advice.

One execution has all cases, each a task of its own, so that the runtimes start once or a few at a time.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from agent_project import CLAUDE, CLAUDE_AND_SOAK, OPEN, living, serving, told

from windlass.core import events as ev
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Windlass


class Case(NamedTuple):
    name: str
    reply: Reply
    category: str
    message: str
    advice: str = ""


def cases() -> list[Case]:
    def error(status: int, message: str) -> Reply:
        return Reply.error(status, message, when=f"case status-{status}.", repeat=True)

    return [
        Case("status-400", error(400, "tools.0: bad schema"), "logic", "bad schema", "windlass logs ID --prompt"),
        Case("status-401", error(401, "invalid key"), "permission", "401", "windlass doctor"),
        Case("status-404", error(404, "no such model"), "configuration", "404", "`model`"),
        Case("status-429", error(429, "slow down"), "transient", ""),
        Case("status-500", error(500, "internal"), "transient", ""),
        Case("status-529", error(529, "overloaded"), "transient", ""),
        Case(
            "refusal",
            Reply.refuse("I would rather not", when="case refusal.", repeat=True),
            "logic",
            "",
            "word the task",
        ),
        Case("drop", Reply.drop(after="half of it", when="case drop.", repeat=True), "transient", ""),
    ]


FEW = ("status-404", "refusal", "drop")
"""One is corrected by the user, one by nobody, one by a retry. `make soak` runs all."""


@pytest.mark.parametrize("named", [FEW, pytest.param((), marks=pytest.mark.soak, id="all")])
@CLAUDE_AND_SOAK
def test_c3_every_error_of_the_api_has_its_category_and_advice_and_keeps_what_there_was(
    project: Project, windlass: Windlass, runtime: str, named: tuple[str, ...]
) -> None:
    tool, key = ("Read", "file_path") if runtime == CLAUDE else ("read", "filePath")
    note = project.file("note.txt", "a note")
    all_cases = [case for case in cases() if not named or case.name in named]
    looks = [Reply.use(tool, {key: str(note)}, text="I look at it.", when=f"case {case.name}.") for case in all_cases]
    tasks = [{"id": case.name, "task": f"case {case.name}.", "retry": {"max": 0}} for case in all_cases]
    if runtime == OPEN:  # which knows its models itself, and asks nobody
        tasks.append({"id": "model", "task": "case model.", "model": "scripted/scrpted"})
    project.file("tasks.yaml", json.dumps(tasks))
    with serving(project, [*looks, *(case.reply for case in all_cases)]):
        arguments = ["--task-file", "tasks.yaml", "--runtime", runtime, "--no-fallback", "--parallel", "8"]
        ran = windlass.background("run", *arguments, "--json").ended()
        assert ran.code == 1, str(ran)
        assert living(project) == []
    steps: dict[str, Any] = {step["id"]: step for step in ran.json["steps"]}
    partial = {event.step: event.output for event in told(project, ev.AttemptFailed)}
    for case in all_cases:
        step = steps[case.name]
        error = step["error"]
        assert (case.name, step["status"], error["category"]) == (case.name, "failed", case.category), error
        assert error["message"].startswith(f"{runtime}: "), error
        assert case.message in error["message"], error
        assert case.advice in " ".join(error["advice"]), error
        assert partial[case.name].startswith("I look at it." if case.name != "drop" else ("I look at it.", "half")), (
            case
        )
        assert step["agent"]["cost"]["tokens_in"] >= 10, case.name
    if runtime == OPEN:
        error = steps["model"]["error"]
        assert (error["category"], steps["model"]["attempts"]) == ("configuration", 1)
        assert "scripted/scripted" in f"{error['message']} {error['advice']}", "those that are set up are named"
    (execution,) = project.ids()
    assert windlass("status", execution, "--json").json["status"] == "failed"
