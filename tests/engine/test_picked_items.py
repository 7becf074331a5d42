"""K2: of several attempts at one task the first that completes is the result; the others are stopped and paid."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from agent_worlds import AgentWorld, agent, plan
from git_repositories import git, repository

from windlass import Step
from windlass.core import events as ev
from windlass.core.view import snapshot
from windlass.ports import AgentRequest
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def attempts() -> ScriptedRunner:
    """Agents whose tasks are answers; the one with `ask` waits for a person who never comes."""

    def turn(request: AgentRequest) -> Turn:
        (request.workdir / "answer").write_text(f"{request.task}\n")
        begun = Turn(session=f"s-{request.task}").spend(tokens_in=1, tokens_out=1, usd=0.25)
        return begun.ask("Bash", {"command": "x"}).say("done") if request.task == "ask" else begun.say(request.task)

    return ScriptedRunner(turn, name="cli")


def tries(*answers: str, parallel: int) -> Step:
    check = {"check": "grep -qx 42 answer", "tries": 1} if parallel else {}
    return agent("try", foreach=list(answers), prompt="{{ item }}", workspace="worktree", pick="first", **check)


async def test_k2_the_first_item_that_passes_is_the_result_and_the_others_are_stopped_and_paid(
    project: Project,
) -> None:
    folder = repository(project)
    world = AgentWorld(project, attempts())
    after = Step(id="after", needs=("try",), run="echo {{ steps.try.output | quote }}")
    merge = Step(id="merge", merge="try")
    steps = plan(tries("41", "ask", "42", "43", parallel=1), after, merge, limits={"parallel": 1})
    state = await world.run(steps)
    assert state.status == "completed", state.error
    items = {item.id: (str(item.status), item.skipped_because) for item in state.steps["try"].children or ()}
    assert items["try[0]"][0] == "failed"
    assert items["try[1]"] == items["try[3]"] == ("skipped", "try[2] was picked")
    assert (state.steps["try"].output, state.steps["after"].output["stdout"]) == ("42", "42\n")
    assert (folder / "answer").read_text() == "42\n", "only the picked branch is merged"
    (view,) = [one for one in snapshot(state)["steps"] if one["id"] == "try"]
    assert (view["picked"], view["cost_usd"]) == ("try[2]", 0.75)
    stopped = [event for event in await world.events(state.id) if isinstance(event, ev.AttemptStopped)]
    assert [(event.step, event.reason) for event in stopped] == [("try[1]", "skipped")]
    assert git(folder, "log", "--merges", "--format=%s").splitlines() == ["merge try[2]"]


async def test_k2_if_no_item_completes_the_step_fails(project: Project) -> None:
    repository(project)
    state = await AgentWorld(project, attempts()).run(plan(tries("40", "41", parallel=2)))
    error = state.steps["try"].error
    assert (state.status, state.steps["try"].picked) == ("failed", "")
    assert error is not None
    assert "2 of 2 items failed" in error.message


async def test_k2_killed_after_one_was_picked_no_other_begins(project: Project) -> None:
    repository(project)
    world = AgentWorld(project, attempts())
    first = await world.run(plan(tries("42", "43", "44", parallel=1), limits={"parallel": 1}))
    later = await world.cut_off(first.id, lambda event: isinstance(event, ev.AttemptFinished))
    replay = attempts()
    later.runners = {**later.runners, "cli": replay}
    state = await later.resume(first.id)
    assert (state.status, state.steps["try"].output, replay.requests) == ("completed", "42", [])
