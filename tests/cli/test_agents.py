"""`windlass agents`: what is found here, where from, what overrides what, and what is wrong."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def full(project: Any) -> Any:
    """A project with a role of its own, a shadowed one, a malformed one, one switched off, and two skills."""
    (project.path / ".git").mkdir()
    project.file(".claude/agents/r.md", "---\nname: Reviewer\ndescription: Ours\ntools: Read\n---\nReview well.\n")
    project.file(".claude/agents/bad.md", "---\nname: bad\ntools: [Read\n---\nBe.\n")
    project.file("opencode.json", '{"agent": {"ops": {"disable": true}}}')
    project.file(".claude/skills/pdf/SKILL.md", "---\nname: pdf\ndescription: Read PDF files\n---\nB\n")
    project.file(".claude/skills/half/SKILL.md", "---\nname: half\n---\nB\n")
    return project


def test_a5_the_table_names_roles_skills_sources_shadows_and_problems(full: Any, windlass: Any) -> None:
    done = windlass("agents")
    assert done.err == ""
    lines = done.out.splitlines()
    at = lines.index("  Reviewer   Ours")
    assert lines[at + 1 : at + 3] == [
        "             from .claude/agents/r.md (only Read)",
        "      overrides built-in",
    ]
    at = lines.index("  ops        (switched off)")
    assert lines[at + 1 : at + 3] == ["             from opencode.json", "      overrides built-in"]
    assert "  bad        (cannot be used)" in lines
    at = lines.index("  pdf        Read PDF files")
    assert lines[at + 1] == "             from .claude/skills/pdf/SKILL.md"
    at = lines.index("2 problems")
    assert lines[at + 1].startswith("  .claude/agents/bad.md:3:8: not valid YAML")
    assert lines[at + 2] == "  .claude/skills/half/SKILL.md:1: `description` is missing: a skill needs it"


def test_the_same_as_json_for_programs(full: Any, windlass: Any) -> None:
    told = windlass("agents", "--json").json
    (reviewer,) = [role for role in told["roles"] if role["name"] == "Reviewer"]
    source = str(full.path / ".claude/agents/r.md")
    assert (reviewer["source"], reviewer["tools"], reviewer["runtime"]) == (source, ["Read"], "claude-code")
    assert {"kind": "role", "name": "reviewer", "source": "built-in", "by": source} in told["shadowed"]
    assert [(role["name"], role["disabled"]) for role in told["unusable"]] == [("bad", False), ("ops", True)]
    assert [skill["name"] for skill in told["skills"]] == ["pdf"]
    assert [problem["line"] for problem in told["problems"]] == [3, 1]


def test_without_anything_of_ones_own_there_are_the_built_in_roles(project: Any, windlass: Any) -> None:
    out = windlass("agents").out
    assert out.count("from built-in") == 7
    assert "Skills: none found" in out
    assert "problem" not in out


def test_show_prints_a_role_as_an_agent_is_told_it(full: Any, windlass: Any) -> None:
    done = windlass("agents", "show", "REVIEWER")
    assert done.out.startswith("Review well.\n\nHow to read what you are given:\n")
    assert done.err == "Reviewer, from .claude/agents/r.md (only Read)\n"
    told = windlass("agents", "show", "dev", "--json").json
    assert told["name"] == "developer"
    assert "You are the developer." in told["system"]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("revewer", "there is no role 'revewer'; did you mean 'Reviewer'?"),
        ("bad", "the role 'bad' cannot be used: "),
        ("ops", "the role 'ops' cannot be used: it is switched off in "),
    ],
)
def test_show_of_a_role_that_cannot_be_had_is_a_usage_error(full: Any, windlass: Any, name: str, said: str) -> None:
    done = windlass("agents", "show", name, code=2)
    assert f"windlass: {said}" in done.err
    assert "→ list all: windlass agents" in done.err


def test_another_folder_can_be_looked_at(full: Any, windlass: Any) -> None:
    (full.path / "elsewhere").mkdir()
    (full.path / "elsewhere/.git").mkdir()
    assert "Reviewer" not in windlass("agents", "--workdir", "elsewhere").out
    assert "You are the reviewer." in windlass("agents", "--workdir", "elsewhere", "show", "reviewer").out
    assert "You are the reviewer." in windlass("agents", "show", "reviewer", "--workdir", "elsewhere").out
    assert "nowhere is not a folder" in windlass("agents", "--workdir", "nowhere", code=2).err


def test_text_from_strangers_cannot_write_to_the_terminal(project: Any, windlass: Any) -> None:
    project.file(".claude/agents/x.md", '---\nname: x\ndescription: "a\\e[2Jb\\u202ec"\n---\nBe \x1b]0;evil\x07.\n')
    project.file(".claude/agents/y\x1b[31m.md", "---\nname: [\n---\n")
    table, shown = windlass("agents").out, windlass("agents", "show", "x").out
    assert "a\\u001b[2Jb\\u202ec" in table
    assert not [sign for sign in table + shown if ord(sign) < 32 and sign not in "\n\t"]
    assert "\u202e" not in table
