"""Whatever a file holds: it is taken apart without an error of ours, and it stays in its block."""

from __future__ import annotations

import contextlib
import re

from hypothesis import given
from hypothesis import strategies as st

from windlass.agents.context import Context, ContextFile
from windlass.agents.prompt import WORDS, compose, neutral, shorten
from windlass.agents.reading import UnreadableFile, read_matter
from windlass.ports import Handoff

PIECES = st.sampled_from(
    ["<", "</", "< /", ">", "/", " ", "\n", "\u200b", "\ufeff", "&lt;", '"', "=", "x", "\0", *WORDS, "TASK", "File"]
)
TEXTS = st.lists(PIECES, max_size=30).map("".join)
TAG = re.compile(rf"<[\s\u200b\ufeff]*/?[\s\u200b\ufeff]*(?:{'|'.join(WORDS)})(?![\w-])", re.IGNORECASE)


@given(TEXTS)
def test_a_neutral_text_has_no_tag_of_ours(text: str) -> None:
    assert TAG.search(neutral(text)) is None


@given(TEXTS)
def test_a_neutral_text_says_the_same(text: str) -> None:
    assert neutral(text).replace("&lt;", "<") == text.replace("&lt;", "<").replace("\0", "\ufffd")


@given(TEXTS, TEXTS)
def test_a_prompt_has_the_tags_of_its_parts_and_no_others(name: str, text: str) -> None:
    brief = compose(
        task="t",
        context=Context((ContextFile(name, text),)),
        handoff=[Handoff(name, f"a{name}", text), Handoff(name, "", text)],
    )
    assert len(TAG.findall(brief.prompt)) == 10


@given(st.text(max_size=50), st.integers(0, 60))
def test_a_shortened_text_keeps_its_ends(text: str, limit: int) -> None:
    short, left_out = shorten(text, limit)
    if len(text) <= limit:
        assert (short, left_out) == (text, 0)
    else:
        assert left_out == len(text) - limit
        assert short.startswith(text[: limit * 3 // 4])
        assert short.endswith(text[len(text) - (limit - limit * 3 // 4) :])


YAML_PIECES = (
    *(
        "---\n",
        "---",
        "\n",
        "name: ",
        "tools: ",
        "a",
        ": ",
        "[",
        "]",
        "{",
        "}",
        "&a ",
        "*a",
        "<<: ",
        "!!x ",
        "|\n",
        ">",
    ),
    *("- ", '"', "'", "#", "\t", "  ", "\0", "\r", "\r\n", "\ufeff", "é", "%", "@", "`", "...\n", "? ", ", ", "1e999"),
)
YAMLISH = st.lists(st.sampled_from(YAML_PIECES), max_size=25).map(lambda pieces: "".join(pieces).encode())


@given(st.one_of(st.binary(max_size=200), YAMLISH, YAMLISH.map(lambda inner: b"---\n" + inner + b"\n---\nBody")))
def test_any_bytes_are_taken_apart_or_named_as_a_problem(data: bytes) -> None:
    found = read_matter(data, "x.md")
    assert found.broken is False or found.problems
    assert all(problem.file == "x.md" for problem in found.problems)
    with contextlib.suppress(UnreadableFile):
        found.text().encode()
