"""The file of a conversation: appended to, read again whatever a crash left of it, shortened by a record (K1)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hosts import FakeHost
from model_api_world import PROTOCOLS, READ, scripted

from windlass.core import events as ev
from windlass.ports import ToolReturn, Usage
from windlass.runners.model_api.conversation import Conversation, Lost, Unwritable
from windlass.runners.toolbox import UNKNOWN_OUTCOME, ModelCall
from windlass.testing import Reply


def answered(conversation: Conversation, number: int, text: str) -> ModelCall:
    """One turn: the model calls a tool and has its result."""
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

    call = ToolCallPart("files__read", {"path": f"{number}.txt"}, f"call{number}")
    conversation.reply(ModelResponse(parts=[TextPart(f"I read {number}."), call]))
    (pending,) = conversation.pending()
    conversation.answer(pending, text, failed=False)
    return pending


def filled(folder: Path, turns: int = 3) -> Conversation:
    conversation = Conversation.new(folder)
    conversation.prompt("count the files", "You count.")
    for number in range(turns):
        answered(conversation, number, f"result {number}")
    conversation.keep_now()
    return conversation


def dumped(conversation: Conversation) -> Any:
    from pydantic_ai.messages import ModelMessagesTypeAdapter

    return ModelMessagesTypeAdapter.dump_python(conversation.messages, mode="json")


def test_k1_a_conversation_only_grows_and_what_is_written_grows_with_what_is_said(tmp_path: Path) -> None:
    conversation = Conversation.new(tmp_path)
    conversation.prompt("go", "")
    path, before, sizes = tmp_path / "conversation.jsonl", b"", []
    for number in range(50):
        answered(conversation, number, "x" * 1000)
        conversation.keep_now()
        now = path.read_bytes()
        assert now.startswith(before)
        sizes.append(len(now) - len(before))
        before = now
    assert max(sizes[1:]) - min(sizes[1:]) < 50, "turn 50 writes no more than turn 2"
    assert len({path.name for path in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize("cut", [1, 2, 30])
def test_k1_a_last_line_that_was_cut_off_is_dropped_and_overwritten(tmp_path: Path, cut: int) -> None:
    whole = filled(tmp_path)
    path = tmp_path / "conversation.jsonl"
    path.write_bytes(path.read_bytes()[:-cut])
    found = Conversation.load(tmp_path, whole.session)
    (again,) = found.pending()
    assert again.id == "call2", "the last result is gone, and nothing else"
    found.answer(again, "result 2", failed=False)
    found.keep_now()
    assert dumped(Conversation.load(tmp_path, whole.session)) == dumped(found)
    assert all(json.loads(line) for line in path.read_bytes().splitlines())


def test_k1_every_prefix_of_the_file_is_a_conversation_up_to_there(tmp_path: Path) -> None:
    whole = filled(tmp_path)
    path = tmp_path / "conversation.jsonl"
    content = path.read_bytes()
    lengths = []
    for end in range(content.index(b"\n") + 1, len(content) + 1, 7):
        path.write_bytes(content[:end])
        lengths.append(len(Conversation.load(tmp_path, whole.session).messages))
    assert lengths == sorted(lengths)
    assert set(range(len(whole.messages))) <= set(lengths)


def test_k1_a_file_that_another_program_shortened_is_not_written_to(tmp_path: Path) -> None:
    whole = filled(tmp_path)
    (tmp_path / "conversation.jsonl").write_bytes(b"")
    answered(whole, 7, "x")
    with pytest.raises(Unwritable, match="shortened"):
        whole.keep_now()


def test_k1_a_file_of_version_1_goes_on_as_version_2(tmp_path: Path) -> None:
    from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, ToolCallPart

    earlier = filled(tmp_path / "other")
    earlier.reply(ModelResponse(parts=[ToolCallPart("shell", {}, "last")]))
    (call,) = earlier.pending()
    messages = json.loads(ModelMessagesTypeAdapter.dump_json(earlier.messages))
    first = {"format": "windlass.conversation", "version": 1, "session": earlier.session, "messages": messages}
    old = tmp_path / "conversation.json"
    old.write_text(json.dumps({**first, "begun": [call.use_id]}))

    found = Conversation.load(tmp_path, earlier.session)
    assert dumped(found) == dumped(earlier)
    assert found.pending() == [call]
    assert found.was_begun(call)
    found.answer(call, "unknown", failed=True)
    found.keep_now()
    assert not old.exists()
    again = Conversation.load(tmp_path, earlier.session)
    assert dumped(again) == dumped(found)
    assert again.pending() == []

    for damage in ({"begun": None}, {"version": 9}, {"session": "other"}, {"messages": "x"}):
        (tmp_path / "conversation.jsonl").unlink(missing_ok=True)
        old.write_text(json.dumps({**first, "begun": [], **damage}))
        with pytest.raises(Lost):
            Conversation.load(tmp_path, earlier.session)


def test_k1_a_summary_takes_the_place_of_the_older_part_and_the_file_keeps_it(tmp_path: Path) -> None:
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    whole = filled(tmp_path, turns=10)
    path = tmp_path / "conversation.jsonl"
    before, size = path.read_bytes(), whole.size
    whole.replace_older(15, [ModelRequest(parts=[UserPromptPart("7 files were counted")])], {"number": 1})
    assert len(whole.messages) == 21 - 15 + 1
    assert whole.size < size
    fresh = answered(whole, 10, "result 10")
    assert fresh.use_id.endswith(":11:1"), "a use has a name of its own, also after the summary"
    whole.keep_now()
    assert path.read_bytes().startswith(before)
    found = Conversation.load(tmp_path, whole.session)
    assert dumped(found) == dumped(whole)
    assert abs(found.size - whole.size) < 100
    assert answered(found, 11, "x").use_id.endswith(":12:1")


@pytest.mark.parametrize("count", [0, -1, 2, 100])
def test_k1_a_summary_never_parts_a_call_from_its_result(tmp_path: Path, count: int) -> None:
    whole = filled(tmp_path)
    before = dumped(whole)
    with pytest.raises(ValueError, match="message"):
        whole.replace_older(count, [], {})
    assert dumped(whole) == before


async def test_k1_the_size_of_the_next_prompt_is_known_without_reading_it(tmp_path: Path) -> None:
    """It is what a limit is held to before a call: no less than the request, and not much more."""
    prompts: list[int] = []

    class Counting(FakeHost):
        async def afford(self, prompt: int) -> bool:
            prompts.append(prompt)
            return True

    script = [*(Reply.use("files__read", {"path": f"{number}"}) for number in range(5)), Reply.say("ok")]
    async with scripted("anthropic", tmp_path, script) as (world, model):
        await world.run(Counting(tools=[READ], tool=lambda used: ToolReturn("word " * 2000)))
    bodies = [len(json.dumps(request.body)) for request in model.requests]
    for prompt, body in zip(prompts, bodies, strict=True):
        assert body / 3 * 0.8 < prompt < body / 3 * 1.5


# -- rebuilt from the journal ------------------------------------------------------------------------------


class Journalling(FakeHost):
    """Keeps what the engine would journal of one attempt after the other."""

    attempt = 0

    def began(self, prompt: str) -> None:
        self.attempt += 1
        self.journal.append(ev.AgentBegan(0.0, "step", self.attempt, "cli", "developer", "You are careful.", prompt))

    def session(self, session: str) -> None:
        self.journal.append(ev.AgentSession(0.0, "step", self.attempt, "cli", session))

    def spoke(self, text: str, thinking: str = "", usage: Usage | None = None, number: int = 0) -> None:
        self.journal.append(ev.AgentSpoke(0.0, "step", self.attempt, text, thinking, usage, number))

    def acted(self, tool: str, summary: str, input: Any = None, call: str = "") -> None:
        self.journal.append(ev.AgentActed(0.0, "step", self.attempt, tool, summary, input, call))

    def returned(self, call: str, tool: str, text: str, *, failed: bool = False) -> None:
        self.journal.append(ev.AgentReturned(0.0, "step", self.attempt, call, tool, text, failed))


def _unlink(path: Path) -> None:
    path.unlink()


def _zeros(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[:200] + b"\0" * 40 + content[240:])


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("damage", [_unlink, _zeros])
async def test_k1_a_lost_file_is_rebuilt_from_the_journal(tmp_path: Path, protocol: str, damage: Any) -> None:
    calls = Reply.use("files__read", {"path": "a.txt"}, text="I look.").and_use("files__read", {"path": "b.txt"})
    script = [calls, Reply.use("nonesuch", {}), Reply.say("Half."), Reply.say("Done.")]
    async with scripted(protocol, tmp_path, script) as (world, model):
        host = Journalling(tools=[READ], tool=lambda used: ToolReturn(f"it says {used.arguments['path']}"))
        host.began("count")
        first = await world.run(host, "count")
        damage(world.conversation)
        host.began("go on")
        second = await world.run(host, "go on", session=first.session)
    assert second.output == "Done."
    assert second.session == first.session
    asked = model.requests[3].text
    order = ["count", "I look.", "it says a.txt", "it says b.txt", "no tool", "Half.", "go on"]
    places = [asked.index(said) for said in order]
    assert places == sorted(places)
    assert all(asked.count(said) == 1 for said in order)
    (note,) = host.notes
    assert "7 messages were rebuilt from the journal" in note
    assert Conversation.load(world.conversation.parent, world.session).session == first.session


def _cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def _without(lines: int) -> Callable[[Path], None]:
    def shorten(path: Path) -> None:
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-lines]))

    return shorten


@pytest.mark.parametrize("shorten", [_cut_short, *(_without(lines) for lines in (1, 2, 3, 4, 5))])
async def test_k1_a_file_that_lost_its_end_is_completed_from_the_journal(tmp_path: Path, shorten: Any) -> None:
    script = [Reply.use("files__read", {"path": "a.txt"}, text="I look."), Reply.say("Half."), Reply.say("Done.")]
    async with scripted("anthropic", tmp_path, [*script, Reply.say("More.")]) as (world, model):
        host = Journalling(tools=[READ], tool=lambda used: ToolReturn(f"it says {used.arguments['path']}"))
        host.began("count")
        first = await world.run(host, "count")
        shorten(world.conversation)
        for prompt in ("go on", "and on"):
            host.began(prompt)
            last = await world.run(host, prompt, session=first.session)
    assert last.output == "More."
    order = ["count", "I look.", "it says a.txt", "Half.", "go on", "Done.", "and on"]
    asked = model.requests[-1].text
    assert [asked.count(said) for said in order] == [1] * len(order)
    places = [asked.index(said) for said in order]
    assert places == sorted(places)
    (note,) = host.notes
    assert "from the journal" in note or "lost its end" in note
    uses = [event.call for event in host.journal if isinstance(event, ev.AgentActed)]
    assert len(uses) == 1, "no tool is used again"


async def test_k1_a_call_without_a_result_in_the_journal_is_said_to_be_unknown(tmp_path: Path) -> None:
    async with scripted("anthropic", tmp_path, [Reply.say("I check.")]) as (world, model):
        host = Journalling(tools=[READ])
        host.began("count")
        host.session("s1")
        host.spoke("I look.")
        host.acted("files.read", "a.txt", {"path": "a.txt"}, "s1:1:1")
        host.began("go on")
        result = await world.run(host, "go on", session="s1")
    assert result.success
    assert UNKNOWN_OUTCOME in model.requests[0].text


@pytest.mark.parametrize("spoken", [False, True])
async def test_k1_without_enough_in_the_journal_it_is_lost(tmp_path: Path, spoken: bool) -> None:
    async with scripted("anthropic", tmp_path, []) as (world, model):
        host = Journalling()
        host.began("count")
        host.session("other" if spoken else "s1")
        if spoken:
            host.spoke("Of another conversation.")
        result = await world.run(host, "go on", session="s1")
    assert result.metadata["session_lost"] is True
    assert model.requests == []
