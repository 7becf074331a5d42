"""The rule by which a conversation is summarised, and a view of where it stands (F1, F3)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from windlass.core import events as ev
from windlass.core.state import State, fold
from windlass.engine.agents.context import check_agent, context_rule, contexts
from windlass.errors import UsageError
from windlass.plan.model import ContextLimit, Plan
from windlass.ports import Entry, RunnerHooks, Usage
from windlass.settings import ContextSettings, Settings
from windlass.settings.tables import ContextRuleSettings, ModelContextSettings
from windlass.testing import ScriptedRunner

SETTINGS = ContextSettings(
    threshold=0.5,
    model="general",
    roles={"developer": ContextRuleSettings(threshold=0.6)},
    models={
        "claude-*": ModelContextSettings(window=5000),
        "claude-opus*": ModelContextSettings(threshold=0.7, model="of-opus", window=9000),
    },
)


def rule(plan: ContextLimit | None, role: str, model: str | None) -> tuple[float, str | None, int | None]:
    found = context_rule(SETTINGS, plan, role, model)
    return found.threshold, found.model, found.window


def test_f1_the_plan_comes_before_the_role_the_model_and_the_general_settings() -> None:
    assert rule(None, "other", None) == (0.5, "general", None)
    assert rule(None, "developer", None) == (0.6, "general", None)
    assert rule(None, "other", "claude-opus-4") == (0.7, "of-opus", 9000)
    assert rule(None, "developer", "claude-opus-4") == (0.6, "of-opus", 9000)
    assert rule(ContextLimit(threshold=0.9), "developer", "claude-opus-4") == (0.9, "of-opus", 9000)
    assert rule(ContextLimit(model="own"), "other", "claude-haiku") == (0.5, "own", 5000)
    bare = context_rule(ContextSettings(), None, "other", "claude-opus")
    assert (bare.threshold, bare.model, bare.window) == (0.8, None, None)


@pytest.mark.parametrize("model", ["Claude-Haiku", "anthropic:claude-haiku", "anthropic/claude-haiku", "CLAUDE-x"])
def test_f1_the_settings_of_a_model_hold_with_its_providers_name_too(model: str) -> None:
    assert rule(None, "other", model)[2] == 5000
    assert rule(None, "other", f"my-{model}")[2] is None or "/" in model or ":" in model


def state_of() -> State:
    agent = {"agent": "developer", "prompt": "do it"}
    steps = [{"id": "work", **agent}, {"id": "new", **agent}, {"id": "plain", "tool": "t"}]
    plan = Plan.model_validate({"name": "p", "steps": steps})
    state = fold([ev.ExecutionCreated(1.0, "x", msgspec.Raw(plan.encoded), {}, "/")], plan)
    for event in (
        ev.ExecutionStarted(1.0, "d"),
        ev.AttemptStarted(2.0, "work", 1, "agent", {}, "once"),
        ev.AgentBegan(2.0, "work", 1, "cli", "developer", "who", "what", "claude-opus-4"),
    ):
        state.apply(event)
    return state


def view(*events: ev.Event) -> dict[str, Any]:
    entries = [Entry(number, "x", number, event) for number, event in enumerate(events)]
    (found,) = contexts(state_of(), entries, "work", {}, Settings(context=SETTINGS))
    return found.plain()


def used(tokens: int, attempt: int = 1) -> ev.UsageReported:
    return ev.UsageReported(3.0, "work", attempt, Usage(tokens, 1, usd=0.0), "cli", "developer")


def test_f3_the_tokens_of_a_conversation_are_those_of_its_last_request() -> None:
    assert view()["tokens"] is None
    assert view(used(100))["tokens"] == 100
    assert view(used(100), used(250))["tokens"] == 150, "reports add up the requests of an attempt"
    assert view(used(100), used(101))["tokens"] == 1
    assert view(used(100), used(100))["tokens"] == 100, "one that says nothing new"
    assert view(used(100), used(70, attempt=2))["tokens"] == 70
    spoke = ev.AgentSpoke(3.0, "work", 1, "hello", usage=Usage(80, 1))
    assert view(used(100), spoke)["tokens"] == 80
    assert view(used(100), ev.AgentSpoke(3.0, "work", 1, "hello"))["tokens"] == 100
    assert view(used(100), ev.AgentSpoke(3.0, "work", 1, "hello", usage=Usage(0, 1)))["tokens"] == 100
    assert view(used(100), ev.AgentSummarised(4.0, "work", 1, 1, "model", 100, 30))["tokens"] == 30
    assert view(used(100), ev.AgentSummarised(4.0, "work", 1, 1, "runtime", 100, None))["tokens"] == 100


def test_f3_only_agents_that_began_have_a_conversation() -> None:
    state = state_of()
    assert [found.step for found in contexts(state, [], None, {}, Settings())] == ["work"]
    assert check_agent(state, "work").id == "work"
    with pytest.raises(UsageError, match="step plain of x is not an agent, so it has no conversation"):
        check_agent(state, "plain")
    with pytest.raises(UsageError, match="step new of x has no conversation yet: it is pending"):
        contexts(state, [], "new", {}, Settings())


def test_f3_a_view_has_the_limits_of_the_model_and_the_last_pinned_facts() -> None:
    made = ev.AgentSummarised(
        4.0, "work", 1, 1, "model", 100, 30, 6, "haiku", "what was", ("a fact",), Usage(9, 1, usd=0.5)
    )
    state = state_of()
    (found,) = contexts(state, [], None, {}, Settings(context=SETTINGS))
    bare = found.plain()
    assert (bare["runtime"], bare["model"], bare["window"], bare["threshold"]) == ("cli", "claude-opus-4", 9000, 0.6)
    assert (bare["summaries"], bare["pinned"], bare["summary_requested"]) == ([], [], False)
    assert 0 < bare["summarise_at"] <= 9000 * 0.6
    state.apply(ev.AgentSummaryRequested(4.0, "work", "ann"))
    (asked,) = contexts(state, [], None, {}, Settings())
    assert (asked.wanted, asked.window, asked.most) == (True, None, None)
    state.apply(made)
    (after,) = contexts(state, [], None, {}, Settings())
    shown = after.plain()
    assert (shown["summary_requested"], shown["pinned"]) == (False, ["a fact"])
    (summary,) = shown["summaries"]
    assert (summary["number"], summary["by"], summary["tokens_before"], summary["tokens_after"]) == (
        1,
        "model",
        100,
        30,
    )
    assert (summary["messages"], summary["text"], summary["usd"]) == (6, "what was", 0.5)


class Windowed(ScriptedRunner, RunnerHooks):
    """A runtime that knows the windows of its models."""

    def window(self, model: str | None) -> int | None:
        return 1234 if model == "claude-opus-4" else None


def test_f1_the_window_is_that_of_the_settings_else_that_of_the_runtime() -> None:
    def window(**runners: Any) -> list[int | None]:
        settings = (Settings(context=SETTINGS), Settings())
        return [contexts(state_of(), [], "work", runners, given)[0].window for given in settings]

    assert window(cli=Windowed(name="cli")) == [9000, 1234]
    assert window() == [9000, None]
    assert window(cli=ScriptedRunner(name="cli")) == [9000, None]
