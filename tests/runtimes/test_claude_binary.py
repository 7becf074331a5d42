"""Which `claude` is used, and what is said of one that is missing, old, strange, or breaks in the middle of a turn.

The broken ones are small programs of the test; what works is the real one.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest
from claude_fixtures import SPEAKS, VERSION, World, claude_world, program
from hosts import FakeHost

from windlass.errors import Category
from windlass.runners.claude import binary as binaries
from windlass.runners.claude import wire
from windlass.testing.scripted_model import Reply

# --- available --------------------------------------------------------------------------------------


async def test_a2_the_binary_that_the_sdk_carries_is_found_and_asked_once(tmp_path: Path) -> None:
    async with claude_world(tmp_path) as world:
        health = await world.runner.available()
        assert health.ok
        assert "(carried by claude-agent-sdk)" in health.detail
        assert "_bundled/claude" in health.detail
        assert "not logged in" not in health.detail


async def test_a2_finding_it_imports_nothing_of_the_sdk(tmp_path: Path) -> None:
    code = (
        "import asyncio, sys, time\n"
        "from windlass.process import Supervisor\n"
        "from windlass.runners import RunnerDeps\n"
        "from windlass.runners.claude.runner import ClaudeCodeRunner\n"
        "async def main():\n"
        "    async with Supervisor() as supervisor:\n"
        "        return await ClaudeCodeRunner(RunnerDeps(supervisor, {'PATH': '/bin'}, time.time, None)).available()\n"
        "assert asyncio.run(main()).ok\n"
        "print([name for name in sys.modules if name.partition('.')[0] in ('claude_agent_sdk', 'anyio', 'mcp')])\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert output == b"[]\n"


async def test_a2_the_users_choice_comes_before_path_and_path_before_the_bundled_one(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    on_path = program(tmp_path / "bin" / "claude", VERSION)
    chosen = program(tmp_path / "my-claude", VERSION.replace("2.1.300", "2.2.0"))
    env = {"PATH": f"{tmp_path / 'bin'}:{os.defpath}"}
    async with claude_world(tmp_path, env=env) as world:
        assert (await world.runner.available()).detail == f"claude 2.1.300 at {on_path} (on PATH)"
    async with claude_world(tmp_path, env=env, path=chosen) as world:
        assert (await world.runner.available()).detail == f"claude 2.2.0 at {chosen} (from the settings)"


async def test_a2_a_binary_is_asked_again_only_when_its_file_has_changed(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    text = f"#!/bin/sh\necho x >> {asked}\necho '2.1.300 (Claude Code)'\n"
    path = program(tmp_path / "claude", text)
    async with claude_world(tmp_path, path=path) as world:
        await world.runner.available()
        await world.runner.available()
        assert asked.read_text() == "x\n"
        program(tmp_path / "claude", text.replace("2.1.300", "2.1.400"))
        os.utime(path, ns=(1, 1))
        assert "claude 2.1.400" in (await world.runner.available()).detail


async def test_c5_a_claude_that_is_not_logged_in_says_so_with_the_command_to_log_in(tmp_path: Path) -> None:
    """It is asked itself, so that a keychain counts; a step may bring a key, so it is not refused."""
    async with claude_world(tmp_path, env={"ANTHROPIC_API_KEY": ""}) as world:
        health = await world.runner.available()
        assert (health.ok, health.unset) == (True, True)
        assert "installed, not logged in" in health.detail
        assert "_bundled/claude auth login; or set ANTHROPIC_API_KEY" in health.advice
        (world.home.config / ".credentials.json").write_text("{}")
        assert not (await world.runner.available()).unset


async def test_c5_an_older_claude_that_cannot_say_whether_it_is_logged_in_is_believed(tmp_path: Path) -> None:
    path = program(tmp_path / "claude", f"{VERSION}echo \"error: unknown command 'auth'\" >&2; exit 1\n")
    async with claude_world(tmp_path, path=path, env={"ANTHROPIC_API_KEY": ""}) as world:
        assert not (await world.runner.available()).unset


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("#!/bin/sh\necho '1.0.128 (Claude Code)'\n", "is too old: 2.0.0 or later is needed"),
        ("#!/bin/sh\necho 'Claude the cat 3.0.0'\n", "printed 'Claude the cat 3.0.0' and ended with exit code 0"),
        ("#!/bin/sh\nexit 7\n", "printed '' and ended with exit code 7"),
        ("#!/bin/sh\nkill -SEGV $$\n", "ended by signal 11"),
        ("#!/bin/sh\nexec yes meow\n", "floods its output, beginning with 'meow'"),
        ("#!/no/such/interpreter\n", "interpreter"),
        ("#!/bin/sh\nexec tail -f /dev/null\n", "says nothing to --version for 0.5 s"),
    ],
    ids=["old", "another program", "exit code", "crash", "flood", "no interpreter", "hang"],
)
async def test_a2_a_binary_that_does_not_work_is_unavailable_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, detail: str
) -> None:
    if "tail" in text:
        monkeypatch.setattr(binaries, "PATIENCE", 0.5)
    path = program(tmp_path / "claude", text)
    async with claude_world(tmp_path, path=path) as world:
        health = await world.runner.available()
        result = await world.runner.run(world.request(), FakeHost())
    assert not health.ok
    assert detail in health.detail
    assert health.advice
    failure = result.failure
    assert failure is not None
    assert (failure.category, failure.elsewhere) == (Category.CONFIGURATION, True)
    assert (detail in failure.message, failure.advice, result.usage.usd) == (True, (health.advice,), 0.0)


async def test_a2_a_setting_that_names_nothing_is_not_passed_over(tmp_path: Path) -> None:
    async with claude_world(tmp_path, path=str(tmp_path / "nowhere")) as world:
        health = await world.runner.available()
    assert not health.ok
    assert f"the settings name {tmp_path / 'nowhere'} as claude" in health.detail


async def test_a2_without_any_binary_the_advice_is_how_to_install_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK can be installed without one: from source, or on a system without a wheel."""
    package = tmp_path / "lib" / "claude_agent_sdk"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for name in [name for name in sys.modules if name.partition(".")[0] == "claude_agent_sdk"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(tmp_path / "lib"))
    async with claude_world(tmp_path) as world:
        health = await world.runner.available()
    assert (health.ok, health.advice) == (
        False,
        "pip install 'windlass[agents]' or npm i -g @anthropic-ai/claude-code",
    )


# --- in the middle of a turn ------------------------------------------------------------------------


async def broken(world: World) -> tuple[Category, str, bool]:
    result = await world.runner.run(world.request(), FakeHost())
    assert world.left() == []
    failure = result.failure
    assert failure is not None
    assert failure.advice
    return failure.category, failure.message, failure.elsewhere


@pytest.mark.parametrize(
    ("text", "category", "message"),
    [
        (
            VERSION + "exit 0\n",
            Category.TRANSIENT,
            "ended with exit code 0 and no result before its first output",
        ),
        (VERSION + "echo 'out of luck' >&2; exit 3\n", Category.TRANSIENT, "exit code 3 and no result"),
        (VERSION + "echo 'out of luck' >&2; exit 3\n", Category.TRANSIENT, "its stderr: out of luck"),
        (VERSION + "echo \"error: unknown option '--x'\" >&2; exit 1\n", Category.CONFIGURATION, "our arguments"),
        (VERSION + "echo hello; echo '[1]'; exit 0\n", Category.CONFIGURATION, "spoke no protocol, but 'hello\\n[1]'"),
        (VERSION + "exec yes meow\n", Category.RESOURCE, "more than 1 MiB that are no JSON, such as '"),
        (VERSION + "kill -KILL $$\n", Category.RESOURCE, "ended by SIGKILL before"),
        (VERSION + "kill -SEGV $$\n", Category.TRANSIENT, "ended by SIGSEGV before"),
        (
            VERSION + "exec >&- 2>&-; exec sleep 1000\n",
            Category.TRANSIENT,
            "without a result and without an end",
        ),
        (SPEAKS + "sys.exit(4)\n", Category.TRANSIENT, "exit code 4"),
        (
            SPEAKS + "say(type='system', subtype='init', session_id=7)\n",
            Category.TRANSIENT,
            "exit code 0 and no result",
        ),
        (SPEAKS + 'print(\'{"type": "assist\')\n', Category.TRANSIENT, "exit code 0 and no result"),
    ],
    ids=[
        *("nothing", "exit code", "stderr", "arguments", "garbage", "flood", "killed", "crash", "mute"),
        *("dies after the prompt", "no result", "cut off"),
    ],
)
async def test_a2_a_runtime_that_breaks_is_a_failure_that_says_how(
    tmp_path: Path, text: str, category: Category, message: str
) -> None:
    async with claude_world(tmp_path, path=program(tmp_path / "claude", text)) as world:
        got = await broken(world)
    assert (got[0], got[2]) == (category, True)
    assert message in got[1]


@pytest.mark.parametrize(
    ("limit", "body", "message"),
    [
        ("LONGEST", "exec tr '\\0' x < /dev/zero\n", "more than 3 MiB without the end of a line, such as 'xxxx"),
        ("MOST", 'exec yes \'{"type": "news"}\'\n', "more than 3 MiB in all"),
    ],
)
async def test_a2_output_without_end_is_a_failure_and_not_kept_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, body: str, message: str
) -> None:
    monkeypatch.setattr(wire, limit, 3 << 20)
    async with claude_world(tmp_path, path=program(tmp_path / "claude", VERSION + body)) as world:
        category, said, _ = await broken(world)
    assert category == Category.RESOURCE
    assert message in said


async def test_a2_one_line_of_many_megabytes_is_an_answer_like_any_other(tmp_path: Path) -> None:
    size = 20 << 20
    body = (
        f"text = 'y' * {size}\n"
        "say(type='system', subtype='init', session_id='s', model='m')\n"
        "say(type='assistant', message={'id': '1', 'model': 'm', 'content': [{'type': 'text', 'text': text}]})\n"
        "say(type='later', what=[1, 2])\n"
        "say(type='result', subtype='success', is_error=False, result=text)\n"
        "sys.stdin.read()\n"
    )
    host = FakeHost()
    async with claude_world(tmp_path, path=program(tmp_path / "claude", SPEAKS + body)) as world:
        result = await world.runner.run(world.request(), host)
        assert world.left() == []
    assert result.failure is None
    assert (len(result.output), len(host.said)) == (size, size + 1)
    assert host.sessions == [host.sessions[0], "s"]  # it chose another one than ours


async def test_a2_messages_of_any_shape_are_survived(tmp_path: Path) -> None:
    body = (
        "for kind in ('system', 'assistant', 'result', 'stream_event', 'rate_limit_event', 'user', None, 5, [1]):\n"
        "    for part in (None, 5, 'x', [], [1], {}, {'type': 'message_start'}, {'status': 'rejected'}):\n"
        "        names = ('message', 'event', 'rate_limit_info', 'usage', 'content', 'permission_denials', 'tasks')\n"
        "        if kind != 'result':\n"
        "            say(type=kind, subtype='init', **{name: part for name in names})\n"
        "            say(type=kind, subtype='api_retry', **{name: part for name in names})\n"
        "say(type='result', subtype='success', is_error=False, result='alive', permission_denials=[5],\n"
        "    model_usage_since_last_result={'m': 5, 'n': {'inputTokens': 'many', 'costUSD': None}})\n"
        "sys.stdin.read()\n"
    )
    async with claude_world(tmp_path, path=program(tmp_path / "claude", SPEAKS + body)) as world:
        result = await world.runner.run(world.request(), FakeHost())
    assert (result.failure, result.output) == (None, "alive")
    assert result.usage.usd is None


async def test_a2_a_folder_that_is_gone_is_said(tmp_path: Path) -> None:
    async with claude_world(tmp_path, [Reply.say("never")]) as world:
        result = await world.runner.run(world.request(workdir=tmp_path / "gone"), FakeHost())
    assert result.failure is not None
    assert result.failure.category == Category.CONFIGURATION
    assert f"its working directory {tmp_path / 'gone'} cannot be entered" in result.failure.message


def test_the_wire_has_all_that_the_sdk_asks_of_a_transport() -> None:
    from claude_agent_sdk import Transport

    assert all(callable(getattr(wire.ClaudeWire, name, None)) for name in Transport.__abstractmethods__)
