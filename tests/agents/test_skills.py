"""Skills: found wherever they are kept, told whole only when they are wanted."""

from __future__ import annotations

import os
from typing import Any

import pytest

from windlass.agents import places
from windlass.agents.reading import MAX_FRONTMATTER
from windlass.agents.skills import MAX_SKILL
from windlass.errors import Category, ToolError, UsageError


def problems(tree: Any) -> list[str]:
    return [str(problem).replace(f"{tree.root}/", "") for problem in tree.catalogue().problems]


def names(tree: Any, workdir: str = "") -> list[str]:
    return [skill.name for skill in tree.catalogue(workdir).skills()]


def test_a5_skills_are_read_from_every_place_in_the_documented_order(tree: Any) -> None:
    text = "---\nname: pdf\ndescription: d\n---\nHere: {}\n"
    kinds = (".windlass/skills", ".claude/skills", ".opencode/skill", ".opencode/skills", ".agents/skills")
    homes = (".config/windlass/skills", ".claude/skills", ".config/opencode/skill", ".config/opencode/skills")
    folders = [tree.root / folder / kind for folder in ("sub", "") for kind in kinds]
    folders += [tree.user / kind for kind in (*homes, ".agents/skills")]
    paths = [folder / "group" / "pdf" / "SKILL.md" for folder in folders]
    for path in paths:
        path.parent.mkdir(parents=True)
        path.write_text(text.format(path))
    for number, path in enumerate(paths):
        catalogue = tree.catalogue("sub")
        skill = catalogue.skill("pdf")
        assert skill.path == path
        assert catalogue.text_of(skill) == f"Here: {path}"
        assert len(catalogue.shadowed_skills()) == len(paths) - number - 1
        path.unlink()
    assert names(tree, "sub") == []


def test_a_skill_that_a_step_names_is_told_whole_and_the_others_not_at_all(tree: Any) -> None:
    tree.skill("pdf", "Use pdftotext.")
    tree.skill("sql", "Use joins.")
    brief = tree.briefing.brief(task="t", workdir=tree.root, skills=["pdf"])
    assert '<skill name="pdf" path="' in brief.prompt
    assert "Use pdftotext." in brief.prompt
    assert "sql" not in brief.prompt


def test_a_star_lists_the_others_by_name_description_and_path(tree: Any) -> None:
    tree.skill("pdf", "Use pdftotext.")
    path = tree.skill("sql", "Use joins.")
    brief = tree.briefing.brief(task="t", workdir=tree.root, skills=["pdf", "*"])
    assert f"- sql: How sql is done ({path})" in brief.prompt
    assert "Use pdftotext." in brief.prompt
    assert "Use joins." not in brief.prompt
    assert "- pdf:" not in brief.prompt


def test_the_skills_of_a_role_are_told_whole_and_a_missing_one_is_noted(tree: Any) -> None:
    tree.skill("pdf", "Use pdftotext.")
    tree.role("x", skills="pdf, pfd")
    brief = tree.briefing.brief(task="t", workdir=tree.root, role="x")
    assert "Use pdftotext." in brief.prompt
    assert brief.notes == ("role x: there is no skill 'pfd'; did you mean 'pdf'?",)


def test_an_unknown_skill_of_a_step_is_a_failure_that_names_the_nearest(tree: Any) -> None:
    tree.skill("pdf")
    with pytest.raises(ToolError, match="there is no skill 'pdff'; did you mean 'pdf'") as caught:
        tree.briefing.brief(task="t", workdir=tree.root, skills=["pdff"])
    assert caught.value.failure.category is Category.CONFIGURATION
    assert caught.value.failure.advice == ("list all: windlass agents",)


def test_without_any_skill_an_unknown_one_says_so(tree: Any) -> None:
    with pytest.raises(UsageError, match="there is no skill 'pdf'; none was found here"):
        tree.catalogue().skill("pdf")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"Just text.\n", ":1: a skill begins with a frontmatter that has `name` and `description`"),
        (b"---\nname: a\n---\nB\n", ":1: `description` is missing: a skill needs it"),
        (b"---\ndescription: d\n---\nB\n", ":1: `name` is missing: a skill needs it"),
        (b"---\nname: a\ndescription: [d]\n---\nB\n", ":3: `description` must be text, not a list: a skill needs it"),
        (b"---\ndescription: d\nname: ''\n---\nB\n", ":3: `name` must be text, not the text '': a skill needs it"),
        (b"---\nname: a\ndescription: [d\n---\nB\n", ":3:14: not valid YAML"),
        (b"---\nname: a\n", ":1: the frontmatter that opens here is never closed"),
        (b"---\nx: " + b"y" * MAX_FRONTMATTER + b"\n---\n", ":1: the frontmatter that opens here is not closed within"),
        (b"---\nname: a\ndescription: \xff\n---\n", ":3: it is not UTF-8 text: byte 0xff"),
        (b"\x7fELF\0\0\0", ": cannot be read: it is not text"),
        (b'---\nname: "a\\0b"\ndescription: d\n---\n', ":2: `name` must be visible characters"),
    ],
)
def test_a_malformed_skill_is_a_problem_with_file_and_line_and_the_rest_still_loads(
    tree: Any, content: bytes, said: str
) -> None:
    tree.file(".claude/skills/bad/SKILL.md", content)
    tree.skill("good")
    (problem,) = problems(tree)
    assert problem.startswith(f".claude/skills/bad/SKILL.md{said}")
    assert names(tree) == ["good"]


def test_unknown_keys_are_ignored_and_long_ones_read(tree: Any) -> None:
    extra = "".join(f"key{number}: {'v' * 90}\n" for number in range(100))
    tree.file(".claude/skills/a/SKILL.md", f"---\n{extra}name: a\ndescription: d\n---\nB\n")
    assert names(tree) == ["a"]
    assert problems(tree) == []


def test_a_skill_that_is_too_long_fails_only_when_it_is_used(tree: Any) -> None:
    tree.skill("long", "x" * MAX_SKILL)
    assert names(tree) == ["long"]
    with pytest.raises(ToolError, match=r"the skill 'long' cannot be used: .*SKILL.md: cannot be read: it has"):
        tree.briefing.brief(task="t", workdir=tree.root, skills=["long"])


def test_a_body_that_is_not_utf_8_fails_only_when_it_is_used(tree: Any) -> None:
    tree.file(".claude/skills/a/SKILL.md", b"---\nname: a\ndescription: d\n---\nok\n\xff\n")
    assert names(tree) == ["a"]
    with pytest.raises(ToolError, match=r"SKILL\.md:6: cannot be read: it is not UTF-8"):
        tree.briefing.brief(task="t", workdir=tree.root, skills=["a"])


def test_loops_of_links_are_walked_once(tree: Any) -> None:
    folder = tree.skill("a").parent
    (folder / "self").symlink_to(".")
    (folder / "up").symlink_to("../..")
    (tree.root / ".claude/skills/twin").symlink_to("a")
    assert names(tree) == ["a"]
    assert problems(tree) == []


def test_a_link_that_leaves_the_project_is_refused(tree: Any) -> None:
    tree.secret("theirs/SKILL.md", "---\nname: theirs\ndescription: d\n---\nthe user's own key\n")
    tree.skill("a")
    (tree.root / ".claude/skills/theirs").symlink_to(tree.outside / "theirs")
    assert names(tree) == ["a"]
    assert problems(tree) == [".claude/skills/theirs: is a link that leaves the project, so it is not followed"]


def test_folders_nested_too_deep_are_not_entered(tree: Any) -> None:
    deep = "/".join(["d"] * (places.MAX_DEPTH - 1))
    tree.skill("a", folder=f".claude/skills/{deep}")
    tree.skill("b", folder=f".claude/skills/{deep}/d")
    assert names(tree) == ["a"]


def test_more_files_than_may_be_read_are_a_problem(tree: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MAX_FILES", 8)
    for number in range(10):
        tree.skill(f"s{number}")
    assert len(names(tree)) == 8
    assert problems(tree) == [
        ".claude/skills: holds more than 20,000 names or 8 files: the rest is ignored",
    ]


def test_thousands_of_files_around_a_skill_do_not_hide_it(tree: Any) -> None:
    folder = tree.skill("a").parent / "data"
    folder.mkdir()
    for number in range(3_000):
        (folder / f"{number}.txt").touch()
    os.makedirs(folder.parent / "node_modules/pkg")
    (folder.parent / "node_modules/pkg/SKILL.md").write_text("---\nname: not-mine\ndescription: d\n---\n")
    assert names(tree) == ["a"]
    assert problems(tree) == []
