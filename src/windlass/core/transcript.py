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
from windlass.core.call_summary import call_summary

__all__ = ["Transcript", "TranscriptEntry", "as_markdown"]

EntryKind: TypeAlias = Literal[
    "prompt", "reply", "usage", "call", "result", "question", "answer", "message", "heard", "summary", "note", "end"
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
    tokens: tuple[int, int] | None = None
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
        if event.stream != "note":
            return []
        return [TranscriptEntry(seq, event.at, event.step, event.attempt, "note", event.text.rstrip("\n"))]

    def _entry(self, seq: int, event: ev.Event) -> TranscriptEntry | None:
        def entry(kind: EntryKind, **fields: Any) -> TranscriptEntry:
            step, attempt = fields.pop("step", self._step), fields.pop("attempt", 0)
            return TranscriptEntry(seq, event.at, step, attempt, kind, **fields)

        match event:
            case ev.AgentBegan():
                return entry(
                    "prompt",
                    **_place(event),
                    text=event.prompt,
                    system=event.system,
                    runtime=event.runtime,
                    role=event.role,
                    model=event.model,
                    session=event.session,
                )
            case ev.AgentSpoke():
                kind: EntryKind = "reply" if event.text or event.thinking else "usage"
                return entry(kind, **_place(event), text=event.text, thinking=event.thinking, usage=event.usage)
            case ev.AgentActed():
                return entry(
                    "call",
                    **_place(event),
                    tool=event.tool,
                    text=event.summary,
                    input=event.input,
                    call=event.call,
                    file=event.file,
                )
            case ev.AgentReturned():
                return entry(
                    "result",
                    **_place(event),
                    tool=event.tool,
                    call=event.call,
                    text=event.text,
                    failed=event.failed,
                    file=event.file,
                    size=event.size,
                )
            case ev.ApprovalAsked():
                return entry("question", step=event.step, tool=event.tool, input=event.input, text=event.question)
            case ev.ApprovalAnswered():
                said = "allowed" if event.allow else "denied"
                return entry("answer", step=event.step, how=said, by=event.by, text=event.note)
            case ev.AgentTold():
                return entry("message", step=event.step, text=event.text, by=event.by, ids=(event.id,))
            case ev.AgentHeard():
                return entry("heard", **_place(event), how=event.how, ids=event.ids)
            case ev.AgentSummarised():
                return entry(
                    "summary",
                    **_place(event),
                    text=event.text,
                    how=event.by,
                    model=event.model,
                    tokens=(event.tokens_before, event.tokens_after),
                    usage=event.usage,
                )
            case ev.AttemptFailed():
                return entry("end", **_place(event), text=event.failure.message, failed=True)
            case ev.AttemptStopped():
                return entry("end", **_place(event), text=event.reason, failed=True)
            case ev.AttemptFinished():
                return entry("end", **_place(event))
            case _:
                return None


def _place(event: Any) -> dict[str, Any]:
    return {"step": event.step, "attempt": event.attempt}


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
        case "summary":
            before, after = entry.tokens or (0, 0)
            model = f" {entry.model}" if entry.model else ""
            title = f"\n### Summary by {entry.how}{model}: {before:,} → {after:,} tokens\n"
            return f"{title}\n{fenced(entry.text)}\n" if entry.text else title
        case "note":
            return f"\n*{entry.text}*\n"
        case "end":
            return f"\n*attempt {entry.attempt} {'ended: ' + entry.text if entry.failed else 'completed'}*\n"


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
    cost = f", ${used.usd:.4f}" if used.usd is not None else ""
    return f"\n*{used.tokens_in:,} tokens in, {used.tokens_out:,} out{cost}*\n"


def fenced(text: str) -> str:
    """Put text between fences that it does not contain."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}\n{text}\n{fence}"
