"""The tool of agent steps: what it refuses before anything runs, and the runtimes that a resume needs (A6, D5)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import GONE, AgentWorld, agent, plan
from code_worlds import plain_call

from windlass.core import events as ev
from windlass.engine.agents.tool import MergeTool
from windlass.errors import CannotResume, ToolError, UsageError
from windlass.ports import Health
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project


RUNTIMES = ("claude-code", "open-code", "cli")


class Prepared(ScriptedRunner):
    """Notes the models that it is told to get ready for."""

    def __init__(self) -> None:
        super().__init__([Turn(repeat=True).say("done")], name="cli")
        self.models: list[str | None] = []

    def prepare(self, model: str | None) -> None:
        self.models.append(model)


def version(text: str) -> Health:
    return Health(True, version=text)


@pytest.mark.parametrize(
    ("arguments", "problems"),
    [
        ({"runtime": "cli", "model": "m", "models": ["a", "b"]}, []),
        ({"runtime": "clii"}, ["`runtime`: there is no runtime 'clii'; did you mean cli?"]),
        ({"runtime": "other"}, ["`runtime`: there is no runtime 'other'; there are: cli, "]),
        ({"runtime": 5}, ["`runtime`: expected a name, found the number 5"]),
        ({"model": " "}, ["`model`: expected a name, found the text ' '"]),
        ({"models": ["a", None]}, ["`models`: expected a name, found nothing"]),
    ],
)
async def test_a6_a_runtime_is_known_and_models_have_names(
    project: Project, arguments: dict[str, Any], problems: list[str]
) -> None:
    async with AgentWorld(project, ScriptedRunner(name="cli")).engine() as engine:
        assert engine.agents is not None
        found = engine.agents.validate(arguments)
        assert [one[: len(said)] for one, said in zip(found, problems, strict=True)] == problems
        with pytest.raises(UsageError, match="there is no runtime 'clii'; did you mean cli"):
            await engine.start(plan(agent(runtime="clii")))


async def test_a1_agents_work_and_merge_inside_an_execution_alone(project: Project, tmp_path: Path) -> None:
    async with AgentWorld(project).engine() as engine:
        assert engine.agents is not None
        for tool, said in ((engine.agents, "only inside an execution"), (MergeTool(engine.agents), "with `merge`")):
            with pytest.raises(ToolError, match=said):
                await tool.execute({}, plain_call(tmp_path))


async def test_d5_a_resume_needs_the_runtimes_of_steps_that_are_sure_to_go_on(project: Project) -> None:
    """Of four steps one is done, one may be left out, one has begun although it may be left out, and one has not."""
    world = AgentWorld(project, *(ScriptedRunner([Turn(repeat=True).say("done")], name=name) for name in RUNTIMES))
    state = await world.run(
        plan(
            agent("over", runtime="claude-code"),
            agent("begun", runtime="cli", importance="optional", needs=["over"]),
            agent("maybe", runtime="claude-code", importance="optional", needs=["begun"]),
            agent("sure", runtime="open-code", needs=["begun"]),
            fallback=False,
        )
    )
    assert state.status == "completed", state.error
    cut = await world.cut_off(state.id, lambda event: isinstance(event, ev.AgentBegan) and event.step == "begun")
    cut.runners = {name: ScriptedRunner(name=name, health=GONE) for name in RUNTIMES}
    with pytest.raises(CannotResume) as caught:
        await cut.resume(state.id)
    assert list(caught.value.reasons) == [
        "step begun: cli cannot be used: not installed; fallback is disabled (install it)",
        "step sure: open-code cannot be used: not installed; fallback is disabled (install it)",
    ]


async def test_a1_the_runtimes_of_unfinished_steps_get_ready_for_each_model_once(project: Project) -> None:
    runner = Prepared()
    world = AgentWorld(project, runner)
    steps = [agent("first", model="opus"), *(agent(id, model="haiku", needs=["first"]) for id in ("a", "b")), agent()]
    state = await world.run(plan(*steps, agent("other", runtime="open-code", importance="optional")))
    assert sorted(runner.models, key=str) == [None, "haiku", "opus"]
    runner.models.clear()
    cut = await world.cut_off(state.id, lambda event: isinstance(event, ev.AttemptFinished) and event.step == "first")
    await cut.resume(state.id)
    assert "opus" not in runner.models


@pytest.mark.parametrize(("here", "older"), [("1.9.3", True), ("1.10.2", False), ("1.11.0", False), ("", False)])
async def test_d5_a_resume_says_that_an_older_runtime_may_not_read_the_conversation(
    project: Project, here: str, older: bool
) -> None:
    turns = [Turn(session="s1").say("begun").fail("stuck"), Turn(session="s1").say("done")]
    runner = ScriptedRunner(turns, name="cli", health=version("1.10.2"))
    world = AgentWorld(project, runner)
    failed = await world.run(plan(agent("fine", prompt="x", needs=["work"]), agent(retry={"max": 0})))
    runner.health = version(here)
    async with world.engine() as engine:
        await engine.retry(failed.id, "work")
        if older:
            said = "the conversation of step work was written by cli 1.10.2, which 1.9.3 may be unable to read"
            with pytest.raises(CannotResume, match=said):
                await engine.resume(failed.id)
        else:
            state = await (await engine.resume(failed.id)).wait()
            assert state.steps["work"].status == "completed"
