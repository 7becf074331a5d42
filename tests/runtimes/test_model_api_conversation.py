"""The cli runtime's conversation survives the process, and what must not be done twice is not (A4, D)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import stat
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hosts import Asked, FakeHost, Used
from model_api_world import PROTOCOLS, READ, SHELL, World, scripted

from windlass.errors import Category, Conflict
from windlass.plan.model import Effect
from windlass.ports import Answer, ToolReturn
from windlass.runners.model_api.conversation import Conversation
from windlass.runners.toolbox import UNKNOWN_OUTCOME
from windlass.testing import Reply, ScriptedModel

both = pytest.mark.parametrize("protocol", PROTOCOLS)


def allow(asked: Asked) -> Answer:
    return Answer(True)


def ok(used: Used) -> ToolReturn:
    return ToolReturn(f"did {used.arguments}")


@both
async def test_a4_a_conversation_goes_on_where_it_was(protocol: str, tmp_path: Path) -> None:
    script = [Reply.use("shell", {"command": "ls"}), Reply.say("first answer"), Reply.say("second answer")]
    async with scripted(protocol, tmp_path, script) as (world, model):
        host = FakeHost(tools=[SHELL], tool=ok)
        first = await world.run(host, "one")
        again = FakeHost(tools=[SHELL], tool=ok)
        second = await world.run(again, "two", session=first.session)
    assert second.output == "second answer"
    assert second.session == first.session == again.sessions[0]
    asked = model.requests[2]
    for part in ("one", "ls", "did", "first answer", "two"):
        assert part in asked.text
    assert asked.last_user_text == "two"
    assert (second.usage.tokens_in, second.metadata["turns"]) == (10, 1), "only what this run used"
    assert again.uses == []


@both
async def test_a4_without_a_session_a_new_conversation_begins(protocol: str, tmp_path: Path) -> None:
    async with scripted(protocol, tmp_path, [Reply.say("a"), Reply.say("b")]) as (world, model):
        first = await world.run(prompt="alpha")
        second = await world.run(prompt="beta")
    assert first.session != second.session
    assert "alpha" not in model.requests[1].text


@both
async def test_a4_the_conversation_is_on_disk_before_the_next_thing_happens(protocol: str, tmp_path: Path) -> None:
    """After the reply, after each result, and the reply is there before any of its tools begins."""
    seen: list[int] = []

    async with scripted(
        protocol, tmp_path, [Reply.use("shell", {"command": "a"}).and_use("shell", {"command": "b"}), Reply.say("ok")]
    ) as (world, _):

        def tool(used: Used) -> ToolReturn:
            parts = [part for message in world.messages for part in message["parts"]]
            assert any(part["part_kind"] == "tool-call" for part in parts)
            seen.append(sum(part["part_kind"] == "tool-return" for part in parts))
            return ToolReturn("ok")

        assert (await world.run(FakeHost(tools=[SHELL], tool=tool))).success
    assert seen == [0, 1]
    assert world.messages[-1]["parts"][0]["content"] == "ok"


async def test_a4_the_file_is_the_users_own_and_no_draft_is_left(tmp_path: Path) -> None:
    async with scripted("anthropic", tmp_path, [Reply.say("ok")]) as (world, _):
        await world.run()
    assert stat.S_IMODE(world.conversation.stat().st_mode) == 0o600
    assert stat.S_IMODE(world.conversation.parent.stat().st_mode) == 0o700
    assert os.listdir(world.conversation.parent) == ["conversation.jsonl"]


async def test_a4_the_file_is_on_disk_before_it_has_its_name_and_the_name_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, rename = os.fsync, os.replace

    def synced(descriptor: int) -> None:
        steps.append(f"sync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name.split('.')[0]}")
        fsync(descriptor)

    def renamed(source: Any, target: Any) -> None:
        steps.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", renamed)
    await Conversation.new(tmp_path / "scratch").keep()
    assert steps == ["sync conversation", "rename", "sync scratch"]


async def test_a4_two_writes_of_one_conversation_never_overtake_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, side_by_side = os.fsync, threading.Barrier(2)

    def slow(descriptor: int) -> None:
        with suppress(threading.BrokenBarrierError):
            side_by_side.wait(0.5)  # passes only when two writes are under way at once
            overlaps.append(descriptor)
        fsync(descriptor)

    overlaps: list[int] = []
    monkeypatch.setattr(os, "fsync", slow)
    conversation = Conversation.new(tmp_path)
    conversation.prompt("one", "")
    first = asyncio.ensure_future(conversation.keep())
    await asyncio.sleep(0)
    conversation.prompt("two", "")
    await asyncio.gather(first, conversation.keep())
    assert overlaps == []
    assert len(Conversation.load(tmp_path, conversation.session).messages) == 2


async def test_a4_a_write_that_is_cancelled_ends_before_the_cancellation_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync, begun, go_on = os.fsync, threading.Event(), threading.Event()

    def held(descriptor: int) -> None:
        begun.set()
        assert go_on.wait(60)
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", held)
    conversation = Conversation.new(tmp_path)
    writing = asyncio.ensure_future(conversation.keep())
    assert await asyncio.to_thread(begun.wait, 60)
    writing.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert not writing.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    assert Conversation.load(tmp_path, conversation.session).messages == []


async def test_a4_a_conversation_of_one_provider_goes_on_at_another(tmp_path: Path) -> None:
    script = [Reply.use("shell", {"command": "ls"}), Reply.say("by claude")]
    async with scripted("anthropic", tmp_path, script) as (world, _):
        first = await world.run(FakeHost(tools=[SHELL], tool=ok), "one")
    async with scripted("openai", tmp_path, [Reply.say("by gpt")]) as (other, model):
        second = await other.run(FakeHost(tools=[SHELL]), "two", session=first.session)
    assert second.output == "by gpt"
    assert "by claude" in model.requests[0].text


# -- a conversation that is lost ---------------------------------------------------------------------------


def _damage(line: int, change: dict[str, Any]) -> Any:
    def apply(path: Path) -> None:
        lines = path.read_text().splitlines()
        lines[line] = json.dumps({**json.loads(lines[line]), **change})
        path.write_text("".join(f"{line}\n" for line in lines))

    return apply


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda path: path.unlink(), "does not exist"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:40]), "damaged"),
        (lambda path: path.write_bytes(path.read_bytes().replace(b'{"kind": "prompt"', b"\0" * 17)), "damaged"),
        (lambda path: path.write_bytes(b""), "damaged"),
        (lambda path: path.write_bytes(b"\xff\xfe\x00"), "damaged"),
        (lambda path: path.write_text("[1]\n"), "not a conversation"),
        (_damage(0, {"format": "other"}), "not a conversation"),
        (_damage(0, {"version": 99}), "version 99"),
        (_damage(0, {"session": "another"}), "another conversation"),
        (_damage(1, {"kind": "later"}), "damaged in line 2: record of unknown kind 'later'"),
        (_damage(1, {"messages": [{"kind": "nonsense"}]}), "damaged in line 2"),
        (_damage(2, {"messages": "x"}), "damaged in line 3"),
        (_damage(2, {"messages": []}), "damaged in line 3"),
    ],
)
async def test_a4_a_lost_conversation_is_said_to_be_lost_and_nothing_is_called(
    damage: Any, says: str, tmp_path: Path
) -> None:
    async with scripted("anthropic", tmp_path, [Reply.say("a")]) as (world, model):
        first = await world.run()
        damage(world.conversation)
        result = await world.run(session=first.session)
    assert result.failure is not None
    assert result.failure.category is Category.TRANSIENT
    assert says in result.failure.message
    assert result.metadata["session_lost"] is True
    assert not result.failure.elsewhere
    assert len(model.requests) == 1


async def test_a4_a_disk_that_takes_no_more_is_a_failure_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "scratch").write_text("a file where the folder should be")
    async with scripted("anthropic", tmp_path, [Reply.say("a")]) as (world, model):
        result = await world.run()
    assert result.failure is not None
    assert "scratch" in result.failure.message + result.failure.where
    assert model.requests == []


# -- killed in the middle of a tool -------------------------------------------------------------------------

CHILD = """
    import asyncio, sys
    sys.path.insert(0, {here!r})
    from pathlib import Path
    from hosts import FakeHost
    from model_api_world import READ, SHELL, World
    from windlass.plan.model import Effect
    from windlass.ports import Answer, ToolReturn

    async def tool(used):
        if used.arguments.get("command") == "stay":
            print(used.use_id, flush=True)
            await asyncio.Event().wait()
        return ToolReturn("done before")

    def allow(asked):
        return Answer(True)

    async def main():
        host = FakeHost(allow, tools=[READ, SHELL], tool=tool, effects={{"shell": Effect({effect!r})}})
        await World({protocol!r}, {url!r}, Path({scratch!r})).run(host)

    asyncio.run(main())
"""


@asynccontextmanager
async def killed(world: World, effect: Effect) -> AsyncIterator[str]:
    """A run in a process of its own, killed with SIGKILL while its tool `stay` runs. Gives the use's id."""
    code = textwrap.dedent(CHILD).format(
        here=str(Path(__file__).parent),
        effect=effect.value,
        protocol=world.protocol,
        url=world.url,
        scratch=str(world.scratch),
    )
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        use_id = (await child.stdout.readline()).decode().strip()
    finally:
        child.kill()
    assert await child.wait() == -signal.SIGKILL
    assert use_id
    yield use_id


def three_calls() -> Reply:
    """The first is done before the kill, the second is under way, the third has not begun."""
    first = Reply.use("shell", {"command": "quick"})
    return first.and_use("shell", {"command": "stay"}).and_use("shell", {"command": "later"})


@both
async def test_d_a_use_that_must_not_be_repeated_is_not_after_kill_9(protocol: str, tmp_path: Path) -> None:
    async with scripted(protocol, tmp_path, [three_calls(), Reply.say("I checked.")]) as (world, model):
        async with killed(world, Effect.ONCE):
            session = world.session
            host = FakeHost(allow, tools=[READ, SHELL], tool=ok, effects={"shell": Effect.ONCE})
            result = await world.run(host, "go on", session=session)
    assert result.success
    assert [used.arguments["command"] for used in host.uses] == ["later"], "what never began is done now"
    quick, stay, later = model.requests[1].tool_results
    assert model.requests[1].system == model.requests[0].system != ""
    assert "done before" in quick
    assert UNKNOWN_OUTCOME in stay
    assert "did" in later
    assert "go on" not in model.requests[1].text, "the conversation goes on with the results, not with a new prompt"
    assert any("shell" in adjustment for adjustment in result.adjustments)
    assert any(UNKNOWN_OUTCOME in note for note in host.notes)


@both
async def test_d_a_use_that_may_be_repeated_is_done_again_under_the_same_id_after_kill_9(
    protocol: str, tmp_path: Path
) -> None:
    async with scripted(protocol, tmp_path, [three_calls(), Reply.say("done")]) as (world, model):
        async with killed(world, Effect.REPEATABLE) as use_id:
            session = world.session
            host = FakeHost(tools=[READ, SHELL], tool=ok, effects={"shell": Effect.REPEATABLE})
            result = await world.run(host, "go on", session=session)
    assert result.success
    assert [used.arguments["command"] for used in host.uses] == ["stay", "later"], "the finished one is not done again"
    assert host.uses[0].use_id == use_id
    quick, stay, _later = model.requests[1].tool_results
    assert "done before" in quick
    assert "did" in stay


@both
@pytest.mark.parametrize("effect", [Effect.NONE, Effect.REPEATABLE, Effect.ONCE])
async def test_d_an_interrupt_in_the_middle_of_a_tool_leaves_the_same_choice(
    protocol: str, effect: Effect, tmp_path: Path
) -> None:
    stopped: list[str] = []

    async def stay(used: Used) -> ToolReturn:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            stopped.append(used.tool)
            raise
        raise AssertionError

    async with scripted(protocol, tmp_path, [Reply.use("shell", {}, text="now"), Reply.say("ok")]) as (world, model):
        runner, host = world.runner(), FakeHost(allow, tools=[SHELL], tool=stay, effects={"shell": effect})
        running = asyncio.ensure_future(runner.run(world.request(), host))
        await host.until(lambda told: told.uses)
        await runner.interrupt("x:step:1")
        result = await running
        assert result.interrupted
        assert result.output == "now"
        assert stopped == ["shell"]
        after = FakeHost(allow, tools=[SHELL], tool=ok, effects={"shell": effect})
        assert (await world.run(after, session=result.session)).success
    assert len(after.uses) == (0 if effect is Effect.ONCE else 1)
    assert (UNKNOWN_OUTCOME in model.requests[1].text) is (effect is Effect.ONCE)


async def test_k1_a_changed_task_is_said_after_the_results_of_what_was_cut_off(tmp_path: Path) -> None:
    async def stay(used: Used) -> ToolReturn:
        await asyncio.Event().wait()
        raise AssertionError

    async with scripted("anthropic", tmp_path, [Reply.use("shell", {}), Reply.say("ok")]) as (world, model):
        runner, host = world.runner(), FakeHost(tools=[SHELL], tool=stay)
        running = asyncio.ensure_future(runner.run(world.request(), host))
        await host.until(lambda told: told.uses)
        await runner.interrupt("x:step:1")
        result = await running
        after = FakeHost(tools=[SHELL], tool=ok)
        assert (await world.run(after, "do less", session=result.session, nudge=False)).success
    text = model.requests[1].text
    assert text.index("do it") < text.index("did {}") < text.index("do less")
    assert len(after.uses) == 1


@both
async def test_d_a_use_that_only_waited_for_an_approval_was_not_begun(protocol: str, tmp_path: Path) -> None:
    """The approval comes when the process that asked is gone: the use then begins, as if it had waited."""

    async def nobody_there(asked: Asked) -> Answer:
        await asyncio.Event().wait()
        raise AssertionError

    async with scripted(protocol, tmp_path, [Reply.use("shell", {"command": "deploy"}), Reply.say("ok")]) as (world, m):
        runner, host = world.runner(), FakeHost(nobody_there, tools=[SHELL], effects={"shell": Effect.ONCE})
        running = asyncio.ensure_future(runner.run(world.request(), host))
        await host.until(lambda told: told.asks)
        running.cancel()
        await asyncio.wait({running})
        after = FakeHost(allow, tools=[SHELL], tool=ok, effects={"shell": Effect.ONCE})
        assert (await world.run(after, session=host.sessions[0])).success
    assert host.uses == []
    assert [used.arguments for used in after.uses] == [{"command": "deploy"}]
    assert UNKNOWN_OUTCOME not in m.requests[1].text


async def test_d_a_use_that_is_denied_before_it_begins_is_told_to_the_model(tmp_path: Path) -> None:
    async with scripted("openai", tmp_path, [Reply.use("shell", {}), Reply.say("then not")]) as (world, model):
        host = FakeHost(lambda asked: Answer(False, "never"), tools=[SHELL], effects={"shell": Effect.ONCE})
        result = await world.run(host)
    assert result.success
    assert host.uses == []
    assert "never" in model.requests[1].tool_results[0]
    assert result.adjustments == ("shell was refused: never",)


@pytest.mark.parametrize(("nudge", "said"), [(True, ["the task"]), (False, ["the task", "go on"])])
async def test_d_the_same_prompt_is_not_said_twice_when_nothing_was_replied(
    tmp_path: Path, nudge: bool, said: list[str]
) -> None:
    """And where the last word has no reply yet, nobody needs to be told to go on."""
    script = [Reply.error(529, times=3), Reply.say("at last")]
    async with scripted("openai", tmp_path, script) as (world, model):
        first = await world.run(prompt="the task")
        for _ in range(2):
            await world.run(prompt="go on", session=first.session, nudge=nudge)
        assert (await world.run(prompt="go on", session=first.session, nudge=nudge)).output == "at last"
    assert [m["content"] for m in model.requests[3].messages] == said


async def test_d_a_broken_reply_is_remembered_and_gone_on_from(tmp_path: Path) -> None:
    async with scripted("anthropic", tmp_path, [Reply.drop(after="Chapter one"), Reply.say("two")]) as (world, model):
        broken = await world.run()
        assert broken.failure is not None
        again = await world.run(prompt="go on", session=broken.session)
    assert again.output == "two"
    assert [m["role"] for m in model.requests[1].messages] == ["user", "assistant", "user"]
    assert "Chapter one" in model.requests[1].text


async def test_d_an_error_of_the_engine_itself_goes_through_and_leaves_the_conversation_whole(tmp_path: Path) -> None:
    def broken(used: Used) -> ToolReturn:
        raise Conflict("another process took over")

    class Deaf(FakeHost):
        def text(self, text: str) -> None:
            raise Conflict("nobody listens")

    async with scripted("anthropic", tmp_path, [Reply.use("shell", {}), Reply.say("ok"), Reply.say("x")]) as (world, _):
        host = FakeHost(tools=[SHELL], tool=broken)
        with pytest.raises(Conflict, match="another process"):
            await world.run(host)
        after = FakeHost(tools=[SHELL], tool=ok)
        assert (await world.run(after, session=host.sessions[0])).success
        assert len(after.uses) == 1
        with pytest.raises(Conflict, match="nobody listens"):
            await world.run(Deaf())


async def test_d_one_file_is_written_at_a_time_however_many_tools_end_at_once(tmp_path: Path) -> None:
    first = Reply.use("files__read", {"path": "0"})
    for number in range(1, 12):
        first = first.and_use("files__read", {"path": str(number)})
    async with ScriptedModel([first, Reply.say("ok")]) as model:
        world = World("openai", model.openai_url, tmp_path)
        host = FakeHost(tools=[READ], tool=ok, effects={"files.read": Effect.NONE})
        assert (await world.run(host)).success
    returns = [p for m in world.messages for p in m["parts"] if p["part_kind"] == "tool-return"]
    assert [f"'{number}'" in part["content"] for number, part in enumerate(returns)] == [True] * 12
