"""Quotas that are used up and budgets that are spent, with the real runtimes (E1, E3): wait, stop, and go on."""

from __future__ import annotations

import re
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from agent_project import CLAUDE, CLAUDE_AND_SOAK, OPEN, agent, price, serving, told, wait_for, write
from opencode_fixtures import needs_opencode
from waiting import settled, skip_time

import windlass as library
from windlass.clock import SystemClock
from windlass.core import events as ev
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Windlass

    from windlass.testing import Received

DEAR = 200_000
"""Tokens that cost 60 cents to read."""


# -- quota -------------------------------------------------------------------------------------------


class Limit:
    """A script: the first request meets a subscription's limit, the next one is answered."""

    seconds = 7200

    def __init__(self) -> None:
        self.resets_at = 0.0

    def __call__(self, _received: Received) -> Reply:
        if self.resets_at:
            return Reply.say("There it is again.")
        self.resets_at = float(int(time.time() + self.seconds))
        limits = {"status": "rejected", "reset": f"{self.resets_at:.0f}", "representative-claim": "five_hour"}
        headers = {f"anthropic-ratelimit-unified-{name}": value for name, value in limits.items()}
        return Reply.error(429, "limit reached", headers={**headers, "retry-after": f"{self.seconds:.0f}"})


def subscribed(project: Project) -> None:
    """Claude Code hears of resets only where it is logged in; its retries are those that Windlass leaves it."""
    project.env |= {"CLAUDE_CODE_OAUTH_TOKEN": "scripted", "ANTHROPIC_API_KEY": ""}
    del project.env["CLAUDE_CODE_MAX_RETRIES"]


def to_reset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the clock of engines in this process to the time after the limit, for what waits until then, too."""
    now = SystemClock.now
    monkeypatch.setattr(SystemClock, "now", lambda clock: now(clock) + Limit.seconds)
    skip_time(Limit.seconds)


def as_user(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine in this process is that of the project's user."""
    for name, value in project.env.items():
        monkeypatch.setenv(name, value)


async def test_e_a_used_up_quota_is_waited_for_and_then_it_goes_on_by_itself(
    project: Project, windlass: Windlass, monkeypatch: pytest.MonkeyPatch, until: Any
) -> None:
    limit = Limit()
    with serving(project, limit) as model:
        subscribed(project)
        waits = windlass.background("run", "--task", "be patient", "--runtime", CLAUDE)
        until(lambda: "waits until" in waits.err)
        waits.signal(signal.SIGINT)
        assert waits.ended().code == 130, waits.err
        as_user(project, monkeypatch)
        (execution,) = project.ids()
        async with library.open() as engine:
            running = await engine.resume(execution)
            await settled()
            assert len(model.requests) == 1, "nobody asks before the time has come"
            to_reset(monkeypatch)
            state = await running.wait()
    model.check()
    (step,) = state.steps.values()
    assert step.agent is not None
    assert (step.output, step.agent.runtime, len(model.requests)) == ("There it is again.", CLAUDE, 2)
    waited = next(event for event in told(project, ev.StepWaiting) if event.reason == "quota")
    assert (waited.until, waited.runtime) == (limit.resets_at, CLAUDE)
    second = told(project, ev.AgentBegan)[1]
    assert second.at >= waited.until
    assert told(project, ev.RuntimeFellBack) == [], "whoever has a quota that comes back is waited for"
    assert told(project, ev.AttemptFailed) == []


async def test_e_with_no_wait_a_used_up_quota_pauses_with_6_and_a_resume_after_the_reset_goes_on(
    project: Project, windlass: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(project, Limit()) as model:
        subscribed(project)
        stopped = windlass("run", "--task", "do not wait", "--runtime", CLAUDE, "--no-wait", "--json", code=6)
        (execution,) = project.ids()
        assert stopped.json["reason"] == "quota"
        assert "available again at" in stopped.err
        assert stopped.command("resume").startswith(f"windlass resume {execution}")
        as_user(project, monkeypatch)
        to_reset(monkeypatch)
        async with library.open() as engine:
            state = await (await engine.resume(execution)).wait()
    model.check()
    assert [step.output for step in state.steps.values()] == ["There it is again."]
    assert len({event.session for event in told(project, ev.AgentSession)}) == 1
    assert project.state(execution).status == "completed"


def test_e_claude_code_waits_for_a_short_limit_itself_and_that_is_said(project: Project, windlass: Windlass) -> None:
    """With a key there are no resets, but a time after which to ask again."""
    slow = Reply.error(429, "slow down", headers={"retry-after": "1"})
    with serving(project, [slow, Reply.say("Here.")]) as model:
        del project.env["CLAUDE_CODE_MAX_RETRIES"]
        ran = windlass("run", "--task", "be patient", "--runtime", CLAUDE)
    model.check()
    assert "Here." in ran.out
    assert "Claude Code asks the model again in 1.0 s after 429 (1 of 2)" in ran.err
    assert len(told(project, ev.AgentBegan)) == 1


@needs_opencode
def test_e_opencode_waits_for_a_short_limit_itself_and_the_engine_for_a_long_one(
    project: Project, windlass: Windlass
) -> None:
    short = Reply.error(429, "slow down", headers={"retry-after": "1"}, when="a short one")
    long = Reply.error(429, "come back later", headers={"retry-after": "3600"}, when="a long one")
    project.file("tasks.yaml", "[{id: short, task: a short one}, {id: long, task: a long one}]")
    with serving(project, [short, long, Reply.say("Here.", when="a short one")]) as model:
        told_so = ["--task-file", "tasks.yaml", "--runtime", OPEN, "--no-wait", "--no-fallback"]
        stopped = windlass("run", *told_so, "--json", code=6)
        model.check()
        assert len(model.requests) == 3
        (execution,) = project.ids()
        windlass("resume", execution, "--no-wait", code=6)
    assert len(model.requests) == 3, "nobody asks before the time has come"
    assert [(step["id"], step["status"]) for step in stopped.json["steps"]] == [
        ("short", "completed"),
        ("long", "waiting"),
    ]
    assert stopped.json["steps"][1]["waiting_for"] == "quota"
    waited = next(event for event in told(project, ev.StepWaiting) if event.reason == "quota")
    assert waited.until - waited.at == pytest.approx(3600, abs=60)
    assert re.search(r"OpenCode retries in [01] s \(attempt 1\): ", stopped.err)


# -- budget ------------------------------------------------------------------------------------------


@CLAUDE_AND_SOAK
def test_e1_a_spent_budget_stops_with_5_and_more_of_it_goes_on_in_the_same_conversation(
    project: Project, windlass: Windlass, runtime: str
) -> None:
    """Claude Code minds the budget itself; OpenCode may be in the next call already when it is stopped."""
    target = project.path / "a.txt"
    script = [
        write(runtime, target, text="This is dear.", tokens_in=DEAR, tokens_out=1000),
        Reply.say("Worth it.", when="You were interrupted", tokens_in=2000, tokens_out=100),
        Reply.hang(repeat=True),
    ]
    with serving(project, script) as model:
        told_so = ["--task", "spend a lot", "--runtime", runtime, "--budget", "0.50", "--yes"]
        stopped = windlass("run", *told_so, "--json", code=5)
        asked = len(model.requests)
        assert asked == 1 if runtime == CLAUDE else asked <= 2
        assert stopped.json["reason"] == "budget"
        (execution,) = project.ids()
        assert "pausing: budget limit reached, and no terminal to ask for more" in stopped.err
        assert re.search(rf"windlass resume {execution} --budget 1\.\d\d ", stopped.err), stopped.err
        if runtime == CLAUDE:
            (passed,) = stopped.json["budget"]["overruns"]
            assert (passed["scope"], passed["limit"]) == ("execution", 0.5)
            assert f"! over budget: {passed['text']}" in stopped.err
        windlass("resume", execution, "--yes", code=5)
        assert len(model.requests) == asked, "without more money nothing is asked"
        ran = windlass("resume", execution, "--budget", "10", "--json", "--yes")
        day = windlass("budget", "--json").json["day"]
    model.check()
    step, who = agent(ran)
    assert step["output"] == "Worth it."
    assert who["cost"]["tokens_in"] == DEAR + 2000
    assert day["tokens"] == DEAR + 2000 + 1100
    assert len({event.session for event in told(project, ev.AgentSession)}) == 1
    assert "This is dear." in model.requests[-1].text
    if who["cost"]["known"]:
        assert who["cost"]["usd"] == day["spent_usd"] == pytest.approx(price(DEAR + 2000, 1100))
    else:
        assert (runtime, day["unknown"]) == (OPEN, 1), "a call that was cut off"
        assert day["assumed_usd"] > 0


def test_e1_two_runs_at_once_cannot_pass_a_limit_of_the_day_together(
    project: Project, windlass: Windlass, until: Any
) -> None:
    """Both fit with what is reserved, and are in their first call when it turns out what it costs. One has to stop."""
    both_there, one_stopped = threading.Event(), threading.Event()
    script = []
    for name in "ab":
        script.append(write(CLAUDE, project.path / name, when=f"work {name}", tokens_in=DEAR, hold=both_there))
        script.append(Reply.say("done", when=f"work {name}", tokens_in=10_000, hold=one_stopped))
    with serving(project, script, budget={"day": 1.0, "reserve_usd": 0.25}) as model:
        runs = [windlass.background("run", "--task", f"work {name}", "--runtime", CLAUDE, "--yes") for name in "ab"]
        wait_for(model, 2, *runs)
        both_there.set()
        until(lambda: any(isinstance(e, ev.AttemptStopped) for id in project.ids() for e in project.events(id)))
        one_stopped.set()
        ended = sorted((run.ended() for run in runs), key=lambda ran: ran.code)
        day = windlass("budget", "--json").json["day"]
    # The other one is stopped as well, or in its last call by then, which is paid for.
    assert [ran.code for ran in ended] in ([0, 5], [5, 5]), "\n".join(map(str, ended))
    assert all("the limit of $1.00 for today is" in ran.err for ran in ended if ran.code == 5)
    exceeded = "! over budget: the limit of $1.00 for today is exceeded: $1."
    assert any(exceeded in ran.err for ran in ended), "\n".join(map(str, ended))
    assert (day["left_usd"], day["reserved_usd"]) == (0.0, 0.0)
    assert 2 * DEAR <= day["tokens"] < 2 * DEAR + 21_000


def test_e1_a_limit_in_tokens_is_minded_by_the_engine_alone(project: Project, windlass: Windlass) -> None:
    """Claude Code knows no such limit: it is stopped once it tells of more, in the next call at most."""
    script = [
        write(CLAUDE, project.path / "a.txt", text="This is long.", tokens_in=9_000),
        Reply.say("It was.", when="You were interrupted"),
        Reply.hang(repeat=True),
    ]
    with serving(project, script) as model:
        stopped = windlass("run", "--task", "read", "--runtime", CLAUDE, "--budget-tokens", "5000", "--yes", code=5)
        assert len(model.requests) <= 2
        assert "the limit of 5,000 tokens for this execution is exceeded (9,00" in stopped.err
        (execution,) = project.ids()
        ran = windlass("resume", execution, "--budget-tokens", "50000", "--yes")
    model.check()
    assert "It was." in ran.out
    assert "This is long." in model.requests[-1].text
