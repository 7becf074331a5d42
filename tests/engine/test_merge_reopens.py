"""K4: a conflict, or a check that fails with the work of others, goes back to the agent whose branch it is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, occurred, plan, quick
from git_repositories import git, repository

from windlass import Plan, Step
from windlass.core import events as ev
from windlass.core.state import State
from windlass.core.view import snapshot
from windlass.ports import AgentRequest
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def resolvers(*mended: str | None) -> ScriptedRunner:
    """Agents whose task is `FILE=CONTENT`. Told of the work of others, they write what is `mended` into the file, one
    after the other; None is a model that does not answer."""
    left = list(mended)

    def turn(request: AgentRequest) -> Turn:
        name, _, content = request.task.partition("=")
        again = request.session is not None
        text, session = left.pop(0) if again else content, request.session or f"session-of-{content}"
        if text is None:
            return Turn(session=session).fail("no answer", category="transient")
        (request.workdir / name).write_text(f"{text}\n")
        return Turn(session=session).say("mended" if again else "done").spend(tokens_in=1, tokens_out=1, usd=0.25)

    return ScriptedRunner(turn, name="cli")


def merging(*tasks: str, check: Any = "true", fix: dict[str, Any] | None = None, **more: Any) -> Plan:
    step = agent("fix", foreach=list(tasks), prompt="{{ item }}", workspace="worktree", **(fix or {}))
    merge = Step(id="merge", merge="fix", check=check, **{"retry": {"max": 0}, **more})
    return plan(step, merge, limits={"parallel": 1})


def of_agent(state: State, step: str) -> dict[str, Any]:
    (view,) = [one for one in snapshot(state)["steps"] if one["id"] == step]
    return {**view["agent"], "status": view["status"], "cost_usd": view["cost_usd"]}


TASKS = ("same=one", "same=two", "other=3")


async def test_k4_a_conflict_goes_back_into_the_conversation_of_its_agent(project: Project) -> None:
    folder = repository(project)
    runner = resolvers("<<<<<<< mine", "one and two")
    world = AgentWorld(project, runner)
    state = await world.run(merging(*TASKS, check="echo run >> ../checked"))
    assert state.status == "completed", state.steps["merge"].error
    assert (folder / "same").read_text() == "one and two\n"
    first, second = runner.requests[3:]
    assert (first.session, second.session) == ("session-of-two", "session-of-two")
    assert "These files have conflicts:\n\n    same\n" in first.brief.prompt
    assert "<<<<<<< mine" in second.brief.prompt, "a mark that was left goes back, too"
    assert git(folder, "log", "--merges", "--format=%s").splitlines().count("merge fix[1]") == 1
    assert [one["step"] for one in state.steps["merge"].output["merged"]] == ["fix[0]", "fix[1]", "fix[2]"]
    fixed = of_agent(state, "fix[1]")
    assert (fixed["status"], fixed["cost_usd"], fixed["verdict"]) == ("completed", 0.75, "verified")
    assert state.cost.usd == 1.25
    notes = [event for event in await world.events(state.id) if isinstance(event, ev.OutputWritten)]
    assert "fix[1] goes on: conflicts in same\n" in [note.text for note in notes if note.step == "merge"]
    async with world.engine() as engine:
        cleaned = await engine.workspaces(state.id, clean=True)
    assert {(one["work"], one["removed"]) for one in cleaned} == {("merged", True)}


async def test_k4_a_check_that_fails_with_the_work_of_others_goes_back(project: Project) -> None:
    folder = repository(project)
    runner = resolvers("2 that fits")
    check = "test ! -e b || grep -q fits b || { echo b does not fit to a; exit 3; }"
    state = await AgentWorld(project, runner).run(merging("a=1", "b=2", check=check))
    assert state.status == "completed", state.steps["merge"].error
    assert "b does not fit to a" in runner.requests[2].brief.prompt
    assert (runner.requests[2].workdir / "a").read_text() == "1\n", "it has the work of the others"
    assert (folder / "b").read_text() == "2 that fits\n"


async def test_k4_an_agent_whose_model_does_not_answer_goes_on_with_its_branch_in_the_next_attempt(
    project: Project,
) -> None:
    folder = repository(project)
    runner = resolvers(None, "both")
    state = await AgentWorld(project, runner).run(merging("same=one", "same=two", retry=quick))
    assert (state.status, state.steps["merge"].attempts) == ("completed", 2)
    assert [request.session for request in runner.requests[2:]] == ["session-of-two"] * 2
    assert (folder / "same").read_text() == "both\n"


async def test_k4_what_an_agent_cannot_mend_in_its_tries_stays_and_a_retry_has_it_try_again(project: Project) -> None:
    folder = repository(project)
    runner = resolvers("<<<<<<< 1", "<<<<<<< 2", "both")
    world = AgentWorld(project, runner)
    state = await world.run(merging(*TASKS, fix={"check": "true", "tries": 2}))
    error = state.steps["merge"].error
    assert (state.status, len(runner.requests)) == ("partial", 5)
    assert error is not None
    assert "fix[1] stays on" in error.message
    assert "conflicts in same\nthe agent could not mend it: the work was checked 2 times" in error.message
    assert ((folder / "same").read_text(), (folder / "other").exists()) == ("one\n", True)
    assert git(folder, "show", f"windlass/{state.id}/fix.1:same") == "two\n"
    async with world.engine() as engine:
        await engine.retry(state.id, "merge")
        state = await (await engine.resume(state.id)).wait()
    assert state.status == "completed", state.steps["merge"].error
    assert ((folder / "same").read_text(), len(runner.requests)) == ("both\n", 6)


@pytest.mark.parametrize(
    ("after", "asked"),
    [
        (lambda event: isinstance(event, ev.AgentTold), 1),
        (lambda event: isinstance(event, ev.AgentBegan) and event.step == "fix[1]" and event.attempt == 2, 1),
        (lambda event: isinstance(event, ev.AgentClaimed), 0),
        (lambda event: isinstance(event, ev.AgentChecked) and event.passed, 0),
    ],
)
async def test_k4_killed_while_an_agent_mends_its_branch_it_goes_on_there(
    project: Project, after: Callable[[ev.Event], Any], asked: int
) -> None:
    folder = repository(project)
    world = AgentWorld(project, resolvers("both"))
    first = await world.run(merging("same=one", "same=two"))
    put_back_to_the_conflict(folder, first, resolved=not asked)
    later = await world.cut_off(first.id, after)
    replay = resolvers("both")
    later.runners = {**later.runners, "cli": replay}
    state = await later.resume(first.id)
    assert state.status == "completed", state.steps["merge"].error
    assert ((folder / "same").read_text(), len(replay.requests)) == ("both\n", asked)
    told = [event for event in await later.events(first.id) if isinstance(event, ev.AgentTold)]
    assert len(told) == 1, "nothing is said twice"
    assert git(folder, "log", "--merges", "--format=%s").splitlines().count("merge fix[1]") == 1


def put_back_to_the_conflict(folder: Path, state: State, *, resolved: bool) -> None:
    """Put the repository back to the moment when the agent resolves the conflict, or has resolved it."""
    tip = git(folder, "rev-parse", f"windlass/{state.id}/fix.1").strip()
    merged = git(folder, "log", "--format=%H", "--grep=merge fix.0", "-1", "--all").strip()
    git(folder, "reset", "-q", "--hard", f"{merged}^1")
    git(folder, "branch", f"windlass/{state.id}/merge", merged)
    who = state.steps["fix[1]"].agent
    assert who is not None
    assert who.workspace is not None
    place = Path(who.workspace.path)
    git(place, "reset", "-q", "--hard", f"{tip}^1")
    if resolved:
        git(place, "merge", "-q", "--no-commit", "-s", "ours", merged)
        (place / "same").write_text("both\n")


async def test_k4_a_budget_that_ends_holds_the_merge_and_it_goes_on(project: Project) -> None:
    repository(project)
    runner = resolvers("<<<<<<< 1", "<<<<<<< 2", "both")
    world = AgentWorld(project, runner)
    state = await world.run(merging("same=one", "same=two", fix={"check": "true", "tries": 5, "budget": 0.9}))
    assert (state.status, state.paused_for) == ("paused", "budget")
    async with world.engine() as engine:
        await engine.allow_budget(state.id, step="fix[1]", scope="step", usd=10.0)
    state = await world.resume(state.id)
    assert state.status == "completed", state.steps["merge"].error


async def test_k4_a_merge_that_asks_shows_the_difference_before_the_target_moves(project: Project) -> None:
    folder = repository(project)
    world = AgentWorld(project, resolvers())
    head = git(folder, "rev-parse", "HEAD")
    async with world.engine() as engine:
        execution = await engine.start(merging("a=1", "b=2", approve="always"), hold=True)
        asked = await occurred(execution, ev.ApprovalAsked)
        assert (asked.step, asked.tool, asked.input["target"]) == ("merge", "merge", "main")
        assert "+++ b/a" in asked.input["diff"]
        assert git(folder, "rev-parse", "HEAD") == head
        await engine.approve(execution.id, "merge", by="ann")
        state = await execution.wait()
    assert state.status == "completed", state.steps["merge"].error
    assert (folder / "b").exists()


async def test_k4_a_merge_that_asks_is_listed_with_the_work_that_it_has_taken(project: Project) -> None:
    repository(project)
    world = AgentWorld(project, resolvers())
    async with world.engine() as engine:
        execution = await engine.start(merging("a=1", "b=2", approve="always"), hold=True)
        await occurred(execution, ev.ApprovalAsked)
        during = {one["step"]: one for one in await engine.workspaces(execution.id)}
        assert during["merge"]["work"] == "in use"
        assert [during[f"fix[{number}]"]["merge"]["state"] for number in range(2)] == ["merged", "merged"]
        await execution.interrupt()
        (found,) = (one for one in await engine.workspaces(execution.id) if one["step"] == "merge")
    assert (found["branch"], found["merge"]) == (f"windlass/{execution.id}/merge", None)
    assert found["work"] == "4 commits not merged", "two of agents, and their merges"


async def test_k4_the_list_of_folders_says_whose_agent_mends_its_branch(project: Project) -> None:
    repository(project)

    def turn(request: AgentRequest) -> Turn:
        name, _, content = request.task.partition("=")
        (request.workdir / name).write_text(f"{content}\n")
        return Turn().say("done") if request.session is None else Turn().hang()

    runner = ScriptedRunner(turn, name="cli")
    async with AgentWorld(project, runner).engine() as engine:
        execution = await engine.start(merging(*TASKS))
        await runner.wait_for(4)
        listed = {one["step"]: one["merge"] for one in await engine.workspaces(execution.id)}
        await execution.cancel()
    assert [listed[f"fix[{number}]"]["state"] for number in range(3)] == ["merged", "with its agent", "waits"]


async def test_k4_a_merge_that_is_denied_stays_on_its_branch(project: Project) -> None:
    folder = repository(project)
    world = AgentWorld(project, resolvers())
    async with world.engine() as engine:
        execution = await engine.start(merging("a=1", approve="always"), hold=True)
        await occurred(execution, ev.ApprovalAsked)
        await engine.approve(execution.id, "merge", by="ann", allow=False, note="not now")
        state = await execution.wait()
    error = state.steps["merge"].error
    assert error is not None
    assert "main where it is: denied by a person: not now" in error.message
    assert not (folder / "a").exists()
    assert git(folder, "show", f"windlass/{state.id}/merge:a") == "1\n"
