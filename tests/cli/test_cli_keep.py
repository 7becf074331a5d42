"""`checkpoint`, `restore`, `fork`, `clean` (D4, D8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = """
name: kept
inputs: {word: one}
steps:
  - {id: a, run: echo a >> ran}
  - {id: b, run: "echo {{ inputs.word | quote }} | tee -a ran", needs: [a], approve: always}
  - {id: c, run: echo c >> ran, needs: [b]}
"""


@pytest.fixture
def paused(project: Project, windlass: Windlass) -> str:
    windlass("run", project.plan(PLAN), "--progress=quiet", code=3)
    return project.ids()[0]


def test_d4_an_execution_moves_to_another_machine(project: Project, windlass: Windlass, paused: str) -> None:
    """Another home and folder, without the plan file: the checkpoint holds everything."""
    path = windlass("checkpoint", paused[:12]).out.strip()
    assert windlass("checkpoint", paused, "--json").json.keys() == {"path"}
    there = project.path.parent / "there"
    there.mkdir()
    (project.path / "plan.yaml").unlink()
    restored = windlass("restore", path, cwd=there)
    assert restored.out == f"{paused}\n"
    assert f"windlass resume {paused}" in restored.err
    windlass("approve", paused, "b", cwd=there)
    told = windlass("resume", paused, "--workdir", there, "--json", cwd=there).json
    assert told["status"] == "completed"
    assert (there / "ran").read_text() == "one\nc\n", "what was done at home is not done again"
    assert project.state(paused).status == "paused"
    again = windlass("restore", path, cwd=there, code=2)
    assert "already exists here" in again.err


def test_d4_files_that_cannot_be_believed_are_refused_by_name_and_harm_nothing(
    project: Project, windlass: Windlass, paused: str
) -> None:
    path = project.home / "executions" / f"{paused}.json"
    content = path.read_bytes()
    newer = content.replace(b'"version": 1', b'"version": 7', 1)
    for name, bad, said in (
        ("flipped.json", content.replace(b"echo a", b"echo x", 1), "damaged"),
        ("cut.json", content[:-100], "cut off"),
        ("newer.json", newer, "newer Windlass"),
        ("letter.json", b"dear grandmother", "not a checkpoint"),
    ):
        (project.path / name).write_bytes(bad)
        before = project.everything()
        ran = windlass("restore", name, "--json", code=2)
        assert said in ran.json["error"]["message"]
        assert name in ran.err
        assert project.everything() == before
    assert "cannot be read" in windlass("restore", "missing.json", code=2).err


def test_d8_a_fork_keeps_what_came_before_and_takes_edits(project: Project, windlass: Windlass, paused: str) -> None:
    windlass("approve", paused, "b")
    windlass("resume", paused)
    assert project.lines("ran") == ["a", "one", "c"]
    told = windlass("fork", paused, "--from", "b", "--input", "word=two", "--yes", "--json").json
    assert told["id"] != paused
    assert told["status"] == "completed"
    assert told["inputs"] == {"word": "two"}
    assert [s["attempts"] for s in told["steps"]] == [0, 1, 1]
    assert project.lines("ran") == ["a", "one", "c", "two", "c"]
    unknown = windlass("fork", paused, "--from", "d", code=2)
    for step in "abc":
        assert step in unknown.err.partition("it has")[2]
    assert "wrod" in windlass("fork", paused, "--input", "wrod=x", code=2).err
    edited = project.plan(PLAN.replace("id: c, run: echo c", "id: d, run: echo d"), "edited.yaml")
    told = windlass("fork", paused, "--from", "d", "--plan", edited, "--json").json
    assert [s["id"] for s in told["steps"]] == ["a", "b", "d"]
    assert project.lines("ran")[5:] == ["d"]
    assert "'c'" in windlass("fork", paused, "--from", "c", "--plan", edited, code=2).err
    assert len(project.ids()) == 3, "what was refused left nothing behind"


def test_d8_the_fork_that_a_failed_run_suggests_runs_what_is_missing(project: Project, windlass: Windlass) -> None:
    plan = project.plan("steps: [{id: a, run: echo a >> ran}, {id: b, run: test -e fixed && echo b >> ran}]")
    windlass("run", plan, code=1)
    (project.path / "fixed").touch()
    origin = project.ids()[0]
    forked = windlass("fork", origin[:18])
    assert project.lines("ran") == ["a", "b"]
    first = forked.err.splitlines()[0]
    assert first == f"execution {project.ids()[1]} of plan, forked from {origin}", "its id comes first"


def test_d8_a_fork_of_a_plan_that_was_edited_since_says_which_one_it_runs(project: Project, windlass: Windlass) -> None:
    plan = project.plan("steps: [{id: a, run: echo a >> ran}, {id: b, run: exit 1}]")
    windlass("run", plan, code=1)
    origin = project.ids()[0]
    assert windlass("fork", origin, "--json", code=1).json["notes"] == [], "the plan is the same"
    project.plan("steps: [{id: a, run: echo a >> ran}, {id: b, run: echo b >> ran}]")
    forked = windlass("fork", origin, "--from", "a", "--json", code=1)
    (note,) = forked.json["notes"]
    command = f"windlass fork {origin} --plan {project.path / 'plan.yaml'} --from a"
    assert note.endswith(f"has changed since, and this runs it as it was; to run the changed plan: {command}")
    lines = forked.err.splitlines()
    assert lines[1] == f"note: {note}", "said before it starts"
    assert "note:" not in windlass.shell(command).err
    assert sorted(project.lines("ran")) == ["a", "a", "a", "b"]


def test_d4_clean_removes_old_finished_executions_with_their_files(
    project: Project, windlass: Windlass, paused: str
) -> None:
    plan = project.plan("steps: [{id: a, run: 'true'}]", "other.yaml")
    ids = [windlass("run", plan, "--json").json["id"] for _ in range(3)]
    assert windlass("clean", "--json").json == {"removed": [], "expired": [], "freed_bytes": 0}, "nothing is old yet"
    told = windlass("clean", "--older-than", "1ms", "--keep", "1", "--dry-run", "--json").json
    assert sorted(told["removed"]) == ids[:2]
    listed = windlass("clean", "--older-than", "1ms", "--keep", "1", "--dry-run").out.splitlines()
    assert sorted(line.partition(" ")[0] for line in listed) == ids[:2]
    assert len(project.ids()) == 4
    told = windlass("clean", "--older-than", "1ms", "--keep", "1", "--json").json
    assert sorted(told["removed"]) == ids[:2]
    assert project.ids() == [paused, ids[2]], "what is unfinished stays, however old"
    left = {path.name.removesuffix(".json") for path in (project.home / "executions").iterdir()}
    assert left == {paused, ids[2]}
    assert "ffff" in windlass("checkpoint", "ffff", code=2).err


def test_d4_a_checkpoint_is_plain_json(project: Project, windlass: Windlass, paused: str) -> None:
    content = json.loads(Path(windlass("checkpoint", paused).out.strip()).read_text())
    assert content["execution"] == paused
    assert content["events"][0]["plan"]["name"] == "kept"
