"""Stopping, going on, and what a cancelled call does not stop (D3, I2)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from mcp_clients import BOTH_ERAS, Ear, Hosted, error_of, hosted, shown

from windlass.server.mcp.driving import Inside

if TYPE_CHECKING:
    from conftest import Project

GATE = "until [ -e open ]; do sleep 0.02; done; printf open"
GATED = {"name": "gated", "steps": [{"id": "gate", "run": GATE}, {"id": "after", "run": "printf x", "needs": ["gate"]}]}


async def begun(server: Hosted, eventually: Any) -> str:
    """The execution whose first step is at work."""

    async def at_work() -> str:
        found = await server.engine.executions()
        return found[0].id if found and (await server.engine.state(found[0].id)).active else ""

    return str(await eventually(at_work))


@BOTH_ERAS
@pytest.mark.parametrize("way", ["interrupt", "pause"])
async def test_d3_an_execution_is_stopped_and_resumed_from_there(project: Project, mode: str, way: str) -> None:
    async with hosted(project) as server, server.client(mode) as mcp:
        execution = shown(await mcp.call_tool("engine_execute", {"plan": GATED}))["execution"]
        if way == "pause":
            await mcp.call_tool("engine_interrupt", {"execution": execution, "mode": way, "wait_s": 0})
            project.file("open", "")
            stopped = shown(await mcp.call_tool("engine_status", {"execution": execution, "wait_s": 60}))
        else:
            stopped = shown(await mcp.call_tool("engine_interrupt", {"execution": execution, "wait_s": 60}))
            project.file("open", "")
        assert (stopped["status"], stopped["reason"]) == ("paused", way)
        assert f"engine_resume(execution='{execution}')" in stopped["next"]
        ended = shown(await mcp.call_tool("engine_resume", {"execution": execution, "wait_s": 60}))
    assert ended["status"] == "completed"
    gate = ended["steps"][0]
    assert gate["attempts"] == (1 if way == "pause" else 2)


async def test_d3_cancelled_is_for_good(project: Project) -> None:
    async with hosted(project) as server, server.client() as mcp:
        execution = shown(await mcp.call_tool("engine_execute", {"plan": GATED}))["execution"]
        arguments = {"execution": execution, "mode": "cancel", "wait_s": 60}
        assert shown(await mcp.call_tool("engine_interrupt", arguments))["status"] == "cancelled"
        error, _text = error_of(await mcp.call_tool("engine_resume", {"execution": execution}))
        assert "nothing to resume" in error["message"]
        assert f"run parts of it again in a new execution: windlass fork {execution} --from STEP" in error["advice"]


async def test_d3_what_runs_is_not_resumed_again(project: Project) -> None:
    async with hosted(project) as server, server.client() as mcp:
        execution = shown(await mcp.call_tool("engine_execute", {"plan": GATED}))["execution"]
        error, _text = error_of(await mcp.call_tool("engine_resume", {"execution": execution}))
    assert "is running" in error["message"]


@BOTH_ERAS
@pytest.mark.parametrize(
    ("on_cancel", "status"), [("go_on", "running"), ("interrupt", "paused"), ("cancel", "cancelled")]
)
async def test_i2_a_cancelled_call_stops_the_execution_only_if_it_was_told_so(
    project: Project, eventually: Any, mode: str, on_cancel: str, status: str
) -> None:
    ear = Ear()
    async with hosted(project) as server, server.client(mode, ear=ear) as mcp:
        arguments = {"plan": GATED, "wait_s": 600, "on_cancel": on_cancel}
        call = asyncio.create_task(mcp.call_tool("engine_execute", arguments, progress_callback=ear.on_progress))
        execution = await begun(server, eventually)
        await eventually(lambda: ear.progress, "the call waits")
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        if on_cancel == "go_on":
            project.file("open", "")
            assert (await server.engine.wait(execution)).status == "completed"
            return

        async def stands() -> bool:
            return (await server.engine.state(execution)).status == status

        await eventually(stands, f"it is {status}")


async def test_i2_a_call_that_is_cancelled_while_it_starts_an_execution_stops_that_as_it_was_told(
    project: Project, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, cancelled, start = asyncio.Event(), asyncio.Event(), Inside.start

    async def held_up(*given: Any, **named: Any) -> str:
        reached.set()
        await cancelled.wait()
        return await start(*given, **named)

    monkeypatch.setattr(Inside, "start", held_up)
    async with hosted(project) as server, server.client("auto") as mcp:
        call = asyncio.create_task(
            mcp.call_tool("engine_execute", {"plan": GATED, "wait_s": 600, "on_cancel": "cancel"})
        )
        await reached.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await mcp.list_tools()  # the server has most likely been told by now
        cancelled.set()

        async def stands() -> bool:
            found = await server.engine.executions()
            return bool(found) and (await server.engine.state(found[0].id)).status == "cancelled"

        await eventually(stands, "it is cancelled")


@BOTH_ERAS
async def test_i2_a_server_that_stops_lets_no_call_wait(project: Project, eventually: Any, mode: str) -> None:
    ear = Ear()
    async with hosted(project) as server, server.client(mode) as mcp:
        arguments = {"plan": GATED, "wait_s": 600}
        call = asyncio.create_task(mcp.call_tool("engine_execute", arguments, progress_callback=ear.on_progress))
        await eventually(lambda: ear.progress, "the call waits")
        server.stopping.set()
        assert shown(await call)["status"] == "running"


async def test_d3_a_step_whose_outcome_is_unknown_is_decided_on(project: Project) -> None:
    plan = {"steps": [{"id": "gate", "run": GATE, "effect": "once"}]}
    async with hosted(project) as server, server.client() as mcp:
        execution = shown(await mcp.call_tool("engine_execute", {"plan": plan}))["execution"]
        await server.engine.interrupt(execution)
        project.file("open", "")
        seen = shown(await mcp.call_tool("engine_resume", {"execution": execution, "wait_s": 60}))
        (question,) = seen["questions"]
        assert question["kind"] == "outcome"
        decided = {"execution": execution, "decisions": {"gate": "again"}, "wait_s": 60}
        ended = shown(await mcp.call_tool("engine_resume", decided))
    assert ended["status"] == "completed"


BROKEN = {"name": "broken", "steps": [{"id": "a", "run": "exit 3"}, {"id": "b", "run": "printf b", "needs": ["a"]}]}


async def test_d10_a_failed_step_is_retried_with_other_arguments_or_skipped_and_the_execution_goes_on(
    project: Project,
) -> None:
    async with hosted(project) as server, server.client() as mcp:
        failed = shown(await mcp.call_tool("engine_execute", {"plan": BROKEN, "wait_s": 60}))
        execution = failed["execution"]
        assert f"engine_resume(execution={execution!r}, retry={{'a': {{}}}})" in failed["next"]
        assert f"windlass skip {execution} a" in failed["steps"][0]["error"]["advice"][-1]
        again = {"execution": execution, "retry": {"a": {"with": {"run": "printf mended"}}}, "wait_s": 60}
        ended = shown(await mcp.call_tool("engine_resume", again))
        assert (ended["execution"], ended["status"]) == (execution, "completed")
        assert ended["steps"][0]["attempts"] == 2
        other = shown(await mcp.call_tool("engine_execute", {"plan": BROKEN, "wait_s": 60}))["execution"]
        done = shown(await mcp.call_tool("engine_resume", {"execution": other, "skip": ["a"], "wait_s": 60}))
        assert (done["status"], done["lacks"]) == ("completed", ["a"])


@pytest.mark.parametrize("request_of", [{"retry": {"a": {}}}, {"skip": ["a"]}])
async def test_d10_a_step_of_a_changed_plan_is_left_as_it_was(project: Project, request_of: dict[str, Any]) -> None:
    project.file("p.yaml", "name: p\nsteps: [{id: a, run: 'false'}]\n")
    async with hosted(project) as server, server.client() as mcp:
        failed = shown(await mcp.call_tool("engine_execute", {"file": "p.yaml", "wait_s": 60}))
        execution = failed["execution"]
        project.file("p.yaml", "name: p\nsteps: [{id: a, run: 'true'}]\n")
        error, _text = error_of(await mcp.call_tool("engine_resume", {"execution": execution, **request_of}))
        assert "has changed since" in error["message"]
        assert shown(await mcp.call_tool("engine_status", {"execution": execution}))["status"] == "failed"
        kept = {"execution": execution, "keep_plan": True, "wait_s": 60, **request_of}
        assert shown(await mcp.call_tool("engine_resume", kept))["status"] in ("completed", "failed")


async def test_i2_status_without_an_id_lists_the_executions_and_says_whether_the_engine_is_well(
    project: Project,
) -> None:
    async with hosted(project) as server, server.client() as mcp:
        assert shown(await mcp.call_tool("engine_status", {}))["health"]["ok"] is True
        execution = shown(await mcp.call_tool("engine_execute", {"plan": BROKEN, "wait_s": 60}))["execution"]
        told = shown(await mcp.call_tool("engine_status", {}))
        assert (told["health"]["journal"], told["health"]["executions"]) == ("ok", {"failed": 1})
        (line,) = told["executions"]
        assert (line["execution"], line["status"], line["driven"]) == (execution, "failed", False)
