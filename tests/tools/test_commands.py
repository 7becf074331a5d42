"""The table of hostile words for commands (TRUST: commands): what is a word stays one word, whatever it says.

Each stands for text from outside, such as a result of a search or a file's name, that a plan puts into a command: as an
argument of a list, through `quote` into a line, into a variable, and into its input.
"""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

import pytest

import windlass
from windlass import Plan, Step
from windlass.plan.load import load_text

if TYPE_CHECKING:
    from conftest import Project

PAYLOADS = [
    # taken for an option
    "-rf",
    "--version",
    "-",
    "--",
    "-c id",
    "--output=/etc/passwd",
    "-oProxyCommand=touch hit",
    "--upload-pack=touch hit",
    "@/etc/passwd",
    # taken for more than one command
    "; touch hit",
    "&& touch hit",
    "|| touch hit",
    "| touch hit",
    "& touch hit",
    "\ntouch hit\n",
    "\r\ntouch hit\r\n",
    "a\ntouch hit # '",
    # taken for something to be filled in
    "$(touch hit)",
    "`touch hit`",
    "${IFS}touch${IFS}hit",
    "$HOME",
    "~root",
    "<(touch hit)",
    "> hit",
    "< /etc/passwd",
    "*",
    "{a,b}",
    "!!",
    # out of its quotes
    "'; touch hit; '",
    '"; touch hit; "',
    "\\'; touch hit; \\'",
    "$'\\x27; touch hit'",
    "'\"'\"'; touch hit",
    # taken for a template
    "{{ inputs.secret }}",
    "{% include 'x' %}",
    # letters that shells and terminals read in their own way
    "\x1b]0;hit\x07",
    "a\u2028touch hit",
    "\u202etouch hit",
    "",
]
ECHO = 'import sys, os, json; print(json.dumps([sys.argv[1:], os.environ.get("WORD"), sys.stdin.read()]))'


def test_the_table_of_hostile_words_is_as_long_as_promised() -> None:
    assert len(set(PAYLOADS)) == len(PAYLOADS) >= 30


@pytest.mark.parametrize("shell", ["sh", "bash"])
async def test_h2_a_hostile_word_is_one_word_in_every_place_of_a_command(project: Project, shell: str) -> None:
    inputs = {f"word{index}": word for index, word in enumerate(PAYLOADS)} | {
        "secret": "canary",
        "python": sys.executable,
    }
    steps = []
    for index in range(len(PAYLOADS)):
        word = f"{{{{ inputs.word{index} }}}}"
        given: dict[str, Any] = {"env": {"WORD": word}, "stdin": word}
        quoted = f"{{{{ inputs.python | quote }}}} -c '{ECHO}' {{{{ inputs.word{index} | quote }}}}"
        steps.append(Step(id=f"list{index}", run=[sys.executable, "-c", ECHO, word], with_=given))
        steps.append(Step(id=f"line{index}", run=quoted, with_={**given, "shell": shell}))
    before = {path.name for path in project.path.iterdir()}
    async with windlass.open() as engine:
        result = await (await engine.start(Plan(inputs=inputs, steps=steps))).result()
    found = {step["id"]: step for step in result["steps"]}
    for index, word in enumerate(PAYLOADS):
        for kind in ("list", "line"):
            step = found[f"{kind}{index}"]
            assert step["error"] is None, (kind, word, step["error"])
            assert json.loads(step["output"]["stdout"]) == [[word], word, word], (kind, word)
    left = {path.name for path in project.path.iterdir()} - before
    assert "hit" not in left
    assert "canary" not in json.dumps([step["output"] for step in result["steps"]])


POISON = {
    "LD_PRELOAD": "/tmp/evil.so",
    "LD_LIBRARY_PATH": "/tmp",
    "LD_AUDIT": "/tmp/evil.so",
    "BASH_ENV": "/tmp/evil.sh",
    "ENV": "/tmp/evil.sh",
    "BASH_FUNC_echo%%": "() { touch hit; }",
    "SHELLOPTS": "xtrace",
    "PS4": "$(touch hit)",
    "IFS": "h",
    "CDPATH": "/",
    "PYTHONPATH": "/tmp",
    "PYTHONSTARTUP": "/tmp/evil.py",
    "PYTHONINSPECT": "1",
    "PERL5OPT": "-Mevil",
    "RUBYOPT": "-revil",
    "NODE_OPTIONS": "--require /tmp/evil.js",
    "JAVA_TOOL_OPTIONS": "-agentpath:/tmp/evil.so",
    "GIT_SSH_COMMAND": "touch hit",
    "GIT_EXTERNAL_DIFF": "touch hit",
    "GIT_CONFIG_COUNT": "1",
    "EDITOR": "touch hit",
    "PAGER": "touch hit",
    "PROMPT_COMMAND": "touch hit",
    "http_proxy": "http://127.0.0.1:9",
    "ANTHROPIC_API_KEY": "canary",
}


async def test_h2_the_engines_environment_reaches_no_command(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in POISON.items():
        monkeypatch.setenv(name, value)
    async with windlass.open() as engine:
        plan = Plan(steps=[Step(id="a", run="echo here; env", with_={"shell": "bash"})])
        (step,) = (await (await engine.start(plan)).result())["steps"]
    seen = {line.partition("=")[0] for line in step["output"]["stdout"].splitlines()}
    assert seen.isdisjoint(POISON)
    assert step["output"]["stdout"].startswith("here\n")
    assert not (project.path / "hit").exists()


@pytest.mark.parametrize("shell", ["sh -c 'touch hit'", "./evil", "-c"])
async def test_h2_the_name_of_a_shell_is_a_name_and_no_line(project: Project, shell: str) -> None:
    async with windlass.open() as engine:
        plan = Plan(steps=[Step(id="a", run="echo here", with_={"shell": shell}, retry={"max": 0})])
        (step,) = (await (await engine.start(plan, anyway=True)).result())["steps"]
    assert step["error"]["category"] == "configuration"
    assert not (project.path / "hit").exists()


def test_h2_a_line_without_quote_is_warned_of() -> None:
    loaded = load_text("inputs: {x: a}\nsteps: [{id: a, run: 'echo {{ inputs.x }}'}]\n")
    assert any("quote" in str(warning) for warning in loaded.warnings)
