"""What the runtime tells about itself and its helpers, as the host and the result have it.

Subagents are the real runtime's. What it says only on occasions that cannot be brought about here (a model that is
replaced, an older version) is said by a small program in its own words.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from claude_fixtures import MODEL, SPEAKS, claude_world, program
from hosts import FakeHost

from windlass.ports import AgentResult
from windlass.prices import Prices
from windlass.runners.claude.messages import summarise
from windlass.runners.claude.spending import Counts, TurnSpending
from windlass.testing.scripted_model import Reply

COUNTS = {"input_tokens": 100, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 20, "output_tokens": 9}
INIT = {"type": "system", "subtype": "init", "session_id": "s", "model": MODEL, "claude_code_version": "2.1.300"}
DONE: dict[str, Any] = {"type": "result", "subtype": "success", "is_error": False, "result": "done", "num_turns": 1}


def assistant(id: str, *content: Mapping[str, Any], parent: str | None = None) -> dict[str, Any]:
    message = {"id": id, "model": MODEL, "content": list(content), "usage": COUNTS}
    return {"type": "assistant", "message": message, "parent_tool_use_id": parent}


async def told(folder: Path, *messages: Mapping[str, Any], **request: Any) -> tuple[AgentResult, FakeHost]:
    """A turn in which the runtime says this."""
    body = "".join(f"say(**json.loads({json.dumps(message)!r}))\n" for message in messages)
    path = program(folder / "claude", f"{SPEAKS}{body}sys.stdin.read()\n")
    host = FakeHost()
    async with claude_world(folder, path=path) as world:
        return await world.runner.run(world.request(**request), host), host


# --- helpers of the real runtime --------------------------------------------------------------------


@pytest.mark.parametrize("background", [pytest.param(False, marks=pytest.mark.soak), True])
async def test_a2_a_subagents_work_is_waited_for_and_billed(tmp_path: Path, background: bool) -> None:
    """In the background, the first result is not the last: the run ends when the runtime says it is idle."""
    task = {
        "description": "look around",
        "prompt": "SUBTASK: look around",
        "subagent_type": "general-purpose",
        "run_in_background": background,
    }
    script = [
        Reply.use("Agent", task, text="I delegate.", tokens_in=100),
        Reply.say("all quiet", when=lambda received: "SUBTASK" in received.last_user_text, tokens_in=1000),
        Reply.say("it is quiet", repeat=True, tokens_in=200),
    ]
    host = FakeHost()
    async with claude_world(tmp_path, script) as world:
        result = await world.runner.run(world.request(), host)
        assert world.left() == []
    assert (world.model.errors, result.failure, result.output) == ([], None, "it is quiet")
    served = world.model.served
    assert served.tokens_in >= 1300
    assert (result.usage.tokens_in, result.usage.tokens_out) == (served.tokens_in, served.tokens_out)
    assert result.usage.usd == pytest.approx((served.tokens_in * 3 + served.tokens_out * 15) / 1e6)
    assert [(act.tool, act.summary) for act in host.acts] == [("Agent", "look around")]
    assert "all quiet" not in host.said


# --- what it says on rare occasions -----------------------------------------------------------------


async def test_a2_another_model_than_asked_for_is_told_at_once_and_kept(tmp_path: Path) -> None:
    names = {"original_model": "claude-opus-5", "fallback_model": "claude-sonnet-5", "trigger": "overloaded"}
    result, host = await told(tmp_path, INIT, {"type": "system", "subtype": "model_fallback", **names}, DONE)
    assert host.notes == ["Claude Code continues with claude-sonnet-5 instead of claude-opus-5"]
    assert result.adjustments == ("model claude-sonnet-5 instead of claude-opus-5: overloaded",)


async def test_a2_a_limit_that_comes_near_is_a_note(tmp_path: Path) -> None:
    info = {"status": "allowed_warning", "rateLimitType": "five_hour", "utilization": 0.95, "resetsAt": 1}
    _, host = await told(tmp_path, INIT, {"type": "rate_limit_event", "rate_limit_info": info}, DONE)
    assert host.notes == ["95% of the five-hour limit of this account is used"]


async def test_a2_a_tool_that_the_runtime_denies_by_itself_is_an_adjustment_once(tmp_path: Path) -> None:
    denied = {"tool_name": "Bash", "tool_use_id": "t", "decision_reason": "a rule of yours"}
    denials = {"permission_denials": [{"tool_name": "Bash", "tool_use_id": "t", "tool_input": {"command": "rm"}}]}
    result, _ = await told(
        tmp_path, INIT, {"type": "system", "subtype": "permission_denied", **denied}, {**DONE, **denials}
    )
    assert result.adjustments == ("Bash was denied: a rule of yours",)


async def test_a2_a_version_without_partial_messages_is_heard_too_and_counted_once(tmp_path: Path) -> None:
    """Each block of a message comes in a message of its own, with the same id and the same figures."""
    use = {"type": "tool_use", "id": "t", "name": "Grep", "input": {"pattern": "TODO", "path": "src"}}
    result, host = await told(
        tmp_path,
        INIT,
        assistant("1", {"type": "text", "text": "I look."}),
        assistant("1", use),
        assistant("2", {"type": "text", "text": "helper's words"}, parent="t"),
        {**DONE, "modelUsage": {MODEL: {"inputTokens": 300, "outputTokens": 18, "costUSD": 0.5}}},
    )
    assert host.said == "I look.\n"
    assert [(act.tool, act.summary) for act in host.acts] == [("Grep", "src")]
    assert [usage.tokens_in for usage in host.usages] == [150, 300]
    assert (result.usage.tokens_in, result.usage.usd, result.usage.source) == (300, 0.5, "runtime")
    assert result.output == "done"


async def test_e1_totals_that_go_on_over_a_resume_are_never_billed(tmp_path: Path) -> None:
    totals = {MODEL: {"inputTokens": 90_000, "outputTokens": 18, "costUSD": 50.0}}
    message = assistant("1", {"type": "text", "text": "I go on."})
    result, _ = await told(tmp_path, INIT, message, {**DONE, "modelUsage": totals, "total_cost_usd": 50.0}, session="s")
    assert (result.usage.tokens_in, result.usage.usd, result.usage.source) == (150, None, "unknown")


def test_e1_a_call_counts_once_however_often_it_is_told() -> None:
    spending = TurnSpending(None, resumed=False)
    assert spending.saw("1", MODEL, Counts(10, 1))
    assert not spending.saw("1", MODEL, Counts(10, 1))
    assert spending.saw("1", MODEL, Counts(0, 7))  # the end of a stream tells only what came out
    assert spending.saw("2", MODEL, Counts(5, 2))
    live = spending.live()
    assert (live.tokens_in, live.tokens_out, live.usd) == (15, 9, None)


def figures(tokens: int, usd: float, basis: str = "list") -> dict[str, Any]:
    return {"inputTokens": tokens, "outputTokens": 10, "costUSD": usd, "costBasis": basis}


@pytest.mark.parametrize(
    ("seen", "usd", "source"),
    [
        ({"1": 1000, "2": 1000}, 0.25 + 2 * 1000 / 1e6 + 4 * 10 / 1e6, "prices"),
        ({"1": 1000}, 0.25 + 2 * 1000 / 1e6 + 2 * 10 / 1e6, "prices"),  # the other was a subagent's: the sum is priced
    ],
)
def test_e2_only_what_the_runtime_has_no_price_for_is_priced_by_us(
    seen: dict[str, int], usd: float, source: str
) -> None:
    spending = TurnSpending(Prices({"house": {"input": 1.0, "output": 2.0}}), resumed=False)
    spending.asked = True
    for call, tokens in seen.items():
        spending.saw(call, "house", Counts(tokens, 10))
    models = {"house": figures(2000, 7.0, "unknown"), MODEL: figures(50, 0.25)}
    spending.bill({"model_usage_since_last_result": models})
    usage = spending.final(cut_off=False)
    assert usage.usd == pytest.approx(usd)
    assert (usage.source, usage.tokens_in, usage.model) == (source, 2050, MODEL)


def test_e1_two_results_of_one_run_add_up() -> None:
    spending = TurnSpending(None, resumed=True)
    spending.asked = True
    for _ in range(2):
        spending.bill({"model_usage_since_last_result": {MODEL: figures(100, 0.5)}, "modelUsage": {MODEL: 9}})
    usage = spending.final(cut_off=False)
    assert (usage.tokens_in, usage.tokens_out, usage.usd, usage.source) == (200, 20, 1.0, "runtime")


@pytest.mark.parametrize(
    ("input", "line"),
    [
        ({"command": "git  log\n--oneline", "description": "history"}, "git log --oneline"),
        ({"pattern": "x", "path": "src"}, "src"),
        ({"pattern": "x"}, "x"),
        ({"file_path": 5, "url": "http://a"}, "http://a"),
        ({"todos": []}, ""),
        (None, ""),
        ({"command": "y" * 500}, "y" * 199 + "…"),
    ],
)
def test_a2_a_use_of_a_tool_is_one_short_line(input: Any, line: str) -> None:
    assert summarise(input) == line


def test_e1_a_turn_that_was_cut_off_cost_at_least_what_its_other_calls_did() -> None:
    spending = TurnSpending(Prices({"house": {"input": 1.0, "output": 2.0}}), resumed=False)
    spending.asked = True
    spending.saw("one", "house", Counts(1_000_000, 60_000))
    usage = spending.final(cut_off=True)
    assert (usage.usd, usage.at_least, usage.source) == (None, 1.12, "unknown")
