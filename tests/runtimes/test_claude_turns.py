"""A2: the real `claude` does a step: it streams, uses tools, asks, spends, and goes on in the same conversation."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any, Literal

import pytest
from claude_fixtures import MODEL, claude_world
from hosts import Asked, FakeHost, deps

from windlass.errors import Category
from windlass.ports import Answer, Brief, Permissions
from windlass.prices import Prices
from windlass.runners.claude.runner import ClaudeCodeRunner
from windlass.testing.scripted_model import Reply

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A PNG image of one pixel."""


async def test_a2_a_turn_writes_a_real_file_and_tells_all_of_it_and_what_it_could_not_heed(tmp_path: Path) -> None:
    target = tmp_path / "work" / "greeting.txt"
    script = [
        Reply.use("Write", {"file_path": str(target), "content": "hello\n"}, text="I write it.", tokens_in=100),
        Reply.say("It is written.", tokens_in=120, tokens_out=7, cache_read=50, cache_write=20),
    ]
    host = FakeHost()
    async with claude_world(tmp_path, script) as world:
        result = await world.runner.run(world.request("write a greeting", temperature=0.2), host)
        assert world.left() == []
    world.model.check()
    assert (result.failure, result.interrupted, result.success) == (None, False, True)
    assert target.read_text() == "hello\n"
    assert result.output == "It is written."
    assert host.said == "I write it.\nIt is written.\n"
    assert [(act.tool, act.summary) for act in host.acts] == [("Write", str(target))]
    assert host.sessions == [result.session]
    assert host.events[0] == ("session", result.session)
    served = world.model.served
    usage = result.usage
    assert (usage.tokens_in, usage.tokens_out) == (served.tokens_in, served.tokens_out)
    assert (usage.cache_read, usage.cache_write) == (served.cache_read, served.cache_write)
    # $3 and $15 a million; 0.1 of that for what a cache gave, 1.25 for what it took
    assert usage.usd == pytest.approx((150 * 3 + 12 * 15 + 50 * 0.3 + 20 * 3.75) / 1e6)
    assert (usage.source, usage.model) == ("runtime", MODEL)
    assert (host.usages[-1].tokens_in, host.usages[-1].tokens_out) == (served.tokens_in, served.tokens_out)
    assert "You are a tester." in world.model.requests[0].system
    assert result.adjustments == ("Claude Code takes no temperature: left out",)
    assert result.metadata["version"].startswith("2.")
    assert (result.metadata["model"], result.metadata["turns"]) == (MODEL, 2)
    tools = world.model.requests[0].tools
    assert {"Write", "Bash", "Agent"} <= set(tools)
    asks_to_choose = {"AskUserQuestion", "CronCreate", "ScheduleWakeup"}
    assert not asks_to_choose & set(tools), "nobody is there to choose"


def write(path: Path, text: str = "x", **how: Any) -> Reply:
    return Reply.use("Write", {"file_path": str(path), "content": text}, **how)


async def test_a5_e2_it_shows_an_image_to_the_model_and_the_cost_is_known_while_it_runs(tmp_path: Path) -> None:
    image = tmp_path / "dot.png"
    image.write_bytes(base64.b64decode(DOT))
    reading = {"file_path": str(image)}
    script = [Reply.use("Read", reading, tokens_in=1000, tokens_out=10), Reply.say("A dot.", tokens_in=2000)]
    host = FakeHost()
    async with claude_world(tmp_path, script, prices=Prices()) as world:
        result = await world.runner.run(world.request("what is in dot.png?"), host)
    world.model.check()
    assert result.output == "A dot."
    assert '"type": "image"' in json.dumps(world.model.requests[1].body)
    after_one = next(usage for usage in host.usages if usage.tokens_out == 10)
    assert after_one.usd == pytest.approx((1000 * 3 + 10 * 15) / 1e6)
    assert after_one.source == "prices"
    assert result.usage.usd == pytest.approx(host.usages[-1].usd)
    assert result.usage.source == "runtime"


# --- permissions ------------------------------------------------------------------------------------


async def test_a2_in_mode_ask_a_person_decides_about_exactly_this_use_and_no_answer_is_no_yes(tmp_path: Path) -> None:
    yes, broken, no = files = [tmp_path / "work" / name for name in ("yes.txt", "broken.txt", "no.txt")]

    def answer(asked: Asked) -> Answer:
        if asked.input["file_path"] == str(broken):
            raise OSError("the journal is gone")
        return Answer(asked.input["file_path"] == str(yes), "not this one")

    host = FakeHost(answer)
    async with claude_world(tmp_path, [*map(write, files), Reply.say("one of three")]) as world:
        result = await world.runner.run(world.request(permissions=Permissions(mode="ask")), host)
    world.model.check()
    assert [(asked.tool, asked.input["file_path"]) for asked in host.asks] == [("Write", str(file)) for file in files]
    assert [file.exists() for file in files] == [True, False, False]
    assert result.success
    assert result.adjustments == (
        f"Write {broken} was denied: no person could be asked: the journal is gone",
        f"Write {no} was denied: not this one",
    )
    assert "not this one" in world.model.requests[-1].tool_results[0]


@pytest.mark.parametrize("mode", ["ask", "deny"])
async def test_c6_a_rule_for_all_files_leaves_out_those_that_git_obeys(
    tmp_path: Path, mode: Literal["ask", "deny"]
) -> None:
    """Mode `deny` denies the command unasked, and reading needs no permission in either."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "notes.txt").write_text("a line to read")
    files = [work / "a.txt", work / ".git" / "hooks" / "pre-commit", work / ".git" / "info" / "exclude"]
    reading = Reply.use("Read", {"file_path": str(work / "notes.txt")})
    touching = Reply.use("Bash", {"command": f"touch {work / 'b.txt'}", "description": "touch"})
    async with claude_world(tmp_path, [reading, touching, *map(write, files), Reply.say("done")]) as world:
        host = FakeHost(lambda asked: Answer("exclude" in asked.input.get("file_path", "")))
        rules = Permissions(mode=mode, allow=("Write", "Write(*/.git/info/*)"))
        result = await world.runner.run(world.request(permissions=rules), host)
    assert result.success
    assert "a line to read" in world.model.requests[1].tool_results[0]
    assert [asked.input["file_path"] for asked in host.asks if asked.tool == "Write"] == [str(it) for it in files[1:]]
    assert [file.exists() for file in files] == [True, False, True]
    assert not (work / "b.txt").exists()
    assert [asked.tool for asked in host.asks] == ["Bash"] * (mode == "ask") + ["Write"] * 2
    if mode == "deny":
        assert result.adjustments[0] == f"Bash touch {work / 'b.txt'} was denied: this step may not use it"


async def test_a2_lists_decide_without_a_question_and_deny_is_stronger_by_an_older_name_too(tmp_path: Path) -> None:
    """The runtime offers subagents as `Agent`; roles know them as `Task`."""
    touched, other = tmp_path / "work" / "touched", tmp_path / "work" / "other"
    script = [
        Reply.use("Bash", {"command": f"touch {touched}", "description": "touch"}),
        write(other),
        Reply.say("done"),
    ]
    permissions = Permissions(mode="ask", allow=("Bash(touch:*)", "Write", "files.*"), deny=("Write", "Task"))
    host = FakeHost()
    async with claude_world(tmp_path, script) as world:
        result = await world.runner.run(world.request(permissions=permissions), host)
    assert (touched.exists(), other.exists(), host.asks) == (True, False, [])
    assert not {"Write", "Agent"} & set(world.model.requests[0].tools)
    assert result.adjustments == ("permission rule 'files.*' is none of Claude Code's: left out",)


async def test_a2_a_role_with_few_tools_has_no_others_nor_one_that_it_has_for_some_uses_for_more(
    tmp_path: Path,
) -> None:
    work = tmp_path / "work"
    script = [
        Reply.use("Bash", {"command": f"touch {work / 'a'}", "description": "touch"}),
        Reply.use("Bash", {"command": f"touch {work / 'b'}; mkdir {work / 'c'}", "description": "more"}),
        Reply.say("done"),
    ]
    host = FakeHost()
    async with claude_world(tmp_path, script) as world:
        some = Permissions(mode="allow", allow=("Bash",), tools=("Read", "Bash(touch:*)"))
        result = await world.runner.run(world.request(permissions=some), host)
    world.model.check()
    assert set(world.model.requests[0].tools) == {"Read", "Bash"}
    assert [name for name in "abc" if (work / name).exists()] == ["a"]
    assert result.adjustments == (
        f"Bash touch {work / 'b'}; mkdir {work / 'c'} was denied: this role has only Bash(touch:*)",
    )


# --- prompts ----------------------------------------------------------------------------------------


async def test_a2_long_prompts_arrive_whole_and_nothing_in_them_is_a_command(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("the contents of the secret")
    prompt = f"/help @{secret} " + "ä" * 1_000_000 + " the end"
    system = "You are thorough. " * 20_000  # more than one argument of a command line can hold
    async with claude_world(tmp_path, [Reply.say("read")]) as world:
        result = await world.runner.run(world.request(brief=Brief(system, prompt)), FakeHost())
    assert result.output == "read"
    (received,) = world.model.requests
    assert prompt in received.text
    assert system.strip() in received.system
    assert "the contents of the secret" not in received.text


# --- conversations ----------------------------------------------------------------------------------


async def test_a2_a_resumed_turn_knows_the_first_and_bills_only_itself(tmp_path: Path) -> None:
    script = [
        Reply.say("the word is heron", tokens_in=1000, tokens_out=100),
        Reply.say("it was heron", tokens_in=40, tokens_out=10),
    ]
    async with claude_world(tmp_path, script) as world:
        first = await world.runner.run(world.request("remember a word"), FakeHost())
        host = FakeHost()
        second = await world.runner.run(world.request("which word?", session=first.session), host)
    world.model.check()
    assert second.session == first.session
    assert host.sessions == [first.session]
    told = world.model.requests[1].text
    assert told.index("remember a word") < told.index("the word is heron") < told.index("which word?")
    assert (second.usage.tokens_in, second.usage.tokens_out) == (40, 10)
    assert second.usage.usd == pytest.approx((40 * 3 + 10 * 15) / 1e6)


async def test_a2_a_conversation_that_is_gone_is_said_so_that_the_step_can_start_anew(tmp_path: Path) -> None:
    async with claude_world(tmp_path) as world:
        lost = "0190b6a0-0000-7000-8000-000000000000"
        result = await world.runner.run(world.request("go on", session=lost), FakeHost())
    assert world.model.requests == []
    assert result.failure is not None
    assert result.failure.category == Category.TRANSIENT
    assert lost in result.failure.message
    assert result.metadata["session_lost"] is True
    assert result.usage.usd == 0.0


async def test_a2_four_at_once_do_not_mix(tmp_path: Path) -> None:
    script = [
        Reply.use("Write", {"file_path": str(tmp_path / "work" / name), "content": name}, when=f"write {name}!")
        for name in "abcd"
    ]
    spoken = [Reply.say(f"wrote {name}", when=f"write {name}!") for name in "abcd"]
    async with claude_world(tmp_path, [*script, *spoken]) as world:
        hosts = [FakeHost() for _ in "abcd"]
        requests = [world.request(f"write {name}!", scratch=tmp_path / f"scratch-{name}") for name in "abcd"]
        runs = zip(requests, hosts, strict=True)
        results = await asyncio.gather(*(world.runner.run(request, host) for request, host in runs))
        assert world.left() == []
    world.model.check()
    assert [result.output for result in results] == [f"wrote {name}" for name in "abcd"]
    assert [host.said for host in hosts] == [f"wrote {name}\n" for name in "abcd"]
    assert [(tmp_path / "work" / name).read_text() for name in "abcd"] == list("abcd")
    assert len({result.session for result in results}) == 4


async def test_e2_a_model_without_a_price_costs_what_our_prices_say_and_else_nobody_knows(tmp_path: Path) -> None:
    script = [Reply.say("one", tokens_in=1000, tokens_out=10), Reply.say("two", tokens_in=1000, tokens_out=10)]
    prices = Prices({"house-model": {"input": 1.0, "output": 2.0}})
    async with claude_world(tmp_path, script, prices=prices) as world:
        plain = ClaudeCodeRunner(deps(world.supervisor, env=world.home.engine(world.model.url)))
        unknown = await plain.run(world.request(model="house-model"), FakeHost())
        priced = await world.runner.run(world.request(model="house-model"), FakeHost())
    assert (unknown.usage.usd, unknown.usage.source, unknown.usage.tokens_in) == (None, "unknown", 1000)
    assert priced.usage.usd == pytest.approx((1000 * 1 + 10 * 2) / 1e6)
    assert priced.usage.source == "prices"


async def test_a_denial_that_the_runtime_cannot_be_told_of_is_put_to_the_host(tmp_path: Path) -> None:
    target = tmp_path / "work" / "x.txt"
    host = FakeHost(lambda asked: Answer(asked.tool != "Write", "a pattern denies it"))
    async with claude_world(tmp_path, [write(target), Reply.say("I could not.")]) as world:
        result = await world.runner.run(world.request(permissions=Permissions(mode="allow", deny=("Wri*",))), host)
    assert result.success
    assert [asked.tool for asked in host.asks] == ["Write"]
    assert not target.exists()
    assert "a pattern denies it" in str(world.model.requests[-1].body)
