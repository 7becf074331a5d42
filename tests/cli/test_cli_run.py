"""`run` (I1): exit codes, the JSON contract, what goes to stdout and what to stderr, and how progress is shown."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from windlass import __version__

if TYPE_CHECKING:
    from conftest import Project, Windlass

HEAD = {"id", "plan", "status", "steps", "cost", "progress", "eta", "error"}
STEP = {
    "id",
    "status",
    "attempts",
    "output",
    "error",
    "skipped_because",
    "started_at",
    "finished_at",
    "duration_s",
    "cost_usd",
}
COST = {"usd", "known", "tokens_in", "tokens_out", "text"}
ERROR = {"category", "message", "where", "advice"}

GOOD = """
name: good
inputs: {who: world}
steps:
  - {id: greet, run: "echo hello {{ inputs.who | quote }}"}
  - {id: shout, run: ["tr", "a-z", "A-Z"], with: {stdin: "{{ steps.greet.output.stdout }}"}}
"""


def test_i1_a_completed_run_exits_0_and_stdout_holds_the_result_only(project: Project, windlass: Windlass) -> None:
    ran = windlass("run", project.plan(GOOD), "--input", "who=you")
    assert ran.out == "shout: HELLO YOU\n"
    assert re.search(r"^good  completed: 2 completed$", ran.err, re.MULTILINE)
    assert project.ids()[0] in ran.err


def test_i1_a_step_that_printed_nothing_has_no_line_in_the_result(project: Project, windlass: Windlass) -> None:
    ran = windlass("run", project.plan("steps: [{id: tag, run: 'true'}, {id: say, run: echo hello}]"))
    assert ran.out == "say: hello\n"


def test_i1_the_json_of_run_status_and_watch_is_one_object_of_the_promised_shape(
    project: Project, windlass: Windlass
) -> None:
    plan = project.plan(
        """
        name: shapes
        steps:
          - {id: good, run: echo fine}
          - {id: bad, run: "echo why >&2; exit 3"}
          - {id: after, run: echo never, needs: [bad]}
        """
    )
    told = windlass("run", plan, "--json", code=1).json
    status = windlass("status", told["id"], "--json").json
    watched = windlass("watch", told["id"], "--json").json
    assert told == status == watched
    assert set(told) >= HEAD
    assert set(told["cost"]) == COST
    assert (told["plan"], told["status"], told["progress"]) == ("shapes", "partial", 100.0)
    good, bad, after = told["steps"]
    for step in told["steps"]:
        assert set(step) >= STEP
    assert (good["status"], good["attempts"], good["error"]) == ("completed", 1, None)
    assert good["output"]["stdout"] == "fine\n"
    assert good["started_at"].endswith("Z")
    assert good["duration_s"] > 0
    assert set(bad["error"]) == set(told["error"]) == ERROR
    assert (bad["error"]["category"], bad["error"]["where"]) == ("logic", "bad")
    assert bad["error"]["message"] == "exit code 3: why"
    assert isinstance(bad["error"]["advice"], list)
    assert (after["status"], after["skipped_because"]) == ("skipped", "dependency failed: bad")
    assert (after["started_at"], after["duration_s"], after["attempts"]) == (None, None, 0)
    (head,) = windlass("list", "--json").json
    assert set(head) >= HEAD - {"error"}
    assert head["id"] == told["id"]


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ("[{id: a, run: 'true'}]", 0),
        ("[{id: a, run: 'false'}]", 1),
        ("[{id: a, run: 'true'}, {id: b, run: 'false'}]", 1),
        ("[{id: a, run: 'true', when: 'false'}]", 0),
        ("[{id: a, run: 'true'}, {id: b, run: 'false', importance: optional}]", 0),
        ("[{id: a, run: 'true', approve: always}]", 3),
    ],
    ids=["completed", "failed", "partial", "skipped", "optional", "approval"],
)
def test_i1_the_exit_code_says_how_it_ended(project: Project, windlass: Windlass, steps: str, code: int) -> None:
    windlass("run", project.plan(f"steps: {steps}"), "--progress=quiet", code=code)


def test_i1_a_dry_run_checks_and_shows_and_runs_nothing(project: Project, windlass: Windlass) -> None:
    plan = project.plan(
        """
        name: dry
        inputs: {who: you}
        steps:
          - {id: a, run: "touch ran"}
          - {id: b, needs: a, run: "echo {{ inputs.who | quote }}", approve: always}
        """
    )
    shown = windlass("run", plan, "--dry-run").out
    assert "  a: shell\n    b: shell ← a  (needs approval)\n" in shown
    assert "time: unknown" in shown
    assert "will ask before: b\n" in shown
    told = windlass("run", plan, "--dry-run", "--json").json
    assert (told["name"], told["steps"], told["asks"]) == ("dry", ["a", "b"], ["b"])
    assert "has no input `whom`" in windlass("run", plan, "--dry-run", "-i", "whom=me", code=2).err
    assert "runs nothing" in windlass("run", plan, "--dry-run", "--detach", code=2).err
    assert not project.home.exists(), "not even a home is made"
    assert not (project.path / "ran").exists()


def test_c6_a_dry_run_names_the_questions_that_can_come(project: Project, windlass: Windlass) -> None:
    plan = project.plan(
        """
        inputs: {go: true}
        steps:
          - {id: a, run: echo a, when: inputs.go, approve: always}
          - {id: b, run: echo b, when: "steps.a.output.stdout == ''", approve: always}
        """
    )
    shown = windlass("run", plan, "--dry-run").out
    assert "will ask before: a\n" in shown
    assert "may ask before, if results of other steps let them run: b\n" in shown
    told = windlass("run", plan, "--dry-run", "--json").json
    assert (told["asks"], told["may_ask"]) == (["a", "b"], ["b"])
    nothing = windlass("run", plan, "--dry-run", "-i", "go=false").out
    assert "ask before" not in nothing
    assert "waiting for" not in nothing
    windlass("run", plan, "-i", "go=false")


def test_d5_a_dry_run_shows_the_plan_and_warns_of_what_is_missing(project: Project, windlass: Windlass) -> None:
    plan = project.plan("steps: [{id: a, prompt: hi}, {id: b, run: [no-such-program]}]")
    windlass("run", plan, code=2)
    ran = windlass("run", plan, "--dry-run")
    assert "warning: step a: cli cannot be used: " in ran.err
    assert "warning: step b: the program no-such-program is not on PATH" in ran.err
    assert "  a: agent\n" in ran.out


def test_c7_items_of_an_input_are_counted_before_they_run(project: Project, windlass: Windlass) -> None:
    plan = project.plan(
        """
        inputs: {words: [a, b]}
        steps:
          - {id: asks, foreach: inputs.words, run: "true", approve: always}
          - {id: numbers, foreach: "range(inputs.words | length)", run: "true"}
          - {id: list, run: "echo '[1]'"}
          - {id: later, foreach: steps.list.output.stdout | from_json, run: "true"}
        """
    )
    told = windlass("run", plan, "--dry-run", "--json").json["estimate"]["forecast"]
    assert told["unknown_items"] == ["later"]
    assert told["approvals_ahead"] == 2
    more = windlass("run", plan, "--dry-run", "--json", "-i", "words=[a, b, c]").json["estimate"]["forecast"]
    assert more["approvals_ahead"] == 3


def test_c5_a_wrong_value_for_an_input_is_no_problem_of_the_plan(project: Project, windlass: Windlass) -> None:
    plan = project.plan("{inputs: {n: 1}, steps: [{id: a, run: 'true'}]}")
    err = windlass("run", plan, "-i", "n=x", code=2).err
    assert "1 problem in the given inputs:" in err
    assert "input n: expected a whole number, got text" in err
    assert "-i KEY=VALUE" in err
    assert "plan check" not in err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "nothing.yaml"], "nothing.yaml"),
        (["run", "plan.yaml", "--input", "nonsense"], "--input name=value"),
        (["run", "plan.yaml", "--input", "whom=x"], "did you mean `who`"),
        (["run", "plan.yaml", "--input", "who=@missing.txt"], "missing.txt"),
        (["run", "plan.yaml", "--progress=loud"], "loud"),
        (["run", "plan.yaml", "--workdir", "nowhere"], "nowhere"),
        (["run"], "PLAN"),
        (["runn", "plan.yaml"], "runn"),
        (["run", "bad.yaml"], "bad.yaml:3"),
        (["list", "--status", "sleeping"], "sleeping"),
        (["clean", "--older-than", "soon"], "soon"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_i1_what_is_typed_wrongly_exits_2_and_starts_nothing(
    project: Project, windlass: Windlass, arguments: list[str], said: str
) -> None:
    project.plan(GOOD)
    project.plan("name: bad\nsteps:\n  - {id: a, rnu: x}\n", "bad.yaml")
    ran = windlass(*arguments, code=2)
    assert said in ran.err
    assert ran.out == ""
    assert project.ids() == []


def test_c5_an_error_with_json_is_json_on_stdout_and_words_on_stderr(project: Project, windlass: Windlass) -> None:
    ran = windlass("run", "plam.yaml", "--json", code=2)
    assert set(ran.json["error"]) == ERROR
    assert "plam.yaml" in ran.json["error"]["message"]
    assert "plam.yaml" in ran.err


def test_c5_a_failed_run_says_what_where_why_and_what_next(project: Project, windlass: Windlass) -> None:
    plan = project.plan(
        """
        name: build
        steps:
          - {id: fetch, run: [no-such-program-here]}
          - {id: compile, run: "true", needs: [fetch]}
          - {id: test, run: "true", needs: [compile]}
          - {id: docs, run: "true", needs: [compile], importance: optional}
          - {id: publish, run: "true", needs: [docs]}
        """
    )
    ran = windlass("run", plan, "--anyway", code=1)
    assert "fetch failed (it causes these to be skipped: compile, test, docs): " in ran.err, "the impact is stated (C2)"
    assert "✓ publish" in ran.err, "the optional step before it holds nothing up"
    assert "fetch (configuration): " in ran.err
    assert "→ install no-such-program-here" in ran.err
    assert f"windlass fork {project.ids()[0]}" in ran.err


def test_c5_the_words_of_a_program_that_failed_stand_apart_from_those_of_the_engine(
    project: Project, windlass: Windlass
) -> None:
    line = "printf '\\\\nF\\\\n-----\\\\nRan 2 tests\\\\n\\\\nFAILED (failures=1)\\\\n' >&2; exit 1"
    plan = project.plan(
        f"""
        name: build
        steps:
          - {{id: test, run: "{line}"}}
          - {{id: deploy, run: "true", needs: [test]}}
        """
    )
    ran = windlass("run", plan, code=1)
    said = "exit code 1:\n  | F\n  | Ran 2 tests\n  | FAILED (failures=1)\n"
    assert ran.err.count(said) == 2, "where the attempt failed, and at the end"
    assert f"✗ test (logic): {said}" in ran.err
    assert "✗ test failed (it causes these to be skipped: deploy): exit code 1\n" in ran.err
    ran = windlass("run", project.plan("steps: [{id: a, run: 'echo boom >&2; exit 3'}]"), code=1)
    assert ran.err.count("exit code 3: boom\n") == 2
    assert "✗ a failed (nothing depends on it): exit code 3\n" in ran.err


def test_c1_progress_has_the_time_of_all_attempts_of_a_step(project: Project, windlass: Windlass) -> None:
    retry = "retry: {max: 1, delay: 1ms, on: [logic]}"
    plan = project.plan(f"steps: [{{id: a, run: 'test -e once || {{ touch once; false; }}', {retry}}}]")
    assert re.search(r"✓ a  [\d.]+ s, 2 attempts\n", windlass("run", plan).err)


# ── progress ─────────────────────────────────────────────────────────────────────────────────────────


def test_i1_plain_progress_shows_every_step_and_its_output_line_by_line(project: Project, windlass: Windlass) -> None:
    ran = windlass("run", project.plan(GOOD), "--progress=plain")
    lines = [line.partition(" ")[2] for line in ran.err.splitlines()]
    assert "▶ greet: shell" in lines
    assert "  greet | hello world" in lines
    assert any(line.startswith("[100%] ✓ shout") for line in lines)
    assert "\x1b" not in ran.err


def test_i1_quiet_progress_shows_nothing_but_the_end(project: Project, windlass: Windlass) -> None:
    ran = windlass("run", project.plan(GOOD), "--progress=quiet")
    assert "greet" not in ran.err
    assert ran.out == "shout: HELLO WORLD\n"


def test_i1_rawjson_progress_is_the_events_one_a_line(project: Project, windlass: Windlass) -> None:
    ran = windlass("run", project.plan(GOOD), "--progress=rawjson", "--json")
    events = [json.loads(line) for line in ran.err.splitlines() if line.startswith("{")]
    assert [e["seq"] for e in events] == list(range(1, len(events) + 1))
    assert {e["execution"] for e in events} == {ran.json["id"]}
    assert [e["type"] for e in events][:3] == ["execution.created", "execution.started", "attempt.started"]
    assert events[-1]["type"] == "execution.finished"
    assert len(events) == len(project.events(ran.json["id"]))


def test_i1_rawjson_prints_nothing_but_events(project: Project, windlass: Windlass) -> None:
    """A program that reads stderr line by line may parse each line: no warning, no summary, no advice."""
    plan = project.plan("{inputs: {x: 1}, steps: [{id: a, run: 'echo {{ inputs.x }}; exit 3'}]}")
    ran = windlass("run", plan, "--progress=rawjson", code=1)
    assert [json.loads(line)["type"] for line in ran.err.splitlines()][-1] == "execution.finished"
    (execution,) = project.ids()
    again = windlass("watch", execution, "--progress=rawjson").err
    assert again == ran.err


def test_i1_on_a_terminal_progress_is_live_and_no_color_takes_the_colour_out(
    project: Project, windlass: Windlass
) -> None:
    plan = project.plan(GOOD)
    coloured = windlass.terminal("run", plan).ended()
    plain = windlass.terminal("run", plan, NO_COLOR="1").ended()
    for ran in (coloured, plain):
        assert ran.code == 0
        assert ran.out == "shout: HELLO WORLD\n"
        assert "greet" in ran.err
        assert "100%" in ran.err
    colours = re.compile(r"\x1b\[(?:\d+;)*(?:3[0-7]|9[0-7]|38;[\d;]+)m")
    assert colours.search(coloured.err)
    assert not colours.search(plain.err)


def test_i1_a_reader_that_goes_away_is_no_error(project: Project, windlass: Windlass) -> None:
    """`windlass logs ID | head -1`"""
    plan = project.plan("steps: [{id: a, run: seq 20000}]")
    windlass("run", plan, "--progress=quiet")
    done = subprocess.run(
        ["sh", "-c", f'"{sys.executable}" -m windlass logs {project.ids()[0]} | head -1'],
        env=project.env,
        capture_output=True,
        text=True,
        check=False,
    )
    assert len(done.stdout.splitlines()) == 1
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_i1_a_result_that_cannot_be_written_is_told_without_a_traceback(
    project: Project, windlass: Windlass, unbuffered: str
) -> None:
    plan = project.plan("steps: [{id: a, run: 'echo a >> ran; echo a'}]")
    env = project.env | {"PYTHONUNBUFFERED": unbuffered}
    for command in (f"run {plan}", f"run {plan} --json", "list", "logs @last --json", "config list --all", "--help"):
        line = f"{sys.executable} -m windlass {command} > /dev/full"
        done = subprocess.run(["sh", "-c", line], env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done
        assert done.stderr.endswith("windlass: cannot write to standard output: No space left on device\n")
        assert "Traceback" not in done.stderr
        assert ("completed: 1 completed" in done.stderr) == command.startswith("run")
    assert project.lines("ran") == ["a", "a"]


@pytest.mark.parametrize(
    ("where", "reason"),
    [
        (">&-", "Bad file descriptor"),
        ("| true", None),
        pytest.param(
            "> /dev/full",
            "No space left on device",
            marks=pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full"),
        ),
    ],
)
def test_i1_a_version_that_cannot_be_written_is_told_without_a_traceback(
    project: Project, where: str, reason: str | None
) -> None:
    line = f"{sys.executable} -m windlass --version {where}; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], env=project.env, capture_output=True, text=True, check=False)
    assert done.stderr == (f"windlass: cannot write to standard output: {reason}\n" if reason else "")
    assert done.returncode == 1 or not reason, "a version that fits into a pipe before its reader leaves is written"


def test_i1_a_result_for_a_closed_stdout_is_an_error_and_stderr_has_the_id(
    project: Project, windlass: Windlass
) -> None:
    plan = project.plan("steps: [{id: a, run: echo a}]")
    for command in ("--json", "--detach"):
        line = f"{sys.executable} -m windlass run {plan} {command} >&-"
        done = subprocess.run(["sh", "-c", line], env=project.env, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done
        assert done.stderr.endswith("windlass: cannot write to standard output: Bad file descriptor\n")
        newest = windlass("list", "--json").json[0]["id"]
        assert newest in done.stderr, "an execution without a known id could not be followed"
    windlass("watch", newest)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
@pytest.mark.parametrize("progress", ["plain", "tty", "rawjson"])
def test_i1_progress_that_cannot_be_shown_does_not_stop_an_execution(
    project: Project, windlass: Windlass, progress: str
) -> None:
    plan = project.plan("steps: [{id: a, run: seq 5000}, {id: b, run: echo b, needs: a}]")
    for where in ("2>/dev/full", "2>&1 >/dev/null | true; exit ${PIPESTATUS[0]}"):
        line = f"{sys.executable} -m windlass run {plan} --progress {progress} {where}"
        done = subprocess.run(["bash", "-c", line], env=project.env, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done
    assert [head["status"] for head in windlass("list", "--json").json] == ["completed", "completed"]


def test_i1_a_terminal_that_knows_ascii_only_breaks_nothing(project: Project, windlass: Windlass) -> None:
    plan = project.plan("{name: grün, steps: [{id: a, run: 'echo ✓'}]}")
    ran = windlass("run", plan, PYTHONIOENCODING="ascii")
    assert ran.out == "a: \\u2713\n"
    assert windlass("list", "--json", PYTHONIOENCODING="ascii").json[0]["plan"] == "grün"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_i1_a_stream_that_is_closed_breaks_nothing(project: Project, closed: str) -> None:
    plan = project.plan("steps: [{id: a, run: 'echo a >> ran'}]")
    line = f"{sys.executable} -m windlass run {plan} {closed}"
    done = subprocess.run(["sh", "-c", line], env=project.env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    assert "Traceback" not in done.stderr
    assert project.lines("ran") == ["a"]


# ── inputs and folders ───────────────────────────────────────────────────────────────────────────────


def test_b5_inputs_keep_the_type_of_their_default_and_can_come_from_a_file(
    project: Project, windlass: Windlass
) -> None:
    project.file("notes.txt", "from a file\n")
    plan = project.plan(
        """
        inputs: {text: a, number: 1, flag: false, list: [], any: null}
        steps: [{id: a, run: "true"}]
        """
    )
    given = ["text=1.10", "number=5", "flag=true", "list=[1, two]", "any=@notes.txt"]
    told = windlass("run", plan, "--json", *[part for text in given for part in ("-i", text)]).json
    assert told["inputs"] == {"text": "1.10", "number": 5, "flag": True, "list": [1, "two"], "any": "from a file\n"}


def test_b5_what_is_not_utf8_is_refused_in_words(project: Project, windlass: Windlass) -> None:
    """It could not be kept in a journal of JSON."""
    plan = project.plan(GOOD)
    folder = project.path / "caf\udce9"
    folder.mkdir()
    for arguments in (["run", plan, "--input", "who=caf\udce9"], ["status", "\udce9"], ["run", "caf\udce9.yaml"]):
        assert "not UTF-8" in windlass(*arguments, code=2).err
    assert "not UTF-8" in windlass("run", f"../{plan}", cwd=folder, code=2).err
    assert project.ids() == []


def test_i1_steps_work_where_it_was_started_or_where_told(project: Project, windlass: Windlass) -> None:
    (project.path / "sub").mkdir()
    plan = project.plan("steps: [{id: a, run: pwd}]")
    assert windlass("run", plan).out == f"a: {project.path}\n"
    assert windlass("run", plan, "--workdir", "sub").out == f"a: {project.path / 'sub'}\n"
    below = windlass("run", "../plan.yaml", cwd=project.path / "sub")
    assert below.out == f"a: {project.path / 'sub'}\n"
    assert len(project.ids()) == 3, "the nearest .windlass upwards is the home"


def test_i1_the_home_can_be_told_before_and_after_the_command_and_by_the_environment(
    project: Project, windlass: Windlass, tmp_path: Any
) -> None:
    plan = project.plan("steps: [{id: a, run: 'true'}]")
    home = tmp_path / "state"
    windlass("--home", home, "run", plan)
    windlass("run", plan, "--home", home)
    windlass("run", plan, WINDLASS_HOME=str(home))
    assert len(windlass("list", "--json", "--home", home).json) == 3
    assert not project.home.exists()


def test_i1_looking_makes_no_home(project: Project, windlass: Windlass) -> None:
    assert windlass("list", "--json").json == []
    assert windlass("status", "--json").json == []
    windlass("status", "0", code=2)
    assert not project.home.exists()


def test_i1_the_version_and_the_help(project: Project, windlass: Windlass) -> None:
    assert windlass("--version").out == f"windlass {__version__}\n"
    told = windlass("--help").out
    commands = "run status list watch logs pause resume interrupt cancel approve checkpoint restore fork plan clean"
    assert [command for command in (*commands.split(" "), "doctor") if command not in told] == []
    assert "130" in told, "the exit codes are told"


def test_i1_the_demo_runs(project: Project, windlass: Windlass) -> None:
    told = windlass("demo", "--json").json
    assert told["status"] == "completed"
    assert told["lacks"] == ["extra"]
    assert {s["id"]: s["attempts"] for s in told["steps"]}["flaky"] == 2
    assert "largest has" in (project.home / "demo" / "REPORT.md").read_text()
