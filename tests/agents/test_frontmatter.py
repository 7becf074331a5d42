"""The head of a Markdown file, however somebody wrote it."""

from __future__ import annotations

import pytest

from windlass.agents.reading import MAX_FRONTMATTER, FrontMatterFile, UnreadableFile, read_matter


def matter(text: str | bytes) -> FrontMatterFile:
    return read_matter(text if isinstance(text, bytes) else text.encode(), "x.md")


def only_problem(found: FrontMatterFile) -> str:
    (problem,) = found.problems
    return str(problem)


def test_keys_and_body_are_taken_apart() -> None:
    found = matter("---\nname: a\ntools: [Read, Grep]\n---\nBody.\n---\nmore\n")
    assert found.keys == {"name": "a", "tools": ["Read", "Grep"]}
    assert found.text() == "Body.\n---\nmore\n"
    assert (found.body_line, found.line_of("tools")) == (5, 3)


@pytest.mark.parametrize("text", ["\ufeff---\nname: a\n---\nB", "---\r\nname: a\r\n---\r\nB", "---\rname: a\r---\rB"])
def test_a_byte_order_mark_and_foreign_line_ends_do_not_matter(text: str) -> None:
    found = matter(text)
    assert (dict(found.keys), found.text()) == ({"name": "a"}, "B")


def test_a_byte_order_mark_without_a_frontmatter_is_not_part_of_the_text() -> None:
    assert matter("\ufeffHello").text() == "Hello"


def test_a_file_without_a_frontmatter_is_all_body() -> None:
    found = matter("# Title\n\n---\nnot keys\n---\n")
    assert not found.present
    assert found.keys == {}
    assert found.text().startswith("# Title")


@pytest.mark.parametrize("inner", ["", "\n\n", "# only a remark\n", "~\n", "null\n"])
def test_an_empty_frontmatter_is_no_problem(inner: str) -> None:
    found = matter(f"---\n{inner}---\nB")
    assert (found.keys, found.problems, found.broken, found.text()) == ({}, (), False, "B")


def test_a_frontmatter_that_is_never_closed_is_named_with_its_line() -> None:
    found = matter("---\nname: a\nBody\n")
    assert found.broken
    assert only_problem(found) == "x.md:1: the frontmatter that opens here is never closed (end it with a line `---`)"


def test_invalid_yaml_is_named_with_its_line_in_the_file() -> None:
    found = matter("---\nname: a\ntools: [Read\n---\nB")
    assert found.broken
    assert only_problem(found).startswith("x.md:3:8: not valid YAML")


@pytest.mark.parametrize(
    ("text", "kind"), [("- a\n- b\n", "a list"), ("just words\n", "the text"), ("7\n", "the number")]
)
def test_a_frontmatter_that_is_no_mapping_is_refused(text: str, kind: str) -> None:
    found = matter(f"---\n{text}---\nB")
    assert found.broken
    assert f"x.md:2: the frontmatter must be `key: value` lines, not {kind}" in only_problem(found)


def test_a_duplicate_key_is_told_with_its_line() -> None:
    found = matter("---\nname: a\nmodel: x\nname: b\n---\nB")
    assert not found.broken
    assert only_problem(found) == "x.md:4:1: the key `name` is already on line 2"


def test_unquoted_text_with_colons_is_forgiven_as_the_runtimes_forgive_it() -> None:
    found = matter('---\nname: a\ndescription: Use when: x. Example: user: "hi" # not a remark\nmodel: opus\n---\nB')
    assert found.problems == ()
    assert found.keys["description"] == 'Use when: x. Example: user: "hi" # not a remark'
    assert found.keys["model"] == "opus"


def test_forgiving_one_line_does_not_hide_what_is_wrong_with_another() -> None:
    found = matter("---\ndescription: a: b\ntools: [Read\n---\nB")
    assert found.broken


def test_an_alias_bomb_is_refused_instead_of_written_out() -> None:
    levels = "".join(f"k{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10))
    found = matter(f"---\nk0: &a0 [x, x]\n{levels}---\nB")
    assert found.broken
    assert "x.md:" in only_problem(found)


def test_a_tag_cannot_make_an_object() -> None:
    found = matter('---\nname: !!python/object/apply:os.system ["touch /tmp/x"]\n---\nB')
    assert "the tag" in only_problem(found)
    assert "plan" not in only_problem(found)
    assert found.keys["name"] == ["touch /tmp/x"]


def test_a_huge_frontmatter_is_refused() -> None:
    found = matter("---\nname: " + "x" * MAX_FRONTMATTER + "\n---\nB")
    assert found.broken
    assert only_problem(found) == "x.md:1: the frontmatter that opens here is not closed within 64 KiB"


def test_binary_keys_are_refused() -> None:
    found = matter(b"---\nname: a\0b\n---\nB")
    assert found.broken
    assert "NUL bytes" in only_problem(found)


def test_keys_that_are_not_utf_8_are_named_with_their_line() -> None:
    found = matter(b"---\nmodel: x\nname: \xff\n---\nB")
    assert found.broken
    assert only_problem(found) == "x.md:3: it is not UTF-8 text: byte 0xff"


def test_a_body_that_is_not_utf_8_is_named_with_its_line() -> None:
    with pytest.raises(UnreadableFile, match="byte 0xe9") as caught:
        matter(b"---\nname: a\n---\none\ncaf\xe9\n").text()
    assert caught.value.line == 5


def test_white_space_without_end_is_read_at_once() -> None:
    assert matter("---\n" + " " * 60_000 + "x\n---\n").broken
