"""`status`, `list`, `logs`, `watch`: reading from any process, by id or its beginning (I1, D1)."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import click
import pytest

import windlass as package
from windlass import Plan, Step
from windlass.cli.app import app

if TYPE_CHECKING:
    from conftest import Project, Windlass

MIXED = Plan(
    name="mixed",
    steps=[
        Step(id="good", run="echo fine; echo careful >&2"),
        Step(id="bad", run="exit 3"),
        Step(id="each", run=["echo", "{{ item }}"], foreach=["x", "y"]),
        Step(id="gate", run="true", approve="always"),
    ],
)


def takes_an_execution(group: click.Group, *words: str) -> list[list[str]]:
    """The commands whose first argument is an execution, with the other words that they need."""
    found = []
    for name in group.list_commands(click.Context(group)):
        command = group.commands[name]
        if isinstance(command, click.Group):
            found += takes_an_execution(command, *words, name)
            continue
        arguments = [one for one in command.params if isinstance(one, click.Argument)]
        if arguments and arguments[0].name == "execution" and not command.hidden:
            found.append([*words, name, "@last", *("gate" for one in arguments[1:] if one.required)])
    return found


@pytest.mark.parametrize("typed", takes_an_execution(app), ids=" ".join)
def test_d1_every_command_finds_an_execution_by_a_word_and_by_the_end_of_its_id(
    project: Project, windlass: Windlass, typed: list[str]
) -> None:
    (execution,) = executed(MIXED)
    strange = windlass(*["nonsense" if word == "@last" else word for word in typed], code=2)
    assert "no execution has the id 'nonsense'" in strange.err
    for name in ("@last", execution[-8:]):
        ran = windlass.background(*[name if word == "@last" else word for word in typed]).ended()
        assert not re.search("no execution|was removed|not a name", ran.err), ran


def test_f1_the_context_of_an_execution_without_agents_says_so(project: Project, windlass: Windlass) -> None:
    executed(MIXED)
    assert "No agent of this execution has begun" in windlass("context", "@last").err


def executed(*plans: Plan) -> list[str]:
    """Executions of the home of this folder, run as far as they go without a person."""

    async def run() -> list[str]:
        async with package.open() as engine:
            started = [await engine.start(plan, hold=False) for plan in plans]
            for execution in started:
                await execution.wait()
            return [execution.id for execution in started]

    return asyncio.run(run())


@pytest.fixture
def mixed(project: Project) -> str:
    return executed(MIXED)[0]


def test_c1_status_tells_each_step_what_waits_and_what_to_type_next(
    project: Project, windlass: Windlass, mixed: str
) -> None:
    ran = windlass("status", mixed[:20])
    lines = ran.out.splitlines()
    assert lines[0].startswith("mixed  paused (approval)")
    assert f"execution {mixed}" in lines
    assert any(line.startswith("  ✓ good  completed  fine") for line in lines)
    assert any(line.startswith("  ✗ bad  failed") for line in lines)
    assert '      "line": "true"' in lines, "the exact arguments of what waits"
    assert f"next: windlass approve {mixed} gate   # or with --deny" in lines
    assert f"next: windlass resume {mixed}" in lines
    assert f"75%  in {project.path}" in lines
    assert ran.err == ""


def test_c1_an_execution_that_failed_is_not_100_percent_done(project: Project, windlass: Windlass) -> None:
    failing = Plan(name="f", steps=[Step(id="a", run="false"), Step(id="b", run="true", needs="a")])
    lines = windlass("status", executed(failing)[0]).out.splitlines()
    assert f"in {project.path}" in lines
    assert not any("100%" in line or "100 %" in line for line in lines)


def test_d1_list_and_status_filter(project: Project, windlass: Windlass, mixed: str) -> None:
    fine = [Plan(name=name, steps=[Step(id="a", run="true")]) for name in ("one", "two", "three")]
    one, two, three = executed(*fine)

    def ids(*arguments: str) -> list[str]:
        return [head["id"] for head in windlass(*arguments, "--json").json]

    assert ids("list") == [three, two, one, mixed], "newest first"
    assert ids("list", "--limit", "2") == [three, two]
    assert ids("list", "--status", "paused") == [mixed]
    assert ids("list", "-s", "failed", "-s", "completed") == [three, two, one]
    assert ids("list", "--plan", "two") == [two]
    assert ids("list", "--text", "T") == [three, two], "in either case"
    assert ids("list", "--text", three[-9:].upper()) == [three]
    assert ids("list", "--since", "1h", "--plan", "one") == [one]
    assert ids("list", "--since", "9999-12-31") == []
    assert windlass("list", "--plan", "none").err == "No executions that fit.\n"
    assert windlass("list", "--plan", "none", "-s", "failed").err == "No failed executions that fit.\n"
    assert "--since 'monday' is not a time" in windlass("list", "--since", "monday", code=2).err
    assert ids("status") == [mixed], "without ID: all that are not finished"
    shown = windlass("list")
    assert [line.split()[0] for line in shown.out.splitlines()] == [three, two, one, mixed]
    assert "(approval)" in shown.out


def test_d1_an_execution_is_named_by_the_end_of_its_id_or_as_the_last(project: Project, windlass: Windlass) -> None:
    assert "no executions here yet" in windlass("status", "@last", code=2).err
    fine, broken = (Plan(name=run, steps=[Step(id="a", run=run)]) for run in ("true", "false"))
    (good,) = executed(fine)
    assert windlass("status", "@last-failed", code=2).err.startswith("windlass: no execution has failed here")
    failed, last = executed(broken, fine)

    def found(name: str) -> str:
        return str(windlass("status", name, "--json").json["id"])

    assert [found("@last"), found("@last-failed"), found("@LAST")] == [last, failed, last]
    assert [found(name[-8:]) for name in (good, failed, last)] == [good, failed, last]
    assert f"no execution has the id {good[-3:]!r}" in windlass("status", good[-3:], code=2).err, (
        "too short to mean one"
    )
    assert "use @last or @last-failed" in windlass("status", "@first", code=2).err


def _completed(windlass: Windlass, line: str) -> list[str]:
    words = len(line.split(" ")) - 1
    ran = windlass(_WINDLASS_COMPLETE="bash_complete", COMP_WORDS=line, COMP_CWORD=str(words))
    return [offer.partition(",")[2] for offer in ran.out.splitlines() if offer]


def test_i1_a_shell_completes_executions_and_steps(project: Project, windlass: Windlass, mixed: str) -> None:
    assert _completed(windlass, "windlass status ") == ["@last", "@last-failed", mixed]
    assert _completed(windlass, f"windlass logs {mixed[:9]}") == [mixed]
    assert _completed(windlass, f"windlass approve {mixed} g") == ["good", "gate"]
    assert _completed(windlass, "windlass retry @last b") == ["bad"]
    assert _completed(windlass, "windlass retry @gone b") == []
    elsewhere = f"windlass --home {project.path / 'other'} status "
    assert _completed(windlass, elsewhere) == []


def test_d1_missing_and_ambiguous_ids_name_candidates(project: Project, windlass: Windlass) -> None:
    one, two = executed(*[Plan(steps=[Step(id="a", run="true")])] * 2)
    missing = windlass("status", "ffff", code=2)
    for text in (missing.err, windlass("logs", one[:4], code=2).err):
        assert one in text
        assert two in text
    assert missing.out == ""
    told = windlass("pause", "ffff", "--json", code=2)
    assert two in told.json["error"]["message"]


def test_i1_logs_tell_everything_of_one_step_only_or_of_all(project: Project, windlass: Windlass, mixed: str) -> None:
    every = windlass("logs", mixed).out
    assert "good | fine" in every
    assert "good | careful" in every
    assert "bad attempt 1: exit code 3" in every
    assert "nothing depends on it" in every, "the impact is stated (C2)"
    one = windlass("logs", mixed, "--step", "bad").out
    assert "bad" in one
    assert "good" not in one
    raw = [json.loads(line) for line in windlass("logs", mixed, "--json").out.splitlines()]
    assert [e["seq"] for e in raw] == list(range(1, len(project.events(mixed)) + 1))
    items = windlass("logs", mixed, "--step", "each", "--json").out.splitlines()
    assert {json.loads(line)["step"] for line in items} == {"each", "each[0]", "each[1]"}
    unknown = windlass("logs", mixed, "--step", "goood", code=2)
    assert "good" in unknown.err
    assert unknown.out == ""


def test_i1_watch_follows_from_another_process_until_the_end(project: Project, windlass: Windlass, until: Any) -> None:
    plan = project.plan(
        """
        steps:
          - {id: wait, run: "touch began; until [ -e go ]; do sleep 0.02; done"}
          - {id: after, run: echo over, needs: [wait]}
        """
    )
    execution = windlass.detached(plan)
    until(lambda: (project.path / "began").exists())
    watching = windlass.background("watch", execution, "--json", "--progress=plain")
    following = windlass.background("logs", execution, "--follow")
    until(lambda: "▶ wait" in watching.err)
    assert watching.process.poll() is None
    (project.path / "go").touch()
    ran = watching.ended()
    assert ran.code == 0
    assert ran.json["status"] == "completed"
    assert "after | over" in ran.err
    assert "after | over" in following.ended().out
    assert windlass("watch", execution, "--exit-status").out == "after: over\n"


def test_i1_watch_can_end_with_the_executions_own_exit_code(project: Project, windlass: Windlass, mixed: str) -> None:
    assert windlass("watch", mixed, "--exit-status", "--progress=quiet", code=3).out
    (failed,) = executed(Plan(steps=[Step(id="a", run="false")]))
    windlass("watch", failed, "--exit-status", code=1)
    windlass("watch", failed, code=0)


def test_i1_leaving_watch_does_not_touch_the_execution(project: Project, windlass: Windlass, until: Any) -> None:
    plan = project.plan("steps: [{id: a, run: 'until [ -e go ]; do sleep 0.02; done'}]")
    execution = windlass.detached(plan)
    watching = windlass.background("watch", execution)
    until(lambda: "▶ a" in watching.err)
    watching.signal(2)
    ran = watching.ended()
    assert ran.code == 130
    assert f"windlass watch {execution}" in ran.err
    assert "Traceback" not in ran.err
    assert project.state(execution).status == "running"
    (project.path / "go").touch()
    until(lambda: project.state(execution).status == "completed")


def test_i1_commands_that_are_printed_carry_the_home_that_was_given(
    project: Project, windlass: Windlass, tmp_path: Any
) -> None:
    home = tmp_path / "other home"
    plan = project.plan("steps: [{id: a, run: 'true', approve: always}]")
    ran = windlass("run", plan, "--home", home, code=3)
    command = f"windlass --home '{home}' resume "
    assert command in ran.err
    assert (
        command
        in windlass("--home", home, "list", "--status", "paused").out
        + windlass("--home", home, "status", ran.err.split(command)[1].split()[0]).out
    )


def test_h1_status_and_logs_tell_what_was_used(project: Project, windlass: Windlass) -> None:
    code = "import sys; b = bytearray(64 << 20); sum(i for i in range(6_000_000)); sys.stdout.write('x' * 300_000)"
    work = Plan(name="work", steps=[Step(id="busy", run=["python3", "-c", code]), Step(id="idle", run="echo hello")])
    found = executed(work)[0]
    told = next(line for line in windlass("status", found).out.splitlines() if line.startswith("used "))
    shape = r"used \d+\.\d s of computing, at most \d+ MB of memory, 293 kB of data in"
    assert re.fullmatch(shape, told), told
    assert " of data " not in windlass("status", executed(Plan(name="idle", steps=work.steps[1:]))[0]).out
    idle, busy = sorted((line for line in windlass("logs", found).out.splitlines() if " ✓ " in line), key=len)
    assert "✓ busy" in busy
    assert busy.endswith("MB of memory, 293 kB of data in)")
    assert idle.endswith(" s"), "what is little is not worth a word"


def test_h1_what_nobody_measured_is_not_told(project: Project, windlass: Windlass) -> None:
    waits = Plan(name="waits", steps=[Step(id="gate", run="true", approve="always")])
    assert "\nused " not in windlass("status", executed(waits)[0]).out


def test_c5_a_mistyped_step_is_told_similar_names_and_a_strange_one_how_many_there_are(
    project: Project, windlass: Windlass
) -> None:
    executed(Plan(name="many", steps=[Step(id=f"part{number}", run="true") for number in range(11)]))
    near = windlass("logs", "@last", "--step", "prat10", code=2).err
    assert "has no step 'prat10'; did you mean part10 or part" in near
    strange = windlass("logs", "@last", "--step", "zzz", code=2).err
    assert "has no step 'zzz'; it has part0, part1, part2, part3, part4, part5, part6, part7 and 3 more\n" in strange
