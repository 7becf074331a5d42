"""What a plan needs and does not find here is told before it starts, step by step (D5)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import BEGAN, AgentWorld, agent
from agent_worlds import plan as plan_built

from windlass import Step
from windlass.core import events as ev
from windlass.core.decide import Policy
from windlass.engine.plans import Prerequisites, _report_of, find_missing, value_sources
from windlass.engine.resuming import file_digest
from windlass.errors import UsageError
from windlass.plan.model import Plan
from windlass.ports import Health, RunnerHooks
from windlass.settings.variables import StepEnvironment
from windlass.testing import ScriptedRunner

if TYPE_CHECKING:
    from conftest import Project

GONE = Health(False, "not installed", "install it")
PLAIN: Any = {"run": "true"}


def plan_of(*steps: dict[str, Any], **more: Any) -> Plan:
    named = [{"id": f"s{number}", **step} for number, step in enumerate(steps)]
    return Plan.model_validate({"name": "p", "steps": named, **more})


def missing(
    *steps: dict[str, Any], workdir: Path = Path("/"), runners: Any = None, policy: Policy | None = None, **more: Any
) -> Prerequisites:
    env = StepEnvironment({"PATH": "/usr/bin:/bin", "GIVEN": "x", "NOT_GIVEN": "x"}, ["GIVEN"])
    return find_missing(plan_of(*steps, **more), str(workdir), env, runners or {}, policy or Policy())


def test_d5_a_program_that_is_not_on_path_is_missed_once_each_step_and_looked_for_once(
    capfd: pytest.CaptureFixture[str],
) -> None:
    found = missing({"run": ["zz-a", "x"]}, {"run": "zz-a --x"}, {"run": ["true"]}, {"run": "cd /"})
    assert found == Prerequisites(
        ["step s0: the program zz-a is not on PATH", "step s1: the program zz-a is not on PATH"], [], ["install zz-a"]
    )
    assert capfd.readouterr() == ("", ""), "looking for one prints nothing"


def test_d5_a_program_by_its_path_is_missed_unless_an_earlier_step_may_make_it(tmp_path: Path) -> None:
    (tmp_path / "there").touch()
    found = missing({"run": ["./made-later"]}, {"run": ["/zz/gone"]}, {"run": ["../there"]}, workdir=tmp_path / "work")
    assert found.missing == ["step s1: the program /zz/gone is not there"]


@pytest.mark.parametrize(
    "step",
    [
        {"run": "zz-a || true"},
        {"run": "zz-a\nzz-b"},
        {"run": ["{{ inputs.program }}"]},
        {"run": "{{ inputs.program }}"},
        {"run": ["zz-a"], "with": {"env": {"PATH": "/opt"}}},
        {"run": ["zz-a"], "with": {"isolate": True}},
        {"run": ["true", "zz-a"]},
        {"run": "true", "with": {"shell": "{{ inputs.program }}"}},
        {"tool": "files.read", "with": {"path": "zz-a"}},
    ],
)
def test_d5_what_a_step_may_not_start_or_finds_elsewhere_is_not_missed(step: dict[str, Any]) -> None:
    assert missing(step, inputs={"program": "zz-a"}) == Prerequisites([], [], [])


def test_d5_the_shell_of_a_line_is_needed_like_its_command() -> None:
    found = missing({"run": "zz-a {{ inputs.x }}", "with": {"shell": "zz-sh"}}, inputs={"x": "1"})
    assert found.missing == [
        "step s0: the program zz-sh is not on PATH",
        "step s0: the program zz-a is not on PATH",
    ]
    assert found.advice == ["install zz-sh", "install zz-a"]


def test_d5_what_only_a_step_that_may_be_left_out_needs_is_doubtful() -> None:
    found = missing({"run": ["zz-a"], "importance": "optional"})
    assert found == Prerequisites([], ["step s0: the program zz-a is not on PATH (install zz-a)"], [])


def test_d5_a_value_from_a_variable_that_steps_do_not_have_is_doubtful() -> None:
    found = missing(
        {"run": "true", "with": {"env": {"A": {"from": "GIVEN"}, "B": {"from": "GONE"}, "C": "plain"}}},
        {"tool": "http.get", "with": {"url": "http://127.0.0.1/", "auth_env": "GONE"}},
        {"tool": "files.read", "with": {"path": "x"}},
        env={"D": {"from": "GONE"}},
    )
    assert found.missing == []
    assert [line.partition(", which")[0].partition(" is not set")[0] for line in found.doubtful] == [
        "`env` of the plan: D has its value from $GONE",
        "step s0: B has its value from $GONE",
        "step s1: auth_env: the variable GONE",
    ]
    assert all(line.endswith(")") for line in found.doubtful), "each with its advice"


def test_d5_a_value_of_the_plan_is_told_once_and_only_if_a_command_has_it() -> None:
    shared = {"env": {"D": {"from": "GONE"}}}
    assert len(missing(PLAIN, PLAIN, **shared).doubtful) == 1
    assert missing({"tool": "files.read", "with": {"path": "x"}}, **shared).doubtful == []


def test_d5_a_variable_that_is_set_here_and_held_back_from_steps_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOT_GIVEN", "GIVEN", "WINDLASS_X"):
        monkeypatch.setenv(name, "x")
    monkeypatch.delenv("NOWHERE", raising=False)

    def told(line: str, **more: Any) -> list[str]:
        return [one.partition(" (")[0] for one in missing({"run": line, **more}).doubtful]

    said = "step s0: $NOT_GIVEN is set here, but held back from steps"
    assert told("echo $NOT_GIVEN ${NOT_GIVEN}") == [said]
    assert told("echo $GIVEN $WINDLASS_X $NOWHERE") == []
    assert told("NOT_GIVEN=1; echo $NOT_GIVEN") == []
    assert told("for NOT_GIVEN in a b; do echo $NOT_GIVEN; done") == []
    assert told("echo $NOT_GIVEN", **{"with": {"env": {"NOT_GIVEN": "own"}}}) == []


class Runtime(ScriptedRunner, RunnerHooks):
    """One that tells without a start if it is installed."""

    def installed(self) -> Health:
        return self.health


def runtimes(*here: str) -> dict[str, Runtime]:
    names = ("claude-code", "open-code", "cli")
    return {name: Runtime(name=name, **({} if name in here else {"health": GONE})) for name in names}


AGENT: Any = {"agent": "developer", "prompt": "do it"}


def test_d5_a_runtime_that_is_not_installed_is_missed_or_replaced_by_another() -> None:
    policy = Policy(runtime="claude-code", fallback=True)
    detail = "step s0: claude-code cannot be used: not installed"
    assert missing(AGENT, runners=runtimes("claude-code"), policy=policy) == Prerequisites([], [], [])
    instead = missing(AGENT, runners=runtimes("open-code"), policy=policy)
    assert instead == Prerequisites([], [f"{detail}; open-code is used instead (install it)"], [])
    assert missing(AGENT, runners=runtimes(), policy=policy) == Prerequisites([detail], [], ["install it"])
    alone = Policy(runtime="claude-code", fallback=False)
    assert missing(AGENT, runners=runtimes("open-code"), policy=alone).missing == [detail]
    assert missing(AGENT, runners=runtimes("open-code"), policy=policy, fallback=False).missing == [detail]
    own = {**AGENT, "fallback": True}
    assert missing(own, runners=runtimes("open-code"), policy=alone, fallback=False).missing == []
    assert missing({**AGENT, "runtime": "open-code"}, runners=runtimes("open-code"), policy=policy).doubtful == []
    assert missing(AGENT, runners=runtimes("cli"), policy=policy, runtime="cli").doubtful == []
    assert missing({**AGENT, "runtime": "unknown"}, runners=runtimes(), policy=policy).missing == []


async def test_d5_a_plan_for_a_runtime_that_is_missing_or_unknown_is_refused(project: Project) -> None:
    world = AgentWorld(project, runtime="cli")
    world.runners["cli"] = Runtime(name="cli", health=GONE)
    async with world.engine() as engine:
        with pytest.raises(UsageError, match="step work: cli cannot be used: not installed"):
            await engine.prerequisites(plan_built())
        doubtful = await engine.prerequisites(plan_built(), anyway=True)
        assert doubtful == ["step work: cli cannot be used: not installed"]
    async with world.engine(runtime="nonsense") as engine:
        with pytest.raises(UsageError, match="nonsense"):
            await engine.start(plan_built(), anyway=True)


def test_l1_the_variables_that_give_a_plan_its_values_are_listed_once_each() -> None:
    plan = plan_of(
        {"run": "true", "with": {"env": {"A": {"from": "ONE"}, "B": {"from": "{{ inputs.x }}"}}}},
        {"tool": "http.get", "with": {"url": "http://127.0.0.1/", "auth_env": "TWO"}},
        env={"D": {"from": "THREE"}, "E": {"from": "ONE"}},
        inputs={"x": "y"},
    )
    assert value_sources(plan) == ["ONE", "TWO", "THREE"]
    assert value_sources(plan_of({"tool": "files.read", "with": {"path": "x"}}, env={"D": {"from": "THREE"}})) == []


async def test_d5_a_resume_warns_of_the_missing_runtime_of_a_step_that_may_be_left_out_until_it_began(
    project: Project,
) -> None:
    world = AgentWorld(project, runtime="cli")
    world.runners["cli"] = Runtime(name="cli", health=GONE)
    maybe = agent("maybe", importance="optional")
    lines = Step(id="line", run="true", with_={"env": {"B": {"from": "GONE_HERE"}}})
    began = ev.AttemptStarted(BEGAN, "maybe", 1, "agent", {}, "repeatable")
    stopped = ev.AttemptStopped(BEGAN, "maybe", 1, "lost")
    said = "step maybe: cli cannot be used: not installed (install it)"
    async with world.engine() as engine:
        state = await world.left_behind(plan_built(maybe, lines, env={"D": {"from": "GONE_HERE"}}))
        value, own, runtime = engine._plans.missing_values(state)
        assert value.startswith("`env` of the plan: D has its value from $GONE_HERE, which is not set (")
        assert own.startswith("step line: B has its value from $GONE_HERE, which is not set (")
        assert runtime == said
        state.apply(ev.StepSkipped(BEGAN, "line", "line", condition=True))
        assert engine._plans.missing_values(state) == [said], "what has ended needs no value"
        state.apply(began)
        state.apply(stopped)
        assert engine._plans.missing_values(state) == []
        changed = plan_built(maybe, agent("new", importance="optional"), agent("needed"))
        assert engine._plans.missing_values(state, changed) == [said.replace("maybe", "new")]


def test_b1_a_problem_of_a_program_is_told_with_its_line_in_the_file_that_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "plan.yaml"
    file.write_text("name: p\nsteps:\n  - id: a\n    code: return (\n")
    source = ev.Source(str(file), file_digest(file))
    monkeypatch.chdir(tmp_path)
    assert _report_of(source).line(("steps", 0, "code")) == 4
    report = _report_of(source)
    report.problem("it is wrong", ("steps", 0, "code"))
    (problem,) = report.findings(None).problems
    assert (problem.file, problem.line) == ("plan.yaml", 4), "as it is called from the current folder"
    monkeypatch.chdir("/")
    assert _report_of(source).line(("steps", 0, "code")) == 4
    file.write_text("other: text\n")
    assert _report_of(source).line(("steps", 0, "code")) is None, "another text has other lines"
    assert _report_of(ev.Source()).line(("steps", 0, "code")) is None
