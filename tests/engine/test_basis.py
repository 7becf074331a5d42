"""What decides the effect of a use beside its arguments is part of what a person allows (C6)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from gate_worlds import Scripted

from windlass.core.approval import ABSENT
from windlass.engine import basis as module
from windlass.engine.basis import basis_of, compare, definition, step_hash
from windlass.errors import ApprovalOutdated
from windlass.plan.model import Step
from windlass.ports import Tool
from windlass.tools.built_in import Registry


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("deploy.sh", "other.sh", "notes.txt"):
        (tmp_path / name).write_text(name)
    (tmp_path / "run").write_text("run")
    (tmp_path / "run").chmod(0o700)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "inner.sh").write_text("inner")
    return tmp_path


def files(folder: Path, **arguments: Any) -> dict[str, str]:
    found = basis_of(None, arguments, folder, Registry([]))
    assert all(name.startswith("file ") for name in found)
    return {name.removeprefix("file "): mark for name, mark in found.items()}


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.parametrize(
    ("command", "named"),
    [
        ("sh deploy.sh", ["deploy.sh"]),
        ("bash -x deploy.sh --now", ["deploy.sh"]),
        ("/usr/bin/python3.11 deploy.sh", ["deploy.sh"]),
        (". deploy.sh", ["deploy.sh"]),
        ("source deploy.sh; node other.sh", ["deploy.sh", "other.sh"]),
        ("deploy.sh", ["deploy.sh"]),
        ("A=1 B=2 ./deploy.sh", ["./deploy.sh"]),
        ("sudo -u web ./run", ["./run"]),
        ("tail notes.txt", []),
        ("tail run", ["run"]),
        ("cat < deploy.sh | sh other.sh", ["other.sh"]),
        ("sh deploy.sh # not: sh other.sh", ["deploy.sh"]),
        ('sh deploy.sh "other', ["deploy.sh"]),
        ("sh gone.sh", []),
        ("sh sub", []),
    ],
)
def test_c6_files_that_a_command_runs_are_part_of_what_is_allowed(folder: Path, command: str, named: list[str]) -> None:
    assert list(files(folder, command=command)) == named
    assert list(files(folder, line=command)) == named


def test_c6_words_of_a_command_are_read_as_they_are_given(folder: Path) -> None:
    assert list(files(folder, argv=["sh", "deploy.sh", "notes.txt"])) == ["deploy.sh"]
    assert list(files(folder, argv=["./run"], cmd="sh other.sh")) == ["./run", "other.sh"]
    assert list(files(folder, argv="sh deploy.sh")) == []
    assert files(folder, argv=["sh", "inner.sh"], cwd="sub") == {"inner.sh": digest("inner")}
    assert files(folder, argv=["sh", 7]) == {}


def test_c6_files_that_arguments_name_are_known_by_their_content(folder: Path) -> None:
    assert files(folder, path="notes.txt") == {"notes.txt": digest("notes.txt")}
    assert files(folder, file_path="new.txt") == {"new.txt": ABSENT}
    assert files(folder, attachments=["notes.txt", 7, "run"], files="run") == {
        "notes.txt": digest("notes.txt"),
        "run": digest("run"),
    }
    assert files(folder, path=7, text="notes.txt") == {}
    for outside in ("/etc/hostname", "../x", "sub", "a\0b"):
        assert files(folder, path=outside) == {}
    assert basis_of(None, "text", folder, Registry([])) == {}


def test_c6_a_pipe_is_not_waited_for(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert files(folder, path="pipe") == {}


def test_c6_what_is_looked_at_is_closed_again(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    before = len(os.listdir("/dev/fd"))
    files(folder, files=["notes.txt", "sub", "pipe", "gone"])
    assert len(os.listdir("/dev/fd")) == before


def test_c6_a_large_file_is_known_by_its_size_and_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_HASHED", 9)
    assert files(folder, path="notes.txt") == {"notes.txt": digest("notes.txt")}
    monkeypatch.setattr(module, "MOST_HASHED", 8)
    os.utime(folder / "notes.txt", ns=(5, 7))
    assert files(folder, path="notes.txt") == {"notes.txt": "9 bytes of 7"}


def test_c6_of_very_many_files_the_first_are_compared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_FILES", 2)
    assert list(files(folder, files=["a", "a", "b", "c"])) == ["a", "b"]


def tool_of(name: str, **more: Any) -> Tool:
    found = Registry([Scripted(name)]).get(name)
    assert found is not None
    for key, value in more.items():
        setattr(found, key, value)
    return found


def test_c6_the_tool_its_substitute_and_the_step_are_part_of_what_is_allowed(folder: Path) -> None:
    tools = Registry([Scripted("act"), Scripted("other")])
    act, other = tools.get("act"), tools.get("other")
    assert act is not None
    assert other is not None
    step = Step(id="a", tool="act")
    found = basis_of(act, {"path": "run"}, folder, tools, step=step, substitute="other")
    assert found == {
        "step a": step_hash(step),
        "tool act": definition(act),
        "substitute other": definition(other),
        "file run": digest("run"),
    }
    assert "substitute gone" not in basis_of(act, {}, folder, tools, substitute="gone")
    assert list(basis_of(act, {}, folder, tools)) == ["tool act"]
    act.compares_files = True
    assert list(basis_of(act, {"path": "run"}, folder, tools)) == ["tool act"], "it compares them itself"


def test_c6_when_a_step_runs_and_what_it_waits_for_is_no_part_of_what_it_does() -> None:
    plain = step_hash(Step(id="a", tool="act"))
    assert step_hash(Step(id="a", tool="act", needs=["b"], when="true")) == plain
    assert step_hash(Step(id="a", tool="act", with_={"x": 1})) != plain


def test_c6_what_changed_since_it_was_allowed_is_named() -> None:
    before = {"tool act": "1", "file run": "1"}
    plain, compares = tool_of("act"), tool_of("act", compares_files=True)
    compare(before, dict(before), plain)
    with pytest.raises(ApprovalOutdated) as outdated:
        compare(before, {**before, "file run": "2"}, plain)
    assert len(outdated.value.changes) == 1
    compare(before, {"tool act": "1"}, compares)
    with pytest.raises(ApprovalOutdated):
        compare(before, {"tool act": "2"}, compares)
