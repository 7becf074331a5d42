"""Notifications (I8): each kind, from the command line to a real mail server, webhook, chat, desktop and terminal."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from windlass import Plan, Step
from windlass.core import events as ev
from windlass.core.state import fold
from windlass.errors import Category, Failure
from windlass.notify.texts import Wording
from windlass.notify.watch import ExecutionWatch, NoteMaker
from windlass.ports import Note
from windlass.settings import NotifyRule
from windlass.testing import Reply

if TYPE_CHECKING:
    from conftest import Project, Windlass
    from notify_world import Receivers

ASKS = "name: release\nsteps: [{id: push, run: 'echo the-command-itself', approve: always}]"
FAILS = "name: nightly\nsteps: [{id: build, run: 'echo the-words >&2; exit 3'}]"
WORKS = "name: nightly\nsteps: [{id: build, run: 'true'}]"
DEAR = {"tokens_in": 1_000_000, "tokens_out": 1000}
PRICES = "[prices.'the-model']\ninput = 1.0\noutput = 0.0\n"
"""A call of `DEAR` costs a dollar."""
MODEL = ("--model", "anthropic:the-model")
Served = Callable[..., dict[str, str]]


def test_i8_a_question_is_mailed_with_all_it_takes_to_answer_and_no_content(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "post", "on": ["approval"]})
    windlass("run", project.plan(ASKS), code=3)
    (execution,) = project.ids()
    (mail,) = receivers.mails
    assert mail["Subject"] == "release: step push is waiting for approval"
    assert (mail["To"], mail["Auto-Submitted"]) == ("ana@example.com", "auto-generated")
    text = mail.get_content().replace("\r\n", "\n")
    assert f"windlass approve {execution} push\n" in text
    assert f"windlass approve {execution} push --deny" in text
    assert "the-command-itself" not in text, "content leaves only when it is asked for"
    assert "http" not in text, "there is no server to link to"
    assert receivers.outbox() == [("approval", "post", "sent")]


def test_i8_with_content_the_question_itself_is_in_it(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "content": True}, {"to": "chat"})
    windlass("run", project.plan(ASKS), code=3)
    windlass("run", project.plan(FAILS), code=1)
    asked, failed = receivers.hooks
    assert "the-command-itself" in asked["content"]
    assert "the-command-itself" in asked["text"]
    assert "the-words" in failed["content"]
    assert not any("the-" in chat["message"] for chat in receivers.chats), "each rule decides for itself"


def test_i8_a_failure_is_told_with_its_step_and_category(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "on": "failed"})
    windlass("run", project.plan(FAILS), code=1)
    windlass("run", project.plan(WORKS), code=0)
    (told,) = receivers.hooks
    assert (told["kind"], told["status"], told["plan"]) == ("failed", "failed", "nightly")
    assert (told["step"], told["category"], told["execution"]) == ("build", "logic", project.ids()[0])
    assert told["title"] == "nightly: failed"
    assert "Step build failed: logic." in told["text"]
    assert "the-words" not in str(told)


def test_i8_a_night_without_a_backup_is_told_as_a_failure_although_its_alarm_ran(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    """The plan of the guide, in a folder without `data`: a failed night that a rule for failures did not tell of."""
    receivers.rules({"to": "hook", "on": ["failed"]}, {"to": "chat", "on": ["done"]}, {"to": "chat", "on": ["failed"]})
    page = (Path(__file__).parents[2] / "docs" / "guides" / "nightly.md").read_text()
    (plan,) = re.findall(r"^```yaml\n(name: backup\n.*?)^```", page, re.DOTALL | re.MULTILINE)
    ran = windlass("run", project.plan(plan.replace("delay: 1m", "delay: 10ms")), "--json", code=1)
    assert ran.json["status"] == "partial"
    (told,) = receivers.hooks
    assert (told["kind"], told["status"], told["step"]) == ("failed", "partial", "pack")
    assert told["title"] == "backup: partial, step pack failed"
    assert "Step pack failed: logic.\nWithout a result: pack, check, prune." in told["text"]
    (chat,) = receivers.chats  # a rule for `done` is told of it too, and one place once
    assert (chat["title"], chat["type"]) == (told["title"], "failure")


def test_i8_a_partial_end_names_each_failed_step_once(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "on": ["failed"]})
    steps = "{id: n, run: 'false', foreach: [1]}, {id: a, run: 'false'}, {id: b, run: 'true'}"
    windlass("run", project.plan(f"name: night\nsteps: [{steps}]"), code=1)
    (told,) = receivers.hooks
    assert "Step n failed: logic.\nAlso failed: a.\nWithout a result: n, a." in told["text"]


def test_i8_the_end_is_told(project: Project, windlass: Windlass, receivers: Receivers) -> None:
    receivers.rules({"to": "chat", "on": ["done"]})
    windlass("run", project.plan(WORKS))
    (chat,) = receivers.chats
    assert (chat["title"], chat["type"]) == ("nightly: completed", "success")


def test_i8_a_cancelled_execution_is_told_by_the_process_that_cancels_it(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "on": ["done"]})
    windlass("run", project.plan(ASKS), code=3)
    windlass("cancel", project.ids()[0])
    (told,) = receivers.hooks
    assert told["status"] == "cancelled"


def test_i8_a_detached_execution_tells_of_its_end(
    project: Project, windlass: Windlass, receivers: Receivers, until: Any
) -> None:
    receivers.rules({"to": "hook", "on": ["done"]})
    windlass("run", "--detach", project.plan(WORKS))
    until(lambda: receivers.hooks, "the detached driver posts")
    assert receivers.hooks[0]["status"] == "completed"


def test_i8_rules_choose_by_plan_and_by_time(project: Project, windlass: Windlass, receivers: Receivers) -> None:
    receivers.rules({"to": "hook", "plans": "release*"}, {"to": "chat", "after": "1h"})
    windlass("run", project.plan(WORKS))
    windlass("run", project.plan(WORKS.replace("nightly", "release-2")))
    windlass("run", project.plan(ASKS), code=3)
    assert [told["plan"] for told in receivers.hooks] == ["release-2", "release"]
    assert receivers.chats == [], "nothing took an hour, and no question waited that long"
    windlass("approve", project.ids()[-1], "push")
    windlass("resume", project.ids()[-1])
    assert receivers.outbox()[-2:] == [("approval", "chat", "waiting"), ("done", "hook", "sent")]


def test_i8_a_question_that_is_answered_in_time_is_not_told(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "on": ["approval"], "after": "1h"})
    windlass("run", project.plan(ASKS), code=3)
    windlass("approve", project.ids()[0], "push")
    receivers.bring_forward()
    windlass("run", project.plan(WORKS))  # the next process that drives looks after what is left
    assert receivers.hooks == []
    assert receivers.outbox() == [("approval", "hook", "moot")]


def test_i8_a_question_that_waited_long_enough_is_told_by_the_next_process(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "hook", "on": ["approval"], "after": "1h"})
    windlass("run", project.plan(ASKS), code=3)
    assert receivers.outbox() == [("approval", "hook", "waiting")]
    receivers.bring_forward()
    windlass("run", project.plan(WORKS))
    assert receivers.outbox() == [("approval", "hook", "sent")]
    assert receivers.hooks[0]["execution"] == project.ids()[0]


def test_i8_what_yes_answers_is_not_told(project: Project, windlass: Windlass, receivers: Receivers) -> None:
    receivers.rules({"to": "hook", "on": ["approval"]})
    windlass("run", "--yes", project.plan(ASKS))
    assert (receivers.hooks, receivers.outbox()) == ([], [("approval", "hook", "moot")])


def test_i8_a_question_of_an_execution_that_waits_for_its_answer_is_told(
    project: Project, windlass: Windlass, receivers: Receivers, until: Any
) -> None:
    receivers.rules({"to": "hook", "on": ["approval", "done"]})
    execution = windlass.detached(project.plan(ASKS))
    until(lambda: receivers.hooks, "the detached driver, which stays, tells of it")
    windlass("approve", execution, "push")
    until(lambda: len(receivers.hooks) == 2, "and of its end")
    assert [told["kind"] for told in receivers.hooks] == ["approval", "done"]


def test_i8_the_desktop_gets_title_and_text_as_arguments(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "desktop", "on": ["done"]})
    env = receivers.desktop()
    windlass("run", project.plan(WORKS.replace("nightly", "--help $(touch gotcha) `x` 'y")), **env)
    ((name, dashes, title, text),) = receivers.desk
    assert (name, dashes) == ("--app-name=Windlass", "--")
    assert title == "--help $(touch gotcha) 'x' 'y: completed"
    assert f"windlass --home {project.home} status {project.ids()[0]}" in text, "who reads it is on this machine"
    assert not (project.path / "gotcha").exists()


def test_i8_the_bell_rings_in_the_terminal_that_runs_it(
    project: Project, windlass: Windlass, receivers: Receivers
) -> None:
    receivers.rules({"to": "bell", "on": ["done"]})
    terminal = windlass.terminal("run", project.plan(WORKS))
    assert terminal.ended().err.count("\a") == 1
    ran = windlass("run", project.plan(WORKS))
    assert "\a" not in ran.err, "there is no terminal, and nobody to hear it"
    assert len(receivers.outbox()) == 1


def test_i8_a_budget_is_told_of_at_four_fifths_once(
    project: Project, windlass: Windlass, receivers: Receivers, served: Served
) -> None:
    receivers.rules({"to": "hook", "on": ["budget"]})
    receivers.add(f"{PRICES}[budget.day]\nusd = 4.8\n")
    for number in range(2):
        prompts = [f"Do {number}{letter}." for letter in "ab"]
        env = served(*(Reply.say("Yes.", when=prompt, **DEAR) for prompt in prompts))
        steps = ", ".join(f"{{id: s{n}, agent: developer, prompt: {prompt}}}" for n, prompt in enumerate(prompts))
        windlass("run", project.plan(f"name: dear\nsteps: [{steps}]"), *MODEL, **env)
        assert len(receivers.hooks) == number, "two dollars are less than four fifths of 4.80, four are more"
    (told,) = receivers.hooks
    assert (told["kind"], told["scope"], told["limit"], told["spent"]) == ("budget", "day", 4.8, 4.0)
    assert told["title"] == "Budget: 83 % of the limit for today is used"
    assert "$4.00 of $4.80 is used for today." in told["text"]


def test_i8_a_question_for_more_budget_is_told_to_both_kinds_of_rule(
    project: Project, windlass: Windlass, receivers: Receivers, served: Served
) -> None:
    receivers.rules({"to": "hook", "on": ["approval"]}, {"to": "chat", "on": ["budget"]})
    receivers.add(PRICES)
    env = served(Reply.say("1st", when="Do the first.", **DEAR))
    plan = (
        "steps: [{id: a, agent: developer, prompt: Do the first.}, {id: b, agent: developer, prompt: No., needs: [a]}]"
    )
    windlass("run", project.plan(plan), *MODEL, "--budget", "1", code=5, **env)
    (asked,) = receivers.hooks
    assert (asked["kind"], asked["step"], asked["reason"]) == ("budget", "b", "budget")
    assert f"windlass resume {project.ids()[0]} --budget USD" in asked["commands"]
    assert sorted(chat["title"] for chat in receivers.chats) == [
        "Budget: 100 % of the limit for plan is used",
        "plan: step b needs a decision",
    ]


def test_i8_an_unknown_outcome_is_a_question_too(
    project: Project, windlass: Windlass, receivers: Receivers, until: Any
) -> None:
    receivers.rules({"to": "hook", "on": ["approval"]})
    execution = windlass.detached(project.plan("steps: [{id: ship, run: 'touch begun; sleep 60', effect: once}]"))
    until(lambda: (project.path / "begun").exists(), "the step is under way")
    windlass.kill(execution)
    windlass("resume", execution, code=3)
    (asked,) = receivers.hooks
    assert (asked["kind"], asked["step"], asked["reason"]) == ("approval", "ship", "outcome")
    assert f"windlass resume {execution} --again ship" in asked["commands"]


def test_i8_a_quota_is_told_of_once_and_its_return_when_agents_work_again() -> None:
    steps = [Step(id=name, agent="developer", prompt="Do it.") for name in "abc"]
    created = ev.ExecutionCreated(1.0, "x1", msgspec.Raw(Plan(name="both", steps=steps).encoded), {}, "/")
    state = fold([created])
    wording = Wording("/home/.windlass", None, str)
    maker = NoteMaker([NotifyRule(to="hook", on="quota")], wording, lambda: None, lambda: "p1", bell=False)  # type: ignore[arg-type]

    def told(*events: ev.Event) -> list[Note]:
        for event in events:
            state.apply(event)
        return list(watch(events))

    def starts(step: str, at: float) -> ev.AttemptStarted:
        return ev.AttemptStarted(at, step, state.steps[step].attempts + 1, "agent", {}, "repeatable")

    def waits(step: str, at: float, until: float) -> tuple[ev.Event, ...]:
        stopped = ev.AttemptStopped(at, step, state.steps[step].attempts, "quota")
        return stopped, ev.StepWaiting(at, step, "quota", until, "5-hour limit reached by somebody", "cli")

    watch = ExecutionWatch(state, maker, lambda state, step: None)
    told(ev.ExecutionStarted(2.0, "p1"), *(starts(step, 3.0) for step in "abc"))
    (reached,) = told(*waits("a", 4.0, 60.0), *waits("b", 4.0, 61.0))
    assert reached.title == "both: quota of cli is used up"
    assert "somebody" not in str(reached), "the words of a service may hold anything"
    assert told(*waits("c", 5.0, 61.0)) == [], "one account is told of once"
    assert told(starts("a", 62.0)) == [], "a try is no proof"
    assert told(*waits("a", 63.0, 90.0)) == [], "it is not back: nothing new"
    watch = ExecutionWatch(state, maker, lambda state, step: None)  # another process goes on
    assert told(ev.ExecutionResumed(80.0, "p2"), *waits_again("b", 81.0)) == []
    (back,) = told(starts("a", 91.0), ev.AttemptFinished(92.0, "a", 3, "done"))
    assert (back.title, back.data["status"]) == ("both: quota is back", "back")
    assert told(starts("b", 93.0), ev.AttemptFinished(94.0, "b", 2, "done")) == []


def waits_again(step: str, at: float) -> tuple[ev.Event, ...]:
    return (ev.StepWaiting(at, step, "quota", 90.0, "", "cli"),)


def test_i8_the_return_of_a_quota_is_told_while_the_execution_is_paused(
    project: Project, windlass: Windlass, receivers: Receivers, served: Served, until: Any
) -> None:
    receivers.rules({"to": "hook", "on": ["quota"]})
    back = int(time.time()) + 3 * 3600
    env = served(Reply.error(429, "limit", headers={"anthropic-ratelimit-unified-reset": str(back)}, repeat=True))
    windlass("run", "--task", "Do it", "--no-wait", code=6, **env)
    assert receivers.outbox() == [("quota", "hook", "sent"), ("quota", "hook", "waiting")]
    receivers.bring_forward()
    windlass.background("serve", "--port", "0", "--json")
    until(lambda: len(receivers.hooks) == 2, "the server tells of it when it is back")
    assert [told["status"] for told in receivers.hooks] == ["used up", "back"]
    assert f"windlass resume {project.ids()[0]}" in receivers.hooks[1]["commands"]


@pytest.mark.parametrize("ends", ["finished", "failed", "stopped"])
def test_i8_the_limits_are_looked_at_after_every_end_of_an_attempt(ends: str) -> None:
    step = Step(id="a", agent="developer", prompt="Do it.")
    created = ev.ExecutionCreated(1.0, "x1", msgspec.Raw(Plan(name="one", steps=[step]).encoded), {}, "/")
    state = fold([created])
    rules = [NotifyRule(to="hook", on="budget")]
    maker = NoteMaker(rules, Wording("/home/.windlass", None, str), lambda: None, lambda: "p1", bell=False)  # type: ignore[arg-type]
    looked: list[str] = []
    watch = ExecutionWatch(state, maker, lambda _state, step: looked.append(step))
    end: dict[str, ev.Event] = {
        "finished": ev.AttemptFinished(4.0, "a", 1, "done"),
        "failed": ev.AttemptFailed(4.0, "a", 1, Failure(Category.LOGIC, "no")),
        "stopped": ev.AttemptStopped(4.0, "a", 1, "paused"),
    }
    events = (ev.ExecutionStarted(2.0, "p1"), ev.AttemptStarted(3.0, "a", 1, "agent", {}, "repeatable"), end[ends])
    for event in events:
        state.apply(event)
    watch(events)
    assert looked == ["a"]
