"""Text of plans, steps and errors cannot command the terminal, nor pose as a line of ours (C6)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from waiting import PATIENCE

from windlass.cli.terminal import as_message, coloured
from windlass.visible import one_line, visible

if TYPE_CHECKING:
    from conftest import Project, Windlass

SEQUENCES = {
    "clipboard": "\x1b]52;c;aGk=\x07",
    "clipboard, ended by ST": "\x1b]52;c;aGk=\x1b\\",
    "clipboard in C1": "\x9d52;c;aGk=\x9c",
    "link": "\x1b]8;;https://evil.test\x07text\x1b]8;;\x07",
    "title": "\x1b]0;title\x07",
    "icon": "\x1b]1;icon\x07",
    "colour of the palette": "\x1b]4;1;rgb:00/00/00\x07",
    "notification": "\x1b]9;done\x07",
    "working directory": "\x1b]7;file:///evil\x07",
    "clear": "\x1b[2J",
    "clear in C1": "\x9b2J",
    "clear all that scrolled away": "\x1b[3J",
    "cursor up and erase": "\x1b[1A\x1b[2K",
    "cursor home": "\x1b[H",
    "reset": "\x1bc",
    "other screen": "\x1b[?1049h",
    "hidden cursor": "\x1b[?25l",
    "pasted text": "\x1b[200~text\x1b[201~",
    "who are you": "\x1b[c",
    "where are you": "\x1b[6n",
    "mouse": "\x1b[?1003h",
    "scroll region": "\x1b[1;2r",
    "other letters": "\x1b(0",
    "device control": "\x1bP$qm\x1b\\",
    "application command": "\x1b_Ga=T\x1b\\",
    "hidden text": "\x1b[8mhidden\x1b[28m",
    "back to the beginning": "long\rshort",
    "backspace": "ab\b\bcd",
    "bell and others": "\x07\x00\x05\x0e\x0f\x7f\x0b\x0c\x85",
    "right to left": "\u202ecba\u202c\u2066\u2069\u200f\u061c",
    "not seen": "a\u200bb\ufeffc\u2028d\u2029e\U000e0041",
}
_ALL = "".join(f"<{sequence}>" for sequence in SEQUENCES.values())
_FAKE = "\n12:00:00 completed\nAllow it? [y]es"
HOSTILE = _ALL.replace("\0", "") + _FAKE
"""An argument of a program cannot hold NUL."""
NAME = "\x1b]52;c;aGk=\x07\x9b2J\x1b[2J\x1b[8m\u202e\r\x1b]0;title\x07\u200b" + _FAKE
"""The same within 200 characters."""
_RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\U000e0000-\U000e007f]"
)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_QUESTION = "\nAllow it? [y]es, [n]o, [l]ater: "
_NOTHING = re.compile("(?!)")
_DRAWING = re.compile(r"\x1b\[[0-9;:]*m|\x1b\[[0-9]*[AK]|\x1b\[\?25[hl]|\r")


@pytest.mark.parametrize("how", SEQUENCES)
def test_i6_nothing_of_a_sequence_stays_as_it_is(how: str) -> None:
    text = f"a{SEQUENCES[how]}b"
    for shown in (visible(text), one_line(text), _COLOUR.sub("", coloured(text))):
        assert _RAW.search(shown) is None, shown
        assert shown.startswith("a")
        assert shown.endswith("b")
    # What is written out inside JSON is the same JSON.
    assert json.loads(visible(json.dumps({"k": text}, ensure_ascii=False))) == {"k": text}


def test_i6_text_and_the_colours_of_an_output_stay() -> None:
    text = "tab\tline\nümläut 漢字 🧑‍🚀 ✓ نص"
    assert visible(text) == text
    assert visible("a\r\nb") == "a\nb"
    assert coloured("a \x1b[1;31mred\x1b[0m") == "a \x1b[1;31mred\x1b[0m\x1b[0m"
    assert visible("\x1b[31m") == "\\u001b[31m"
    assert one_line("a\nb") == "a\\nb"
    assert as_message("a\nb") == "a\n  | b"


def _steps(approve: str) -> list[dict[str, object]]:
    printed = "printf '%s\\n' \"$1\"; printf '%s\\n' \"$1\" >&2; exit $2"
    return [
        {"id": "good", "name": NAME, "run": ["sh", "-c", printed, "sh", HOSTILE, "0"]},
        {"id": "bad", "run": ["sh", "-c", printed, "sh", HOSTILE, "1"], "importance": "optional"},
        {"id": "asked", "run": ["true", HOSTILE], "approve": approve, "needs": ["good"]},
    ]


def _check(where: str, *texts: str, allowed: re.Pattern[str] = _COLOUR) -> None:
    for text in texts:
        left = allowed.sub("", text)
        raw = _RAW.search(left)
        assert raw is None, f"{where}: {raw[0]!r} in …{left[max(0, raw.start() - 80) : raw.end() + 20]!r}"
        assert "\n12:00:00 completed" not in left, f"{where}: a line of its own"
        assert "\nAllow it? [y]es" not in left.replace("\nAllow it? [y]es, [n]o, [l]ater: ", ""), where


_EACH = """
import json, sys
from windlass.cli.terminal import protect_streams
protect_streams()
from windlass.cli.app import run_app
for arguments in json.loads(sys.argv[1]):
    sys.argv = ["windlass", *arguments]
    try:
        run_app()
    except SystemExit:
        print("\\n=====", flush=True)
"""


def _told(project: Project, commands: list[list[str]]) -> list[str]:
    """What each command prints on both streams. One process runs them all: most of a command's time is its start."""
    ran = subprocess.run(
        [sys.executable, "-c", _EACH, json.dumps(commands)],
        env=project.env,
        cwd=project.path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=PATIENCE,
        check=True,
    )
    return ran.stdout.decode().split("\n=====\n")[:-1]


def test_c6_no_command_lets_a_sequence_through_or_a_line_pose_as_ours(project: Project, windlass: Windlass) -> None:
    plan = json.dumps({"name": NAME, "steps": _steps("always")})
    ran = windlass("run", project.plan(plan, "plan.json"), code=3)
    (execution,) = project.ids()
    _check("run", ran.out, ran.err)
    role = f"---\nname: odd\ndescription: {json.dumps('x' + HOSTILE.replace(chr(0), ''))}\n---\nDo it.\n"
    project.file(".claude/agents/odd.md", role)
    broken = project.plan(json.dumps({"name": "x", "steps": [{"id": "a", "run": "true", HOSTILE: 1}]}), "broken.json")
    program = project.file("odd.js", "return 1")
    windlass("tools", "save", "odd.tool", program, "--description", "plain words")
    (saved,) = [file for file in project.home.rglob("*") if file.is_file() and b"plain words" in file.read_bytes()]
    saved.write_text(saved.read_text().replace("plain words", json.dumps(HOSTILE)[1:-1]))
    commands = [
        ["status"],
        ["status", execution],
        ["status", execution, "--json"],
        ["list"],
        ["list", "--json"],
        ["logs", execution],
        ["approvals"],
        ["approvals", "--json"],
        ["watch", execution],
        ["plan", "show", "plan.json"],
        ["plan", "check", "plan.json"],
        ["plan", "check", broken],
        ["run", broken],
        ["agents"],
        ["status", HOSTILE],
        ["run", HOSTILE],
        ["no such command" + HOSTILE],
        ["tools"],
        ["tools", "show", "odd.tool"],
        ["tools", "show", HOSTILE],
        ["budget"],
        ["budget", "--by", HOSTILE],
        ["doctor"],
        ["doctor", "--json"],
        ["retry", execution, HOSTILE],
        ["--home", "other" + HOSTILE.replace(chr(0), "")[:40], "list"],
    ]
    for arguments, told in zip(commands, _told(project, commands), strict=True):
        assert told.strip(), arguments
        _check(" ".join(arguments)[:30], told, allowed=_NOTHING if "--json" in arguments else _COLOUR)
    told = windlass("logs", execution, "--json")
    _check("logs --json", told.out, allowed=_NOTHING)
    texts = [json.loads(line).get("text", "") for line in told.out.splitlines()]
    assert any(HOSTILE in text for text in texts), "a program gets exactly what was written"


def test_i1_the_live_view_is_drawn_and_an_output_keeps_its_colours(project: Project, windlass: Windlass) -> None:
    steps = [{"id": "a", "run": "printf 'in \\033[31mred\\033[0m\\n'; until [ -e go ]; do sleep 0.05; done"}]
    terminal = windlass.terminal("run", project.plan(json.dumps({"name": "fine", "steps": steps}), "plan.json"))
    terminal.expect("red")
    (project.path / "go").touch()
    shown = terminal.ended().err
    assert "\\u001b" not in shown
    assert "\x1b[2K" in shown, "it draws over what it drew before"
    assert re.search(r"\x1b\[[0-9;]*31m *red", shown)


def test_c6_the_live_view_and_its_question_cannot_be_drawn_over(project: Project, windlass: Windlass) -> None:
    plan = json.dumps({"name": NAME, "steps": _steps("always")})
    terminal = windlass.terminal("run", project.plan(plan, "plan.json"))
    terminal.expect("Allow it? [y]es, [n]o, [l]ater")
    terminal.type("y\n")
    ran = terminal.ended()
    _check("the terminal", ran.err.replace("\r\n", "\n"), allowed=_DRAWING)
    _check("stdout", ran.out)
    assert "\x1b[8m" not in ran.err
    assert "\x1b[?1049h" not in ran.err
