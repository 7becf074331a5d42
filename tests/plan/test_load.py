"""Loading: files and texts become checked plans, and inputs get values of the right type."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.errors import PlanInvalid, UsageError
from windlass.plan.load import (
    MAX_BYTES,
    Loaded,
    Written,
    bind_inputs,
    load_plan,
    load_text,
    parse_input,
    peek_tools,
)
from windlass.plan.model import Plan, Step

SMALL = "name: small\nsteps:\n  - {id: a, run: echo hello}\n"


def plan_file(folder: Path, text: str | bytes = SMALL, name: str = "plan.yaml") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def big_plan(count: int) -> str:
    """A chain of steps, each with a need and a template."""
    step = "  - id: step{n}\n    needs: [step{m}]\n    run: echo {{{{ steps.step{m}.output.stdout | quote }}}}\n"
    first = "name: big\nsteps:\n  - id: step0\n    run: echo begin\n"
    return first + "".join(step.format(n=n, m=n - 1) for n in range(1, count))


# ── Files ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_file_is_loaded_with_its_path_and_the_digest_of_its_bytes(tmp_path: Path) -> None:
    path = plan_file(tmp_path)
    loaded = load_plan(path)
    assert loaded == Loaded(
        plan=Plan(name="small", steps=(Step(id="a", run="echo hello"),)),
        path=path,
        digest=hashlib.sha256(SMALL.encode()).hexdigest(),
    )


def test_the_same_plan_in_yaml_and_json_is_the_same_plan(tmp_path: Path) -> None:
    json_text = '{"name": "small", "steps": [{"id": "a", "run": "echo hello"}]}'
    from_json = load_plan(plan_file(tmp_path, json_text, "plan.JSON"))
    assert from_json.plan.digest == load_plan(plan_file(tmp_path)).plan.digest
    assert from_json.digest != load_plan(plan_file(tmp_path)).digest


def test_a_json_file_is_held_to_json(tmp_path: Path) -> None:
    with pytest.raises(PlanInvalid, match="not valid JSON"):
        load_plan(plan_file(tmp_path, SMALL, "plan.json"))


def test_a_byte_order_mark_is_no_part_of_the_plan(tmp_path: Path) -> None:
    assert load_plan(plan_file(tmp_path, b"\xef\xbb\xbf" + SMALL.encode())).plan.name == "small"


def test_a_missing_file_is_a_usage_error_that_names_the_nearest(tmp_path: Path) -> None:
    plan_file(tmp_path, name="release.yaml")
    with pytest.raises(UsageError, match="there is no plan file") as caught:
        load_plan(tmp_path / "relase.yaml")
    assert caught.value.advice == (f"did you mean {tmp_path / 'release.yaml'}?",)
    assert not isinstance(caught.value, PlanInvalid)


def test_a_missing_file_like_no_other_names_those_that_are_there_or_the_command_that_writes_one(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_plan(tmp_path / "nothing.yaml")
    assert caught.value.advice == ("write one to begin with: windlass init",)
    plan_file(tmp_path, name="release.yaml")
    with pytest.raises(UsageError) as caught:
        load_plan(tmp_path / "zzz.yaml")
    assert caught.value.advice == ("files in that folder: release.yaml",)


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        load_plan(tmp_path / "nowhere" / "plan.yaml")
    assert caught.value.advice == (f"there is no folder {tmp_path / 'nowhere'} either",)


def test_a_folder_is_no_plan_but_may_hold_some(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder, not a plan file") as caught:
        load_plan(tmp_path)
    assert caught.value.advice == ()
    plan_file(tmp_path, name="b.yml")
    plan_file(tmp_path, name="a.json")
    with pytest.raises(UsageError) as caught:
        load_plan(tmp_path)
    assert caught.value.advice == ("name one of the files in it: a.json, b.yml",)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read_is_a_usage_error(tmp_path: Path) -> None:
    path = plan_file(tmp_path)
    path.chmod(0)
    with pytest.raises(UsageError, match="no permission to read"):
        load_plan(path)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b", "plan.yaml/inside"])
def test_a_name_that_no_file_can_have_is_a_usage_error(tmp_path: Path, name: str) -> None:
    plan_file(tmp_path)
    with pytest.raises(UsageError, match="cannot be read"):
        load_plan(tmp_path / name)


def test_a_pipe_can_be_read_like_a_file() -> None:
    reader, writer = os.pipe()
    os.write(writer, SMALL.encode())
    os.close(writer)
    try:
        assert load_plan(Path(f"/dev/fd/{reader}")).plan.name == "small"
    finally:
        os.close(reader)


UNREADABLE = {
    "Latin-1": ("name: x\ndescription: caf\xe9\n".encode("latin-1"), "not UTF-8", 2),
    "UTF-16": (SMALL.encode("utf-16"), "not UTF-8", 1),
    "a NUL character": (b"name: x\ndescription: a\0b\n", "binary", 2),
    "a program": (b"\x7fELF\x02\x01\x01\x00", "binary", 1),
    "nothing": (b"", "empty", None),
    "only a byte order mark": (b"\xef\xbb\xbf", "empty", None),
    "more than 16 MiB": (b"#" * (MAX_BYTES + 1), "larger than 16 MiB", None),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_is_refused_that_holds(name: str, tmp_path: Path) -> None:
    data, message, line = UNREADABLE[name]
    path = plan_file(tmp_path, data)
    with pytest.raises(PlanInvalid) as caught:
        load_plan(path)
    [problem] = caught.value.problems
    assert message in problem.message
    assert problem.line == line
    assert problem.file == str(path)


def test_text_with_half_a_character_is_refused() -> None:
    with pytest.raises(PlanInvalid, match="invalid character"):
        load_text("name: \ud800\n")


def test_a_problem_of_the_text_hides_what_it_makes_of_its_line_and_nothing_else() -> None:
    with pytest.raises(PlanInvalid) as caught:
        load_text("steps:\n- id: a\n  run: x\n  1: y\n- id: b\n  rum: x\n")
    assert [problem.line for problem in caught.value.problems] == [4, 6]


def test_warnings_come_with_the_plan() -> None:
    loaded = load_text("inputs: {x: 1}\nsteps:\n- id: a\n  run: echo {{ inputs.x }}\n", file="p.yaml")
    assert [(w.file, w.line) for w in loaded.warnings] == [("p.yaml", 4)]


# ── Tool files ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "tools"),
    [
        (SMALL, []),
        ("tools: [a.py, b.py]\n" + SMALL, ["a.py", "b.py"]),
        ("tools: a.py\n" + SMALL, ["a.py"]),
        ("tools: [a.py, 5]\nsteps: none\n", ["a.py"]),
        ("tools: {a: b}\n" + SMALL, []),
        ("- tools\n", []),
    ],
)
def test_tool_files_are_known_before_the_plan_is_checked(text: str, tools: list[str]) -> None:
    assert peek_tools(text.encode(), "plan.yaml") == tools


def test_a_look_for_tool_files_in_a_broken_file_says_what_loading_would_say(tmp_path: Path) -> None:
    path = plan_file(tmp_path, "tools: [a.py\n")
    with pytest.raises(PlanInvalid) as peeked:
        peek_tools(path.read_bytes(), str(path))
    with pytest.raises(PlanInvalid) as loaded:
        load_plan(path)
    assert peeked.value.problems == loaded.value.problems


# ── Size ─────────────────────────────────────────────────────────────────────────────────────────────


def test_a_plan_of_20000_steps_loads() -> None:
    assert len(load_text(big_plan(20_000)).plan.steps) == 20_000


@pytest.mark.parametrize("steps", [20_001, pytest.param(100_000, marks=pytest.mark.soak)])
def test_a_plan_of_too_many_steps_is_refused_by_the_stated_limit(steps: int) -> None:
    with pytest.raises(PlanInvalid) as caught:
        load_text(big_plan(steps))
    [problem] = caught.value.problems
    assert problem.message == "a plan may have at most 20,000 steps"
    assert problem.line == 4 + 19_999 * 3 + 1


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's account of memory")
def test_loading_10000_steps_stays_under_80_mb(tmp_path: Path) -> None:
    path = plan_file(tmp_path, big_plan(10_000))
    script = dedent(
        f"""
        from pathlib import Path
        from windlass.plan.load import load_plan
        assert len(load_plan(Path({str(path)!r})).plan.steps) == 10_000
        status = Path("/proc/self/status").read_text()
        print(next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")))
        """
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert int(done.stdout) < 80 * 1024


# ── Anything at all ──────────────────────────────────────────────────────────────────────────────────

fragments = st.sampled_from(
    [
        "steps:\n",
        "- id: a\n",
        "  run: x\n",
        "  needs: [a]\n",
        "  when: ",
        "{{ ",
        " }}",
        "{% if ",
        "inputs:\n",
        "  x: 1\n",
        "&a ",
        "*a",
        "<<: ",
        '"',
        "'",
        "\t",
        "\n",
        ": ",
        "!!int",
    ]
)


@given(st.binary() | st.text() | st.lists(fragments, max_size=20).map("".join), st.sampled_from(["p.yaml", "p.json"]))
def test_any_bytes_or_text_are_a_plan_or_invalid(text: str | bytes, file: str) -> None:
    try:
        loaded = load_text(text, file=file)
    except PlanInvalid as error:
        found = error.problems
    else:
        found = loaded.warnings
        assert loaded.plan.steps
    assert all(problem.file == file for problem in found)


# ── Inputs ───────────────────────────────────────────────────────────────────────────────────────────

INPUTS: dict[str, Any] = {
    "text": "v1",
    "count": 3,
    "share": 0.5,
    "flag": False,
    "names": ["a"],
    "options": {"a": 1},
    "anything": None,
}
WITH_INPUTS = Plan(inputs=INPUTS, steps=(Step(id="a", run="x"),))


def bound(name: str, value: Any) -> Any:
    return bind_inputs(WITH_INPUTS, {name: value})[name]


def problem_of(name: str, value: Any) -> str:
    with pytest.raises(PlanInvalid) as caught:
        bind_inputs(WITH_INPUTS, {name: value})
    [problem] = caught.value.problems
    assert problem.where == f"inputs.{name}"
    return str(problem)


def test_defaults_stand_where_nothing_is_given() -> None:
    assert bind_inputs(WITH_INPUTS, {}) == INPUTS
    assert bind_inputs(WITH_INPUTS, {"count": 5}) == {**INPUTS, "count": 5}
    assert WITH_INPUTS.inputs == INPUTS


TYPED = {
    ("text", "1.10"): "1.10",
    ("text", "true"): "true",
    ("text", " [a] "): " [a] ",
    ("text", ""): "",
    ("text", "@@home"): "@home",
    ("count", "7"): 7,
    ("count", " 0x10 "): 16,
    ("share", "2"): 2,
    ("share", "1.10"): 1.1,
    ("flag", "true"): True,
    ("names", "[a, 'b c', 1]"): ["a", "b c", 1],
    ("options", '{"b": [1, null]}'): {"b": [1, None]},
    ("options", "{b: 2}"): {"b": 2},
    ("anything", "5"): 5,
    ("anything", '"5"'): "5",
    ("anything", "v1.2"): "v1.2",
    ("anything", "a=b: c"): "a=b: c",
    ("anything", "null"): None,
    ("anything", "[1]"): [1],
}


@pytest.mark.parametrize(("name", "typed"), TYPED)
def test_a_typed_input_takes_its_type_from_the_default(name: str, typed: str) -> None:
    key, written = parse_input(f"{name}={typed}")
    found = bound(key, written)
    assert found == TYPED[name, typed]
    assert type(found) is type(TYPED[name, typed])


@pytest.mark.parametrize(
    ("name", "typed", "message"),
    [
        ("count", "many", "input count: expected a whole number, got text (the text 'many')"),
        ("count", "1.5", "input count: expected a whole number, got a number"),
        ("count", "true", "input count: expected a whole number, got true or false"),
        ("count", "", "input count: expected a whole number, got null"),
        ("count", "9" * 30, "64 bits"),
        ("share", "half", "input share: expected a number, got text"),
        ("flag", "yes", "input flag: expected true or false, got text"),
        ("flag", "1", "input flag: expected true or false, got a whole number"),
        ("names", "a,b", "input names: expected a list, got text"),
        ("names", "[a", "input names: not valid YAML"),
        ("options", "{a: 1, a: 2}", "input options: the key `a` is already on line 1"),
        ("names", "{a: 1}", "input names: expected a list, got a mapping"),
        ("coutn", "1", "the plan has no input `coutn` (did you mean `count`?)"),
        ("zzz", "1", "the plan has no input `zzz` (known: text, count"),
    ],
)
def test_a_typed_input_that_does_not_fit_is_told(name: str, typed: str, message: str) -> None:
    assert message in problem_of(*parse_input(f"{name}={typed}"))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("text", 1.1, "input text: expected text, got a number"),
        ("text", None, "input text: expected text, got null"),
        ("count", True, "input count: expected a whole number, got true or false"),
        ("names", "a", "input names: expected a list, got text"),
        ("text", Path("x"), "input text: expected text, got a PosixPath"),
        ("anything", {1, 2}, "input anything: a set cannot be stored as JSON"),
        ("anything", float("nan"), "cannot be stored as JSON"),
        ("names", [b"x"], "input names: a list cannot be stored as JSON"),
        ("text", "caf\udce9", "cannot be stored as JSON"),
        ("options", {"m": {1: "a", "1": "b"}}, "input options: two keys of a mapping are the same as text: '1'"),
    ],
)
def test_a_value_given_in_python_must_fit_as_it_is(name: str, value: Any, message: str) -> None:
    assert message in problem_of(name, value)


def test_all_wrong_inputs_are_told_at_once() -> None:
    with pytest.raises(PlanInvalid) as caught:
        bind_inputs(WITH_INPUTS, {"count": "x", "nothing": 1, "text": "fine", "flag": 1})
    assert [problem.where for problem in caught.value.problems] == ["inputs.count", "inputs.nothing", "inputs.flag"]


def test_a_plan_without_inputs_says_so() -> None:
    with pytest.raises(PlanInvalid, match="it has no inputs at all"):
        bind_inputs(Plan(steps=(Step(id="a", run="x"),)), {"x": 1})


def test_an_input_from_a_file_is_its_text(tmp_path: Path) -> None:
    path = plan_file(tmp_path, "[1, 2]\n", "notes.txt")
    name, written = parse_input(f"text=@{path}")
    assert (name, written) == ("text", Written("[1, 2]\n", verbatim=True))
    assert bound("text", written) == "[1, 2]\n"
    assert bound("anything", written) == "[1, 2]\n"
    assert bound("names", written) == [1, 2]


@pytest.mark.parametrize("text", ["- ana\n- {name: ben}\n", "# people\n[ana, {name: ben}]\n"])
def test_i1_a_list_in_a_file_may_be_written_as_yaml(tmp_path: Path, text: str) -> None:
    _name, written = parse_input(f"names=@{plan_file(tmp_path, text, 'people.yaml')}")
    assert bound("names", written) == ["ana", {"name": "ben"}]


def test_an_input_from_a_missing_file_names_the_nearest(tmp_path: Path) -> None:
    path = plan_file(tmp_path, "x", "notes.txt")
    with pytest.raises(UsageError, match="there is no input file") as caught:
        parse_input(f"text=@{tmp_path / 'note.txt'}")
    assert caught.value.advice == (f"did you mean {path}?",)


def test_an_input_from_a_binary_file_is_refused(tmp_path: Path) -> None:
    path = plan_file(tmp_path, b"\0", "x.bin")
    with pytest.raises(UsageError, match=r"input text: .*binary"):
        parse_input(f"text=@{path}")


@pytest.mark.parametrize("text", ["", "name", "=value", " =x"])
def test_what_is_no_input_at_all_is_a_usage_error_that_shows_one(text: str) -> None:
    with pytest.raises(UsageError, match="is not an input") as caught:
        parse_input(text)
    assert caught.value.advice == ("write it like --input name=value",)


@given(st.sampled_from([*INPUTS, "unknown"]), st.text())
def test_any_typed_input_is_bound_or_invalid(name: str, text: str) -> None:
    try:
        key, written = parse_input(f"{name}={text.lstrip('@')}")
        value = bind_inputs(WITH_INPUTS, {key: written})[name]
    except PlanInvalid:
        return
    default = INPUTS[name]
    assert default is None or isinstance(value, type(default) | (int if name == "share" else type(default)))
