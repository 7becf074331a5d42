"""Progress while an execution runs: a live tree on a terminal, plain lines in a log, raw events for programs.

Every view is fed with the journal's entries and keeps its own fold of them; none of them knows whether the
execution runs in this process or in another.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from windlass.cli.session import say
from windlass.cli.terminal import as_message, coloured, write_output
from windlass.cli.text import MARKS, at_time, cost_text, describe, duration, items_text, plural
from windlass.core import events as ev
from windlass.core.agent import Cost
from windlass.core.state import State, StepState, fold
from windlass.core.transitions import ExecutionStatus, StepStatus
from windlass.core.view import progress, shows_progress, waits_because, whole_percent
from windlass.ports import Entry
from windlass.visible import one_line

if TYPE_CHECKING:
    from rich.console import Group
    from rich.text import Text

    from windlass.cli.prompt import TypedLine
    from windlass.core.forecast.value import Forecast

__all__ = ["Progress", "View", "view_for"]

_MOST_ROWS = 30
_OTHER_ROWS = 4
"""Rows of the screen that are not for steps: the headline of up to two, the count of hidden steps, the cursor."""
_ANSWER = 12
"""Columns that a question leaves for what is typed."""
_NARROW = 90
"""Columns below which the headline has a shorter bar, and a second row for the forecast and the execution's id."""
_FAILED_ALIKE = 3
"""Failures with the same message that a log has a line for; the others are counted."""
_LONG_LINE = 160
"""Characters of an agent's line after which its words are shown before it is whole."""
_WORTH_A_LINE = 10.0
"""Seconds left from which a log has lines with forecasts."""
_FORETELL_AGAIN = 60.0
"""Seconds after which a log has another line with a forecast."""
_OLD_LINE = 2.0
"""Seconds after which they are."""
_STYLES = {
    StepStatus.RUNNING: "cyan",
    StepStatus.WAITING: "yellow",
    StepStatus.PAUSED: "yellow",
    StepStatus.COMPLETED: "green",
    StepStatus.FAILED: "red",
    StepStatus.SKIPPED: "dim",
    StepStatus.PENDING: "dim",
}


class Progress(StrEnum):
    AUTO = "auto"
    TTY = "tty"
    PLAIN = "plain"
    QUIET = "quiet"
    RAWJSON = "rawjson"


def view_for(mode: Progress) -> View:
    if mode is Progress.AUTO:
        mode = Progress.TTY if sys.stderr.isatty() else Progress.PLAIN
    match mode:
        case Progress.TTY:
            live = LiveView()
            return live if live.draws or not sys.stderr.isatty() else PlainView()
        case Progress.PLAIN:
            return PlainView()
        case Progress.RAWJSON:
            return RawView()
        case _:
            return View()


class View:
    """Shows nothing; the base of the other views."""

    state: State | None = None
    since = 0
    """Events up to this sequence are known already and not shown again."""
    forecast: Forecast | None = None
    first: Forecast | None = None
    """The first forecast of this execution that was shown."""
    says_no_space = True
    """It has not said yet that steps wait for disk space."""
    foretells = False
    """It shows forecasts."""

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_error: object) -> None:
        """Nothing to put back."""

    def take(self, entry: Entry) -> None:
        if self.state is None:
            self.state = fold([entry.event])
        else:
            self.state.apply(entry.event)
        if entry.seq > self.since:
            self.show(entry, self.state)

    def show(self, entry: Entry, state: State) -> None:
        """Quiet, but for a wait that only a person can end."""
        match entry.event:
            case ev.OutputWritten(step=step, stream="wait.place", text=text) if text.startswith(ev.NO_SPACE):
                if self.says_no_space:
                    say(f"{step}: {text.rstrip()}")
                    self.says_no_space = False

    def foretell(self, forecast: Forecast) -> None:
        """Take the newest forecast of the execution."""
        self.forecast, self.first = forecast, self.first or forecast

    async def ask(self, about: Sequence[str], title: str, prompt: str) -> str:
        """Show a question to the person at the terminal and give the line that is typed; `title` names it shortly."""
        from windlass.cli.prompt import forget_typed, read_line

        for line in about:
            say(line)
        forget_typed()
        sys.stderr.write(prompt)
        sys.stderr.flush()
        return await read_line()


class RawView(View):
    def show(self, entry: Entry, state: State) -> None:
        body = ev.encode(entry.event).decode()
        head = f'{{"execution":"{entry.execution}","seq":{entry.seq},'
        sys.stderr.write(head + body[1:] + "\n")
        sys.stderr.flush()


class PlainView(View):
    """Lines for a log. An agent's words come in pieces: a line is written when it is whole, or long, or old."""

    foretells = True

    def __init__(self) -> None:
        self._foretold: tuple[int, float] = (-1, 0.0)
        """The quarter of the way, and the time, of the last line with a forecast."""
        self._begun: dict[tuple[str, str], str] = {}
        """The beginnings of lines, by step and stream."""
        self._since: dict[tuple[str, str], float] = {}
        """The times of the first words in them."""
        self._alike: dict[tuple[type[ev.Event], str], int] = {}
        """Failures of items and of their attempts, by their message."""

    def show(self, entry: Entry, state: State) -> None:
        event = entry.event
        clock = time.strftime("%H:%M:%S", time.localtime(event.at))
        if isinstance(event, ev.OutputWritten):
            key = (event.step, event.stream)
            if event.stream == "note" and (said := self._begun.pop((event.step, "agent"), "")):
                self._since.pop((event.step, "agent"), None)
                self._output(clock, event.step, said)  # the words of the agent come before a remark about them
            *whole, rest = (self._begun.pop(key, "") + event.text).split("\n")
            for line in whole:
                self._output(clock, event.step, line)
            if whole:
                self._since.pop(key, None)
            waited = event.at - self._since.setdefault(key, event.at)
            if event.stream == "agent" and (len(rest) >= _LONG_LINE or waited >= _OLD_LINE):
                words, space, rest = rest.rpartition(" ")
                if space:
                    self._output(clock, event.step, words)
                    del self._since[key]
            if rest:
                self._begun[key] = rest
            return
        text = describe(event, state)
        if isinstance(event, ev.AttemptFailed | ev.StepFailed) and self._is_one_of_many(event, state):
            return
        if text is not None:
            self._finish_lines(getattr(event, "step", None), clock)
            settled = isinstance(event, ev.AttemptFinished | ev.StepFailed | ev.StepSkipped | ev.StepCompleted)
            percent = f"[{whole_percent(progress(state)):3d}%] " if settled else ""
            self._write(f"{clock} {percent}{text}")

    def foretell(self, forecast: Forecast) -> None:
        """Write a forecast when it is the first in a quarter of the way, and after a while."""
        super().foretell(forecast)
        quarter, at = self._foretold
        now, done = time.time(), 100 * forecast.done
        if self.state is None or (int(done // 25) == quarter and now - at < _FORETELL_AGAIN):
            return
        left = forecast.left_at(now)
        if quarter < 0 and (left is None or left.middle < _WORTH_A_LINE):
            return
        if text := forecast.text(now):
            self._foretold = (int(done // 25), now)
            clock, percent = time.strftime("%H:%M:%S", time.localtime(now)), whole_percent(progress(self.state))
            self._write(f"{clock} {percent} %, {text}")

    def __exit__(self, *_error: object) -> None:
        clock = time.strftime("%H:%M:%S")
        self._finish_lines(None, clock)
        for (kind, message), count in self._alike.items():
            if count > _FAILED_ALIKE and kind is ev.StepFailed:
                self._write(f"{clock} ✗ {plural(count - _FAILED_ALIKE, 'more item')} failed with: {message}")

    def _is_one_of_many(self, event: ev.AttemptFailed | ev.StepFailed, state: State) -> bool:
        """Count a failure of an item; True if there were enough lines with its message."""
        if state.steps[event.step].parent is None:
            return False
        key = type(event), event.failure.message
        self._alike[key] = self._alike.get(key, 0) + 1
        return self._alike[key] > _FAILED_ALIKE

    def _finish_lines(self, step: str | None, clock: str) -> None:
        """Write the unfinished lines of a step (or of all) before another message about it."""
        for key in [key for key in self._begun if step is None or key[0] == step]:
            self._since.pop(key, None)
            self._output(clock, key[0], self._begun.pop(key))

    def _output(self, clock: str, step: str, line: str) -> None:
        write_output(sys.stderr, f"{clock}   {step} | ", line)
        sys.stderr.flush()

    def _write(self, text: str) -> None:
        sys.stderr.write(as_message(text) + "\n")
        sys.stderr.flush()


class LiveView(View):
    """A tree of the steps that is drawn again ten times a second."""

    foretells = True

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live

        # By name: while it draws, Rich puts a proxy in the place of stderr, and would find the strict stream in it.
        stream = getattr(sys.stderr, "rich_proxied_file", sys.stderr)
        self._live = Live(console=Console(file=stream), refresh_per_second=10, get_renderable=self._draw)
        self._question: tuple[str, str, TypedLine] | None = None
        """The title of the open question, its prompt, and the answer as far as it is typed."""

    @property
    def draws(self) -> bool:
        """The terminal lets it draw again what it drew before."""
        return self._live.console.is_interactive

    def __enter__(self) -> View:
        self._live.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._live.stop()

    async def ask(self, about: Sequence[str], title: str, prompt: str) -> str:
        """Print what it is about above the tree, and read the answer below it; the tree goes on."""
        from rich.text import Text

        from windlass.cli.prompt import TypedLine, keys_unechoed, read_keys

        console, line = self._live.console, TypedLine()
        with keys_unechoed():
            # Soft: an argument is shown exactly as it is, not broken at its spaces.
            console.print(Text("\n".join(map(as_message, about))), soft_wrap=True)
            self._question = title, prompt, line
            console.show_cursor(True)
            try:
                answer = await read_keys(line, self._live.refresh)
                console.print(Text(f"{one_line(title)}: {one_line(answer)}", style="dim"), soft_wrap=True)
            finally:
                self._question = None
                console.show_cursor(not self._live.is_started)  # an error may have ended the view before
        return answer

    def _draw(self) -> Group | Text:
        from rich.console import Group
        from rich.text import Text

        state = self.state
        if state is None:
            return Text("…")
        width, height = self._live.console.size
        asked = self._asked(state, width)
        height -= len(asked)
        if asked and height < _OTHER_ROWS + 1:
            return Group(*asked)
        rows = _rows(state, min(_MOST_ROWS, max(height - _OTHER_ROWS, 1)))
        lines = [_line(step, width) for step in rows]
        hidden = sum(1 + len(s.children or ()) for s in state.top_level()) - len(rows)
        if hidden > 0:
            lines.append(Text(f"  … and {hidden} more steps", style="dim"))
        return Group(_headline(state, self.forecast, width), *lines, *asked)

    def _asked(self, state: State, width: int) -> list[Text]:
        """The rows of the open question; the last ends with what was typed, where the cursor is."""
        from rich.cells import cell_len
        from rich.text import Text

        if (question := self._question) is None:
            return []
        title, prompt, line = question
        others = len(state.questions) - 1
        more = f"  (+{others} {'question' if others == 1 else 'questions'})" if others > 0 else ""
        head = Text(one_line(title), style="yellow bold")
        head.truncate(max(width - len(more), 10), overflow="ellipsis")
        rows = [head.append(more, style="dim")]
        rows += Text(prompt.strip()).wrap(self._live.console, max(width - _ANSWER, 10))
        typed, room = one_line(line.text), max(width - rows[-1].cell_len - 2, 1)
        while cell_len(typed) > room:
            typed = typed[1:]
        rows[-1].append(f" {typed}")
        return rows


def _headline(state: State, forecast: Forecast | None, width: int) -> Text:
    """One row, or two where the screen is narrow; what does not fit is cut off at the end."""
    from rich.text import Text

    narrow = width < _NARROW
    elapsed = duration(state.worked(time.time()))
    done = progress(state)
    length = 8 if narrow else 20
    bar = "━" * round(done * length / 100) + "─" * (length - round(done * length / 100))
    text = Text(no_wrap=True, overflow="ellipsis")
    name = Text(one_line(state.plan.name), style="bold")
    name.truncate(max(width // 4, 8), overflow="ellipsis")
    text.append_text(name)
    part = f"{bar} {whole_percent(done)}%  " if shows_progress(state) else ""
    text.append(f"  {state.status}  {part}{elapsed}", style="cyan")
    text.append("\n  " if narrow else "  ")
    ahead = forecast.text(time.time()) if forecast is not None and state.status is ExecutionStatus.RUNNING else ""
    if ahead:
        text.append(f"{ahead}  ", style="cyan")
    if (cost := state.cost) != Cost() and not (ahead and forecast is not None and forecast.usd is not None):
        text.append(f"{cost_text(cost)}  ", style="magenta")
    text.append(state.id, style="dim")
    return text


def _rows(state: State, most: int) -> list[StepState]:
    """The steps worth their line: all if they fit, else those that move, with the steps that they are items of.

    Then come failed ones, and the newest settled.
    """
    every = [row for step in state.top_level() for row in (step, *(step.children or ()))]
    if len(every) <= most:
        return every
    chosen = sorted(every, key=lambda step: (_rank(step), -(step.finished_at or 0.0)))[:most]
    keep = {id(step) for step in chosen}
    return [step for step in every if id(step) in keep]


def _rank(step: StepState) -> int:
    """Low for what must be in sight."""
    if step.status in (StepStatus.RUNNING, StepStatus.WAITING, StepStatus.PAUSED):
        return 0 if step.children else 1
    return {StepStatus.FAILED: 2, StepStatus.PENDING: 4}.get(step.status, 3)


def _line(step: StepState, width: int) -> Text:
    from rich.text import Text

    indent = "    " if step.parent is not None else "  "
    text = Text(indent + MARKS[step.status] + " ", style=_STYLES[step.status])
    text.append(one_line(step.spec.name or step.id if step.parent is None else step.id))
    if step.started_at is not None:
        ended = step.finished_at if step.finished_at is not None else time.time()
        text.append(f"  {duration(max(0.0, ended - step.started_at))}", style="dim")
    if step.children:
        text.append(items_text(step), style="dim")
    if step.attempts > 1:
        text.append(f"  attempt {step.attempts}", style="yellow")
    remark = _remark(step)
    if remark:
        room = max(10, width - text.cell_len - 4)
        words = " ".join(remark.split())
        if step.open_line and remark == step.last_output and len(words) > room:
            words = f"…{words[1 - room :]}"  # text that is still coming shows its end
        shown = Text.from_ansi(coloured(words), style="dim", end="")
        shown.truncate(room, overflow="ellipsis")
        text.append("  ").append_text(shown)
    text.no_wrap = True
    return text


def _remark(step: StepState) -> str:
    match step.status:
        case StepStatus.WAITING if step.waiting_for == "retry" and step.until is not None:
            wait = duration(max(0.0, step.until - time.time()))
            if step.gives_up_at is not None:
                return f"{step.question}, next try in {wait}, gives up at {at_time(step.gives_up_at)}"
            reason = step.error.message if step.error else ""
            return f"retries in {wait}: {reason}"
        case StepStatus.WAITING if step.until is not None and step.waiting_for != "approval":
            return f"waiting {duration(max(0.0, step.until - time.time()))} for {step.waiting_for}: {step.question}"
        case StepStatus.WAITING:
            return f"waiting for {step.waiting_for}"
        case StepStatus.FAILED if step.error is not None:
            return step.error.message
        case StepStatus.SKIPPED:
            return step.skipped_because or ""
        case StepStatus.RUNNING | StepStatus.COMPLETED:
            return waits_because(step) or step.last_output
        case _:
            return ""
