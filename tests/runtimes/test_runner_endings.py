"""Every row of "How a turn ends" in docs/runtimes.md, on every runtime that can end that way (A2-A4, A7, C3).

The table in the docs is what is expected: it is compared with the table in the code, and each of its cells is run. What
a model does is scripted; what only a program can do wrong (die, exit oddly) is done by a stand-in for the program.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from claude_fixtures import SPEAKS, claude_world, program
from hosts import FakeHost
from model_api_world import SHELL, scripted
from opencode_fixtures import Bench, opencode_binary
from test_opencode_run import EVENT, FAKE

from windlass.core.budget import Amount
from windlass.errors import Category, Failure
from windlass.ports import AgentRequest, AgentResult, Runner, ToolReturn
from windlass.runners.endings import ENDINGS, TurnEnding
from windlass.runtimes import RUNTIMES
from windlass.testing import Received, Reply, ScriptedModel

PAGE = Path(__file__).resolve().parents[2] / "docs" / "runtimes.md"
ANSWER, TOOL_FAILED = "an answer", "a tool failed, then an answer"
SILENT_END, ODD_EXIT = "exit code 0 without an answer", "another exit code after an answer"


class Row(NamedTuple):
    cells: Mapping[str, str]
    elsewhere: str
    advice: str


def table() -> dict[str, Row]:
    lines = PAGE.read_text().partition("### How a turn ends")[2].partition("\n- ")[0].splitlines()
    found = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    runtimes = [cell.strip("`") for cell in found[0][1:-2]]
    assert set(runtimes) <= set(RUNTIMES)
    return {
        name: Row({runtime: cell.strip("`") for runtime, cell in zip(runtimes, cells, strict=True)}, elsewhere, advice)
        for name, *cells, elsewhere, advice in found[1:]
    }


TABLE = table()
SHELLS = {
    "claude-code": ("Bash", {"command": "exit 3", "description": "fails"}),
    "open-code": ("bash", {"command": "exit 3", "description": "fails"}),
    "cli": ("shell", {"command": "exit 3"}),
}
QUOTA = {
    "retry-after": "7200",
    "anthropic-ratelimit-unified-status": "rejected",
    "anthropic-ratelimit-unified-representative-claim": "five_hour",
}
SCRIPTED: dict[str, Callable[[str, bool], Reply]] = {
    ANSWER: lambda runtime, acted: Reply.say("done"),
    TOOL_FAILED: lambda runtime, acted: Reply.say("done") if acted else Reply.use(*SHELLS[runtime]),
    TurnEnding.LENGTH: lambda runtime, acted: Reply.cut_short("half an ans"),
    TurnEnding.REFUSAL: lambda runtime, acted: Reply.refuse("I would rather not"),
    TurnEnding.EMPTY: lambda runtime, acted: Reply.say("") if acted else Reply.use(*SHELLS[runtime], text="I look."),
    TurnEnding.TURNS: lambda runtime, acted: Reply.use(*SHELLS[runtime]),
    TurnEnding.BUDGET: lambda runtime, acted: Reply.use(*SHELLS[runtime], tokens_in=1_000_000),
    TurnEnding.GARBAGE: lambda runtime, acted: Reply.garbage(),
    TurnEnding.CUT: lambda runtime, acted: Reply.drop("half an ans"),
    TurnEnding.OVERLOADED: lambda runtime, acted: Reply.error(529, "overloaded"),
    TurnEnding.RATE: lambda runtime, acted: Reply.error(429, "rate limit exceeded", headers={"retry-after": "1"}),
    TurnEnding.QUOTA: lambda runtime, acted: Reply.error(
        429, "usage limit", headers={**QUOTA, "anthropic-ratelimit-unified-reset": str(int(time.time()) + 7200)}
    ),
    TurnEnding.NO_ACCESS: lambda runtime, acted: Reply.error(401, "invalid x-api-key"),
    TurnEnding.NO_MONEY: lambda runtime, acted: Reply.error(402, "pay first"),
    TurnEnding.FORBIDDEN: lambda runtime, acted: Reply.error(403, "not for you"),
    TurnEnding.NO_MODEL: lambda runtime, acted: Reply.error(404, "model: nothing-like-it"),
    TurnEnding.TOO_LONG: lambda runtime, acted: Reply.error(400, "prompt is too long: 250000 tokens > 200000 maximum"),
    TurnEnding.REFUSED: lambda runtime, acted: Reply.error(400, "tools.0: bad schema"),
}
ASKED: dict[str, dict[str, Any]] = {TurnEnding.TURNS: {"max_turns": 2}, TurnEnding.BUDGET: {"budget": Amount(usd=0.5)}}
LOGIN = {"CLAUDE_CODE_OAUTH_TOKEN": "scripted", "ANTHROPIC_API_KEY": ""}
"""Only a login has a quota in Claude Code."""

RESULT = 'say(type="result", subtype="success", is_error=False, result="hi", session_id="s", usage={})'
PROGRAMS: dict[str, dict[str, str]] = {
    "claude-code": {
        TurnEnding.DIED: f"{SPEAKS}sys.exit(3)",
        TurnEnding.KILLED: f"{SPEAKS}os.kill(os.getpid(), 9)",
        SILENT_END: f"{SPEAKS}sys.exit(0)",
        ODD_EXIT: f"{SPEAKS}{RESULT}\nsys.exit(5)",
    },
    "open-code": {
        TurnEnding.DIED: f"{FAKE}cat > /dev/null\nexit 3",
        TurnEnding.KILLED: f"{FAKE}cat > /dev/null\nkill -9 $$",
        SILENT_END: f"{FAKE}cat > /dev/null",
        ODD_EXIT: f"{FAKE}cat > /dev/null\n{EVENT}\nexit 5",
    },
}


class Model:
    """Answers as the row that is run wants it."""

    def __init__(self, runtime: str) -> None:
        self.runtime, self.row, self.acted = runtime, ANSWER, False

    def __call__(self, received: Received) -> Reply:
        reply = SCRIPTED[self.row](self.runtime, self.acted)
        self.acted = True
        return reply


Ask = Callable[..., AgentRequest]


@asynccontextmanager
async def claude_code(folder: Path, model: Model, bench: Bench) -> AsyncIterator[tuple[Runner, Ask]]:
    async with claude_world(folder, model, env={"CLAUDE_CODE_MAX_RETRIES": "0"}) as world:
        yield world.runner, world.request


@asynccontextmanager
async def open_code(folder: Path, model: Model, bench: Bench) -> AsyncIterator[tuple[Runner, Ask]]:
    work = bench.folder()
    async with ScriptedModel(model, port=bench.port):
        yield bench.runner, lambda prompt, **how: bench.request(prompt, workdir=work, **how)


@asynccontextmanager
async def cli(folder: Path, model: Model, bench: Bench) -> AsyncIterator[tuple[Runner, Ask]]:
    async with scripted("anthropic", folder, model, now=time.time) as (world, _):
        yield world.runner(), world.request


WORLDS = {"claude-code": claude_code, "open-code": open_code, "cli": cli}


def checked(runtime: str, row: str, result: AgentResult) -> None:
    """The result is what the table says."""
    expected = TABLE[row]
    cell, failure = expected.cells[runtime], result.failure
    if cell == "completed":
        assert (result.success, failure) == (True, None), (row, failure)
        assert result.output
        return
    assert failure is not None, (row, result)
    assert failure.category == cell, (row, failure)
    assert failure.elsewhere is (expected.elsewhere == "yes" and runtime != "cli"), (row, failure)
    assert failure.message.startswith(f"{runtime}: "), (row, failure)
    assert failure.advice, row
    if expected.advice != "–":
        assert expected.advice.replace("RUNTIME", runtime) in failure.advice, (row, failure)
    assert (failure.resets_at is not None) is (row == TurnEnding.QUOTA), (row, failure)
    assert bool(result.metadata.get("budget")) is (row == TurnEnding.BUDGET)


def test_c3_the_table_of_endings_in_the_docs_is_the_one_in_the_code() -> None:
    told = {name: row for name, row in TABLE.items() if name not in (ANSWER, TOOL_FAILED, SILENT_END, ODD_EXIT)}
    assert list(told) == list(ENDINGS)
    for ending, meaning in ENDINGS.items():
        row = told[ending]
        assert {cell for cell in row.cells.values() if cell != "–"} == {meaning.category}, ending
        assert row.elsewhere == ("yes" if meaning.elsewhere else "no"), ending
        assert row.advice == meaning.advice.format(runtime="RUNTIME"), ending


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize("runtime", WORLDS)
async def test_c3_a_turn_ends_as_the_table_says(runtime: str, tmp_path: Path, bench: Bench) -> None:
    if runtime == "open-code" and opencode_binary() is None:
        pytest.skip("no OpenCode: make dev installs it")
    model = Model(runtime)
    async with WORLDS[runtime](tmp_path, model, bench) as (runner, ask):
        for row in SCRIPTED:
            if TABLE[row].cells[runtime] == "–":
                continue
            model.row, model.acted = row, False
            how = dict(ASKED.get(row, {}))
            if runtime == "claude-code" and row == TurnEnding.QUOTA:
                how["env"] = {**ask("go").env, **LOGIN}
            failed = ToolReturn({"code": 3}, Failure(Category.LOGIC, "exit code 3"))
            host = FakeHost(tools=[SHELL] if runtime == "cli" else [], tool=lambda used, failed=failed: failed)
            checked(runtime, row, await runner.run(ask("go", **how), host))


@pytest.mark.parametrize("runtime", PROGRAMS)
async def test_c3_a_program_that_ends_oddly_ends_the_turn_as_the_table_says(runtime: str, tmp_path: Path) -> None:
    for number, (row, text) in enumerate(PROGRAMS[runtime].items()):
        folder = tmp_path / str(number)
        folder.mkdir()
        path = program(folder / "program", text)
        if runtime == "claude-code":
            async with claude_world(folder, path=path) as world:
                checked(runtime, row, await world.runner.run(world.request(), FakeHost()))
        else:
            bench = Bench(folder / "bench", binary=path)
            try:
                checked(runtime, row, await bench.runner.run(bench.request("go"), FakeHost()))
            finally:
                await bench.close()


def test_c3_every_row_of_the_table_is_run() -> None:
    for name, row in TABLE.items():
        for runtime, cell in row.cells.items():
            assert cell == "–" or name in SCRIPTED or name in PROGRAMS[runtime], (name, runtime)
