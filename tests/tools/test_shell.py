"""The shell tool (H2): commands and lines, what is kept of them, how their ends are read, what they get to see."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import skip_time

import windlass
from windlass import Plan, Step
from windlass.core import events as ev
from windlass.tools.shell import Shell

if TYPE_CHECKING:
    from conftest import Project


async def run(run: str | list[str], *, retry: Any = None, **more: Any) -> dict[str, Any]:
    """The one step of a plan with this command, as it ended."""
    options = {name: more.pop(name) for name in ("timeout", "importance") if name in more}
    step = Step(id="a", run=run, with_=more, retry=retry or {"max": 0}, **options)
    async with windlass.open(grace=0.2) as engine:
        return (await (await engine.start(Plan(steps=[step]), anyway=True)).result())["steps"][0]


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


# ── what it does ─────────────────────────────────────────────────────────────────────────────────────


async def test_h2_a_line_goes_to_the_shell_and_a_list_does_not(project: Project) -> None:
    line = await run("echo $((1 + 1)) | tr 2 two; echo oops >&2")
    assert line["output"] == {"exit_code": 0, "stdout": "t\n", "stderr": "oops\n", "truncated": False}
    words = ["$HOME", "*", "a b", "-n", "", "';", "\n", "ü"]
    listed = await run([*python("import sys; print(sys.argv[1:], end='')"), *words])
    assert listed["output"]["stdout"] == repr(words)


async def test_h2_the_first_command_of_a_line_that_fails_ends_it(project: Project) -> None:
    step = await run("false\necho not reached")
    assert (step["status"], step["output"]["stdout"]) == ("failed", "")


async def test_a8_h2_what_a_command_leaves_running_is_killed_and_named(project: Project) -> None:
    async with windlass.open() as engine:
        left = "sleep 1000 & until grep -q sleep /proc/$!/comm; do sleep 0.01; done; echo hi"
        plan = Plan(steps=[Step(id="a", run=left), Step(id="b", run="sleep 0 & wait")])
        execution = await engine.start(plan, anyway=True)
        assert (await execution.result())["status"] == "completed"
        events = [one async for one in execution.events() if isinstance(one, ev.OutputWritten) and one.stream == "note"]
    text = "killed at its end, because nothing outlives its step: sleep\n"
    assert [(one.step, one.text) for one in events] == [("a", text)]


async def test_h2_another_shell_a_folder_variables_and_stdin_can_be_given(project: Project) -> None:
    (project.path / "sub").mkdir()
    step = await run(
        "[[ a == a ]] && pwd && echo $GREETING && cat", shell="bash", cwd="sub", env={"GREETING": "hi"}, stdin="in ü\n"
    )
    assert step["output"]["stdout"] == f"{project.path / 'sub'}\nhi\nin ü\n"


async def test_h2_without_stdin_a_command_reads_nothing_and_does_not_hang(project: Project) -> None:
    assert (await run("wc -c"))["output"]["stdout"].strip() == "0"


async def test_h2_a_template_that_gives_a_number_is_a_word_of_the_command(project: Project) -> None:
    plan = Plan(
        inputs={"count": 2, "exact": True, "none": None, "data": {"a": [1.5]}},
        steps=[
            Step(id="a", run=["seq", "{{ inputs.count }}"]),
            Step(
                id="b",
                run=["echo", "{{ inputs.exact }}", "{{ inputs.none }}", "{{ inputs.data }}"],
            ),
            Step(id="c", run="echo $COUNT", with_={"env": {"COUNT": "{{ inputs.count }}"}}),
        ],
    )
    async with windlass.open() as engine:
        steps = (await (await engine.start(plan)).result())["steps"]
    assert [step["error"] for step in steps] == [None] * 3
    assert [step["output"]["stdout"] for step in steps] == ["1\n2\n", 'true null {"a": [1.5]}\n', "2\n"]


# ── how it ends ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("command", "category", "said"),
    [
        ("echo because >&2; exit 3", "logic", "exit code 3: because"),
        ("echo because; exit 3", "logic", "exit code 3: because"),
        ("exit 3", "logic", "exit code 3"),
        ("exit 75", "transient", "exit code 75"),
        ("exit 126", "configuration", "exit code 126"),
        ("no-such-program-anywhere", "configuration", "exit code 127"),
        (["no-such-program-anywhere"], "configuration", "no-such-program-anywhere"),
        (["/no/such/program"], "configuration", "/no/such/program"),
        (["/etc/passwd"], "permission", "/etc/passwd"),
        ("kill -TERM $$", "logic", "SIGTERM"),
        ("kill -KILL $$", "resource", "SIGKILL"),
        ("echo because >&2; kill -36 $$", "logic", "ended by signal 36: because"),
    ],
    ids=str,
)
async def test_c3_the_end_of_a_command_has_a_category(
    project: Project, command: str | list[str], category: str, said: str
) -> None:
    step = await run(command)
    assert step["status"] == "failed"
    assert step["error"]["category"] == category
    assert said in step["error"]["message"]
    assert step["error"]["where"] == "a"


async def test_c5_a_program_that_is_not_there_comes_with_advice(project: Project) -> None:
    step = await run(["no-such-program-anywhere"])
    assert any("install" in advice for advice in step["error"]["advice"])


async def test_h2_other_exit_codes_can_be_named_as_success(project: Project) -> None:
    step = await run("exit 4", ok=[0, 4])
    assert (step["status"], step["output"]["exit_code"]) == ("completed", 4)


async def test_c1_a_failed_command_keeps_what_it_printed(project: Project) -> None:
    step = await run("echo out; echo err >&2; exit 9")
    assert step["output"] == {"exit_code": 9, "stdout": "out\n", "stderr": "err\n", "truncated": False}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({}, "exactly one"),
        ({"line": "x", "argv": ["x"]}, "exactly one"),
        ({"line": "a\0b"}, "NUL"),
        ({"argv": []}, "argv"),
        ({"line": "x", "env": {"A=B": "c"}}, "environment variable"),
        ({"line": "x", "evn": {}}, "'evn' is not an argument"),
        ({"line": "x", "max_output": -1}, "max_output"),
    ],
)
def test_h2_arguments_that_make_no_sense_are_refused_before_anything_runs(arguments: dict[str, Any], said: str) -> None:
    (complaint,) = Shell().validate(arguments)
    assert said in complaint


async def test_h2_a_folder_that_is_not_there_is_a_configuration_failure(project: Project) -> None:
    step = await run("true", cwd="nowhere")
    assert step["error"]["category"] == "configuration"
    assert "nowhere" in step["error"]["message"]


# ── output ───────────────────────────────────────────────────────────────────────────────────────────


async def test_c5_of_a_long_output_the_beginning_the_end_and_a_log_file_are_kept(project: Project) -> None:
    program = "import sys; sys.stdout.write('é' * 150_000 + '!' * 3); sys.stderr.write('done')"
    step = await run(python(program), max_output=1000)
    beginning, said, end = step["output"]["stdout"].split("\n")
    assert beginning == "é" * 250
    assert "299003 of 300003 bytes are left out here" in said
    assert end == "é" * 248 + "!!!", "no half of a character"
    assert step["output"]["stderr"] == "done", "the command was not held up by the full pipe"
    assert step["output"]["truncated"] is True
    log = project.home / "executions" / project.ids()[0] / "logs" / "a.1.stdout.log"
    assert log.read_text() == "é" * 150_000 + "!!!"
    assert str(log) in said
    assert log.stat().st_mode & 0o077 == 0


async def test_c5_the_last_lines_of_a_failure_after_a_flood_are_in_its_message(project: Project) -> None:
    program = "import sys; [print('line', n) for n in range(400_000)]; sys.stdout.flush(); sys.exit('the real reason')"
    step = await run(f"{shlex.join(python(program))} 2>&1")
    assert "the real reason" in step["error"]["message"]
    assert step["output"]["stdout"].startswith("line 0\n")
    assert step["output"]["stdout"].endswith("line 399999\nthe real reason\n")


async def test_c5_a_log_file_that_cannot_be_written_fails_nothing(project: Project) -> None:
    async with windlass.open() as engine:
        plan = Plan(steps=[Step(id="a", run="seq 1000", with_={"max_output": 10})])
        id = await engine.create(plan)
        folder = project.home / "executions" / id
        folder.mkdir(parents=True)
        (folder / "logs").write_text("in the way")
        step = (await (await engine.resume(id)).result())["steps"][0]
    assert step["status"] == "completed"
    assert "no log file could be written" in step["output"]["stdout"]


async def test_h2_output_of_exactly_the_limit_is_whole(project: Project) -> None:
    exact = await run(python("print('x' * 10, end='')"), max_output=10)
    assert (exact["output"]["stdout"], exact["output"]["truncated"]) == ("x" * 10, False)


async def test_h2_bytes_that_are_no_text_do_not_break_anything(project: Project) -> None:
    step = await run(r"printf 'a\377b\000c\303'")
    assert step["output"]["stdout"] == "a\ufffdb\0c\ufffd"


async def test_i1_output_is_journalled_while_the_command_runs_and_adds_up_to_all_of_it(
    project: Project, eventually: Any
) -> None:
    """Also where a character of several bytes falls on the border of two writes."""
    code = r"""
import os, sys, time
whole = "grün ✓ 😀\n".encode() * 2000
for start in range(0, len(whole), 4099):
    os.write(1, whole[start : start + 4099])
open("half", "w").close()
while not os.path.exists("go"):
    time.sleep(0.01)
print("end")
"""
    async with windlass.open() as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", run=python(code))]))
        await eventually(lambda: (project.path / "half").exists())
        await eventually(lambda: any(isinstance(e, ev.OutputWritten) for e in project.events(execution.id)))
        assert (await execution.state()).steps["a"].status == "running", "it was told before the end"
        (project.path / "go").touch()
        result = await execution.result()
    written = [e.text for e in project.events(execution.id) if isinstance(e, ev.OutputWritten)]
    assert "".join(written) == result["steps"][0]["output"]["stdout"] == "grün ✓ 😀\n" * 2000 + "end\n"


# ── what it sees and what it leaves ──────────────────────────────────────────────────────────────────


async def test_h2_a_command_sees_an_allow_list_of_the_environment_and_who_it_works_for(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "canary-4711")
    monkeypatch.setenv("WANTED", "yes")
    async with windlass.open(env_allow=["WANTED"]) as engine:
        execution = await engine.start(Plan(steps=[Step(id="a", run="env")]))
        output = (await execution.result())["steps"][0]["output"]["stdout"]
    seen = dict(line.split("=", 1) for line in output.splitlines())
    assert seen["PATH"] == os.environ["PATH"]
    assert seen["WANTED"] == "yes"
    assert seen["WINDLASS_EXECUTION"] == execution.id
    assert seen["WINDLASS_EFFECT_ID"] == f"{execution.id}:a"
    assert (seen["WINDLASS_STEP"], seen["WINDLASS_ATTEMPT"]) == ("a", "1")
    assert "SECRET_TOKEN" not in seen
    assert b"canary-4711" not in project.everything()


async def test_a8_what_a_command_leaves_running_ends_with_it(project: Project, eventually: Any) -> None:
    step = await run("sleep 600 & echo $! > pids; setsid sleep 601 < /dev/null > /dev/null 2>&1 & echo $! >> pids")
    assert step["status"] == "completed"
    pids = [int(pid) for pid in project.lines("pids")]
    assert len(pids) == 2
    await eventually(lambda: not any(_alive(pid) for pid in pids))


DEAF = "trap '' TERM; echo $$ >> pids; exec sleep 600"


@pytest.mark.parametrize("how", ["interrupt", "cancel", "timeout"])
async def test_d3_stopping_a_command_asks_politely_and_then_kills_all_of_it(
    project: Project, how: str, eventually: Any
) -> None:
    """The child is deaf to SIGTERM: after the grace it is killed all the same."""
    line = f"trap 'echo told > told' TERM; sh -c {shlex.quote(DEAF)} & echo $$ >> pids; wait; wait"
    async with windlass.open(grace=5) as engine:
        step = Step(id="a", run=line, timeout="2m", retry={"max": 0})
        execution = await engine.start(Plan(steps=[step]))
        await eventually(lambda: len(project.lines("pids")) == 2)
        if how != "timeout":
            state = await getattr(execution, how)()
        else:
            skip_time(120)
            state = await execution.wait()
        assert state.status == {"interrupt": "paused", "cancel": "cancelled", "timeout": "failed"}[how]
        await eventually(lambda: not any(_alive(int(pid)) for pid in project.lines("pids")))
    assert project.lines("told") == ["told"]


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


async def test_d3_a_command_killed_from_outside_is_taken_for_one_that_ran_out_of_memory(
    project: Project, eventually: Any
) -> None:
    async with windlass.open() as engine:
        execution = await engine.start(
            Plan(steps=[Step(id="a", run="echo $$ > pid; exec sleep 600", retry={"max": 0})])
        )
        await eventually(lambda: project.lines("pid"))
        os.kill(int(project.lines("pid")[0]), signal.SIGKILL)
        error = (await execution.result())["steps"][0]["error"]
    assert error["category"] == "resource"
    assert error["advice"][0] == "the system may have run out of memory"


async def test_b5_a_plan_and_its_steps_give_variables_to_commands(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "t0ken")
    plan = Plan(
        inputs={"v": 7},
        env={"A": "plan", "B": "plan", "TOKEN": {"from": "GITHUB_TOKEN"}},
        steps=[
            Step(
                id="one", run='echo "$A $B $V $(printf %s "$TOKEN" | wc -c)"', env={"B": "step", "V": "{{ inputs.v }}"}
            ),
            Step(id="two", run='echo "$A $C"', env={"C": "{{ steps.one.output.stdout | trim }}"}),
            Step(id="tool", tool="shell", with_={"line": "echo $A$B", "env": {"B": "with"}}),
            Step(id="files", tool="files.write", with_={"path": "x", "content": "x"}),
        ],
    )
    async with windlass.open(env_allow=("GITHUB_TOKEN",)) as engine:
        state = await (await engine.start(plan)).wait()
    said = {name: (step.output or {}).get("stdout") for name, step in state.steps.items()}
    assert said == {"one": "plan step 7 5\n", "two": "plan plan step 7 5\n", "tool": "planwith\n", "files": None}
    assert not any("t0ken" in str(step.input) for step in state.steps.values())
    assert Plan.model_validate(json.loads(plan.encoded)).encoded == plan.encoded


async def test_b5_a_variable_that_is_held_back_is_named_as_such(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SITE_TOKEN", "t0ken")
    step = Step(id="a", run="true", env={"TOKEN": {"from": "SITE_TOKEN"}})
    async with windlass.open() as engine:
        state = await (await engine.start(Plan(steps=[step]))).wait()
    error = state.steps["a"].error
    assert error is not None
    assert error.message == "TOKEN has its value from $SITE_TOKEN, which is held back from steps"
    assert error.advice == ("let steps see it: windlass config add env_allow SITE_TOKEN",)


async def test_b5_a_variable_that_is_not_there_is_named(project: Project) -> None:
    step = Step(id="a", run="true", env={"TOKEN": {"from": "NOT_SET_HERE"}})
    async with windlass.open() as engine:
        state = await (await engine.start(Plan(steps=[step]))).wait()
    error = state.steps["a"].error
    assert error is not None
    assert "TOKEN has its value from $NOT_SET_HERE, which is not set" in error.message
    for wrong in ({"agent": "developer", "prompt": "x"}, {"tool": "files.read"}, {"run": "true", "with_": {"env": {}}}):
        with pytest.raises(ValueError, match="`env` is"):
            Step(id="a", env={"A": "b"}, **wrong)
