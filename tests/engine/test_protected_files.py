"""K2: the files of a check stay as they are: what an agent changed in them is put back before the check, and named."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import AgentWorld, agent, plan
from git_repositories import repository

from windlass.cli.text import summary
from windlass.core import events as ev
from windlass.core.agent import AgentState, WorkPeriod
from windlass.core.state import State
from windlass.core.view import snapshot
from windlass.engine.agents.protection import named_tests, restore_protected, restore_tests, touched_programs
from windlass.errors import ToolError
from windlass.ports import AgentRequest
from windlass.testing import ScriptedRunner, Turn

if TYPE_CHECKING:
    from conftest import Project

HARD, EASY = "grep -qx 42 answer\n", "true\n"
RUN = "sh tests/run.sh"


def does(*turns: Callable[[Path], object]) -> ScriptedRunner:
    """An agent that does one of these in each turn."""
    left = list(turns)

    def turn(request: AgentRequest) -> Turn:
        left.pop(0)(request.workdir)
        return Turn(session="s1").say("done").spend(tokens_in=1, tokens_out=1, usd=0.0)

    return ScriptedRunner(turn, name="cli")


def cheats(folder: Path) -> None:
    (folder / "tests/run.sh").write_text(EASY)
    (folder / "tests/more.sh").write_text("exit 0\n")


def works(folder: Path) -> None:
    (folder / "answer").write_text("42\n")


async def notes(world: AgentWorld, state: State) -> str:
    return "".join(event.text for event in await world.events(state.id) if isinstance(event, ev.OutputWritten))


def of_agent(state: State) -> dict[str, Any]:
    (view,) = [one for one in snapshot(state)["steps"] if one["id"] == "work"]
    found: dict[str, Any] = view["agent"]
    return found


@pytest.mark.parametrize("in_git", [True, False])
@pytest.mark.parametrize("protect", [["tests/"], ["tests"], ["tests/*.sh"], ["*.sh"], ["./tests/run.sh"]])
async def test_k2_an_agent_that_changes_the_test_is_told_and_the_original_checks(
    project: Project, protect: list[str], in_git: bool
) -> None:
    if in_git:
        repository(project)
    project.file("tests/run.sh", HARD)
    runner = does(cheats, works)
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(check=RUN, protect=protect)))
    assert (state.status, of_agent(state)["verdict"]) == ("completed", "verified")
    assert (project.path / "tests/run.sh").read_text() == HARD
    assert (project.path / "tests/more.sh").exists() == (protect == ["./tests/run.sh"])
    assert "You changed files that belong to the check, and they were put back: " in runner.requests[1].brief.prompt
    assert "tests/run.sh" in runner.requests[1].brief.prompt
    checked = [event for event in await world.events(state.id) if isinstance(event, ev.AgentChecked)]
    assert ["tests/run.sh" in event.put_back for event in checked] == [True, False]


@pytest.mark.parametrize(
    "protect",
    [".", "./", "./tests", "tests//run.sh", "tests/../tests/run.sh", "{here}/tests", "{{src,tests}}/*.{{py,sh}}"],
)
async def test_k2_a_protected_path_may_be_written_in_any_form(project: Project, protect: str) -> None:
    repository(project)
    project.file("tests/run.sh", HARD)

    def cheats_and_works(folder: Path) -> None:
        cheats(folder)
        works(folder)

    step = agent(check="true", protect=protect.format(here=project.path))
    state = await AgentWorld(project, does(cheats_and_works)).run(plan(step))
    assert state.status == "completed", state.error
    assert "tests/run.sh" in of_agent(state)["put_back"]
    assert (project.path / "tests/run.sh").read_text() == HARD


async def test_k2_a_protected_file_that_git_ignores_fails_the_step_before_the_agent_begins(project: Project) -> None:
    repository(project)
    project.file(".env", "KEY=1\n")
    runner = does(works)
    state = await AgentWorld(project, runner).run(plan(agent(check="true", protect=".env")))
    error = state.steps["work"].error
    assert error is not None
    assert (error.category, "cannot be protected: git ignores it" in error.message) == ("configuration", True)
    assert not runner.requests


async def test_k2_files_of_a_folder_that_git_ignores_are_protected(project: Project) -> None:
    repository(project)
    project.file("ignored/tests/run.sh", HARD)
    step = agent(check=RUN, protect="tests/run.sh", workdir="ignored")
    state = await AgentWorld(project, does(cheats, works)).run(plan(step))
    assert (state.status, (project.path / "ignored/tests/run.sh").read_text()) == ("completed", HARD)


async def test_k2_a_protected_path_that_leads_out_fails_the_step(project: Project, tmp_path: Path) -> None:
    repository(project)
    state = await AgentWorld(project, does(works)).run(plan(agent(check="true", protect=str(tmp_path / "else"))))
    error = state.steps["work"].error
    assert error is not None
    assert (error.category, "which is not in the working directory" in error.message) == ("configuration", True)


@pytest.mark.parametrize(
    ("protect", "said"),
    [
        ("test/", "`protect` names test/, and there is nothing of that name; did you mean tests/?"),
        ("tests/rum.sh", "did you mean tests/run.sh?"),
        ("test/run.sh", "did you mean tests/run.sh?"),
        ("Test/*.sh", "did you mean tests/*.sh?"),
        ("spec/", "`protect` names spec/, and there is nothing of that name"),
        ("Test/*.{sh,py}", "did you mean tests/*.{sh,py}?"),
        ("[z-a].sh", "`protect` names '[z-a].sh', which is not a pattern: [z-a].sh has an empty set"),
    ],
)
async def test_k2_a_protected_name_that_is_a_mistake_fails_the_step_before_the_agent_begins(
    project: Project, protect: str, said: str
) -> None:
    repository(project)
    project.file("tests/run.sh", HARD)
    runner = does(cheats)
    state = await AgentWorld(project, runner).run(plan(agent(check=RUN, protect=["answer", protect])))
    error = state.steps["work"].error
    assert error is not None
    assert (error.category, error.message.endswith(said)) == ("configuration", True), error.message
    assert not runner.requests


async def test_k2_a_protected_file_that_is_not_there_is_a_warning_and_may_not_be_made(project: Project) -> None:
    repository(project)
    project.file("tests/run.sh", HARD)

    def works_and_configures(folder: Path) -> None:
        works(folder)
        (folder / "setup.cfg").write_text("")

    runner = does(works_and_configures)
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(check=RUN, protect=["tests/", "setup.cfg", "**/conftest.py"])))
    told = of_agent(state)
    assert (told["verdict"], told["put_back"]) == ("verified", ["setup.cfg"])
    assert told["unmatched"] == ["setup.cfg", "**/conftest.py"]
    assert not (project.path / "setup.cfg").exists()
    warning = "warning: `protect` names setup.cfg, and there is nothing of that name: it protects no file\n"
    assert warning in await notes(world, state)
    assert any("work: `protect` names setup.cfg, **/conftest.py, and there was" in line for line in summary(state))
    async with world.engine() as engine:
        verified = await engine.verify(state.id)
    assert of_agent(verified)["unmatched"] == ["setup.cfg", "**/conftest.py"]


async def test_k2_names_that_protect_nothing_are_known_still_when_a_person_has_the_step_tried_again(
    project: Project,
) -> None:
    world = AgentWorld(project, does(lambda folder: (folder / "setup.cfg").touch(), works))
    failed = await world.run(plan(agent(check="test -e answer", protect="**/conftest.py", tries=1)))
    async with world.engine() as engine:
        await engine.retry(failed.id, "work")
        state = await (await engine.resume(failed.id)).wait()
    assert (state.status, of_agent(state)["unmatched"]) == ("completed", ["**/conftest.py"])


async def test_k2_a_folder_that_the_agent_deleted_before_its_attempt_broke_off_is_protected_still(
    project: Project,
) -> None:
    repository(project)
    project.file("tests/run.sh", HARD)

    def turn(request: AgentRequest) -> Turn:
        if len(runner.requests) == 1:
            shutil.rmtree(request.workdir / "tests")
            return Turn(session="s1").fail("cannot", category="logic")
        works(request.workdir)
        return Turn(session="s1").say("done").spend(tokens_in=1, tokens_out=1, usd=0.0)

    runner = ScriptedRunner(turn, name="cli")
    world = AgentWorld(project, runner)
    failed = await world.run(plan(agent(check=RUN, protect="tests/")))
    async with world.engine() as engine:
        await engine.retry(failed.id, "work")
        state = await (await engine.resume(failed.id)).wait()
    assert (state.status, of_agent(state)["put_back"]) == ("completed", ["tests/run.sh"])


async def test_k2_names_that_protect_nothing_are_a_warning_before_the_start(project: Project) -> None:
    project.file("tests/run.sh", HARD)
    steps = [
        {
            "id": "first",
            "prompt": "Do it",
            "check": "true",
            "protect": ["test/", "tests/", "{{ inputs.at }}", "x.{ini,cfg}"],
        },
        {"id": "later", "needs": ["first"], "prompt": "Do it", "check": "true", "protect": ["made/", "testss"]},
    ]
    async with AgentWorld(project, does()).engine() as engine:
        loaded = engine.parse(json.dumps({"name": "p", "inputs": {"at": "."}, "steps": steps}), project.path)
        before_start = await engine.prerequisites(loaded, project.path)
    assert loaded.warnings == (
        "step first: `protect` names test/, and there is nothing of that name; did you mean tests/?",
        "step later: `protect` names testss, and there is nothing of that name; did you mean tests/?",
    )
    assert before_start == ["step first: `protect` names x.{ini,cfg}, and there is nothing of that name"]


async def test_k2_names_in_a_folder_that_is_not_known_before_the_start_are_no_warning(project: Project) -> None:
    steps = [
        {"id": id, "prompt": "Do it", "check": "true", "protect": ["test/"], "workdir": workdir}
        for id, workdir in (("there", "made"), ("somewhere", "{{ inputs.at }}"))
    ]
    async with AgentWorld(project, does()).engine() as engine:
        loaded = engine.parse(json.dumps({"name": "p", "inputs": {"at": "."}, "steps": steps}), project.path)
        assert (loaded.warnings, await engine.prerequisites(loaded, project.path)) == ((), [])


async def test_k2_a_pattern_that_fits_only_files_of_git_itself_protects_nothing(project: Project) -> None:
    repository(project)
    step = {"id": "work", "prompt": "Do it", "check": "true", "protect": ["**/HEAD", "**/kept.txt"]}
    async with AgentWorld(project, does()).engine() as engine:
        loaded = engine.parse(json.dumps({"name": "p", "steps": [step]}), project.path)
        before_start = await engine.prerequisites(loaded, project.path)
    assert before_start == ["step work: `protect` names **/HEAD, and there is nothing of that name"]


@pytest.mark.parametrize("in_git", [True, False])
@pytest.mark.parametrize("protect", [["tests/"], ["tests/*.sh"], ["t*/run.sh"], ["{tests/run,x/y}.sh"], None])
@pytest.mark.parametrize("moves_link", [True, False])
async def test_k2_what_a_protected_name_leads_to_through_a_link_is_protected(
    project: Project, protect: list[str] | None, in_git: bool, moves_link: bool
) -> None:
    if in_git:
        repository(project)
    project.file("shared/all/run.sh", HARD)
    (project.path / "tests").symlink_to("now")
    (project.path / "now").symlink_to("shared/all")

    def cheats_behind_the_link(folder: Path) -> None:
        (folder / "shared/all/run.sh").write_text(EASY)
        if moves_link:
            (folder / "now").unlink()
            (folder / "now").symlink_to("shared")

    runner = does(cheats_behind_the_link, works)
    options = {} if protect is None else {"protect": protect}
    check = "sh shared/all/run.sh && sh tests/run.sh" if protect else RUN
    state = await AgentWorld(project, runner).run(plan(agent(check=check, **options)))
    assert "shared/all/run.sh" in runner.requests[1].brief.prompt
    assert (state.status, (project.path / "shared/all/run.sh").read_text()) == ("completed", HARD)


async def test_k2_files_of_a_working_directory_that_is_a_link_are_protected(project: Project) -> None:
    repository(project)
    project.file("sub/tests/run.sh", HARD)
    (project.path / "lnk").symlink_to("sub")
    runner = does(cheats, works)
    state = await AgentWorld(project, runner).run(plan(agent(check=RUN, protect="tests/run.sh", workdir="lnk")))
    assert (state.status, of_agent(state)["verdict"]) == ("completed", "verified")
    assert (project.path / "sub/tests/run.sh").read_text() == HARD


async def test_k2_a_deleted_test_comes_back_and_the_rest_of_the_work_stays(project: Project) -> None:
    repository(project)
    project.file("tests/run.sh", HARD)

    def deletes(folder: Path) -> None:
        (folder / "tests/run.sh").unlink()
        works(folder)

    state = await AgentWorld(project, does(deletes)).run(plan(agent(check=RUN, protect="tests/")))
    assert (state.status, of_agent(state)["put_back"]) == ("completed", ["tests/run.sh"])
    assert (project.path / "answer").read_text() == "42\n"


async def test_k2_a_test_that_the_check_names_is_protected_unless_the_step_allows_it(project: Project) -> None:
    repository(project)
    project.file("tests/run.sh", HARD)
    runner = does(cheats, works)
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(check=f"{RUN} && ls tests/")))
    assert (state.status, of_agent(state)["verdict"]) == ("completed", "verified")
    assert (project.path / "tests/run.sh").read_text() == HARD
    assert (project.path / "tests/more.sh").exists(), "a new test is work"
    how = "which were put back: tests/run.sh; `protect: []` in the step would leave them\n"
    assert f"the agent changed protected files, {how}" in await notes(world, state)
    assert "they were put back: tests/run.sh" in runner.requests[1].brief.prompt
    allowed = await AgentWorld(project, does(cheats)).run(plan(agent(check=RUN, protect=[])))
    assert (allowed.status, of_agent(allowed)["touched"]) == ("completed", ["tests/run.sh"])
    assert (project.path / "tests/run.sh").read_text() == EASY


def adds_a_test(folder: Path) -> None:
    (folder / "tests/run.sh").write_text(f"{HARD}test -e more\n")


async def test_k2_a_test_that_an_agent_adds_to_is_kept_once_the_original_and_it_pass(project: Project) -> None:
    repository(project)
    project.file("tests/run.sh", HARD)

    def works_and_adds(folder: Path) -> None:
        works(folder)
        adds_a_test(folder)

    runner = does(works_and_adds, lambda folder: (folder / "more").touch())
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(check=RUN)))
    assert (state.status, of_agent(state)["verdict"]) == ("completed", "verified")
    assert "test -e more" in (project.path / "tests/run.sh").read_text(), "its work is not lost"
    assert "passed on the original tests/run.sh: the agent's own follow\n" in await notes(world, state)
    assert "put back" not in runner.requests[1].brief.prompt, "its own test failed, not the original"
    checked = [event for event in await world.events(state.id) if isinstance(event, ev.AgentChecked)]
    assert [(event.passed, event.put_back, event.touched) for event in checked] == [
        (False, (), ("tests/run.sh",)),
        (True, (), ("tests/run.sh",)),
    ]


async def test_k2_a_test_that_cannot_be_put_back_fails_the_step(project: Project) -> None:
    repository(project)
    project.file("tests/run.sh", HARD)

    def leads_elsewhere(folder: Path) -> None:
        (folder / "mine").mkdir()
        (folder / "mine/run.sh").write_text(EASY)
        (folder / "tests/run.sh").unlink()
        (folder / "tests").rmdir()
        (folder / "tests").symlink_to("mine")

    state = await AgentWorld(project, does(leads_elsewhere)).run(plan(agent(check=RUN)))
    error = state.steps["work"].error
    assert error is not None
    assert "the original ones cannot be put back" in error.message
    assert any("protect: []" in advice for advice in error.advice)


async def test_k2_a_test_that_another_agent_changes_beside_is_not_put_back(project: Project) -> None:
    repository(project)
    project.file("tests/run.sh", HARD)
    wait = "while [ ! -e {0} ]; do sleep 0.05; done"
    lines = {
        "tests": f"{wait.format('begun')}; echo 'test -e begun' >> tests/run.sh; touch written",
        "code": f"echo 42 > answer; touch begun; {wait.format('written')}",
    }

    def turn(request: AgentRequest) -> Turn:
        line = next(line for word, line in lines.items() if word in request.brief.prompt)
        told = Turn(session=line[:4]).call("shell", {"line": line})
        return told.say("done").spend(tokens_in=1, tokens_out=1, usd=0.0)

    allow = {"mode": "allow"}
    both = plan(
        agent("tester", prompt="Write tests", permissions=allow),
        agent("coder", prompt="Write code", check=RUN, permissions=allow),
    )
    world = AgentWorld(project, ScriptedRunner(turn, name="cli"))
    state = await world.run(both)
    assert state.status == "completed"
    assert "test -e begun" in (project.path / "tests/run.sh").read_text(), "the work of the other agent"
    said = await notes(world, state)
    assert "tests are not protected: tester works in the same folder at the same time\n" in said


def test_k2_files_of_another_machines_folder_cannot_be_protected(tmp_path: Path) -> None:
    worker = AgentState(periods=[WorkPeriod("/elsewhere/work", "git:a", 1.0, "git:b", 2.0)])
    call = SimpleNamespace(workdir=tmp_path, home=tmp_path)
    with pytest.raises(ToolError, match="the agent worked in /elsewhere/work and now in"):
        restore_protected(worker, ["tests/"], call)  # type: ignore[arg-type]
    with pytest.raises(ToolError, match="cannot be protected: the agent has worked on no recorded files"):
        restore_protected(AgentState(), ["tests/"], call)  # type: ignore[arg-type]


@pytest.mark.parametrize("worked", [("/elsewhere", "git:b", 2.0), (".",)])
def test_k2_work_elsewhere_and_work_without_an_end_have_nothing_to_put_back(
    tmp_path: Path, worked: tuple[Any, ...]
) -> None:
    worker = AgentState(periods=[WorkPeriod(str(tmp_path / worked[0]), "git:a", 1.0, *worked[1:])])
    call = SimpleNamespace(workdir=tmp_path, home=tmp_path)
    assert restore_tests(worker, ["tests/"], call) == ()  # type: ignore[arg-type]
    assert touched_programs(worker, [{"with": {"line": "sh build.sh"}}], call) == ()  # type: ignore[arg-type]


async def test_k2_scripts_that_the_check_runs_and_that_are_no_tests_are_named_and_left(project: Project) -> None:
    repository(project)
    scripts = ["build.sh", "lib/run.sh", "more.sh"]
    for name in (*scripts, "lib/data", "other.sh"):
        project.file(name, HARD)
        (project.path / name).chmod(0o755)

    def changes(folder: Path) -> None:
        for name in (*scripts, "lib/data", "other.sh", "made.sh"):
            (folder / name).write_text(EASY)

    world = AgentWorld(project, does(changes))
    line = "! sh build.sh -x && false || 'lib/run.sh' lib/data | sh more.sh other.sh; sh made.sh"
    state = await world.run(plan(agent(check=line)))
    assert (state.status, of_agent(state)["touched"]) == ("completed", scripts)
    assert f"the agent changed what the check runs: {', '.join(scripts)}\n" in await notes(world, state)
    assert (project.path / "build.sh").read_text() == EASY


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("pytest -q tests/test_x.py::test_a", ["tests/test_x.py"]),
        ("cd app && npx jest src/price.test.ts ./e2e.spec.js", ["src/price.test.ts", "e2e.spec.js"]),
        ("sh check.sh; ./verify.sh --all", ["check.sh", "verify.sh"]),
        ("go test ./pkg/price_test.go", ["pkg/price_test.go"]),
        ("npm test && make check && cargo test && rake spec && test -s report.md", []),
        ("pytest tests/ ../other/tests /etc/tests -x", ["tests/"]),
        ("python answer.py && node latest.js contest.py", []),
        ("an 'unfinished line with tests/", []),
        ("pytest 'tests/test a+b.py'", ["tests/test a+b.py"]),
        ("pytest tests/test_a+b.py", ["tests/test_a+b.py"]),
    ],
)
def test_k2_tests_that_a_command_names(line: str, named: list[str]) -> None:
    assert named_tests([{"tool": "shell", "with": {"line": line}}, {"tool": "files.read", "with": {}}]) == named


async def test_k2_a_person_who_mends_the_test_between_two_attempts_is_heeded(project: Project) -> None:
    repository(project)
    project.file("tests/run.sh", HARD)
    world = AgentWorld(project, does(lambda folder: (folder / "answer").write_text("43\n")))
    failed = await world.run(plan(agent(check=RUN, protect="tests/", tries=1)))
    assert failed.status == "failed"
    project.file("tests/run.sh", "grep -qx 43 answer\n")
    async with world.engine() as engine:
        await engine.retry(failed.id, "work")
        state = await (await engine.resume(failed.id)).wait()
    assert (state.status, of_agent(state)["verdict"]) == ("completed", "verified")


async def test_k2_without_a_record_nothing_can_be_protected_and_the_step_says_so(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.workspaces.file_store.MOST_FILES", 0)
    project.file("tests/run.sh", HARD)
    state = await AgentWorld(project, does(works)).run(plan(agent(check=RUN, protect="tests/")))
    error = state.steps["work"].error
    assert error is not None
    assert (error.category, "has more than 0 files" in error.message) == ("configuration", True)
    assert error.message.startswith("the files of `protect` cannot be protected: not recorded: ")
