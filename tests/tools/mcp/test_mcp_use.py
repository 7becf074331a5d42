"""Tools of an MCP server that is a process of ours: used, stopped, killed, changed (H2)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcp_world import odd, raw, run, started, world
from waiting import skip_time

import windlass
from windlass import Plan, Step
from windlass.errors import CUT_OFF, Category, ToolError
from windlass.plan.model import Effect
from windlass.ports import health_of

if TYPE_CHECKING:
    from conftest import Project


def gone(pid: int) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, 0)
        return False
    return True


async def test_every_tool_of_a_server_is_a_tool_with_its_schema_effect_and_terms(tmp_path: Path) -> None:
    async with world(tmp_path, odd(timeout=70.0)) as mcp:
        assert {"mcp.odd.add", "mcp.odd.hang", "mcp.odd.work"} <= set(mcp.names)
        assert mcp.tools.problems() == []
        add, hang = mcp["mcp.odd.add"], mcp["mcp.odd.hang"]
        assert add.description == "Add two numbers."
        assert add.schema["required"] == ["a", "b"]
        assert add.validate({"a": 1}) == ["argument 'b' is missing"]
        effects = [mcp[f"mcp.odd.{name}"].effect({}) for name in ("add", "work", "die")]
        assert effects == [Effect.NONE, Effect.REPEATABLE, Effect.ONCE]
        assert (add.terms.sensitive, hang.terms.sensitive, add.terms.timeout) == (False, True, 70.0)
        assert add.circuit({}) == hang.circuit({}) == "mcp.odd"
        assert await mcp.use("mcp.odd.add", a=2, b=3) == {"result": 5}
        assert (await health_of(add)).detail == "speaks MCP 2026-07-28"


async def test_a_plan_uses_a_tool_and_its_output_is_what_the_server_said(project: Project) -> None:
    async with world(project.path, odd()) as mcp:
        assert (await run(mcp["mcp.odd.add"], {"a": 20, "b": 22}))["output"] == {"result": 42}
        failed = await run(mcp["mcp.odd.refuse"])
        assert (failed["status"], failed["error"]["category"]) == ("failed", "logic")


async def test_progress_becomes_notes_without_what_a_terminal_would_obey(tmp_path: Path) -> None:
    async with world(tmp_path, odd()) as mcp:
        assert await mcp.use("mcp.odd.work", steps=3) == {"result": "done"}
        assert mcp.notes == ["1/3 step 1[31m of 3\n", "2/3 step 2[31m of 3\n", "3/3 step 3[31m of 3\n"]


async def test_a_use_that_is_cancelled_is_cancelled_at_the_server_which_goes_on(
    tmp_path: Path, eventually: Any
) -> None:
    async with world(tmp_path, odd()) as mcp:
        using = asyncio.create_task(mcp.use("mcp.odd.hang"))
        await eventually((tmp_path / "hanging").exists)
        using.cancel()
        with pytest.raises(asyncio.CancelledError):
            await using
        await eventually((tmp_path / "cancelled").exists)
        assert await mcp.use("mcp.odd.add", a=1, b=1) == {"result": 2}
        assert len(started(tmp_path)) == 1


async def test_the_time_that_the_settings_give_a_server_ends_a_use(project: Project, eventually: Any) -> None:
    async with world(project.path, raw("hanging", timeout=3600)) as mcp:
        using = asyncio.create_task(run(mcp["mcp.hanging.hang"], approve="never", effect="none"))
        await eventually((project.path / "meta.json").exists)
        skip_time(3600)
        ended = await using
        assert (ended["status"], ended["error"]["category"]) == ("failed", "transient")
        await eventually((project.path / "cancelled").exists)


async def test_a_server_that_dies_is_a_transient_failure_with_its_last_words_and_the_next_use_starts_it_again(
    tmp_path: Path,
) -> None:
    async with world(tmp_path, odd(fresh=True)) as mcp:
        with pytest.raises(ToolError, match=r"ended with code 3.*these are my last words") as caught:
            await mcp.use("mcp.odd.die", code=3)
        assert (caught.value.failure.category, caught.value.failure.kind) == (Category.TRANSIENT, CUT_OFF)
        assert await mcp.use("mcp.odd.add", a=1, b=1) == {"result": 2}
        first, second = started(tmp_path)
        assert gone(first)
        assert not gone(second)
    assert gone(second)


async def test_a_use_that_a_death_cuts_off_is_not_repeated_unasked(project: Project, eventually: Any) -> None:
    plan = Plan(steps=[Step(id="a", tool="mcp.odd.die", with_={"code": 3}, retry={"max": 3, "delay": 0.01})])
    async with world(project.path, odd()) as mcp:
        async with windlass.open(tools=mcp.tools(), grace=0.2) as engine:
            execution = await engine.start(plan)

            async def asked() -> bool:
                return (await execution.state()).steps["a"].waiting_for == "outcome"

            await eventually(asked)
            await execution.cancel()
        assert len(started(project.path)) == 1, "it was not asked a second time"


async def test_a_server_that_is_killed_while_idle_is_noticed_before_it_is_used(tmp_path: Path, eventually: Any) -> None:
    async with world(tmp_path, raw("plain")) as mcp:
        os.kill(started(tmp_path)[0], signal.SIGKILL)
        await eventually(lambda: mcp.tools.running() == [])
        assert await mcp.use("mcp.plain.ok") == "ok"
        assert len(started(tmp_path)) == 2


async def test_a_server_that_stands_still_is_replaced_once_a_use_of_it_was_given_up(tmp_path: Path) -> None:
    async with world(tmp_path, raw("plain")) as mcp:
        os.kill(started(tmp_path)[0], signal.SIGSTOP)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(mcp.use("mcp.plain.ok"), 0.2)
        assert await mcp.use("mcp.plain.ok") == "ok"
        first, _ = started(tmp_path)
    assert gone(first)


async def test_a_server_that_nobody_uses_is_ended_and_started_again_on_use(tmp_path: Path, eventually: Any) -> None:
    async with world(tmp_path, raw("plain"), idle=0.0) as mcp:
        await eventually(lambda: mcp.tools.running() == [])
        await eventually(lambda: gone(started(tmp_path)[0]))
        assert await mcp.use("mcp.plain.ok") == "ok"
        assert len(started(tmp_path)) == 2


async def test_uses_at_the_same_time_share_one_process(tmp_path: Path) -> None:
    async with world(tmp_path, odd(), discover=False) as mcp:
        await mcp.tools.ensure(["mcp.odd.add"])
        found = await asyncio.gather(*(mcp.use("mcp.odd.add", a=n, b=n) for n in range(50)))
        assert found == [{"result": 2 * n} for n in range(50)]
        assert len(started(tmp_path)) == 1


async def test_a_tool_that_comes_while_the_server_runs_is_found_in_both_eras_of_the_protocol(
    tmp_path: Path, eventually: Any
) -> None:
    async with world(tmp_path, odd(), raw("growing")) as mcp:
        assert "mcp.odd.grown" not in mcp.names
        await mcp.use("mcp.odd.grow")
        await eventually(lambda: "mcp.odd.grown" in mcp.names)
        assert await mcp.use("mcp.odd.grown") == "grown"
        await mcp.use("mcp.growing.grow")
        await eventually(lambda: "mcp.growing.later" in mcp.names)


async def test_a_picture_becomes_an_artifact_and_the_result_says_where(tmp_path: Path) -> None:
    async with world(tmp_path, odd()) as mcp:
        found = await mcp.use("mcp.odd.picture")
        again = await mcp.use("mcp.odd.picture")
    (file,) = found["files"]
    assert found["text"] == "here it is"
    assert Path(file["path"]).read_bytes().startswith(b"\x89PNG")
    assert (file["mime_type"], Path(file["path"]).suffix) == ("image/png", ".png")
    assert Path(file["path"]).stat().st_mode & 0o777 == 0o600
    assert again["files"][0]["path"] != file["path"], "nothing is written over"


async def test_h1_pictures_beyond_the_most_are_left_out_and_the_result_says_so(tmp_path: Path) -> None:
    async with world(tmp_path, odd()) as mcp:
        found = await mcp.use("mcp.odd.picture", times=23)
    assert len(found["files"]) == 20
    assert found["text"] == "here it is\n(3 further files were left out: 20 of one use are kept)"


async def test_h1_a_sound_is_a_file_of_its_kind_also_where_the_tool_failed_without_a_word(tmp_path: Path) -> None:
    async with world(tmp_path, odd()) as mcp:
        (file,) = (await mcp.use("mcp.odd.sound", fails=False))["files"]
        assert file["path"].endswith("mcp-odd-sound-1.wav")
        with pytest.raises(ToolError, match=r"it failed, and left /.*/mcp-odd-sound-2\.wav$"):
            await mcp.use("mcp.odd.sound", fails=True)


async def test_ten_megabytes_of_text_become_a_file_and_a_beginning(tmp_path: Path) -> None:
    async with world(tmp_path, odd()) as mcp:
        found = await mcp.use("mcp.odd.flood", size=10_000_000)
        assert len(found["text"]) == 1024 * 1024
        assert Path(found["files"][0]["path"]).stat().st_size == 10_000_000
        with pytest.raises(ToolError, match="more than 16 MiB"):
            await mcp.use("mcp.odd.flood", size=20_000_000)
        assert await mcp.use("mcp.odd.add", a=1, b=1) == {"result": 2}


async def test_i6_a_server_sees_the_variables_that_it_is_allowed_and_no_others(tmp_path: Path) -> None:
    secrets = {"ODD_KEY": "hunter2-hunter2", "OTHER_KEY": "never-shown-to-it"}
    server = odd(env={"GIVEN": "yes"}, env_allow=("ODD_KEY",))
    async with world(tmp_path, server, environ=secrets) as mcp:
        seen = (await mcp.use("mcp.odd.environment")).split()
        assert {"GIVEN", "ODD_KEY", "PATH", "HOME"} <= set(seen)
        assert "OTHER_KEY" not in seen


async def test_a_question_to_a_person_is_not_passed_on_and_holds_nothing_up(tmp_path: Path) -> None:
    async with world(tmp_path, odd(), raw("asking")) as mcp:
        with pytest.raises(ToolError):
            await mcp.use("mcp.odd.who")
        assert await mcp.use("mcp.asking.ask") == "refused refused refused answered"


async def test_h1_a_server_that_was_asked_once_is_not_started_to_know_its_tools(tmp_path: Path) -> None:
    cache = tmp_path / "home" / "mcp.json"
    async with world(tmp_path, odd(), cache=cache) as mcp:
        before = {tool.name: (tool.schema, tool.effect({}), tool.terms) for tool in mcp.tools()}
    assert cache.stat().st_mode & 0o777 == 0o600
    async with world(tmp_path, odd(), cache=cache) as mcp:
        assert {tool.name: (tool.schema, tool.effect({}), tool.terms) for tool in mcp.tools()} == before
        assert mcp.tools.running() == []
        assert len(started(tmp_path)) == 1
        assert await mcp.use("mcp.odd.add", a=1, b=1) == {"result": 2}
    async with world(tmp_path, odd(env={"OTHER": "definition"}), cache=cache) as mcp:
        assert len(started(tmp_path)) == 3, "a definition that changed is asked again"


@pytest.mark.parametrize(
    "spoilt", ["{", "[]", '{"%s": 7}', '{"%s": {"seen": "x", "tools": []}}', '{"%s": {"tools": 1}}']
)
async def test_a_spoilt_cache_is_as_good_as_none(tmp_path: Path, spoilt: str) -> None:
    server, cache = raw("plain"), tmp_path / "mcp.json"
    cache.write_text(spoilt.replace("%s", server.digest))
    async with world(tmp_path, server, cache=cache) as mcp:
        assert mcp.names == ["mcp.plain.ok"]
    assert list(json.loads(cache.read_text())) == [server.digest]


async def test_only_the_server_of_a_named_tool_is_started(tmp_path: Path) -> None:
    async with world(tmp_path, raw("plain"), raw("hostile"), discover=False) as mcp:
        await mcp.tools.ensure(["shell", "mcp.plain.ok", "mcp.nobody.x", "mcp.", "mcp"])
        assert mcp.names == ["mcp.plain.ok"]
        assert mcp.tools.running() == ["plain"]
        await mcp.tools.ensure(["mcp.plain.ok", "mcp.hostile.*"])
        assert mcp.tools.running() == ["hostile", "plain"]
        assert len(started(tmp_path)) == 2


async def test_i6_a_server_is_told_the_span_of_the_attempt_where_there_are_traces(tmp_path: Path) -> None:
    async with world(tmp_path, raw("touchy")) as mcp:
        await mcp.use("mcp.touchy.ok")
        assert "traceparent" not in json.loads((tmp_path / "meta.json").read_text())
        await mcp.use("mcp.touchy.ok", env={"TRACEPARENT": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"})
        assert json.loads((tmp_path / "meta.json").read_text())["traceparent"].startswith("00-0af7")
