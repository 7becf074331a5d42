"""The transcript as it is made from the events of the journal (K8)."""

from __future__ import annotations

from typing import Any

import msgspec

from windlass.core import events as ev
from windlass.core.agent_events import CheckResult
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


def test_k8_each_event_of_a_conversation_has_its_entry_and_its_words() -> None:
    results = (CheckResult("make lint", True, 1.0, output="fine"), CheckResult("make test", False, 2.0, 1, "1 failed"))
    paid = ev.Usage(1_200, 34, usd=0.5)
    told: list[tuple[ev.Event, dict[str, Any], str]] = [
        (
            ev.AgentBegan(1.0, "write", 1, "cli", "developer", "You write.", "Write it", "gpt", "s1"),
            {"kind": "prompt", "text": "Write it", "system": "You write.", "runtime": "cli", "role": "developer"}
            | {"model": "gpt", "session": "s1"},
            "## write, attempt 1: developer on cli, model gpt, goes on with session s1\n"
            "\n### System prompt\n\n```\nYou write.\n```\n\n### Prompt\n\n```\nWrite it\n```\n",
        ),
        (
            ev.OutputWritten(1.0, "write", 1, "note", "starts again\n"),
            {"kind": "note", "text": "starts again"},
            "\n*starts again*\n",
        ),
        (
            ev.AgentSpoke(1.0, "write", 1, "I look.", "where?", paid),
            {"kind": "reply", "text": "I look.", "thinking": "where?"}
            | {"usage": {"tokens_in": 1_200, "tokens_out": 34, "usd": 0.5}},
            "\n### Thinking\n\n```\nwhere?\n```\n\n### Reply\n\nI look.\n\n*1,200 tokens in, 34 out, $0.50*\n",
        ),
        (
            ev.AgentSpoke(1.0, "write", 1, usage=ev.Usage(5, 6)),
            {"kind": "usage", "usage": {"tokens_in": 5, "tokens_out": 6}},
            "\n*5 tokens in, 6 out*\n",
        ),
        (
            ev.AgentActed(1.0, "write", 1, "files.read", "é.md", {"path": "é.md"}, "c1"),
            {"kind": "call", "text": "é.md", "tool": "files.read", "input": {"path": "é.md"}, "call": "c1"},
            '\n### Call of files.read\n\n```\n{\n  "path": "é.md"\n}\n```\n',
        ),
        (
            ev.AgentActed(1.0, "write", 1, "Read", "a.md"),
            {"kind": "call", "text": "a.md", "tool": "Read"},
            "\n### Call of Read\n\n```\na.md\n```\n",
        ),
        (
            ev.AgentReturned(1.0, "write", 1, "c1", "files.read", "hello", size=5),
            {"kind": "result", "text": "hello", "tool": "files.read", "call": "c1", "size": 5},
            "\n### Result of files.read\n\n```\nhello\n```\n",
        ),
        (
            ev.AgentReturned(1.0, "write", 1, "c1", "", "``", failed=True, size=9),
            {"kind": "result", "text": "``", "call": "c1", "failed": True, "size": 9},
            "\n### Result of a tool (failed)\n\n```\n``\n```\n\n*2 of 9 bytes; the rest was not kept*\n",
        ),
        (
            ev.ApprovalAsked(1.0, "write", "d", "shell", {"line": "rm a"}, 9.0),
            {"kind": "question", "tool": "shell", "input": {"line": "rm a"}, "attempt": 0},
            "\n### Question to a person\n\n```\nshell rm a\n```\n",
        ),
        (
            ev.ApprovalAsked(1.0, "write", "d", "shell", {"line": "rm a"}, 9.0, 1, "May it?"),
            {"kind": "question", "text": "May it?", "tool": "shell", "input": {"line": "rm a"}},
            "\n### Question to a person\n\n```\nMay it?\n```\n",
        ),
        (
            ev.ApprovalAnswered(1.0, "write", "d", True, "me", "go on"),
            {"kind": "answer", "text": "go on", "by": "me", "how": "allowed", "attempt": 0},
            "\n*allowed by me: go on*\n",
        ),
        (
            ev.ApprovalAnswered(1.0, "write", "d", False, ""),
            {"kind": "answer", "how": "denied", "attempt": 0},
            "\n*denied by somebody*\n",
        ),
        (
            ev.AgentTold(1.0, "write", "m1", "Stop.", "me"),
            {"kind": "message", "text": "Stop.", "by": "me", "ids": ["m1"], "attempt": 0},
            "\n### Message of me\n\n```\nStop.\n```\n",
        ),
        (
            ev.AgentTold(1.0, "write", "m2", "Stop."),
            {"kind": "message", "text": "Stop.", "ids": ["m2"], "attempt": 0},
            "\n### Message of a person\n\n```\nStop.\n```\n",
        ),
        (
            ev.AgentHeard(1.0, "write", 1, ("m1", "m2"), "steer"),
            {"kind": "heard", "how": "steer", "ids": ["m1", "m2"]},
            "\n*the agent was given 2 of these messages (steer)*\n",
        ),
        (
            ev.AgentChecked(1.0, "write", 1, 1, results),
            {"kind": "check", "text": "passed: make lint\nfailed: make test\n1 failed", "failed": True},
            "\n### Check failed\n\n```\npassed: make lint\nfailed: make test\n1 failed\n```\n",
        ),
        (
            ev.AgentChecked(1.0, "write", 1, 2, results[:1]),
            {"kind": "check", "text": "passed: make lint"},
            "\n### Check passed\n\n```\npassed: make lint\n```\n",
        ),
        (
            ev.AgentSummarised(1.0, "write", 1, 1, "model", 9_000, None, model="gpt", text="so far"),
            {"kind": "summary", "text": "so far", "how": "model", "model": "gpt", "tokens": [9_000, None]},
            "\n### Summary by model gpt: 9,000 → unknown tokens\n\n```\nso far\n```\n",
        ),
        (
            ev.AttemptStopped(1.0, "write", 1, "paused"),
            {"kind": "end", "text": "paused", "failed": True},
            "\n*attempt 1 ended: paused*\n",
        ),
        (
            ev.AttemptStopped(1.0, "write", 1, "model"),
            {"kind": "end", "text": "the next model goes on", "failed": True},
            "\n*attempt 1 ended: the next model goes on*\n",
        ),
        (
            ev.AttemptFailed(1.0, "write", 1, Failure(Category.LOGIC, "it broke")),
            {"kind": "end", "text": "it broke", "failed": True},
            "\n*attempt 1 ended: it broke*\n",
        ),
        (ev.AttemptFinished(1.0, "write", 1, "ok"), {"kind": "end"}, "\n*attempt 1 completed*\n"),
    ]
    entries = made(*(event for event, _, _ in told))
    for seq, (entry, (_, fields, words)) in enumerate(zip(entries, told, strict=True), 1):
        assert (
            msgspec.json.decode(msgspec.json.encode(entry))
            == {"seq": seq, "at": 1.0, "step": "write", "attempt": 1} | fields
        )
        assert as_markdown(entry) == words
    assert "System prompt" not in as_markdown(entries[0], "You write."), "it was shown before"
