"""`windlass undo` (H2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Project, Windlass

PLAN = """
name: changes
steps:
  - {id: write, tool: files.write, with: {path: a.txt, content: after}}
  - {id: move, needs: write, tool: files.move, with: {from: b.txt, to: c/b.txt}}
"""


def test_h2_a_step_is_undone_from_the_command_line_and_status_and_logs_say_so(
    project: Project, windlass: Windlass
) -> None:
    project.file("a.txt", "before")
    project.file("b.txt", "b")
    windlass("run", project.plan(PLAN), "--progress=quiet")
    id = project.ids()[0]
    done = windlass("undo", id[:12], "write")
    assert done.out == "a.txt  restored\n"
    assert "write is undone: 1 path" in done.err
    assert (project.path / "a.txt").read_text() == "before"
    told = windlass("undo", id, "move", "--json").json
    assert told == {
        "id": id,
        "step": "move",
        "changes": [{"path": "c/b.txt", "undone": "moved back", "to": "b.txt"}],
    }
    assert not (project.path / "c").exists()
    assert "✓ write  completed (undone)" in windlass("status", id).out
    assert [step["undone"] for step in windlass("status", id, "--json").json["steps"]] == [True, True]
    assert "↶ write undone by" in windlass("logs", id).out
    again = windlass("undo", id, "write", code=2)
    assert "is already undone" in again.err


def test_h2_a_file_that_was_changed_since_is_named_on_the_command_line(project: Project, windlass: Windlass) -> None:
    project.file("b.txt", "b")
    windlass("run", project.plan(PLAN), "--progress=quiet")
    id = project.ids()[0]
    (project.path / "a.txt").write_text("by hand")
    refused = windlass("undo", id, "write", "--json", code=1)
    assert refused.json["error"]["message"] == (
        "step write: nothing was undone: 'a.txt' was changed by another program since step write"
    )
    assert (project.path / "a.txt").read_text() == "by hand"
    assert "no step 'nosuch'" in windlass("undo", id, "nosuch", code=2).err


@pytest.mark.parametrize(
    "fault", ["files.retraced", "files.taken", "files.undone", "files.crossed", "journal.before_commit"]
)
def test_h2_an_undo_that_is_killed_is_done_when_it_is_asked_for_again(
    project: Project, windlass: Windlass, fault: str
) -> None:
    project.file("a.txt", "before")
    project.file("b.txt", "b")
    windlass("run", project.plan(PLAN), "--progress=quiet")
    id = project.ids()[0]
    windlass("undo", id, "write", code=-9, WINDLASS_FAULT=fault)
    assert not project.state(id).steps["write"].undone
    assert windlass("undo", id, "write").out == "a.txt  restored\n"
    assert (project.path / "a.txt").read_text() == "before"
    assert project.state(id).steps["write"].undone
