"""One check of an agent's work (K2): how it is run and shown, and what is kept of its output."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from code_worlds import plain_call
from gate_worlds import Scripted

from windlass.core import events as ev
from windlass.engine.agents.checks import LONGEST_OUTPUT, asks_for_data, run_check
from windlass.errors import ToolError
from windlass.ports import Call, Tool
from windlass.tools.built_in import Registry
from windlass.tools.shell import Shell


async def used(tool: Tool, arguments: Mapping[str, Any], call: Call) -> Any:
    return await tool.execute(arguments, call)


async def run(check: Mapping[str, Any], folder: Path, *tools: Any, timeout: float | None = None) -> ev.CheckResult:
    call = plain_call(folder)
    async with call.processes:
        return await run_check(check, call, Registry([Shell(), *tools]), used, asyncio.timeout(timeout))


def command(line: str) -> dict[str, Any]:
    return {"tool": "shell", "with": {"line": line}}


@pytest.mark.parametrize(
    ("line", "kept"),
    [
        ("true", (True, 0, "")),
        ("echo out; echo err >&2; exit 3", (False, 3, "out\nerr")),
        ("exit 3", (False, 3, "")),
        ("kill -9 $$", (False, None, "ended by SIGKILL")),
    ],
)
async def test_k2_of_a_command_its_exit_code_and_both_outputs_are_kept(
    tmp_path: Path, line: str, kept: tuple[bool, int | None, str]
) -> None:
    found = await run(command(line), tmp_path)
    assert (found.check, (found.passed, found.exit_code, found.output)) == (line, kept)


@pytest.mark.parametrize(
    ("check", "shown"),
    [
        (command("true\nexit 0"), "true\nexit 0"),
        ({"tool": "shell", "with": {"argv": ["true"]}}, 'shell {"argv": ["true"]}'),
        ({"tool": "look", "with": {"path": "answer"}}, "look answer"),
        ({"tool": "look", "with": {}}, "look"),
        ({"tool": "look", "with": {}, "source": "\n  await tools.a();\n  return 1;"}, "look: await tools.a();"),
    ],
)
async def test_k2_a_check_is_shown_as_its_command_its_program_or_its_tool_with_arguments(
    tmp_path: Path, check: dict[str, Any], shown: str
) -> None:
    assert (await run(check, tmp_path, Scripted("look"))).check == shown


async def test_k2_a_check_whose_time_is_over_is_stopped_with_what_it_has_printed(tmp_path: Path) -> None:
    class Hangs(Scripted):
        async def execute(self, arguments: Any, call: Call) -> Any:
            for text in ("x" * LONGEST_OUTPUT, "test one ", "hangs"):
                call.output("stdout", text)
            await asyncio.Event().wait()

    check = {"tool": "slow", "with": {}, "timeout": 0}
    found = await run(check, tmp_path, Hangs("slow"), timeout=0)
    assert not found.passed
    assert found.output.endswith("xtest one hangs\nthe check took longer than its timeout of 0 s and was stopped")
    assert len(found.output) == LONGEST_OUTPUT


async def test_k2_a_tool_whose_own_connection_timed_out_says_nothing_of_the_work(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match="no answer"):
        await run({"tool": "look", "with": {}}, tmp_path, Scripted("look", TimeoutError("no answer")))


async def test_k2_a_check_whose_tool_is_gone_cannot_run(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="the check needs the tool look, which is not here") as caught:
        await run({"tool": "look", "with": {}}, tmp_path)
    assert caught.value.failure.category == "configuration"


def test_k3_the_agent_is_told_the_schema_of_its_result_letter_by_letter() -> None:
    told = asks_for_data({"type": "string", "description": "größer"})
    assert '"description": "größer"' in told
    assert "JSON value that fits the JSON Schema below" in told
