"""The transcript as it is made from the events of the journal (K8)."""

from __future__ import annotations

from windlass.core import events as ev
from windlass.core.transcript import Transcript, TranscriptEntry, as_markdown
from windlass.errors import Category, Failure


def made(*events: ev.Event, step: str = "write") -> list[TranscriptEntry]:
    transcript = Transcript(step)
    return [entry for seq, event in enumerate(events, 1) for entry in transcript.take(seq, event)]


def test_k8_replies_calls_and_results_come_in_their_order_and_once() -> None:
    used = ev.Usage(tokens_in=10, tokens_out=2)
    entries = made(
        ev.AgentBegan(1.0, "write", 1, "cli", "developer", "You write.", "Write it"),
        ev.OutputWritten(2.0, "write", 1, "agent", "I look "),
        ev.OutputWritten(2.1, "write", 1, "agent", "first.\n"),
        ev.AgentSpoke(2.2, "write", 1, "I look first.", "where is it?", used),
        ev.AgentActed(2.3, "write", 1, "files.read", "a.md", {"path": "a.md"}, "c1"),
        ev.AgentReturned(2.4, "write", 1, "c1", "files.read", "hello"),
        ev.AttemptFinished(3.0, "write", 1, "done"),
    )
    assert [entry.kind for entry in entries] == ["prompt", "reply", "call", "result", "end"]
    assert (entries[1].text, entries[1].thinking, entries[1].usage) == ("I look first.", "where is it?", used)
    assert entries[2].call == entries[3].call == "c1"


def test_k8_a_reply_that_broke_off_is_told_as_far_as_it_came() -> None:
    entries = made(
        ev.AgentBegan(1.0, "write", 1, "cli", "developer", "", "Write it"),
        ev.OutputWritten(2.0, "write", 1, "agent", "I had just beg"),
        ev.AttemptFailed(3.0, "write", 1, Failure(Category.TRANSIENT, "the stream was cut")),
    )
    assert [(entry.kind, entry.partial) for entry in entries] == [("prompt", False), ("reply", True), ("end", False)]
    assert entries[1].text == "I had just beg"
    assert "### Reply (broke off)\n\nI had just beg\n" in as_markdown(entries[1])


def test_k8_a_journal_of_an_earlier_version_has_the_texts_that_were_shown() -> None:
    entries = made(
        ev.AgentBegan(1.0, "write", 1, "claude-code", "developer", "", "Write it"),
        ev.OutputWritten(2.0, "write", 1, "agent", "I write it.\n"),
        ev.AgentActed(2.3, "write", 1, "Write", "a.md", {"path": "a.md"}),
        ev.OutputWritten(2.5, "write", 1, "agent", "Done.\n"),
        ev.AttemptFinished(3.0, "write", 1, "Done."),
    )
    assert [(entry.kind, entry.text) for entry in entries[1:4]] == [
        ("reply", "I write it."),
        ("call", "a.md"),
        ("reply", "Done."),
    ]


def test_k8_other_steps_stay_out_and_the_items_of_a_foreach_belong_to_it() -> None:
    entries = made(
        ev.AgentSpoke(1.0, "other", 1, "no"),
        ev.AgentSpoke(1.0, "write[0]", 1, "a"),
        ev.AgentSpoke(1.0, "writes", 1, "no"),
    )
    assert [entry.text for entry in entries] == ["a"]


def test_k8_fences_are_longer_than_those_in_the_text() -> None:
    entry = made(
        ev.AgentReturned(1.0, "write", 1, "c", "shell", "```\n````\nx", size=9000, file="write/transcript/1-1.txt")
    )
    shown = as_markdown(entry[0])
    assert "\n`````\n```\n````\nx\n`````\n" in shown
    assert "*10 of 9,000 bytes; the whole is in write/transcript/1-1.txt*" in shown
