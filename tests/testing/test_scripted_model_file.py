"""Scripts in files, and the scripted model as a program."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from wire_client import say

from windlass.errors import UsageError
from windlass.testing import Reply, ScriptedModel
from windlass.testing.scripted.script_file import read_script

HERE = Path(__file__).parent
EVERY_KIND = """
- say: hello
  tokens_in: 30
  tokens_out: 4
  cache_read: 3
  cache_write: 2
  when: needle
- use: {tool: Write, input: {a: 1}}
  text: so
- use:
    - {tool: Read}
    - {tool: Write, input: {b: [x]}}
  invented: true
- error: 529
  message: overloaded
  headers: {retry-after: 2}
  times: 2
- error: 500
  after: so far
- drop: half
- drop: true
- garbage: true
- hang: true
- refuse: true
- refuse: I will not
- cut_short: and then
  delay: 0.5
  pace: 1
  repeat: true
"""


def test_a_file_has_the_words_of_reply(tmp_path: Path) -> None:
    expected = [
        Reply.say("hello", tokens_in=30, tokens_out=4, cache_read=3, cache_write=2, when="needle"),
        Reply.use("Write", {"a": 1}, text="so"),
        Reply.use("Read", invented=True).and_use("Write", {"b": ["x"]}),
        Reply.error(529, "overloaded", headers={"retry-after": "2"}, times=2),
        Reply.error(500, after="so far"),
        Reply.drop("half"),
        Reply.drop(),
        Reply.garbage(),
        Reply.hang(),
        Reply.refuse(),
        Reply.refuse("I will not"),
        Reply.cut_short("and then", delay=0.5, pace=1, repeat=True),
    ]
    file = tmp_path / "script.yaml"
    file.write_text(EVERY_KIND)
    assert read_script(file) == expected
    (tmp_path / "script.json").write_text(json.dumps([{"say": "hi"}]))
    with ScriptedModel.from_file(tmp_path / "script.json") as model:
        assert say(model, "x") == "hi"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("say: x", "is not a list"),
        ("- hello", "write `- say: hello`"),
        ("- {say: x, error: 500}", "reply 1 needs exactly one of say, use, error"),
        ("- text: x", "it has none"),
        ("- {say: x, wehn: y}", "reply 1 has 'wehn', and say knows only when, times"),
        ("- say: x\n- {say: y, times: often}", "reply 2 has times: 'often', which is not of type int"),
        ("- {say: x, times: true}", "not of type int"),
        ("- say: 5", "put it in quotes"),
        ("- error: busy", "write the HTTP status"),
        ("- error: 200", "not an HTTP status of an error"),
        ("- use: Write", "a use is {tool: NAME"),
        ("- garbage: yes please", "write `garbage: true`"),
        ("- {say: x, times: 0}", "serves at least once"),
        ("- say: [", "is neither YAML nor JSON"),
        (None, "cannot be read"),
    ],
)
def test_what_is_wrong_with_a_file_is_told_with_its_place(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "script.yaml"
    if text is not None:
        file.write_text(text)
    with pytest.raises(UsageError) as wrong:
        ScriptedModel.from_file(file)
    assert said in str(wrong.value)
    assert str(file) in str(wrong.value)


# -- as a program ------------------------------------------------------------------------------------


def start_program(*arguments: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-W", "error", "-m", "windlass", "scripted-model", *arguments]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("asked", "code"), [(1, 0), (0, 1)])
def test_as_a_program_it_prints_its_address_and_serves_until_it_is_told_to_end(
    tmp_path: Path, asked: int, code: int
) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("- say: from afar\n")
    program = start_program(str(script), "--check")
    assert program.stdout is not None
    try:
        url = program.stdout.readline().strip()
        assert [say(url, "x") for _ in range(asked)] == ["from afar"] * asked
        program.send_signal(signal.SIGTERM)
        out, err = program.communicate(timeout=180)
    finally:
        program.kill()
    assert (program.returncode, out) == (code, "")
    assert ("served 0 of 1 requests" in err) == (code == 1)


def test_as_a_program_it_says_what_is_wrong_with_its_script(tmp_path: Path) -> None:
    program = start_program(str(tmp_path / "missing.yaml"))
    out, err = program.communicate(timeout=180)
    assert (program.returncode, out) == (2, "")
    assert "missing.yaml cannot be read" in err


def ask_shell(*more: str) -> list[str]:
    """A command that asks the model by the address in its environment, and does more."""
    asks = "import os, sys; from wire_client import say; print(say(os.environ['ANTHROPIC_BASE_URL'], 'x'))"
    return ["--", sys.executable, "-c", "; ".join([f"import sys; sys.path.insert(0, {str(HERE)!r}); {asks}", *more])]


def test_i1_a_command_is_pointed_at_the_model_and_its_exit_code_counts(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("- say: from afar\n")
    program = start_program(str(script), "--check", *ask_shell("sys.exit(7)"))
    out, err = program.communicate(timeout=180)
    assert (program.returncode, out, err) == (7, "from afar\n", "")


def test_i1_with_check_a_command_that_leaves_replies_fails(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("- say: from afar\n- say: and more\n")
    program = start_program(str(script), "--check", *ask_shell())
    _out, err = program.communicate(timeout=180)
    assert program.returncode == 1
    assert "entry 2 of the script ('and more') served 0 of 1 requests" in err
    program = start_program(str(script), *ask_shell())
    assert (*program.communicate(timeout=180), program.returncode) == ("from afar\n", "", 0), "nobody wants it checked"


def test_i1_a_signal_reaches_the_command(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("- say: from afar\n")
    program = start_program(
        str(script), "--", "sh", "-c", "trap 'exit 9' INT; echo ready; while :; do sleep 0.02; done"
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    program.send_signal(signal.SIGINT)
    program.communicate(timeout=180)
    assert program.returncode == 9
    program = start_program(str(script), "--", "sh", "-c", "echo ready; exec sleep 600")
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    program.send_signal(signal.SIGTERM)
    program.communicate(timeout=180)
    assert program.returncode == 128 + signal.SIGTERM


def test_i1_a_command_that_is_not_there_is_named(tmp_path: Path) -> None:
    script = tmp_path / "script.yaml"
    script.write_text("- say: from afar\n")
    program = start_program(str(script), "--", "no-such-command")
    out, err = program.communicate(timeout=180)
    assert (program.returncode, out) == (2, "")
    assert "no-such-command cannot be run: No such file or directory" in err
