"""JSON with comments, as the settings files of other programs have it."""

from __future__ import annotations

import json

import pytest

from windlass.jsonc import parse, without_comments

SETTINGS = """\
// mine
{
  "url": "https://a.example/*not a comment*/", // a place
  /* two
     lines */ "list": [1, 2, /* the last */ 3, ],
  "quoted": "a \\" // b",
}
"""


def test_comments_and_trailing_commas_are_no_mistake_and_texts_stay_whole() -> None:
    assert parse(SETTINGS) == {"url": "https://a.example/*not a comment*/", "list": [1, 2, 3], "quoted": 'a " // b'}


def test_every_line_stays_where_it_was_so_that_errors_name_it() -> None:
    plain = without_comments(SETTINGS)
    assert [len(line) for line in plain.split("\n")] == [len(line) for line in SETTINGS.split("\n")]
    with pytest.raises(json.JSONDecodeError) as caught:
        parse("/* a\n b */\n{\n  wrong\n}")
    assert caught.value.lineno == 4


@pytest.mark.parametrize("text", ["", " \n\t", "// nothing", "/* nothing */\n"])
def test_nothing_and_nothing_but_comments_is_an_object_with_nothing_in_it(text: str) -> None:
    assert parse(text) == {}


@pytest.mark.parametrize("text", ["{} /* open", "{} /*", "{} /*/", "[1,,]", "[,]x", '{"a": "open}'])
def test_what_is_wrong_without_its_comments_is_wrong(text: str) -> None:
    with pytest.raises(ValueError, match=r"line \d+"):
        parse(text)


@pytest.mark.parametrize("text", ["/*" * 200_000, '"' * 400_001, "," * 400_000, ", /* */" * 60_000, '"\\' * 200_000])
def test_a_hostile_text_takes_no_longer_than_its_length(text: str) -> None:
    with pytest.raises(ValueError, match=r"line \d+"):
        parse(text)  # one that went back and forth would not come to its end before the test is given up
