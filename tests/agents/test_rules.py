"""The project's rules."""

from __future__ import annotations

import json
from typing import Any

from windlass.agents.rules import MAX_RULES


def rules(tree: Any, workdir: str = "") -> list[tuple[str, str]]:
    return [tuple(rule) for rule in tree.catalogue(workdir).rules().rules]


def notes(tree: Any, workdir: str = "") -> list[str]:
    return list(tree.catalogue(workdir).rules().notes)


def test_a5_agents_md_else_claude_md_from_the_root_down(tree: Any) -> None:
    tree.file("CLAUDE.md", "root claude")
    tree.file("a/AGENTS.md", "a agents")
    tree.file("a/CLAUDE.md", "a claude")
    tree.file("a/b/CLAUDE.md", "b claude")
    tree.file("other/AGENTS.md", "other")
    assert rules(tree, "a/b") == [
        ("CLAUDE.md", "root claude"),
        ("a/AGENTS.md", "a agents"),
        ("a/b/CLAUDE.md", "b claude"),
    ]


def test_the_users_global_rules_are_not_told(tree: Any) -> None:
    tree.home(".claude/CLAUDE.md", "global")
    tree.home(".config/opencode/AGENTS.md", "global")
    assert rules(tree) == []


def test_instructions_of_opencode_json_are_paths_and_patterns_inside_the_project(tree: Any) -> None:
    tree.secret()
    tree.file("docs/a.md", "A")
    tree.file("docs/b.md", "B")
    tree.file("AGENTS.md", "first")
    listed = ["docs/*.md", "docs/a.md", "AGENTS.md", "none.md", "../outside/secret.md", "../outside/*.md", "no/*.md"]
    listed += ["docs/{a,b}.{md,txt}", "{a,b}" * 7]
    listed += [str(tree.outside / "secret.md"), "https://example.org/rules.md", ""]
    tree.file("opencode.json", json.dumps({"instructions": listed}))
    assert rules(tree) == [("AGENTS.md", "first"), ("docs/a.md", "A"), ("docs/b.md", "B")]
    assert notes(tree) == [
        "the rules in none.md were left out: there is no such file",
        "the rules in ../outside/secret.md lead out of the project, so they were left out",
        "the rules in ../outside/*.md lead out of the project, so they were left out",
        "the rules in no/*.md were left out: no file matches",
        f"the rules in {'{a,b}' * 7} were left out: its braces stand for more than 100 patterns",
        "the rules at https://example.org/rules.md were left out: addresses are not fetched",
        "the rules '' were left out: that is not a path",
    ]


def test_a_link_that_leaves_the_project_is_left_out(tree: Any) -> None:
    (tree.root / "AGENTS.md").symlink_to(tree.secret())
    assert rules(tree) == []
    assert notes(tree) == ["the rules in AGENTS.md lead out of the project, so they were left out"]


def test_rules_that_are_too_long_or_no_text_are_left_out_with_a_note(tree: Any) -> None:
    tree.file("AGENTS.md", "x" * (MAX_RULES + 1))
    tree.file("a/AGENTS.md", b"\xff\xfe")
    tree.file("a/b/AGENTS.md", "short")
    assert rules(tree, "a/b") == [("a/b/AGENTS.md", "short")]
    assert [note.split(":")[0] for note in notes(tree, "a/b")] == [
        "the rules in AGENTS.md were left out",
        "the rules in a/AGENTS.md were left out",
    ]


def test_all_rules_together_are_bounded(tree: Any) -> None:
    workdir = ""
    for number in range(6):
        tree.file(f"{workdir}AGENTS.md", str(number) * (MAX_RULES - 10))
        workdir += "d/"
    (tree.root / workdir).mkdir()
    assert len(rules(tree, workdir)) == 4
    assert len(notes(tree, workdir)) == 2


def test_rules_that_the_runtime_reads_itself_are_left_out_with_a_note(tree: Any) -> None:
    tree.file("AGENTS.md", "Use tabs.")
    brief = tree.briefing.brief(task="t", workdir=tree.root, reads_rules_itself=True)
    assert "Use tabs." not in brief.prompt
    assert brief.notes == ("AGENTS.md is not in the prompt: the runtime reads it itself",)
    assert '<rules path="AGENTS.md">\nUse tabs.\n</rules>' in tree.briefing.brief(task="t", workdir=tree.root).prompt
