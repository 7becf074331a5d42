"""K2: of several attempts at one task one is the result, by a check or a judge; the others are stopped and paid."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, plan
from git_repositories import git, repository

from windlass import Plan, Step
from windlass.core import events as ev
from windlass.core.view import snapshot
from windlass.errors import Category, Failure
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


def tries(*answers: str, **more: Any) -> Step:
    choice = more or {"check": "grep -qx 42 answer", "tries": 1, "pick": "first"}
    return agent("try", foreach=list(answers), prompt="{{ item }}", workspace="worktree", **choice)


ACCEPT: Any = {"check": "grep -qx 42 answer"}


async def test_k2_the_first_item_that_passes_is_the_result_and_the_others_are_stopped_and_paid(
    project: Project,
) -> None:
    folder = repository(project)
    world = AgentWorld(project, attempts())
    after = Step(id="after", needs=("try",), run="echo {{ steps.try.output | quote }}")
    merge = Step(id="merge", merge="try")
    steps = plan(tries("41", "ask", "42", "43"), after, merge, limits={"parallel": 1})
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
    state = await AgentWorld(project, attempts()).run(plan(tries("40", "41")))
    error = state.steps["try"].error
    assert (state.status, state.steps["try"].picked) == ("failed", "")
    assert error is not None
    assert "2 of 2 items failed" in error.message


async def test_k2_killed_after_one_was_picked_no_other_begins(project: Project) -> None:
    repository(project)
    world = AgentWorld(project, attempts())
    first = await world.run(plan(tries("42", "43", "44"), limits={"parallel": 1}))
    later = await world.cut_off(first.id, lambda event: isinstance(event, ev.AttemptFinished))
    replay = attempts()
    later.runners = {**later.runners, "cli": replay}
    state = await later.resume(first.id)
    assert (state.status, state.steps["try"].output, replay.requests) == ("completed", "42", [])


async def test_k2_the_work_that_passes_the_check_of_pick_is_the_result_and_what_fails_it_is_not_sent_back(
    project: Project,
) -> None:
    folder = repository(project)
    runner = attempts()
    world = AgentWorld(project, runner)
    after = Step(
        id="after", run="git show {{ steps.try.branch | quote }}:answer; cat {{ steps.try.workdir | quote }}/answer"
    )
    work = tries("41", "ask", "42", "43", check="test -e answer", pick=ACCEPT)
    state = await world.run(plan(work, after, Step(id="merge", merge="try"), limits={"parallel": 1}))
    assert state.status == "completed", state.error
    items = state.steps["try"].children or []
    assert [str(item.status) for item in items] == ["failed", "skipped", "completed", "skipped"]
    assert items[0].error is not None
    assert "does not pass the check of `pick`: grep -qx 42 answer (exit code 1)" in items[0].error.message
    assert [one["agent"]["verdict"] for one in snapshot(state)["steps"] if one["id"] == "try[0]"] == ["refuted"]
    assert [request.task for request in runner.requests] == ["41", "ask", "42"], "nobody was told to go on"
    assert state.steps["after"].output["stdout"] == "42\n42\n"
    assert (folder / "answer").read_text() == "42\n"
    assert git(folder, "log", "--merges", "--format=%s").splitlines() == ["merge try[2]"]
    async with world.engine() as engine:
        verified = await engine.verify(state.id, "try")
    checked = verified.steps["try[2]"].agent
    assert checked is not None
    assert checked.checked is not None
    assert [result.check for result in checked.checked.results] == ["test -e answer", "grep -qx 42 answer"]


async def test_k2_an_item_that_was_not_picked_goes_on_when_a_person_has_it_tried_again(project: Project) -> None:
    repository(project)

    def turn(request: AgentRequest) -> Turn:
        answer = request.task if request.session is None else "42"
        (request.workdir / "answer").write_text(f"{answer}\n")
        return Turn(session=f"s-{request.task}").spend(tokens_in=1, tokens_out=1, usd=0.0).say(answer)

    runner = ScriptedRunner(turn, name="cli")
    world = AgentWorld(project, runner)
    state = await world.run(plan(tries("40", "41", pick=ACCEPT)))
    error = state.steps["try"].error
    assert error is not None
    assert "2 of 2 items failed" in error.message
    async with world.engine() as engine:
        await engine.retry(state.id, "try[1]")
        state = await (await engine.resume(state.id)).wait()
    assert (state.status, state.steps["try"].picked, state.steps["try"].output) == ("completed", "try[1]", "42")
    told = [event for event in await world.events(state.id) if isinstance(event, ev.AgentTold)]
    assert [event.step for event in told] == ["try[1]"]
    assert "this check failed" in told[0].text
    assert len(runner.requests) == 3, "the other one was not tried again"


async def test_k2_a_step_of_which_nothing_was_picked_fails(project: Project) -> None:
    world = AgentWorld(project, attempts())
    none = await world.run(plan(Step(id="try", foreach=[], run="true", pick="first")))
    one = await world.run(plan(Step(id="try", foreach=["a"], run="true", pick="first", approve="always")))
    async with world.engine() as engine:
        await engine.skip(one.id, "try[0]")
        one = await (await engine.resume(one.id)).wait()
    errors = [state.steps["try"].error for state in (none, one)]
    texts = [error.message for error in errors if error is not None]
    assert texts == ["there is no item to pick", "no item was picked: none of 1 completed"]


async def test_k2_killed_after_the_check_that_refuses_it_an_agent_is_not_asked_again(project: Project) -> None:
    repository(project)
    world = AgentWorld(project, attempts())
    first = await world.run(plan(tries("41", pick=ACCEPT)))
    later = await world.cut_off(first.id, lambda event: isinstance(event, ev.AgentChecked))
    replay = attempts()
    later.runners = {**later.runners, "cli": replay}
    state = await later.resume(first.id)
    error = state.steps["try[0]"].error
    assert error is not None
    assert "does not pass the check of `pick`" in error.message
    assert (state.status, replay.requests) == ("failed", [])


BEST: Any = {"type": "object", "required": ["best"], "properties": {"best": {}}}


def judge(verdict: str) -> ScriptedRunner:
    """Three who answer, and a judge of their branches."""

    def turn(request: AgentRequest) -> Turn:
        begun = Turn(session=f"s-{request.task}").spend(tokens_in=1, tokens_out=1, usd=0.0)
        if request.task.startswith("best of"):
            return begun.say(verdict)
        if request.task == "fails":
            return begun.fail(Failure(Category.LOGIC, "no"))
        (request.workdir / "answer").write_text(f"{request.task}\n")
        return begun.say("done")

    return ScriptedRunner(turn, name="cli")


def judged(*answers: str, only: Any = "steps.judge.output.best") -> Plan:
    work = tries(*answers, importance="optional")
    choose = agent("judge", prompt="best of {{ steps.try.branch }}", output=BEST, handoff=False)
    return plan(work, choose, Step(id="merge", merge="try", only=only, needs=("judge",), retry={"max": 0}))


@pytest.mark.parametrize(("verdict", "merged"), [("1", ["try[1]"]), ("[2, 0, 2.0]", ["try[0]", "try[2]"]), ("[]", [])])
async def test_k2_a_judge_chooses_and_only_that_branch_is_merged(
    project: Project, verdict: str, merged: list[str]
) -> None:
    folder = repository(project)
    runner = judge(f'{{"best": {verdict}}}')
    state = await AgentWorld(project, runner).run(judged("same", "other", "same"))
    assert state.status == "completed", state.steps["merge"].error
    assert [one["step"] for one in state.steps["merge"].output["merged"]] == merged
    assert git(folder, "log", "--reverse", "--merges", "--format=%s").splitlines() == [f"merge {one}" for one in merged]
    branches = [f"windlass/{state.id}/try.{number}" for number in range(3)]
    assert all(branch in runner.requests[-1].task for branch in branches)
    assert git(folder, "branch", "--list", "--format=%(refname:short)", *branches).splitlines() == branches


@pytest.mark.parametrize(
    ("verdict", "problem"),
    [
        ("3", "`only` names 3, and the items of try are 0 to 1"),
        ("-1", "`only` names -1,"),
        ("true", "`only` names True,"),
        ('"0"', "`only` names '0',"),
        ("null", "`only` names None,"),
        ("[[0]]", "`only` names [0],"),
        ("1", "`only` names try[1], which has no work to merge: it is failed"),
    ],
)
async def test_k2_a_judge_that_chooses_what_is_not_there_merges_nothing(
    project: Project, verdict: str, problem: str
) -> None:
    folder = repository(project)
    state = await AgentWorld(project, judge(f'{{"best": {verdict}}}')).run(judged("good", "fails"))
    error = state.steps["merge"].error
    assert error is not None
    assert problem in error.message
    assert not (folder / "answer").exists()
