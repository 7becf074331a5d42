"""A question in the live view: the tree goes on above it, what is typed stays, the terminal is as before (I1, C6)."""

from __future__ import annotations

import os
import pty
import signal
import sys
import termios
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from test_live_rows import drawn, quick
from waiting import wait_until

import windlass as wl
from windlass.cli.prompt import TypedLine, keys_unechoed
from windlass.cli.view import LiveView

if TYPE_CHECKING:
    from conftest import Project, Terminal, Windlass

ASKING = """
name: both
steps:
  - {id: asked, name: Send it off, run: echo sent >> ran, approve: always}
  - {id: beside, run: "until [ -e go ]; do sleep 0.05; done"}
"""


@pytest.fixture
def asked(project: Project, windlass: Windlass) -> Terminal:
    """A terminal of 24 rows and 60 columns with an open question, while another step runs."""
    terminal = windlass.terminal("run", project.plan(ASKING), LINES="24", COLUMNS="60", WINDLASS_GRACE="600")
    terminal.expect("Allow it? [y]es, [n]o, [l]ater:")
    assert not terminal.echoes
    return terminal


def test_i1_a_step_ends_in_sight_while_an_answer_is_typed_and_the_typed_text_stays(
    project: Project, asked: Terminal
) -> None:
    assert "Step asked (Send it off) asks to run shell" in asked.shown
    asked.type("yex\x7f")
    asked.expect("[l]ater: ye")
    assert "✓ beside" not in asked.shown
    (project.path / "go").touch()
    asked.expect("✓ beside")
    assert project.lines("ran") == []
    wait_until(lambda: "[l]ater: ye" in asked.shown.partition("✓ beside")[2], "the answer so far is drawn again")
    asked.type("s\n")
    ran = asked.ended()
    assert ran.code == 0, ran
    assert project.lines("ran") == ["sent"]
    assert "Step asked (Send it off) asks to run shell: yes" in ran.err, "the answer stays on the screen"
    assert asked.echoes
    assert ran.err.rpartition("\x1b[?25")[2].startswith("h"), "the cursor is shown"


def test_i1_the_end_of_input_decides_later(project: Project, asked: Terminal) -> None:
    (project.path / "go").touch()
    asked.type("\x04")
    assert asked.ended().code == 3
    assert asked.echoes
    assert project.lines("ran") == []


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_d3_an_interrupt_at_an_open_question_leaves_the_terminal_as_it_was(
    project: Project, asked: Terminal, how: str
) -> None:
    asked.type("ye")
    asked.expect("[l]ater: ye")
    if how == "Ctrl-C":
        asked.type("\x03")
    else:
        os.kill(asked.process.pid, signal.SIGTERM)
    ran = asked.ended()
    assert ran.code == 130, ran
    assert asked.echoes
    assert project.lines("ran") == []


def test_i1_stopped_and_continued_it_reads_keys_again(project: Project, asked: Terminal) -> None:
    """As after Ctrl-Z and `fg`: the shell has given the terminal its own settings in between."""
    (project.path / "go").touch()
    os.kill(asked.process.pid, signal.SIGSTOP)
    asked.reset()
    assert asked.echoes
    os.kill(asked.process.pid, signal.SIGCONT)
    wait_until(lambda: not asked.echoes)
    asked.type("y\n")
    assert asked.ended().code == 0
    assert asked.echoes


def test_i1_a_watch_that_is_ended_shows_the_cursor_again(project: Project, windlass: Windlass) -> None:
    windlass("run", project.plan("steps: [{id: beside, run: 'until [ -e go ]; do sleep 0.05; done'}]"), "--detach")
    terminal = windlass.terminal("watch", "@last")
    terminal.expect("▶ beside")
    os.kill(terminal.process.pid, signal.SIGTERM)
    ran = terminal.ended()
    assert ran.code == 130, ran
    assert "No longer watching; the execution continues" in ran.err
    assert ran.err.rpartition("\x1b[?25")[2].startswith("h"), "the cursor is shown"
    (project.path / "go").touch()
    windlass("watch", "@last", "--exit-status")


def test_d3_a_second_ctrl_c_that_ends_it_at_once_leaves_the_terminal_as_it_was(
    project: Project, windlass: Windlass
) -> None:
    deaf = "trap '' TERM; touch deaf; while :; do sleep 1; done"
    plan = project.plan(ASKING.replace("until [ -e go ]; do sleep 0.05; done", deaf))
    terminal = windlass.terminal("run", plan, WINDLASS_GRACE="600")
    terminal.expect("Allow it?")
    terminal.expect("▶ beside")
    terminal.type("\x03")
    terminal.expect("press Ctrl-C again to quit now")
    terminal.type("\x03")
    ran = terminal.ended()
    assert ran.code == 130
    assert terminal.echoes
    assert ran.err.rpartition("\x1b[?25")[2].startswith("h")


def test_c6_what_was_typed_for_one_question_is_no_answer_to_the_next(project: Project, windlass: Windlass) -> None:
    plan = project.plan("steps: [{id: each, run: 'echo {{ item }} >> ran', foreach: [a, b], approve: always}]")
    terminal = windlass.terminal("run", plan)
    terminal.expect("Step each[0] asks to run shell")
    terminal.expect("(+1 question)")
    terminal.type("y")
    terminal.expect("[l]ater: y")
    windlass("approve", project.ids()[0], "each[0]")
    terminal.expect("Step each[1] asks to run shell with exactly:")
    terminal.type("\n")
    assert terminal.ended().code == 3
    assert project.lines("ran") == ["a"]


@pytest.mark.parametrize("view", ["plain", "quiet", "tty"])
def test_c6_keys_that_are_typed_ahead_answer_no_question(project: Project, windlass: Windlass, view: str) -> None:
    plan = """
        steps:
          - {id: first, run: "echo >> begun; until [ -e go ]; do sleep 0.05; done"}
          - {id: asked, needs: [first], run: echo sent >> ran, approve: always}
        """
    terminal = windlass.terminal("run", project.plan(plan), "--progress", view)
    wait_until(lambda: project.lines("begun"))
    terminal.type("y\ny\n")
    (project.path / "go").touch()
    terminal.expect("Allow it?")
    terminal.type("n\n")
    assert terminal.ended().code == 1
    assert project.lines("ran") == []


def test_c6_the_name_of_a_step_cannot_draw_over_its_question(project: Project, windlass: Windlass) -> None:
    name = r"evil\e[3A\e[2Kname\nwindlass: all fine"
    terminal = windlass.terminal(
        "run", project.plan(f'steps: [{{id: a, name: "{name}", run: "true", approve: always}}]')
    )
    terminal.expect("Allow it?")
    terminal.type("y\n")
    shown = terminal.ended().err
    assert "asks to run shell: y" in shown
    assert not any(line.startswith("windlass: all fine") for line in shown.splitlines())
    assert "\x1b[3A\x1b[2Kname" not in shown


def test_i1_an_error_while_a_question_is_open_leaves_the_cursor_shown(project: Project, asked: Terminal) -> None:
    for file in sorted(project.home.rglob("*"), reverse=True):
        file.rmdir() if file.is_dir() else file.unlink()
    project.home.rmdir()
    (project.path / "go").touch()
    ran = asked.ended()
    assert ran.code == 1, ran
    assert asked.echoes
    assert ran.err.rpartition("\x1b[?25")[2].startswith("h"), "the cursor is shown"


async def test_i1_the_question_is_whole_on_a_small_screen_and_on_a_tiny_one(project: Project) -> None:
    async with wl.open(tools=[quick]) as engine:
        steps = [wl.Step(id=f"s{number}", tool="quick", with_={"number": number}) for number in range(40)]
        execution = await engine.start(wl.Plan(name="many", steps=steps))
        await execution.result()
        view = LiveView()
        view.state = await engine.state(execution.id)
    line = TypedLine()
    line.take(b"12.50")
    title = "Step s0 (a name that goes on and on): the limit of $1.00 would be exceeded"
    view._question = title, "Continue with a total limit of $2.00? [y]es, [n]o, or another amount: ", line
    rows = [row.rstrip() for row in drawn(view, 60, 24)]
    assert len(rows) < 24
    assert max(map(len, rows)) <= 60
    assert "more steps" in rows[-4]
    assert rows[-3].startswith("Step s0 (a name that goes on")
    assert rows[-2:] == ["Continue with a total limit of $2.00? [y]es,", "[n]o, or another amount: 12.50"]
    assert [row.rstrip() for row in drawn(view, 60, 5)] == rows[-3:]
    line.take(b"7" * 100)
    assert drawn(view, 60, 24)[-1] == "[n]o, or another amount: " + "7" * 34
    line.take(b"\x15" + "本".encode() * 30)
    assert drawn(view, 60, 24)[-1].rstrip() == "[n]o, or another amount: " + "本" * 17, "they are two cells wide"


@pytest.mark.parametrize(
    ("keys", "text", "done"),
    [
        ([b"y\n"], "y", True),
        ([b"y\r"], "y", True),
        ([b"\x04"], "", True),
        ([b"y\x04"], "y", False),
        ([b""], "", True),
        ([b"ye", b""], "", True),
        ([b"no\b\x7fyes"], "yes", False),
        ([b"two words\x17", b"more\x15", b"y"], "y", False),
        ([b"a\x1b[A\x1b[1;5Cb\x1bOPc"], "abc", False),
        ([b"a\x1b", b"[", b"1;5", b"Ab"], "ab", False),
        ([b"y\x1b", b"\n"], "y", True),
        (["ü".encode()[:1], "ü".encode()[1:]], "ü", False),
        ([b"\xff\x00\x07y"], "y", False),
        ([b"y\nn\n"], "y", True),
        ([b"1" * 2000], "1" * 500, False),
    ],
)
def test_i1_a_line_is_edited_as_people_expect(keys: list[bytes], text: str, done: bool) -> None:
    line = TypedLine()
    for data in keys:
        line.take(data)
    assert (line.text, line.done) == (text, done)


@pytest.fixture
def terminal_settings(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """A terminal as stdin of this process."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield theirs
    os.close(ours)


def test_i1_an_error_while_keys_are_read_leaves_the_terminal_as_it_was(terminal_settings: int) -> None:
    before = termios.tcgetattr(terminal_settings)

    def fail() -> None:
        with keys_unechoed():
            assert not termios.tcgetattr(terminal_settings)[3] & termios.ECHO
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert termios.tcgetattr(terminal_settings) == before
