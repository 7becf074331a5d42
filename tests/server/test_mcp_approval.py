"""Requests for approval, answered by the person at an MCP client, or left open when nobody is there (C6)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from mcp_clients import BOTH_ERAS, Ear, error_of, hosted, shown
from mcp_types import ElicitResult

from windlass.core import events as ev

if TYPE_CHECKING:
    from conftest import Project

DEPLOY: dict[str, Any] = {
    "name": "release",
    "steps": [{"id": "deploy", "run": "printf live > live.txt", "approve": "always"}],
}
YES = ElicitResult(action="accept", content={"allow": True, "note": "go"})
NO = ElicitResult(action="accept", content={"allow": False, "note": "not today"})


def answers(project: Project, execution: str) -> list[ev.ApprovalAnswered]:
    return [event for event in project.events(execution) if isinstance(event, ev.ApprovalAnswered)]


@BOTH_ERAS
async def test_c6_the_person_at_the_client_is_asked_with_the_exact_input_and_it_goes_on(
    project: Project, mode: str
) -> None:
    ear = Ear(answers=[YES])
    async with hosted(project) as server, server.client(mode, ear=ear, asks=True) as mcp:
        seen = shown(await mcp.call_tool("engine_execute", {"plan": DEPLOY, "wait_s": 60}))
    assert (seen["status"], seen["questions"], seen["warnings"]) == ("completed", [], [])
    (asked,) = ear.asked
    assert "printf live > live.txt" in asked
    assert len(project.ids()) == 1, "a call that is made again with an answer starts nothing again"
    (answer,) = answers(project, seen["execution"])
    assert (answer.allow, answer.by, answer.note) == (True, "mcp:tester", "go")
    assert (project.path / "live.txt").read_text() == "live"


@BOTH_ERAS
async def test_c6_a_no_of_the_person_is_a_no(project: Project, mode: str) -> None:
    ear = Ear(answers=[NO])
    async with hosted(project) as server, server.client(mode, ear=ear, asks=True) as mcp:
        seen = shown(await mcp.call_tool("engine_execute", {"plan": DEPLOY, "wait_s": 60}))
    (step,) = seen["steps"]
    assert (step["status"], step["error"]["category"]) == ("failed", "permission")
    assert not (project.path / "live.txt").exists()


@BOTH_ERAS
@pytest.mark.parametrize(
    "answer",
    [
        ElicitResult(action="decline"),
        ElicitResult(action="cancel"),
        ElicitResult(action="accept", content={"note": "neither yes nor no"}),
    ],
    ids=["declined", "cancelled", "without a word on it"],
)
async def test_c6_what_is_not_answered_stays_open_and_is_asked_once_a_call(
    project: Project, eventually: Any, mode: str, answer: ElicitResult
) -> None:
    ear = Ear(answers=[answer])
    async with hosted(project) as server, server.client(mode, ear=ear, asks=True) as mcp:
        seen = shown(await mcp.call_tool("engine_execute", {"plan": DEPLOY, "wait_s": 60}))
        assert len(ear.asked) == 1
        assert [question["step"] for question in seen["questions"]] == ["deploy"]
        assert answers(project, seen["execution"]) == []
        # It can be answered elsewhere: in a terminal, over HTTP, by another client.
        await server.engine.approve(seen["execution"], "deploy", by="somebody else")
        await eventually(lambda: answers(project, seen["execution"]))
        ended = shown(await mcp.call_tool("engine_status", {"execution": seen["execution"], "wait_s": 60}))
    assert ended["status"] == "completed"


@BOTH_ERAS
async def test_c6_a_client_that_cannot_ask_is_told_the_question_and_passes_the_answer_on(
    project: Project, mode: str
) -> None:
    async with hosted(project) as server, server.client(mode) as mcp:
        seen = shown(await mcp.call_tool("engine_execute", {"plan": DEPLOY, "wait_s": 60}))
        (question,) = seen["questions"]
        assert (seen["status"], question["kind"], question["tool"]) == ("running", "approval", "shell")
        assert "printf live > live.txt" in question["input"].values()
        answer: dict[str, Any] = {"execution": seen["execution"], "step": "deploy", "allow": True}
        _error, text = error_of(await mcp.call_tool("engine_approve", {**answer, "digest": "of something else"}))
        assert "now asks for something else" in text
        assert answers(project, seen["execution"]) == []
        done = shown(await mcp.call_tool("engine_approve", {**answer, "digest": question["digest"], "note": "ok"}))
        assert done["questions"] == []
        ended = shown(await mcp.call_tool("engine_status", {"execution": seen["execution"], "wait_s": 60}))
    assert ended["status"] == "completed"
    (given,) = answers(project, seen["execution"])
    assert (given.by, given.note) == ("mcp:tester", "ok")


async def test_c6_the_record_names_the_client_in_signs_that_can_be_shown(project: Project) -> None:
    name = "evil\x1b[2J\n" + "x" * 500
    ear = Ear(answers=[YES])
    async with hosted(project) as server, server.client(ear=ear, asks=True, name=name) as mcp:
        seen = shown(await mcp.call_tool("engine_execute", {"plan": DEPLOY, "wait_s": 60}))
    (answer,) = answers(project, seen["execution"])
    assert answer.by == f"mcp:evil[2J{'x' * 53}"


async def test_c6_an_answer_without_its_digest_is_refused(project: Project) -> None:
    async with hosted(project) as server, server.client() as mcp:
        seen = shown(await mcp.call_tool("engine_execute", {"plan": DEPLOY, "wait_s": 60}))
        result = await mcp.call_tool(
            "engine_approve", {"execution": seen["execution"], "step": "deploy", "allow": True}
        )
        assert result.is_error
        assert answers(project, seen["execution"]) == []


async def test_c6_the_exact_input_is_shown_however_long_it_is(project: Project) -> None:
    command = f"printf '{'x' * 50_000}' > live.txt"
    plan = {"steps": [{"id": "deploy", "run": command, "approve": "always"}]}
    ear = Ear(answers=[NO])
    async with hosted(project) as server, server.client(ear=ear, asks=True) as mcp:
        seen = shown(await mcp.call_tool("engine_execute", {"plan": plan, "wait_s": 60}))
    assert command in ear.asked[0]
    assert seen["steps"][0]["status"] == "failed"


async def test_c6_an_answer_that_comes_too_late_allows_nothing(project: Project) -> None:
    """Only where the call ends with the question: in the older era it is taken off the screen."""
    async with hosted(project) as server:

        class Slow(Ear):
            async def on_question(self, context: Any, params: Any) -> ElicitResult:
                (execution,) = project.ids()
                await server.engine.approve(execution, "deploy", allow=False, by="somebody quicker")
                await server.engine.wait(execution)
                return YES

        async with server.client("2026-07-28", ear=Slow(), asks=True) as mcp:
            seen = shown(await mcp.call_tool("engine_execute", {"plan": DEPLOY, "wait_s": 60}))
    assert "came too late" in seen["warnings"][0]
    assert seen["steps"][0]["status"] == "failed"
    assert not (project.path / "live.txt").exists()


async def test_c6_a_question_that_somebody_else_answers_is_taken_off_the_screen(
    project: Project, eventually: Any
) -> None:
    class Absent(Ear):
        async def on_question(self, context: Any, params: Any) -> ElicitResult:
            self.asked.append(params.message)
            await asyncio.Event().wait()
            raise AssertionError("nobody comes")

    ear = Absent()
    async with hosted(project) as server, server.client("legacy", ear=ear, asks=True) as mcp:
        call = asyncio.create_task(mcp.call_tool("engine_execute", {"plan": DEPLOY, "wait_s": 600}))
        await eventually(lambda: ear.asked, "the person is asked")
        (execution,) = project.ids()
        await server.engine.approve(execution, "deploy", by="somebody else")
        seen = shown(await call)
    assert seen["status"] == "completed"
    assert [answer.by for answer in answers(project, execution)] == ["somebody else"]


async def test_c6_a_question_that_expires_is_a_no_and_the_call_ends(project: Project) -> None:
    class Absent(Ear):
        async def on_question(self, context: Any, params: Any) -> ElicitResult:
            await asyncio.Event().wait()
            raise AssertionError("nobody comes")

    plan = {"steps": [{**DEPLOY["steps"][0], "approve_within": "50ms"}]}
    async with hosted(project) as server, server.client("legacy", ear=Absent(), asks=True) as mcp:
        seen = shown(await mcp.call_tool("engine_execute", {"plan": plan, "wait_s": 600}))
    assert (seen["steps"][0]["status"], seen["steps"][0]["error"]["category"]) == ("failed", "permission")
    assert not (project.path / "live.txt").exists()


async def test_c6_a_state_that_the_server_did_not_seal_is_refused(project: Project) -> None:
    async with hosted(project) as server, server.client("2026-07-28") as mcp:
        with pytest.raises(Exception, match=r"(?i)request.?state"):
            await mcp.call_tool(
                "engine_status",
                {"execution": "x", "wait_s": 1},
                request_state='{"execution": "x", "asked": [], "step": "deploy", "digest": "d"}',
            )
