"""Work of an agent as its journal shows it, for the agent that takes over (K7). Pure.

`hand_over` tells the work of a step's earlier attempts from its events, for an attempt that cannot go on in their
conversation. `work_done` is the short form for the next step of a chain, from what the state keeps of every call.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from windlass.core import events as ev
from windlass.core.agent import AgentState
from windlass.core.call_summary import call_summary
from windlass.runtimes import RUNTIMES

__all__ = ["LONGEST_HANDOVER", "hand_over", "note_work", "work_done"]

LONGEST_HANDOVER = 8 * 1024
"""Bytes of a hand-over: enough to go on with, little beside the task."""
LONGEST_LINE = 400
LONGEST_TEXT = 1600
"""Characters of one of the agent's replies, and of a summary."""
MOST_KEPT = 40
"""Files, and commands, that a step's state keeps for the steps after it."""
MOST_COMMANDS = 12
"""Commands that the next step of a chain is told of."""


def _names(*kinds: str) -> frozenset[str]:
    tables = [table for row in RUNTIMES.values() for table in (row.tools, row.also_does)]
    return frozenset(name.lower() for table in tables for kind in kinds for name in table.get(kind, "").split())


_WRITES = _names("write", "edit", "notebook") | {"apply_patch", "multiedit", "patch"}
_SHELLS = _names("shell")
_PATHS = ("file_path", "filePath", "notebook_path", "path", "target", "to")
_COMMANDS = ("command", "line")


def file_of(event: ev.AgentActed) -> str:
    """The file that this use of a tool changes; empty for any other use."""
    return _argument(event, _PATHS) if event.tool.lower() in _WRITES else ""


def command_of(event: ev.AgentActed) -> str:
    """The command that this use of a tool runs, on one line; empty for any other use."""
    return _argument(event, _COMMANDS) if event.tool.lower() in _SHELLS else ""


def _argument(event: ev.AgentActed, names: Sequence[str]) -> str:
    given = event.input if isinstance(event.input, Mapping) else {}
    found = next((value for name in names if isinstance(value := given.get(name), str) and value.strip()), "")
    return _line(found or event.summary)


def _line(text: str, longest: int = LONGEST_LINE) -> str:
    line = " ".join(text[: longest * 8].split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _cut(text: str, longest: int = LONGEST_TEXT) -> str:
    """Text without its middle, where it is too long."""
    text = text.strip()
    half = longest // 2
    return text if len(text) <= longest else f"{text[:half].rstrip()} […] {text[-half:].lstrip()}"


_SECTIONS = (
    "A person said to the agent",
    "Attempts",
    "Summary of the older part of the conversation",
    "Files written",
    "Commands run",
    "Other calls",
    "Said by the agent",
    "Left open",
)
_TOLD, _ATTEMPTS, _SUMMARY, _FILES, _COMMANDS_RUN, _OTHERS, _SAID, _OPEN = range(len(_SECTIONS))
_MUST, _FAILED, _DONE, _MINOR = range(4)
"""Ranks: the lowest are kept first, within one rank the newest."""


class _HandoffEntry(NamedTuple):
    section: int
    rank: int
    text: str


def hand_over(history: Iterable[ev.Event], limit: int = LONGEST_HANDOVER) -> str:
    """Tell the work of a step from its own events; empty if no agent did any.

    Attempts before a retry that begins anew (`fresh`) are left out, and those of a step that was completed and is done
    again in a fork. People's words, failures and the newest are kept
    first, where not everything fits.
    """
    builder = _HandoffBuilder()
    for event in history:
        if isinstance(event, ev.AttemptFinished) or (isinstance(event, ev.StepRetried) and event.fresh):
            builder = _HandoffBuilder()
        else:
            builder.add(event)
    entries = builder.entries()
    return _render(entries, limit) if builder.worked else ""


def note_work(agent: AgentState, event: ev.AgentActed) -> None:
    """Keep the file or command of this use in the agent's state, the newest last."""
    for kept, name in ((agent.files, file_of(event)), (agent.commands, command_of(event))):
        if name:
            kept.pop(name, None)
            kept[name] = None
            if len(kept) > MOST_KEPT:
                del kept[next(iter(kept))]


def work_done(agents: Iterable[AgentState], changed: Sequence[str] | None = None) -> str:
    """Name the files that these agents changed and the commands that they ran last; empty if there are none.

    `changed` is the record of the files; without one, it is the files that their calls say that they wrote.
    """
    files: dict[str, None] = {}
    commands: dict[str, None] = {}
    for agent in agents:
        files |= agent.files
        commands |= agent.commands
    of_files = ("Files written", files) if changed is None else ("Files changed", dict.fromkeys(changed))
    parts = ((*of_files, MOST_KEPT), ("Commands run", commands, MOST_COMMANDS))
    return "\n".join(_listed(heading, list(names), most) for heading, names, most in parts if names)


def _listed(heading: str, names: list[str], most: int) -> str:
    left_out = [f"- ({len(names) - most} left out)"] if len(names) > most else []
    return "\n".join([f"{heading}:", *left_out, *(f"- {name}" for name in names[-most:])])


class _HandoffBuilder:
    """The events of a step, gathered by what the next agent asks: done, failed, open."""

    def __init__(self) -> None:
        self.worked = False
        self._runtime: dict[int, str] = {}
        self._entries: dict[object, _HandoffEntry] = {}
        """By what it is about, the newest last: a file written twice and a command run twice are one entry each."""
        self._calls: dict[tuple[int, str], ev.AgentActed] = {}
        """Uses whose result is not known."""
        self._results: set[int] = set()
        """Attempts whose journal has results: in older ones, a use without a result says nothing."""
        self._text: dict[int, str] = {}
        """Text as it was streamed, for attempts without whole replies."""
        self._asked: dict[str, ev.ApprovalAsked] = {}

    def _put(self, key: object, section: int, rank: int, text: str) -> None:
        self._entries.pop(key, None)
        self._entries[key] = _HandoffEntry(section, rank, text)

    def add(self, event: ev.Event) -> None:
        match event:
            case ev.AgentBegan():
                model = f", model {event.model}" if event.model else ""
                self._runtime[event.attempt] = f"{event.attempt} (on {event.runtime}{model})"
                self._put(("attempt", event.attempt), _ATTEMPTS, _DONE, f"{self._runtime[event.attempt]}: broke off")
            case ev.AgentActed():
                self._acted(event)
            case ev.AgentReturned():
                self._returned(event)
            case ev.AgentSpoke(text=text) if text.strip():
                self._text[event.attempt] = ""
                self._put(("said", len(self._entries), text), _SAID, _MINOR, text)
            case ev.OutputWritten(stream="agent"):
                self._text[event.attempt] = (self._text.get(event.attempt, "") + event.text)[-LONGEST_TEXT * 4 :]
            case ev.AgentSummarised(text=text) if text.strip():
                self._put("summary", _SUMMARY, _FAILED, _cut(text, LONGEST_TEXT * 2))
            case ev.AgentTold():
                self._put(("told", event.id), _TOLD, _MUST, f"{event.by or 'somebody'}: {_cut(event.text)}")
            case ev.ApprovalAsked():
                self._asked[event.digest] = event
            case ev.ApprovalAnswered(allow=False) if (asked := self._asked.get(event.digest)) is not None:
                note = f": {event.note}" if event.note else ""
                self._put(("denied", event.digest), _OPEN, _FAILED, f"denied: {_use(asked.tool, asked.input)}{note}")
            case ev.AttemptFailed() | ev.AttemptStopped():
                self._ended(event)
            case _:
                pass

    def _ended(self, event: ev.AttemptFailed | ev.AttemptStopped) -> None:
        name = self._runtime.get(event.attempt, f"{event.attempt}")
        text = self._text.pop(event.attempt, "")
        if text.strip():
            self._put(("said", len(self._entries), text), _SAID, _MINOR, text)
        if isinstance(event, ev.AttemptFailed):
            line = f"{name}: failed: {_line(event.failure.message)}"
        else:
            line = f"{name}: {'cut off by a crash' if event.reason == 'lost' else f'stopped ({event.reason})'}"
        rank = _MUST if isinstance(event, ev.AttemptFailed) else _DONE
        self._put(("attempt", event.attempt), _ATTEMPTS, rank, line)

    def _acted(self, event: ev.AgentActed) -> None:
        self.worked = True
        self._calls[event.attempt, event.call or f"#{len(self._calls)}"] = event
        if path := file_of(event):
            self._put(("file", path), _FILES, _DONE, path)
        elif command := command_of(event):
            self._put(("command", command), _COMMANDS_RUN, _DONE, command)
        else:
            line = _use(event.tool, event.input, event.summary)
            self._put(("call", line), _OTHERS, _MINOR, line)

    def _returned(self, event: ev.AgentReturned) -> None:
        self._results.add(event.attempt)
        use = self._calls.pop((event.attempt, event.call), None)
        if use is None:
            return
        lines = [line for line in event.text.splitlines() if line.strip()]
        last = _line(lines[-1], LONGEST_LINE // 2) if lines else ""
        if command := command_of(use):
            said = " / ".join(_line(line, LONGEST_LINE // 3) for line in lines[-3:])
            outcome = f"failed: {said}" if event.failed else f"worked: {last}" if last else "worked"
            rank = _FAILED if event.failed else _DONE
            self._put(("command", command), _COMMANDS_RUN, rank, f"{command} → {outcome}")
        elif path := file_of(use):
            if event.failed:
                self._put(("file", path), _FILES, _FAILED, f"{path}: not written, it failed: {last}")
        elif event.failed:
            line = _use(use.tool, use.input, use.summary)
            self._put(("call", line), _OTHERS, _FAILED, f"{line} → failed: {last}")

    def entries(self) -> list[_HandoffEntry]:
        found = list(self._entries.values())
        found += [_HandoffEntry(_SAID, _MINOR, text) for text in self._text.values() if text.strip()]
        replies = [number for number, entry in enumerate(found) if entry.section == _SAID]
        for number in replies:
            last = number == replies[-1]
            longest = LONGEST_TEXT if last else LONGEST_LINE
            found[number] = _HandoffEntry(_SAID, _MUST if last else _MINOR, _cut(found[number].text, longest))
        for (attempt, _), use in self._calls.items():
            if attempt in self._results:
                line = _use(use.tool, use.input, use.summary)
                found.append(_HandoffEntry(_OPEN, _FAILED, f"begun, result unknown: {line}"))
        self.worked = self.worked or bool(replies)
        return found


def _use(tool: str, input: Any, summary: str = "") -> str:
    given = summary or (call_summary(input) if isinstance(input, Mapping) else "")
    return _line(f"{tool} {given}".rstrip())


def _render(entries: Sequence[_HandoffEntry], limit: int) -> str:
    """The entries that fit, by section, each section in the order of the journal."""
    used = sum(len(heading) + 40 for heading in _SECTIONS)  # a heading, and the line that says what is left out
    order = sorted(range(len(entries)), key=lambda number: (entries[number].rank, -number))
    kept: set[int] = set()
    for number in order:
        size = len(_bullet(entries[number].text).encode("utf-8", "replace")) + 1
        if used + size <= limit:
            kept.add(number)
            used += size
    lines: list[str] = []
    for section, heading in enumerate(_SECTIONS):
        of_section = [number for number, entry in enumerate(entries) if entry.section == section]
        if not of_section:
            continue
        lines.append(f"{heading}:")
        if left_out := sum(number not in kept for number in of_section):
            lines.append(f"- ({left_out} left out)")
        lines += [_bullet(entries[number].text) for number in of_section if number in kept]
    return "\n".join(lines)


def _bullet(text: str) -> str:
    return "- " + re.sub(r"\r\n?|\n", "\n  ", text)
