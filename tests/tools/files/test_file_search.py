"""H2: `files.search` finds lines, within limits, and no pattern keeps it from being stopped."""

from __future__ import annotations

import asyncio
import os
import re
import time
from typing import Any

import pytest
from file_world import SECRET, World
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from windlass.errors import Category
from windlass.schemas.patterns import BadPattern, line_pattern
from windlass.tools.files import look
from windlass.tools.files.models import Search
from windlass.tools.files.safe_path import Root


async def found(world: World, pattern: str, **more: Any) -> list[tuple[str, int, str]]:
    told = await world.do("search", {"pattern": pattern, **more})
    return [(one["path"], one["line"], one["text"]) for one in told["matches"]]


@pytest.fixture
def wood(world: World) -> World:
    world.write("src/main.py", "import os\n\ndef main():\n    return os.name\n")
    world.write("src/deep/util.py", "def helper(x):\r\n    return x.NAME\r\n")
    world.write("README.md", "# Name\nmain thing\n")
    return world


async def test_h2_lines_are_found_by_a_regular_expression_beneath_a_folder(wood: World) -> None:
    assert await found(wood, r"^def \w+\(", path="src") == [
        ("src/deep/util.py", 1, "def helper(x):"),
        ("src/main.py", 3, "def main():"),
    ]
    told = await wood.do("search", {"pattern": r"\bname$", "path": "src"})
    assert told == {
        "path": "src",
        "matches": [
            {"path": "src/main.py", "line": 4, "text": "    return os.name", "cut": False, "before": [], "after": []}
        ],
        "files": 2,
        "skipped": {"binary": 0, "large": 0, "unreadable": 0},
        "truncated": False,
        "limit": None,
    }


async def test_h2_a_byte_order_mark_is_no_part_of_the_first_line(world: World) -> None:
    world.write("marked", "\ufeffone\n\ufefftwo\n")
    assert await found(world, "^one$", path="marked") == [("marked", 1, "one")]
    assert await found(world, "^two", path="marked") == [], "elsewhere it is a character"


async def test_h2_plain_text_is_found_as_it_stands(wood: World) -> None:
    assert await found(wood, "helper(x)", plain=True) == [("src/deep/util.py", 1, "def helper(x):")]
    assert await found(wood, "(", plain=True, glob="*.md") == []
    assert len(await found(wood, "NAME", plain=True, ignore_case=True)) == 3
    assert len(await found(wood, "NAME", plain=True)) == 1


async def test_h2_case_is_minded_unless_told_otherwise(wood: World) -> None:
    assert len(await found(wood, "name")) == 1
    assert len(await found(wood, "name", ignore_case=True)) == 3
    assert len(await found(wood, "[M-N]AME", ignore_case=True)) == 3


async def test_h2_a_glob_chooses_files_by_name_or_by_path(wood: World) -> None:
    assert {path for path, _, _ in await found(wood, ".", glob="*.py")} == {"src/main.py", "src/deep/util.py"}
    assert {path for path, _, _ in await found(wood, ".", glob="src/*.py")} == {"src/main.py"}
    assert {path for path, _, _ in await found(wood, ".", glob="**/util.py", path="src")} == {"src/deep/util.py"}
    assert await found(wood, "def", path="src/main.py", glob="*.md") == [("src/main.py", 3, "def main():")]


async def test_h2_lines_around_a_match_are_shown_when_asked_for(wood: World) -> None:
    told = await wood.do("search", {"pattern": "def main", "context": 2})
    (one,) = told["matches"]
    assert (one["before"], one["after"]) == (["import os", ""], ["    return os.name"])


async def test_h2_a_long_line_is_cut_and_shows_the_match(world: World) -> None:
    world.write("min.js", "x" * 50_000 + "needle" + "y" * 50_000)
    for plain in (True, False):
        told = await world.do("search", {"pattern": "needle", "plain": plain, "max_line": 40})
        (one,) = told["matches"]
        assert (len(one["text"]), one["cut"]) == (40, True)
        assert "needle" in one["text"]


async def test_h2_binary_large_and_unreadable_files_are_passed_over_and_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world.root / "binary").write_bytes(b"needle\0needle")
    monkeypatch.setattr(look, "LARGEST", 1000)
    world.write("large", "needle\n" * 1000)
    world.write("latin", "needle")
    (world.root / "latin").write_bytes(b"\xe4 needle \xff\n")
    os.mkfifo(world.root / "pipe")
    told = await world.do("search", {"pattern": "needle"})
    assert [one["path"] for one in told["matches"]] == ["latin"]
    assert told["skipped"] == {"binary": 1, "large": 1, "unreadable": 0}


async def test_h2_links_are_not_followed_and_neither_the_engines_state_nor_gits_is_searched(world: World) -> None:
    (world.root / "out").symlink_to(world.outside)
    (world.root / "file").symlink_to(world.outside / "secret.txt")
    world.write(".git/config", SECRET)
    world.write("a/.windlass/x", SECRET)
    assert await found(world, "secret") == []
    assert len(await found(world, "secret", path=".git")) == 1
    (world.root / "in").symlink_to("a")
    assert [path for path, _, _ in await found(world, "one", path="in")] == ["a/one.txt"]


async def test_h2_every_limit_holds_and_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        world.write(f"many/{number:02}", "needle\n" * 10)
    told = await world.do("search", {"pattern": "needle", "max_matches": 15})
    assert (len(told["matches"]), told["truncated"], told["limit"]) == (15, True, "max_matches")
    told = await world.do("search", {"pattern": "needle", "max_matches": 200})
    assert (len(told["matches"]), told["truncated"]) == (200, False)
    told = await world.do("search", {"pattern": "needle", "max_files": 3, "path": "many"})
    assert (told["files"], told["limit"]) == (3, "max_files")
    told = await world.do("search", {"pattern": "needle", "max_bytes": 150, "path": "many"})
    assert (told["files"], told["limit"]) == (2, "max_bytes")
    told = await world.do("search", {"pattern": "needle", "max_matches": 40}, reduced=2)
    assert len(told["matches"]) == 10
    monkeypatch.setattr(look, "MOST_TEXT", 100)
    assert (await world.do("search", {"pattern": "needle"}))["limit"] == "text"


@pytest.mark.parametrize(
    "pattern", ["(", "a)", "[", "*", "(?=a)", r"(a)\1", r"\p{Letter}", "(?i)a", "a{1,2", "(a{999}){999}"]
)
async def test_h2_a_pattern_that_cannot_be_matched_in_time_is_refused_in_words(world: World, pattern: str) -> None:
    failure = await world.fail("search", {"pattern": pattern})
    assert failure.category is Category.CONFIGURATION
    assert "cannot be searched for" in failure.message
    assert "plain: true" in failure.advice[0]


async def test_h2_what_is_not_there_or_is_no_file_is_named(world: World) -> None:
    assert (await world.fail("search", {"pattern": "x", "path": "nowhere"})).message == "'nowhere' does not exist"
    inside = (await world.fail("search", {"pattern": "x", "path": "nowhere/x"})).message
    assert inside == "'nowhere/x' does not exist: there is no 'nowhere'"
    os.mkfifo(world.root / "pipe")
    assert "neither a file nor a folder" in (await world.fail("search", {"pattern": "x", "path": "pipe"})).message


# --- patterns that would take for ever ---

CATASTROPHIC = ["(a+)+$", "(a|a)*b", "(a|aa)+$", "(.*)*x", "a*a*a*a*a*a*a*b", "(a?){50}a{50}b", "(x+x+)+y", ".*.*.*=.*"]


@pytest.mark.parametrize("pattern", CATASTROPHIC)
async def test_h2_a_catastrophic_pattern_is_searched_for_in_no_time(world: World, pattern: str) -> None:
    world.write("long", "a" * 200_000 + "!" + "x" * 200_000)
    began = time.process_time()
    told = await world.do("search", {"pattern": pattern, "path": "long"})
    assert told["files"] == 1
    assert time.process_time() - began < 5


async def test_h2_a_line_too_long_for_its_pattern_is_passed_over_and_counted(world: World) -> None:
    """What RE2 began cannot be stopped, so it is not begun when it could take long."""
    world.write("t/long", "ab" * 2_000_000)
    world.write("t/lines", "ab\n" * 1_000_000 + "abc")
    told = await world.do("search", {"pattern": "(a|b){900}.{900}c", "path": "t"})
    assert (told["files"], told["skipped"]["large"], told["matches"]) == (1, 1, [])


async def test_h2_a_search_of_many_lines_is_stopped_between_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "MOST_STEPS", 10_000)
    world.write("many", "ab\n" * 100_000)
    looks = 0

    def stop_soon() -> None:
        nonlocal looks
        looks += 1
        if looks > 50:
            raise InterruptedError

    with Root(world.root) as root, pytest.raises(InterruptedError):
        look.search(root, Search(pattern="(a|b){90}c"), stop_soon)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    st.text(alphabet="ab\r\n\u00e9", max_size=30),
    st.sampled_from(["a", "b$", "^a", "^$", "", "ab", "a\\s", "[^a]", "\u00e9"]),
    st.integers(1, 40),
)
def test_h2_lines_are_the_same_however_many_are_searched_at_once(
    world: World, text: str, pattern: str, steps: int
) -> None:
    (world.root / "t").write_bytes(text.encode())
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    wanted = [(n, line) for n, line in enumerate(lines, 1) if re.search(pattern, line)]
    longest = max(map(len, text.encode().split(b"\n")))
    instructions = line_pattern(pattern, plain=False, ignore_case=False).instructions
    for most in (look.MOST_STEPS, (longest + steps) * instructions):
        with Root(world.root) as root, pytest.MonkeyPatch.context() as patch:
            patch.setattr(look, "MOST_STEPS", most)
            told = look.search(root, Search(pattern=pattern or "(?:)", path="t"), lambda: None)
        assert [(one["line"], one["text"]) for one in told["matches"]] == wanted


async def test_h2_a_cancelled_search_ends(world: World) -> None:
    world.write("long", "ab" * 5_000_000)
    task = asyncio.create_task(world.do("search", {"pattern": "(a?b?){400}c"}))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


ATOMS = ["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", r"\s", r"\b", "^", "$", "(a|b)", "(ab|c)", "(?:a*)", "x?"]


@given(
    st.lists(st.tuples(st.sampled_from(ATOMS), st.sampled_from(["", "", "*", "+", "{1,2}", "|"])), max_size=6),
    st.text(alphabet="abc x1_", max_size=9),
    st.booleans(),
)
def test_h2_it_finds_what_re_finds(parts: list[tuple[str, str]], text: str, ignore_case: bool) -> None:
    pattern = "".join(atom + more for atom, more in parts)
    try:
        ours = line_pattern(pattern, plain=False, ignore_case=ignore_case)
        theirs = re.compile(pattern, re.ASCII | (re.IGNORECASE if ignore_case else 0))
    except (BadPattern, re.error):
        return
    assert (ours.span(text.encode()) is not None) == (theirs.search(text) is not None)
