"""A plan whose programs and runtimes are missing is refused before anything of it runs (D5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Plan, Step
from windlass.core import events as ev
from windlass.errors import CannotResume, UsageError
from windlass.plan.model import Effect
from windlass.ports import Estimate

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = """
steps:
  - {id: first, run: echo hi > ran.txt}
  - {id: list, run: [no-such-list, x], needs: [first]}
  - {id: line, run: no-such-line --x}
  - {id: shell, run: "true", with: {shell: no-such-shell}}
  - {id: built, run: cd / }
  - {id: several, run: "no-such-third || true"}
  - {id: made, run: [./made-later]}
  - {id: maybe, run: [no-such-maybe], when: "{{ steps.first.output.exit_code == 1 }}"}
  - {id: optional, run: [no-such-optional], importance: optional}
  - {id: agent, agent: developer, prompt: hello}
"""


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)


async def test_d5_everything_that_is_missing_is_told_at_once_and_nothing_runs(project: Project) -> None:
    project.plan(PLAN)
    async with windlass.open() as engine:
        with pytest.raises(UsageError) as refused:
            await engine.start("plan.yaml")
        told = refused.value.message
        for name in (
            "list: the program no-such-list",
            "line: the program no-such-line",
            "shell: the program no-such-shell",
        ):
            assert f"step {name} is not on PATH" in told
        assert "step agent: cli cannot be used" in told
        assert not any(word in told for word in ("cd", "no-such-third", "made-later", "maybe", "optional"))
        assert "install no-such-list" in refused.value.advice
        assert any("ANTHROPIC_API_KEY" in line for line in refused.value.advice)
        assert await engine.executions() == []
        with pytest.raises(UsageError, match="this plan cannot run here"):
            await engine.prerequisites(engine.read("plan.yaml"))
        warned = await engine.prerequisites(engine.read("plan.yaml"), anyway=True)
    assert not (project.path / "ran.txt").exists()
    assert [line.split(":")[0] for line in warned[-2:]] == ["step maybe", "step optional"]


async def test_d5_a_plan_that_is_to_start_anyway_fails_in_its_turn(project: Project) -> None:
    project.plan("steps: [{id: a, run: echo hi > ran.txt}, {id: b, run: [no-such-program], needs: [a]}]")
    async with windlass.open() as engine:
        result = await (await engine.start("plan.yaml", anyway=True)).result()
    assert [step["status"] for step in result["steps"]] == ["completed", "failed"]


def test_d5_the_command_line_refuses_with_code_2_and_goes_on_anyway(project: Project, windlass: Windlass) -> None:
    project.plan("steps: [{id: a, run: echo hi > ran.txt}, {id: b, run: [no-such-program], needs: [a]}]")
    refused = windlass("run", "plan.yaml", code=2)
    assert "step b: the program no-such-program is not on PATH" in refused.err
    assert "`anyway`" in refused.err
    assert not (project.path / "ran.txt").exists()
    assert project.ids() == []
    went_on = windlass("run", "plan.yaml", "--anyway", code=1)
    assert "warning: step b: the program no-such-program" in went_on.err
    assert (project.path / "ran.txt").exists()


def test_d5_d8_a_fork_warns_of_what_a_run_warns_of(project: Project, windlass: Windlass) -> None:
    project.plan("steps: [{id: a, run: echo hi}, {id: b, prompt: x, runtime: cli, when: 'false', needs: [a]}]")
    for typed in (("run", "plan.yaml"), ("fork", "@last", "--from", "a")):
        ran = windlass(*typed)
        assert "warning: step b: cli cannot be used" in ran.err
        assert windlass("status", "@last", "--json").json["status"] == "completed"
    assert len(project.ids()) == 2


TOOLS = """
from windlass import tool

@tool
def number() -> int:
    return 1
"""


async def paused(engine: Any, **versions: str) -> str:
    """An execution that was begun on other versions and waits."""
    execution = await engine.create(engine.read("plan.yaml"))
    events = [entry.event for entry in await engine.journal.read(execution)]
    (created,) = events
    assert isinstance(created, ev.ExecutionCreated)
    assert created.environment.keys() >= {"windlass", "python"}
    state = await engine.state(execution)
    began = ev.ExecutionResumed(created.at, "gone", environment={**created.environment, **versions})
    await engine.journal.append(execution, state.seq, [began, ev.ExecutionPaused(created.at, "person")])
    return str(execution)


async def test_d5_a_resume_on_another_python_says_so_where_python_tools_are_left(project: Project) -> None:
    project.file("own.py", TOOLS)
    project.plan("tools: [own.py]\nsteps: [{id: a, tool: number}]")
    async with windlass.open(ask=lambda folder, files: True) as engine:
        execution = await paused(engine, python="2.7")
        with pytest.raises(CannotResume, match=r"ran on Python 2\.7, and this is 3\."):
            await engine.resume(execution)
        resumed = await engine.resume(execution, accept_changes=True)
        assert (await resumed.result())["status"] == "completed"


async def test_d5_other_versions_are_no_reason_where_nothing_rests_on_them(project: Project) -> None:
    project.plan("steps: [{id: a, run: echo hi}]")
    async with windlass.open() as engine:
        execution = await paused(engine, python="2.7", quickjs="0.1", windlass="0.0.1")
        resumed = await engine.resume(execution)
        assert (await resumed.result())["status"] == "completed"


async def test_i5_every_setting_can_be_given_beside_tools_of_ones_own(project: Project) -> None:
    @windlass.tool
    def shout(text: str) -> str:
        return text.upper()

    terms = {"tools": {"shout": {"enabled": True, "rate": "5/m"}}, "grace": 2}
    async with windlass.open(tools=[shout], settings=terms) as engine:
        assert engine.settings.tools["shout"].rate is not None
        assert engine.settings.grace == 2
        assert engine.attempt_runner.tools.get("shout") is not None


async def test_h1_an_estimate_takes_the_word_of_a_tool_that_never_ran_here(project: Project) -> None:
    class Slow:
        name, description, schema = "slow", "takes its time", {"type": "object"}

        def validate(self, arguments: Any) -> list[str]:
            return []

        def effect(self, arguments: Any) -> Effect:
            return Effect.NONE

        def estimate(self, arguments: Any) -> Estimate:
            return Estimate(seconds=90.0, usd=0.5)

        async def execute(self, arguments: Any, call: Any) -> int:
            return 1

    plan = Plan(name="p", steps=[Step(id="a", tool="slow"), Step(id="b", run="true")])
    async with windlass.open(tools=[Slow()]) as engine:
        before = await engine.estimate(plan, engine.attempt_runner.tools)
        await (await engine.start(plan)).result()
        after = await engine.estimate(plan, engine.attempt_runner.tools)
    assert (before.estimated, before.unknown) == (("a",), ("b",))
    assert before.left is not None
    assert before.usd is not None
    assert before.left.middle == pytest.approx(90.0, rel=0.3)
    assert before.usd.middle == pytest.approx(0.5, rel=0.3)
    assert before.low_confidence
    assert (after.estimated, after.unknown, after.samples) == ((), (), 2)
    assert after.left is not None
    assert after.left.middle < 45.0


async def test_d5_a_variable_that_is_held_back_from_a_command_is_told(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_KEY", "x")
    monkeypatch.setenv("ALLOWED", "y")
    lines = [
        'echo "$DEPLOY_KEY"',
        "echo ${DEPLOY_KEY:-none} $ALLOWED $HOME $NEVER_SET",
        "DEPLOY_KEY=1; echo $DEPLOY_KEY",
        "for DEPLOY_KEY in a; do echo $DEPLOY_KEY; done",
        "echo $WINDLASS_STEP",
    ]
    steps = [Step(id=f"s{number}", run=line) for number, line in enumerate(lines)]
    own = Step(id="own", run="echo $DEPLOY_KEY", with_={"env": {"DEPLOY_KEY": "z"}})
    async with windlass.open(env_allow=("ALLOWED",)) as engine:
        told = await engine.prerequisites(Plan(steps=[*steps, own]))
    held = "$DEPLOY_KEY is set here, but held back from steps"
    assert [line.partition(" (")[0] for line in told] == [f"step s0: {held}", f"step s1: {held}"]


async def test_d5_a_value_from_a_variable_that_steps_do_not_have_is_told(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_TOKEN", "x")
    monkeypatch.setenv("ALLOWED", "y")
    monkeypatch.delenv("TZ", raising=False)
    plan = Plan(
        env={"SHARED": {"from": "NOT_SET_HERE"}, "OVER": {"from": "SITE_TOKEN"}, "FINE": {"from": "ALLOWED"}},
        steps=[
            Step(id="a", run="true", env={"TOKEN": {"from": "SITE_TOKEN"}, "OVER": "mine"}),
            Step(id="b", run=["true"], env={"ZONE": {"from": "TZ"}, "OVER": "mine"}),
            Step(id="c", tool="http.get", with_={"url": "https://example.com", "auth_env": "SITE_TOKEN"}),
        ],
    )
    allow = "let steps see it: windlass config add env_allow"
    async with windlass.open(env_allow=("ALLOWED",)) as engine:
        told = await engine.prerequisites(plan)
    assert told == [
        "`env` of the plan: SHARED has its value from $NOT_SET_HERE, which is not set "
        f"(set NOT_SET_HERE where Windlass runs, and {allow} NOT_SET_HERE)",
        f"`env` of the plan: OVER has its value from $SITE_TOKEN, which is held back from steps ({allow} SITE_TOKEN)",
        f"step a: TOKEN has its value from $SITE_TOKEN, which is held back from steps ({allow} SITE_TOKEN)",
        "step b: ZONE has its value from $TZ, which is not set (set TZ where Windlass runs: export TZ=…)",
        f"step c: auth_env: the variable SITE_TOKEN is held back from steps ({allow} SITE_TOKEN)",
    ]


def test_d5_the_warning_of_a_variable_names_the_command_that_lets_steps_see_it(
    project: Project, windlass: Windlass
) -> None:
    project.plan("steps: [{id: a, run: 'echo $TOKEN', env: {TOKEN: {from: SITE_TOKEN}}}]")
    held = "warning: step a: TOKEN has its value from $SITE_TOKEN, which is held back from steps"
    command = ["config", "add", "env_allow", "SITE_TOKEN"]
    for words in (["run", "plan.yaml", "--dry-run"], ["run", "plan.yaml"]):
        code = 0 if "--dry-run" in words else 1
        assert (
            f"{held} (let steps see it: windlass {' '.join(command)})"
            in windlass(*words, code=code, SITE_TOKEN="t0ken").err
        )
    windlass(*command)
    assert "warning" not in windlass("run", "plan.yaml", SITE_TOKEN="t0ken").err


def test_d5_a_variable_that_is_missing_where_an_execution_goes_on_is_warned_of(
    project: Project, windlass: Windlass
) -> None:
    windlass("config", "add", "env_allow", "SITE_TOKEN")
    project.plan(
        """
        steps:
          - {id: before, run: "true", env: {TOKEN: {from: SITE_TOKEN}}}
          - {id: publish, run: 'test -n "$TOKEN"', env: {TOKEN: {from: SITE_TOKEN}}, needs: before, approve: always}
        """
    )
    windlass("run", "plan.yaml", code=3, SITE_TOKEN="t0ken")
    (execution,) = project.ids()
    windlass("approve", execution, "publish")
    advice = "set SITE_TOKEN where Windlass runs: export SITE_TOKEN=…"
    warning = f"warning: step publish: TOKEN has its value from $SITE_TOKEN, which is not set ({advice})\n"
    for words in (["resume", execution], ["retry", execution, "publish"], ["fork", execution, "--yes"]):
        ran = windlass(*words, code=1)
        assert ran.err.count("warning: ") == 1, "none of a completed step"
        assert warning in ran.err
        assert f"→ {advice}\n" in ran.err, "the error of the step has the same advice"
    assert "warning" not in windlass("retry", execution, "publish", SITE_TOKEN="t0ken").err
