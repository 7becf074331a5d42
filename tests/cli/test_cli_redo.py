"""`retry` and `skip` at the command line; advice that leads on, and requests of many processes at once (D10, C5)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = """
steps:
  - {id: a, run: "echo a >> ran; exit 3"}
  - {id: each, foreach: [x, y], run: "echo {{ item | quote }} >> ran; [ {{ item | quote }} = x ] || [ -e ok ]"}
  - {id: z, needs: [a, each], run: "echo 'z {{ steps.a.status }}' >> ran"}
"""


def test_d10_what_is_printed_after_a_failure_can_be_typed_and_leads_to_the_end(
    project: Project, windlass: Windlass
) -> None:
    ran = windlass("run", project.plan(PLAN), code=1)
    (execution,) = project.ids()
    for line in (
        f"windlass logs {execution} --step a",
        f"windlass retry {execution} a",
        f"windlass skip {execution} a",
    ):
        assert line in ran.err
    status = windlass("status", execution).out
    assert "each  failed  1 of 2 items, 1 failed" in status
    (project.path / "ok").touch()
    again = windlass("retry", execution, "each", code=1)
    assert "each will run again" in again.err
    told = windlass("skip", execution, "a", "--json").json
    assert (told["id"], told["status"], told["lacks"]) == (execution, "completed", ["a"])
    assert sorted(project.lines("ran")) == ["a", "x", "y", "y", "z skipped"]
    refused = windlass("retry", execution, "a", code=2)
    assert f"windlass fork {execution} --from a" in refused.err


def test_d10_a_step_that_ran_for_a_failure_is_no_result_once_the_failure_is_mended(
    project: Project, windlass: Windlass
) -> None:
    undo = "{id: undo, when: steps.publish.status == 'failed', run: echo undone}"
    plan = f"steps: [{{id: publish, run: test -e ok}}, {undo}, {{id: note, run: echo noted}}]"
    assert windlass("run", project.plan(plan), code=1).out == "undo: undone\nnote: noted\n"
    (project.path / "ok").touch()
    (execution,) = project.ids()
    assert windlass("retry", execution, "publish").out == "note: noted\n"


def test_d10_where_the_folder_has_moved_nothing_is_written_until_another_is_named(
    project: Project, windlass: Windlass
) -> None:
    (project.path / "old").mkdir()
    windlass("run", project.plan("steps: [{id: a, run: test -e ok}]"), "-C", "old", code=1)
    (execution,) = project.ids()
    (project.path / "old").rename(project.path / "new")
    (project.path / "new" / "ok").touch()
    refused = windlass("retry", execution, "a", code=2)
    assert "does not exist (`workdir` names another)" in refused.err
    assert project.state(execution).status == "failed", "it is not opened again"
    assert windlass("retry", execution, "a", "-C", "new", "--json").json["status"] == "completed"


def test_d10_an_argument_is_edited_and_kept_as_text_where_it_was_text(project: Project, windlass: Windlass) -> None:
    plan = "steps: [{id: w, tool: files.write, with: {path: no/such/place/x.txt, content: one, make_parents: false}}]"
    windlass("run", project.plan(plan), code=1)
    (execution,) = project.ids()
    wrong = windlass("retry", execution, "w", "--with", "paht=x.txt", code=2)
    assert "did you mean 'path'" in wrong.err
    windlass("retry", execution, "w", "--with", "path=x.txt", "--with", "content=1.10")
    assert (project.path / "x.txt").read_text() == "1.10"


def test_d3_commands_that_race_for_one_execution_are_all_obeyed(project: Project, windlass: Windlass) -> None:
    steps = ", ".join(f"{{id: s{n}, run: 'echo s{n} >> ran', approve: always}}" for n in range(4))
    windlass("run", project.plan(f"steps: [{steps}]"), code=3)
    (execution,) = project.ids()
    racing = [windlass.background("approve", execution, f"s{n}") for n in range(4)]
    assert [command.ended().code for command in racing] == [0, 0, 0, 0]
    windlass("resume", execution)
    assert sorted(project.lines("ran")) == ["s0", "s1", "s2", "s3"]


UNKNOWN = "{{ (steps.a.output.stdout | from_json).nothing }}"
BROKEN = f"steps: [{{id: a, run: echo a >> ran}}, {{id: b, needs: [a], run: 'echo {UNKNOWN} >> ran'}}]"
MENDED = BROKEN.replace(UNKNOWN, "b")


@pytest.mark.parametrize("command", ["retry", "skip"])
def test_d10_a_changed_plan_is_refused_before_anything_is_written(
    project: Project, windlass: Windlass, command: str
) -> None:
    windlass("run", project.plan(BROKEN), code=1)
    (execution,) = project.ids()
    project.plan(MENDED)
    before = project.events(execution)
    for how in ((), ("--detach",)):
        refused = windlass(command, execution, "b", *how, code=2)
        assert "plan.yaml has changed since" in refused.err
        assert "b will run again" not in refused.err
        assert f"windlass {command} {execution} b --accept-changes" in refused.err
        assert f"windlass {command} {execution} b --keep-plan" in refused.err
    project.plan("steps: [{id: a, runs: typo}]")
    windlass(command, execution, "b", "--accept-changes", code=2)
    assert "leave out" in windlass(command, execution, "b", "--accept-changes", "--detach", code=2).err
    both = windlass(command, execution, "b", "--accept-changes", "--keep-plan", code=2)
    assert "choose one of --accept-changes and --keep-plan" in both.err
    assert project.events(execution) == before, "a refusal changes nothing"


def test_d10_a_corrected_plan_is_taken_up_by_the_commands_that_are_suggested(
    project: Project, windlass: Windlass
) -> None:
    failed = windlass("run", project.plan(BROKEN), code=1)
    (execution,) = project.ids()
    assert "correct the template in the plan, then try the step again with the changed plan" in failed.err
    project.plan(MENDED)
    status = windlass("status", execution)
    fork = f"windlass fork {execution} --plan {project.path / 'plan.yaml'}"
    assert fork in status.out
    assert fork in windlass("resume", execution, code=2).err
    windlass.shell(fork)
    windlass.shell(status.command(f"retry {execution} b --accept-changes"))
    assert windlass("status", execution, "--json").json["status"] == "completed"
    assert project.lines("ran") == ["a", "b", "b"], "the completed step did not run again"


def test_d10_a_retry_says_which_completed_steps_do_not_run_again(project: Project, windlass: Windlass) -> None:
    plan = """
    steps:
      - {id: work, importance: optional, foreach: [1, 2], run: "[ {{ item }} != 2 ] || [ -e ok ]"}
      - {id: collect, needs: work, run: "echo collect >> ran"}
      - {id: publish, needs: collect, run: "echo publish >> ran", approve: always}
    """
    windlass("run", project.plan(plan), code=3)
    (execution,) = project.ids()
    (project.path / "ok").touch()
    retried = windlass("retry", execution, "work[1]", "--json", code=3)
    (note,) = retried.json["notes"]
    assert note.startswith("collect used the earlier result of work and does not run again; ")
    assert f"note: {note}\n" in retried.err
    command = f"windlass fork {execution} --from collect"
    assert note.endswith(command)
    windlass.shell(f"{command} --yes")
    assert project.lines("ran") == ["collect", "collect", "publish"]


def test_d10_after_a_completed_execution_the_suggested_command_runs_only_the_failed_items(
    project: Project, windlass: Windlass
) -> None:
    work = "echo {{ item }} >> ran; [ {{ item }} != 3 ] || [ -e ok ]"
    plan = f"steps: [{{id: work, importance: optional, foreach: [1, 2, 3, 4, 5], run: '{work}'}}]"
    ran = windlass("run", project.plan(plan))
    assert "missing from the result: 1 of 5 items of work (optional)" in ran.err
    (execution,) = project.ids()
    purpose = "run what failed and the steps after it again, in a new execution"
    for step in ("work", "work[2]"):
        refused = windlass("retry", execution, step, code=2)
        assert refused.err.endswith(f"{purpose}: windlass fork {execution}\n")
    command = f"windlass fork {execution}   # {purpose}\n"
    assert ran.err.endswith(f"next:\n  {command}")
    assert windlass("status", execution).out.endswith(f"next: {command}")
    (project.path / "ok").touch()
    windlass.shell(ran.command(f"fork {execution}"))
    assert sorted(project.lines("ran")) == ["1", "2", "3", "3", "4", "5"]
