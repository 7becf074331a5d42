"""The files that a step gives to its agent."""

from __future__ import annotations

import os
from typing import Any

import pytest

from windlass import globs
from windlass.agents.context import MAX_ALL, MAX_FILE, Context, gather
from windlass.errors import Category, ToolError
from windlass.homes import prepare_home


def given(tree: Any, *entries: str, workdir: str = "", **how: Any) -> Context:
    return gather(entries, tree.root / workdir, **how)


def paths(found: Context) -> list[str]:
    return [file.path for file in found.files]


def problems(found: Context) -> list[str]:
    return [str(problem) for problem in found.problems]


@pytest.fixture
def sources(tree: Any) -> Any:
    for name in (
        "src/a.py",
        "src/b.py",
        "src/deep/c.py",
        "src/deep/er/d.py",
        "src/.hidden.py",
        "README.md",
        ".env/x.py",
    ):
        tree.file(name, f"# {name}\n")
    return tree


# -- which files -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        ("README.md", ["README.md"]),
        ("./src//a.py", ["src/a.py"]),
        ("src/*.py", ["src/a.py", "src/b.py"]),
        ("src/?.py", ["src/a.py", "src/b.py"]),
        ("src/[!a].py", ["src/b.py"]),
        ("**/*.py", ["src/a.py", "src/b.py", "src/deep/c.py", "src/deep/er/d.py"]),
        ("src/**/d.py", ["src/deep/er/d.py"]),
        ("src/**/er/*.py", ["src/deep/er/d.py"]),
        ("src/deep/**", ["src/deep/c.py", "src/deep/er/d.py"]),
        ("**/**/c.py", ["src/deep/c.py"]),
        ("src/.*.py", ["src/.hidden.py"]),
        ("./src/../src/*.py", ["src/a.py", "src/b.py"]),
        ("{src/b.py,README.md}", ["README.md", "src/b.py"]),
        ("src/{a,deep/c,none}.{py,txt}", ["src/a.py", "src/deep/c.py"]),
        ("src/{a,deep/{er/,}*}.py", ["src/a.py", "src/deep/c.py", "src/deep/er/d.py"]),
    ],
)
def test_entries_are_paths_and_patterns(sources: Any, entry: str, found: list[str]) -> None:
    context = given(sources, entry)
    assert paths(context) == found
    assert context.problems == ()
    assert context.files[0].text == f"# {found[0]}\n"


def test_a_file_is_given_once_in_the_order_of_the_entries(sources: Any) -> None:
    (sources.root / "twin.py").symlink_to("src/a.py")
    assert paths(given(sources, "src/b.py", "src/*.py", "twin.py", "src/../src/b.py")) == ["src/b.py", "src/a.py"]


def test_a_name_with_brackets_is_a_name_before_it_is_a_pattern(tree: Any) -> None:
    tree.file("app/[id]/page.tsx", "page")
    assert paths(given(tree, "app/[id]/page.tsx")) == ["app/[id]/page.tsx"]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("REDME.md", "there is no file REDME.md (did you mean README.md?)"),
        ("scr/a.py", "there is no file scr/a.py (did you mean src/a.py?)"),
        ("src/deep/cc.py", "there is no file src/deep/cc.py (did you mean src/deep/c.py?)"),
        ("zzzzzz", "there is no file zzzzzz"),
        ("scr/*.py", "no file matches scr/*.py (did you mean src?)"),
        ("src/*.rs", "no file matches src/*.rs"),
        ("src/*.{rs,go}", "no file matches src/*.{rs,go}"),
        ("{a,b}" * 7, "{a,b}" * 7 + " is not a pattern: its braces stand for more than 100 patterns"),
        ("{../outside/x,b}", "no file matches {../outside/x,b}"),
        ("src", "src is a folder (src/** means all its files)"),
        ("../outside/x", "../outside/x leaves the working directory (write "),
        ("../**", "../** leaves the working directory (write "),
        ("", "'' is not a path"),
        ("a\0b", "'a\\x00b' is not a path"),
        ("x" * 5000, "there is no file xxx"),
    ],
)
def test_what_cannot_be_found_is_a_problem_that_names_the_nearest(sources: Any, entry: str, said: str) -> None:
    (problem,) = problems(given(sources, entry))
    assert problem.startswith(said)


def test_a_missing_file_is_a_failure_that_a_person_must_correct(sources: Any) -> None:
    with pytest.raises(ToolError, match=r"there is no file REDME.md \(did you mean README.md") as caught:
        sources.briefing.brief(task="t", workdir=sources.root, files=["REDME.md"])
    assert caught.value.failure.category is Category.CONFIGURATION
    assert caught.value.failure.advice


def test_a_link_that_leaves_the_working_directory_is_refused_with_a_note(tree: Any) -> None:
    tree.file("docs/ok.md", "ok")
    (tree.root / "docs/leak.md").symlink_to(tree.secret())
    (tree.root / "all").symlink_to(tree.outside)
    context = given(tree, "docs/*.md", "docs/leak.md", "all/secret.md", "all/*.md")
    assert paths(context) == ["docs/ok.md"]
    assert context.notes == (
        "docs/leak.md is a link that leaves the working directory: it was left out",
        "docs/leak.md is a link that leaves the working directory: it was left out",
        "all/secret.md is a link that leaves the working directory: it was left out",
        "all is a link that leaves the working directory: all/*.md was left out",
    )
    assert context.problems == ()


def test_a_pattern_does_not_run_in_a_loop_of_links(tree: Any) -> None:
    tree.file("a/x.md", "x")
    (tree.root / "a/loop").symlink_to("..")
    (tree.root / "dead.md").symlink_to("dead.md")
    context = given(tree, "**/x.md")
    assert paths(context) == ["a/x.md"]
    assert problems(given(tree, "dead.md")) == ["dead.md is a link that leads nowhere"]


def test_a_link_inside_the_working_directory_is_followed(tree: Any) -> None:
    tree.file("real/x.md", "x")
    (tree.root / "link").symlink_to("real")
    assert paths(given(tree, "link/x.md")) == ["link/x.md"]
    assert paths(given(tree, "link/*.md")) == ["link/x.md"]


def test_an_absolute_path_is_the_users_word(tree: Any) -> None:
    secret = tree.secret("a.md", "mine")
    tree.secret("b.md", "mine too")
    assert paths(given(tree, str(secret))) == [str(secret)]
    assert paths(given(tree, f"{tree.outside}/*.md")) == [str(secret), str(tree.outside / "b.md")]
    inside = tree.file("x.md", "x")
    assert paths(given(tree, str(inside))) == ["x.md"]


def test_an_absolute_path_that_another_step_made_is_refused(tree: Any) -> None:
    (problem,) = problems(given(tree, str(tree.secret()), allow_absolute=False))
    assert problem.endswith("secret.md is an absolute path that does not stand in the plan itself")


def test_a_device_and_a_pipe_are_problems_that_hold_nothing_up(tree: Any) -> None:
    os.mkfifo(tree.root / "pipe")
    assert problems(given(tree, "pipe", "/dev/zero")) == [
        "the file pipe cannot be read: it is not a regular file",
        "the file /dev/zero cannot be read: it is not a regular file",
    ]


def test_a_pattern_that_means_too_much_is_cut_with_a_note(tree: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(globs, "MAX_MATCHES", 3)
    for number in range(5):
        tree.file(f"{number}.txt", "x")
    context = given(tree, "*.txt")
    assert len(context.files) == 3
    assert "the rest is left out" in context.notes[0]


# -- what of them ------------------------------------------------------------------------------------


def test_a_file_of_ten_megabytes_is_cut_in_the_middle_and_says_so(tree: Any) -> None:
    lines = b"".join(b"line %07d\n" % number for number in range(10_000_000 // 13))
    tree.file("big.log", lines)
    context = given(tree, "big.log")
    text = context.files[0].text
    assert text.startswith("line 0000000\n")
    assert text.endswith(f"line {10_000_000 // 13 - 1:07d}\n")
    assert len(text) <= MAX_FILE + 100
    (mark,) = [line for line in text.splitlines() if not line.startswith("line ")]
    kept = len(text) - len(mark) - 1
    assert mark == f"[… {len(lines) - kept:,} of {len(lines):,} bytes are left out here …]"
    assert context.notes == (
        f"big.log has {len(lines):,} bytes: {len(lines) - kept:,} from its middle were not given to the agent",
    )


def test_a_cut_never_falls_inside_a_character(tree: Any) -> None:
    tree.file("one-line.txt", ("é€😀" * 100_000).encode())
    context = given(tree, "one-line.txt")
    assert "\ufffd" not in context.files[0].text
    assert len(context.notes) == 1


def test_a_file_of_exactly_the_limit_is_whole(tree: Any) -> None:
    tree.file("a", "x" * MAX_FILE)
    context = given(tree, "a")
    assert len(context.files[0].text) == MAX_FILE
    assert context.notes == ()


def test_all_files_together_are_bounded_and_the_rest_is_named(tree: Any) -> None:
    for number in range(7):
        tree.file(f"f{number}", str(number) * (MAX_FILE - 100))
    context = given(tree, "f*")
    assert sum(len(file.text) for file in context.files) <= MAX_ALL + 100
    assert paths(context) == ["f0", "f1", "f2", "f3"]
    assert context.without_room == ("f4", "f5", "f6")
    assert context.notes == ("f4, f5, f6 left out: all files together may have 1024 KiB",)
    brief = tree.briefing.brief(task="t", workdir=tree.root, files=["f*"])
    assert "read them yourself.\n- f4\n- f5\n- f6\n</note>" in brief.prompt


def test_a_binary_file_is_named_with_its_size_and_not_shown(tree: Any) -> None:
    tree.file("logo.png", b"\x89PNG\0\0\0secret")
    context = given(tree, "logo.png")
    assert context.files[0].text == "[a binary file of 13 bytes: not shown]"
    assert context.notes == ("logo.png is binary (13 bytes), so its contents were not given to the agent",)


PNG = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"


@pytest.mark.parametrize(
    ("name", "content", "kind"), [("a.png", PNG, "PNG image"), ("b.txt", b"%PDF-1.7\nx", "PDF document")]
)
def test_a5_an_image_or_pdf_is_named_by_its_content_to_an_agent_that_opens_it(
    tree: Any, name: str, content: bytes, kind: str
) -> None:
    tree.file(name, content)
    opened = gather([name], tree.root, media="opens")
    assert opened.files[0].text == f"[a {kind} of {len(content)} bytes: open it with the tool that reads files]"
    assert opened.notes == ()
    left_out = gather([name], tree.root)
    assert left_out.files[0].text == f"[a {kind} of {len(content)} bytes: not shown]"
    assert "this runtime or model is given none, so it was left out" in left_out.notes[0]


def test_a5_an_image_that_is_too_big_empty_or_something_else_is_no_image(tree: Any) -> None:
    tree.file("big.png", PNG + b"x" * 5_000_000)
    tree.file("empty.png", b"")
    tree.file("text.png", b"just text")
    big, empty, text = gather(["big.png", "empty.png", "text.png"], tree.root, media="opens").files
    assert big.text.endswith("not shown]")
    assert (empty.text, text.text) == ("", "just text")


def test_a5_an_image_is_attached_whole_for_a_model_that_takes_it(tree: Any) -> None:
    content = PNG + bytes(1_000_000)  # longer than a text may be
    tree.file("shot", content)
    context = gather(["shot"], tree.root, media="attached")
    assert context.files[0].text == f"[a PNG image of {len(content):,} bytes: attached to this message]"
    assert [tuple(file) for file in context.attachments] == [("shot", "image/png", content)]
    assert gather(["shot"], tree.root, media="opens").attachments == ()


def test_a5_attachments_beyond_what_a_request_may_have_are_left_out_with_a_note(tree: Any) -> None:
    for number in range(5):
        tree.file(f"{number}.png", PNG + bytes(4_500_000))
    context = gather(["*.png"], tree.root, media="attached")
    assert [file.path for file in context.attachments] == ["0.png", "1.png", "2.png", "3.png"]
    assert context.files[4].text.endswith("not shown]")
    assert "all attachments may have 20 MB, so it was left out" in context.notes[0]


def test_text_that_is_not_utf_8_is_replaced_and_noted(tree: Any) -> None:
    tree.file("old.txt", b"caf\xe9\n")
    context = given(tree, "old.txt")
    assert context.files[0].text == "caf\ufffd\n"
    assert context.notes == ("old.txt is not UTF-8 text: what could not be read was replaced by \ufffd",)


def test_a_bad_byte_in_the_tail_of_a_cut_file_is_noted_too(tree: Any) -> None:
    tree.file("old.log", b"line\n" * 100_000 + b"caf\xe9\n")
    context = given(tree, "old.log")
    assert context.files[0].text.endswith("caf\ufffd\n")
    assert len(context.notes) == 2


def test_an_empty_file_and_one_with_a_byte_order_mark(tree: Any) -> None:
    tree.file("empty", "")
    tree.file("bom", b"\xef\xbb\xbfx")
    assert [file.text for file in given(tree, "empty", "bom").files] == ["", "x"]


def test_a_file_name_that_is_not_utf_8_can_be_told(tree: Any) -> None:
    with open(os.fsencode(tree.root) + b"/caf\xe9.txt", "wb") as file:
        file.write(b"\xff")
    context = given(tree, "*.txt")
    assert paths(context) == ["caf\ufffd.txt"]
    assert context.notes[0].encode()


def test_five_hundred_files_are_all_given(tree: Any) -> None:
    for number in range(500):
        tree.file(f"d{number % 7}/f{number}.txt", f"{number}\n")
    context = given(tree, "**/*.txt")
    assert len(context.files) == 500
    assert (context.notes, context.problems) == ((), ())


def test_i6_files_of_a_home_are_given_to_no_agent_whatever_its_name(sources: Any) -> None:
    for home in (".windlass", "state"):
        prepare_home(sources.root / home)
        sources.file(f"{home}/server.token", "secret")
        sources.file(f"{home}/executions/e/x.txt", "secret")
        sources.file(f"{home}/agents/helper.md", "Help.\n")
    sources.file("src/home.json", "{}")
    found = given(sources, "state/server.token", ".windlass/**", "state/**/*", "src/home.json")
    assert paths(found) == [".windlass/agents/helper.md", "state/agents/helper.md", "src/home.json"]
    assert any("server.token is the engine's own state: it was left out" in note for note in found.notes)
