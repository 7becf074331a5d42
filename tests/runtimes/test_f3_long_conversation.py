"""A conversation of any length stays within the window, with every pinned fact, over kills on the way (F1–F3)."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from windlass.testing import Received, Reply, ScriptedModel

TASK = "Port the invoice service of repo acme/invoices to Python 3.13 without touching legacy/."

WARM = "warm up"
CLIENTS = """
    import asyncio, json, os, sys
    sys.path.insert(0, {here!r})
    from pathlib import Path
    from hosts import FakeHost
    from model_api_world import SHELL, World
    from windlass.context.limits import ContextRule
    from windlass.ports import ToolReturn

    def tool(used):
        number = used.arguments["command"].split()[-1]
        lines = [f"line {{i}} of step {{number}}: checked, {{i * 37 % 101}} rows" for i in range(30)]
        return ToolReturn("\\n".join(lines))

    async def main(prompt, session, scratch={scratch!r}):
        world = World("anthropic", {url!r}, Path(scratch))
        host = FakeHost(tools=[SHELL], tool=tool)
        result = await world.run(
            host, prompt, session=session, max_turns=10**6, context=ContextRule(window={window}),
        )
        print(result.failure or result.output, flush=True)

    asyncio.run(main({warm!r}, None, {scratch!r} + "/warm"))
    for line in sys.stdin:
        client = os.fork()
        if not client:
            Path({pid!r}).write_text(str(os.getpid()))
            asyncio.run(main(*json.loads(line)))
            os._exit(0)
        print("ended", os.waitstatus_to_exitcode(os.waitpid(client, 0)[1]), flush=True)
"""
"""Starts a client for each line: a fork of one that has had an answer, since what a first one imports takes seconds."""


@dataclass
class LongScript:
    """Answers `turns` requests with tool calls, then says that it is done; kills its client at some of them."""

    turns: int
    window: int
    kill_at: Sequence[int]
    """Numbers of requests, summaries included, whose client is killed instead of answered."""
    client: Path
    """Has the process id of the client."""
    requests: int = 0
    answered: int = 0
    summaries: int = 0
    largest: int = 0
    over: list[int] = field(default_factory=list)
    facts: dict[str, int] = field(default_factory=dict)
    missing: list[tuple[int, str]] = field(default_factory=list)
    spent: dict[str, float] = field(default_factory=lambda: {"work": 0.0, "summaries": 0.0})

    def __call__(self, received: Received) -> Reply:
        if received.last_user_text == WARM:
            return Reply.say("warm")
        self.requests += 1
        # A count of its own, a quarter above the usual: the client has to learn it from the usage.
        tokens = int(len(json.dumps(received.body["messages"], ensure_ascii=False)) / 3.4)
        tokens += int(len(json.dumps([received.body.get("system"), received.body.get("tools")])) / 3.4)
        self.largest = max(self.largest, tokens)
        if tokens > self.window:
            self.over.append(self.requests)
            return Reply.error(400, f"prompt is too long: {tokens} tokens > {self.window} maximum")
        if self.requests in self.kill_at:
            os.kill(int(self.client.read_text()), signal.SIGKILL)
            return Reply.drop()
        if received.system.startswith("You summarise"):
            return self._summary(received, tokens)
        self.missing += [(self.requests, fact) for fact in self.facts if fact not in received.text]
        for fact in re.findall(r"Remember fact \d+: the port is \d+\.", received.text):
            self.facts.setdefault(fact, self.requests)
        return self._work(tokens)

    def _summary(self, received: Received, tokens: int) -> Reply:
        self.summaries += 1
        steps = re.findall(r"step (\d+)", received.text)
        text = f"Steps {steps[0]} to {steps[-1]} were checked with the shell; every line of rows was checked." * 3
        self.spent["summaries"] += tokens + 5 * 200
        return Reply.say(text, tokens_in=tokens, tokens_out=200)

    def _work(self, tokens: int) -> Reply:
        self.answered += 1
        number = self.answered
        self.spent["work"] += tokens + 5 * 60
        if number >= self.turns:
            return Reply.say("All steps are done.", tokens_in=tokens, tokens_out=60)
        text = f"I go on with step {number}."
        if number % max(25, self.turns // 30) == 0:
            fact = f"Decision {number}: we use table_{number} instead of view_{number}."
            text += f"\n{fact}"
            self.facts[fact] = number
            problem = f"TODO: test_{number} still fails in src/part_{number}/test_{number}.py."
            text += f"\n{problem}"
            self.facts[problem] = number
        return Reply.use("shell", {"command": f"check step {number}"}, text=text, tokens_in=tokens, tokens_out=60)


async def see_through(turns: int, window: int, kill_at: Sequence[int], scratch: Path) -> LongScript:
    script = LongScript(turns, window, kill_at, scratch / "client.pid")
    script.facts[TASK] = 0
    async with ScriptedModel(script) as model:
        code = textwrap.dedent(CLIENTS).format(
            here=str(Path(__file__).parent),
            url=model.url,
            scratch=str(scratch),
            pid=str(script.client),
            warm=WARM,
            window=window,
        )
        pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
        clients = await asyncio.create_subprocess_exec(sys.executable, "-c", code, **pipes)
        assert clients.stdin is not None
        assert clients.stdout is not None
        output, kills = "", 0
        while True:
            conversation = scratch / "scratch" / "conversation.jsonl"
            session = json.loads(conversation.open().readline())["session"] if conversation.exists() else None
            prompt = TASK if session is None else f"Remember fact {kills}: the port is {8000 + kills}."
            clients.stdin.write(f"{json.dumps([prompt, session])}\n".encode())
            while not (line := (await clients.stdout.readline()).decode()).startswith("ended"):
                assert line, output
                output += line
            if int(line.split()[1]) != -signal.SIGKILL:
                break
            kills += 1
        clients.stdin.close()
        assert await clients.wait() == 0
        assert model.errors == []
    assert "All steps are done." in output
    assert kills == len(kill_at)
    return script


def check(script: LongScript) -> None:
    assert script.over == [], "no request was over the window"
    assert script.missing == [], "every pinned fact is in every request after it was said"
    assert script.answered == script.turns
    assert script.summaries >= 2
    assert script.spent["summaries"] < 0.1 * (script.spent["work"] + script.spent["summaries"])


@pytest.mark.parametrize(
    ("turns", "window", "kill_at"),
    [(80, 16_000, (25, 55)), pytest.param(150, 32_000, (40, 90), marks=pytest.mark.soak)],
)
async def test_f3_a_long_conversation_stays_within_the_window_over_two_kills(
    tmp_path: Path, turns: int, window: int, kill_at: Sequence[int]
) -> None:
    script = await see_through(turns, window, kill_at, tmp_path)
    check(script)
    assert window * 0.7 < script.largest <= window * 0.85
    lines = [json.loads(line) for line in (tmp_path / "scratch" / "conversation.jsonl").open()]
    chain = [line["about"] for line in lines if line.get("kind") == "summary"]
    assert len(chain) == script.summaries, "the chain of summaries is in the file"
    assert [about["by"] for about in chain] == ["model"] * len(chain)
    assert sum(line.get("kind") == "answer" for line in lines) == script.turns - 1, "and all that they stand for"
    assert chain[-1]["messages"] > chain[0]["messages"]


@pytest.mark.soak
@pytest.mark.timeout(7200)
async def test_f3_2000_turns_stay_within_the_window_over_twenty_kills(tmp_path: Path) -> None:
    script = await see_through(2000, 32_000, tuple(range(60, 2060, 100)), tmp_path)
    check(script)
    assert len(script.facts) > 60
