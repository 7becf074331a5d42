"""The transcript of an agent: prompts, replies, calls and results, questions and messages, from the journal (K8).

`Transcript.take` is given the events of an execution in their order and gives the entries of one step, so the same code
serves a finished conversation and one that is followed. Replies of a model and results of tools are recorded whole
(`agent.spoke`, `agent.returned`). For a reply that broke off, and in journals of earlier versions, the pieces that
were shown stand for it.
"""

from __future__ import annotations

import json
import re
from typing import Any, Literal, TypeAlias

import msgspec

from windlass.core import events as ev
from windlass.core.agent_events import token_change
from windlass.core.budget import money
from windlass.core.call_summary import call_summary

__all__ = ["Transcript", "TranscriptEntry", "as_markdown"]

EntryKind: TypeAlias = Literal[
    "prompt",
    "reply",
    "usage",
    "call",
    "result",
    "question",
    "answer",
    "message",
    "heard",
    "check",
    "summary",
    "note",
    "end",
]


class TranscriptEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One entry. Which fields are set depends on its kind."""

    seq: int
    """Its place in the journal; a reply that broke off has the place of the event that ended it."""
    at: float
    step: str
    attempt: int
    kind: EntryKind
    text: str = ""
    system: str = ""
    thinking: str = ""
    runtime: str = ""
    role: str = ""
    model: str = ""
    session: str | None = None
    tool: str = ""
    call: str = ""
    input: Any = None
    failed: bool = False
    partial: bool = False
    """A reply that broke off."""
    file: str = ""
    """The whole input or result, below the execution's artifacts, where it is too big for the journal."""
    size: int = 0
    by: str = ""
    how: str = ""
    ids: tuple[str, ...] = ()
    tokens: tuple[int | None, int | None] | None = None
    """Tokens of a conversation before and after a summary."""
    usage: ev.Usage | None = None


class Transcript:
    """Makes the entries of one step, or of all items of a foreach."""

    def __init__(self, step: str) -> None:
        self._step = step
        self._spoken: dict[str, list[str]] = {}
        """By step, the pieces of text that no whole reply has repeated yet."""

    def take(self, seq: int, event: ev.Event) -> list[TranscriptEntry]:
        step = getattr(event, "step", None)
        if step is None or (step != self._step and step.partition("[")[0] != self._step):
            return []
        if isinstance(event, ev.OutputWritten):
            return self._output(seq, event)
        entry = self._entry(seq, event)
        if entry is None:
            return []
        pieces = self._spoken.pop(step, [])
        if entry.kind in ("reply", "usage") or not "".join(pieces).strip():
            return [entry]
        broken = TranscriptEntry(seq, event.at, step, entry.attempt, "reply", "".join(pieces).strip("\n"), partial=True)
        return [broken, entry]

    def _output(self, seq: int, event: ev.OutputWritten) -> list[TranscriptEntry]:
        if event.stream == "agent":
            self._spoken.setdefault(event.step, []).append(event.text)
        if event.stream not in ("note", "wait.model", "wait.place"):
            return []
        return [TranscriptEntry(seq, event.at, event.step, event.attempt, "note", event.text.rstrip("\n"))]

    def _entry(self, seq: int, event: Any) -> TranscriptEntry | None:
        if (found := _ENTRIES.get(type(event))) is None:
            return None
        kind, names = found
        fields: dict[str, Any] = {name: getattr(event, source) for name, source in names}
        match event:
            case ev.AgentSpoke(text="", thinking=""):
                kind = "usage"
            case ev.ApprovalAnswered():
                fields["how"] = "allowed" if event.allow else "denied"
            case ev.AgentTold():
                fields["ids"] = (event.id,)
            case ev.AgentSummarised():
                fields["tokens"] = (event.tokens_before, event.tokens_after)
            case ev.AgentChecked():
                fields |= {"text": _checks(event), "failed": not event.passed}
            case ev.AttemptFailed():
                fields |= {"text": event.failure.message, "failed": True}
            case ev.AttemptStopped():
                fields["failed"] = True
                if event.reason == "model":
                    fields["text"] = "the next model goes on"
        return TranscriptEntry(seq, event.at, event.step, getattr(event, "attempt", 0), kind, **fields)


def _names(text: str) -> list[tuple[str, str]]:
    return [(name, source or name) for name, _, source in (word.partition("=") for word in text.split())]


_ENTRIES: dict[type, tuple[EntryKind, list[tuple[str, str]]]] = {
    ev.AgentBegan: ("prompt", _names("text=prompt system runtime role model session")),
    ev.AgentSpoke: ("reply", _names("text thinking usage")),
    ev.AgentActed: ("call", _names("text=summary tool input call file")),
    ev.AgentReturned: ("result", _names("text tool call failed file size")),
    ev.ApprovalAsked: ("question", _names("text=question tool input")),
    ev.ApprovalAnswered: ("answer", _names("text=note by")),
    ev.AgentTold: ("message", _names("text by")),
    ev.AgentHeard: ("heard", _names("how ids")),
    ev.AgentChecked: ("check", []),
    ev.AgentSummarised: ("summary", _names("text how=by model usage")),
    ev.AttemptFailed: ("end", []),
    ev.AttemptStopped: ("end", _names("text=reason")),
    ev.AttemptFinished: ("end", []),
}
"""The kind of entry that an event makes, and its fields; `text=prompt` takes the event's `prompt` for the text."""


def as_markdown(entry: TranscriptEntry, system: str = "") -> str:
    """Give an entry as a block of Markdown. `system` is the system prompt that was shown before it."""
    match entry.kind:
        case "prompt":
            again = f", goes on with session {entry.session}" if entry.session else ""
            model = f", model {entry.model}" if entry.model else ""
            title = f"## {entry.step}, attempt {entry.attempt}: {entry.role} on {entry.runtime}{model}{again}\n"
            system = f"\n### System prompt\n\n{fenced(entry.system)}\n" if entry.system not in ("", system) else ""
            return f"{title}{system}\n### Prompt\n\n{fenced(entry.text)}\n"
        case "reply":
            thinking = f"\n### Thinking\n\n{fenced(entry.thinking)}\n" if entry.thinking else ""
            said = f"\n### Reply{' (broke off)' if entry.partial else ''}\n\n{entry.text}\n" if entry.text else ""
            return f"{thinking}{said}{_usage(entry)}"
        case "usage":
            return _usage(entry)
        case "call":
            given = json.dumps(entry.input, ensure_ascii=False, indent=2) if entry.input is not None else entry.text
            return f"\n### Call of {entry.tool}\n\n{fenced(given)}\n"
        case "result":
            failed = " (failed)" if entry.failed else ""
            return f"\n### Result of {entry.tool or 'a tool'}{failed}\n\n{fenced(entry.text)}\n{_rest(entry)}"
        case "question":
            about = entry.text or f"{entry.tool} {call_summary(entry.input)}"
            return f"\n### Question to a person\n\n{fenced(about)}\n"
        case "answer":
            note = f": {entry.text}" if entry.text else ""
            return f"\n*{entry.how} by {entry.by or 'somebody'}{note}*\n"
        case "message":
            return f"\n### Message of {entry.by or 'a person'}\n\n{fenced(entry.text)}\n"
        case "heard":
            return f"\n*the agent was given {len(entry.ids)} of these messages ({entry.how})*\n"
        case "check":
            return f"\n### Check {'failed' if entry.failed else 'passed'}\n\n{fenced(entry.text)}\n"
        case "summary":
            change = token_change(*(entry.tokens or (None, None)))
            model = f" {entry.model}" if entry.model else ""
            title = f"\n### Summary by {entry.how}{model}: {change}\n"
            return f"{title}\n{fenced(entry.text)}\n" if entry.text else title
        case "note":
            return f"\n*{entry.text}*\n"
        case "end":
            return f"\n*attempt {entry.attempt} {'ended: ' + entry.text if entry.failed else 'completed'}*\n"


def _checks(event: ev.AgentChecked) -> str:
    """The checks with their results, and the output of the one that failed."""
    lines = [f"{'passed' if result.passed else 'failed'}: {result.check}" for result in event.results]
    return "\n".join([*lines, *(result.output for result in event.results if not result.passed)])


def _rest(entry: TranscriptEntry) -> str:
    """Tell where the rest of a long result is."""
    shown = len(entry.text.encode("utf-8", "replace"))
    if shown >= entry.size:
        return ""
    where = f" the whole is in {entry.file}" if entry.file else " the rest was not kept"
    return f"\n*{shown:,} of {entry.size:,} bytes;{where}*\n"


def _usage(entry: TranscriptEntry) -> str:
    if (used := entry.usage) is None:
        return ""
    cost = f", {money(used.usd)}" if used.usd is not None else ""
    return f"\n*{used.tokens_in:,} tokens in, {used.tokens_out:,} out{cost}*\n"


def fenced(text: str) -> str:
    """Put text between fences that it does not contain."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"
