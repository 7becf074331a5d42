"""What the events of agents and budgets amount to: the fold, and how it looks from outside (E1, C6, D4)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from windlass.core import events as ev
from windlass.core.agent import AgentState, Cost, WorkPeriod, add_record
from windlass.core.agent_events import token_change
from windlass.core.decide import Policy
from windlass.core.standing import standing_still
from windlass.core.state import fold
from windlass.core.view import snapshot
from windlass.errors import MODEL_API, Category, Failure
from windlass.plan.model import Budget, Plan
from windlass.testing import Simulation

USAGE = ev.Usage(100, 10, usd=0.5, source="runtime", model="m-1")


def begun(*steps: dict[str, Any], **rest: Any) -> Simulation:
    full = [{"agent": "developer", "prompt": "do it", **step} for step in steps or ({"id": "a"},)]
    run = Simulation(Plan.model_validate({"steps": full, **rest}))
    run.start()
    return run


def tell(run: Simulation, *events: ev.Event) -> None:
    """What an attempt tells, through JSON, as a journal would give it back."""
    for event in events:
        run.state.apply(ev.decode(ev.encode(event)))
        run.journal.append(event)


def began(run: Simulation, runtime: str = "cli", step: str = "a", session: str = "s1") -> None:
    now, attempt = run.clock.now(), run.state.steps[step].attempts
    tell(
        run,
        ev.AgentBegan(now, step, attempt, runtime, "developer", "who", "what", "m-0"),
        ev.AgentSession(now, step, attempt, runtime, session),
    )


def used(run: Simulation, usage: ev.Usage, step: str = "a") -> None:
    tell(run, ev.UsageReported(run.clock.now(), step, run.state.steps[step].attempts, usage, "cli", "developer"))


EVERY = [
    ev.AgentBegan(1.0, "a", 1, "cli", "developer", "who", "what", "m", "s1", ("a note",)),
    ev.AgentSession(1.0, "a", 1, "cli", None),
    ev.AgentActed(1.0, "a", 1, "Bash", "ls", {"command": "ls"}),
    ev.UsageReported(1.0, "a", 1, USAGE, "cli", "developer"),
    ev.RuntimeFellBack(1.0, "a", "claude-code", "open-code", "why", final=False),
    ev.BudgetAnswered(1.0, True, "me", "a", "step", 2.5, 7, "note"),
    ev.BudgetWarned(1.0, "a", "passed"),
    ev.ApprovalAsked(1.0, "a", "d", "Bash", {"command": "ls"}, 9.0, 3),
    ev.StepWaiting(1.0, "a", "quota", 9.0, "why", "cli", "day", 2.5, "tokens"),
]


@pytest.mark.parametrize("event", EVERY, ids=ev.type_of)
def test_d4_every_record_of_an_agent_comes_back_as_it_was(event: ev.Event) -> None:
    assert ev.decode(ev.encode(event)) == event


def test_d4_what_an_earlier_version_did_not_write_of_an_agent_says_nothing() -> None:
    spoke, returned, summarised = (
        ev.decode(b'{"type":"agent.%s","at":1.0,"step":"a","attempt":1,%s}' % (kind, rest))
        for kind, rest in (
            (b"spoke", b'"text":"yes"'),
            (b"returned", b'"call":"c","tool":"Bash"'),
            (b"summarised", b'"number":1,"by":"model","tokens_before":9,"tokens_after":3'),
        )
    )
    assert isinstance(spoke, ev.AgentSpoke)
    assert isinstance(returned, ev.AgentReturned)
    assert isinstance(summarised, ev.AgentSummarised)
    assert (spoke.number, returned.failed, returned.size, summarised.messages) == (0, False, 0, 0)
    checked = ev.AgentChecked(1.0, "a", 1, 1, (ev.CheckResult("make test", True, 2.0),))
    assert b'[{"check":"make test","passed":true,"seconds":2.0}]' in ev.encode(checked), "no more than there is"


def test_e1_the_last_word_of_each_attempt_counts_and_attempts_add_up() -> None:
    run = begun({"id": "a", "retry": {"delay": 1}})
    began(run)
    used(run, ev.Usage(50, 5, usd=0.2))
    used(run, USAGE)
    assert run.state.cost == Cost(0.5, 0, 100, 10)
    run.fail("a", Failure(Category.TRANSIENT, "hiccup"))
    run.pass_time(5)
    began(run)
    used(run, ev.Usage(1, 1))
    cost = run.state.steps["a"].agent
    assert cost is not None
    assert cost.cost == Cost(0.5, 1, 101, 11)
    assert cost.model == "m-0", "a report without a model does not take the name away"


def test_k5_the_files_of_a_turn_that_has_not_ended_are_not_known() -> None:
    run = begun()
    began(run)
    agent = run.state.steps["a"].agent
    assert agent is not None
    for moment, tree, changed in (("before", "git:1", None), ("after", "git:2", 3), ("before", "git:2", None)):
        run.state.apply(ev.WorkspaceSnapshot(1.0, "a", 1, moment, "/", tree, changed=changed))
        assert agent.changed == changed


@pytest.mark.parametrize(("changed", "left"), [(3, 0), (None, None)])
def test_d4_an_agent_that_was_undone_has_changed_nothing_that_is_left(changed: int | None, left: int | None) -> None:
    run = begun()
    began(run)
    for moment, tree, files in (("before", "git:1", None), ("after", "git:2", changed)):
        run.state.apply(ev.WorkspaceSnapshot(1.0, "a", 1, moment, "/", tree, changed=files))
    assert len(agent_of(run).periods) == 1
    run.finish("a")
    tell(run, ev.StepUndone(run.clock.now(), "a", "ada"))
    assert (agent_of(run).changed, agent_of(run).periods) == (left, [])


def test_e1_what_is_unknown_is_never_shown_as_nothing() -> None:
    run = begun()
    began(run)
    used(run, ev.Usage(5, 1))
    view = snapshot(run.state)
    assert view["cost"] == {"usd": None, "known": False, "tokens_in": 5, "tokens_out": 1, "text": "unknown"}
    assert view["steps"][0]["cost_usd"] is None
    used(run, ev.Usage(5, 1, usd=0.0))
    assert snapshot(run.state)["cost"]["usd"] == 0.0, "a known nothing is nothing"


def test_e1_a_fan_out_costs_what_its_items_cost() -> None:
    run = begun({"id": "a", "foreach": [1, 2]})
    for step in ("a[0]", "a[1]"):
        began(run, step=step)
        used(run, USAGE, step=step)
    view = snapshot(run.state)
    assert [step["cost_usd"] for step in view["steps"]] == [1.0, 0.5, 0.5]
    assert view["cost"]["usd"] == 1.0, "and nothing is counted twice"


def test_e1_an_attempt_that_died_leaves_an_unknown_behind_however_often() -> None:
    run = begun()
    for count in (1, 2):
        began(run)
        run.crash()
        run.resume()
        assert (run.state.cost.unknown, agent_of(run).lost) == (count, count)
    assert fold(run.journal).cost == run.state.cost
    run.crash()
    run.resume()
    assert run.state.cost.unknown == 2, "one that no runtime was given cost nothing"


def test_a_tool_that_is_used_is_what_one_sees_of_the_step() -> None:
    run = begun()
    tell(run, ev.AgentActed(run.clock.now(), "a", 1, "Bash", "ls " + "x" * 900))
    assert run.state.steps["a"].last_output.startswith("Bash ls x")
    assert len(run.state.steps["a"].last_output) == 500
    tell(run, ev.AgentActed(run.clock.now(), "a", 1, "Write", "", {"file_path": "x.md"}))
    agent = run.state.steps["a"].agent
    assert agent is not None
    assert (len(agent.commands), list(agent.files)) == (1, ["x.md"]), "for the steps after it"


def test_f3_the_first_reply_tells_what_a_runtimes_own_summary_left() -> None:
    run = begun()
    began(run, "open-code")
    now, agent = run.clock.now(), run.state.steps["a"].agent
    assert agent is not None
    tell(run, ev.AgentSummarised(now, "a", 1, 1, "runtime", 150_000, None))
    assert agent.summaries[0].tokens_after is None, "what nobody knows is not 0"
    tell(run, ev.AgentSpoke(now, "a", 1, "text without usage"), ev.AgentSpoke(now, "a", 1, usage=USAGE))
    tell(run, ev.AgentSpoke(now, "a", 1, usage=ev.Usage(900, 1)))
    assert [made.tokens_after for made in agent.summaries] == [100]
    assert token_change(150_000, None) == "150,000 → unknown tokens"
    assert token_change(0, 100) == "unknown → 100 tokens", "journals of earlier versions have 0"


def test_k7_each_runtime_keeps_its_own_conversation_and_its_summaries() -> None:
    run = begun({"id": "a", "retry": 3})
    began(run, "claude-code", session="mine")
    now, agent = run.clock.now(), run.state.steps["a"].agent
    assert agent is not None
    tell(run, ev.AgentSummarised(now, "a", 1, 1, "runtime", 9, 3))
    began(run, "open-code", session="theirs")
    assert (agent.session, list(agent.left), agent.summaries) == ("theirs", ["claude-code"], [])
    began(run, "claude-code", session="mine")
    assert (agent.session, list(agent.left), len(agent.summaries)) == ("mine", ["open-code"], 1)
    tell(run, ev.AgentSession(now, "a", 1, "claude-code", None))
    assert (agent.session, list(agent.left)) == (None, ["open-code"])


def agent_of(run: Simulation) -> AgentState:
    agent = run.state.steps["a"].agent
    assert agent is not None
    return agent


def check(run: Simulation, number: int, *passed: bool) -> None:
    results = tuple(ev.CheckResult("make test", one, 1.0) for one in passed)
    tell(run, ev.AgentChecked(run.clock.now(), "a", 1, number, results))


def test_k5_a_stretch_of_work_ends_with_the_record_after_it() -> None:
    periods: list[WorkPeriod] = []
    add_record(periods, ev.WorkspaceSnapshot(1.0, "a", 1, "before", "/", "git:1"))
    add_record(periods, ev.WorkspaceSnapshot(2.0, "a", 1, "after", "/elsewhere", "git:3"))
    assert periods == [WorkPeriod("/", "git:1", 1.0)]
    add_record(periods, ev.WorkspaceSnapshot(3.0, "a", 1, "after", "/", "git:2"))
    assert periods == [WorkPeriod("/", "git:1", 1.0, after="git:2", ended=3.0)]


@pytest.mark.parametrize(
    ("after", "found", "stretches"),
    [
        ("git:2", "git:2", 1),  # nobody else changed anything since
        ("git:2", "git:3", 2),
        ("", "git:3", 1),  # cut off: nobody knows who did what
        ("", "files:3", 2),  # recorded in another way: the two cannot be compared
    ],
)
def test_k5_a_stretch_of_work_goes_on_unless_somebody_else_changed_files_since(
    after: str, found: str, stretches: int
) -> None:
    periods: list[WorkPeriod] = []
    add_record(periods, ev.WorkspaceSnapshot(1.0, "a", 1, "before", "/", "git:1"))
    if after:
        add_record(periods, ev.WorkspaceSnapshot(2.0, "a", 1, "after", "/", after))
    add_record(periods, ev.WorkspaceSnapshot(3.0, "a", 2, "before", "/", found))
    began = WorkPeriod("/", "git:1", 1.0)
    ended = began._replace(after=after, ended=2.0) if after else began
    assert periods == ([began] if stretches == 1 else [ended, WorkPeriod("/", found, 3.0)])


def test_k5_work_of_two_agents_overlaps_in_one_folder_at_one_time() -> None:
    period = WorkPeriod("/", "git:1", 1.0, after="git:2", ended=2.0)
    others = {
        "during": WorkPeriod("/", "git:1", 1.5, ended=3.0),
        "around": WorkPeriod("/", "git:1", 0.5),
        "elsewhere": WorkPeriod("/other", "git:1", 1.5),
        "before": WorkPeriod("/", "git:1", 0.0, ended=1.0),
        "after": WorkPeriod("/", "git:1", 2.0),
    }
    assert [name for name, other in others.items() if period.overlaps(other)] == ["during", "around"]


def test_an_agent_that_has_just_begun_has_nothing_behind_it() -> None:
    run = begun()
    began(run)
    agent = agent_of(run)
    assert (agent.prompt, agent.lost, agent.api_failures, agent.failing_since) == (0, 0, 0, None)
    assert (agent.unheard, agent.reopening, agent.summary_wanted) == (False, False, False)
    periods: list[WorkPeriod] = []
    add_record(periods, ev.WorkspaceSnapshot(1.0, "a", 1, "before", "/", "git:1"))
    assert periods == [WorkPeriod("/", "git:1", 1.0, after_check=False)]


def test_k3_a_claim_and_its_check_hold_until_the_agent_does_more() -> None:
    run = begun({"id": "a", "check": "make test"})
    began(run)
    now, agent = run.clock.now(), agent_of(run)
    more: list[ev.Event] = [ev.AgentActed(now, "a", 1, "Bash", "ls"), ev.AgentSpoke(now, "a", 1, "and more")]
    for rounds, event in enumerate(more, 1):
        tell(run, ev.AgentClaimed(now, "a", 1, "it is done"))
        assert (agent.claim, agent.checked, agent.rounds) == ("it is done", None, rounds)
        check(run, rounds, True)
        assert (agent.verdict, agent.checks) == ("verified", rounds)
        tell(run, event)
        assert (agent.claim, agent.checked) == (None, None)


def test_k3_failed_checks_are_counted_but_for_one_that_a_person_asked_for() -> None:
    run = begun({"id": "a", "check": "make test"})
    began(run)
    agent, seen = agent_of(run), []
    for number, passed in ((1, False), (2, True), (3, False), (3, False), (0, False)):
        check(run, number, passed)
        seen.append(agent.refused)
    assert seen == [1, 1, 2, 2, 2]


def test_k2_an_agent_that_a_merge_has_go_on_is_checked_from_the_beginning_and_is_done_with_its_commit() -> None:
    run = begun()
    began(run)
    now, agent = run.clock.now(), agent_of(run)
    opened = ev.WorkspaceOpened(now, "a", 1, "worktree", "/w", True, branch="b-1")
    tell(run, opened, ev.AgentClaimed(now, "a", 1, "it is done"))
    assert agent.workspace == opened
    check(run, 1, True)
    tell(run, ev.AgentReopened(now, "a", 2, "merge"))
    assert (agent.reopening, agent.reopened, agent.checks, agent.claim, agent.checked) == (True, 1, 0, None, None)
    tell(run, ev.WorkspaceCommitted(now, "a", 2, "b-1", "c0ffee"))
    assert (agent.reopening, agent.commit) == (False, "c0ffee")
    check(run, 1, True)
    tell(run, ev.AgentReopened(now, "a", 3, "merge"), ev.AgentReopened(now, "a", 3, "merge", "too often"))
    assert (agent.reopening, agent.reopened) == (False, 2)
    tell(run, ev.WorkspaceRemoved(now, "a", "/w"))
    assert agent.workspace is None


def test_k7_messages_are_kept_until_the_agent_has_heard_them_and_a_summary_is_wanted_until_it_is_made() -> None:
    run = begun()
    began(run)
    now, agent = run.clock.now(), agent_of(run)
    tell(run, *(ev.AgentTold(now, "a", name, "stop", "ada") for name in ("m1", "m2")))
    tell(run, ev.AgentHeard(now, "a", 1, ("m1", "unknown"), "steer"))
    assert list(agent.told) == ["m2"]
    tell(run, ev.AgentSummaryRequested(now, "a", "ada"))
    assert agent.summary_wanted
    tell(run, ev.AgentSummarised(now, "a", 1, 1, "model", 9, 3))
    assert not agent.summary_wanted


def test_k7_a_new_attempt_of_an_agent_begins_without_the_waits_of_the_last() -> None:
    run = begun()
    now = run.clock.now()
    tell(
        run,
        ev.AgentBegan(now, "a", 1, "cli", "developer", "who", "what", "m-0", version="1.0"),
        ev.AgentSession(now, "a", 1, "cli", "s1", unheard=True),
        ev.BudgetWaited(now, "a", 1, "others hold $2.00"),
    )
    agent = agent_of(run)
    assert (agent.version, agent.session_version, agent.unheard) == ("1.0", "1.0", True)
    assert agent.waits == (1, "others hold $2.00")
    tell(run, ev.AgentBegan(now, "a", 2, "cli", "developer", "who", "what", "m-0", version="2.0"))
    assert (agent.version, agent.session_version, agent.unheard, agent.waits) == ("2.0", "1.0", False, (0, ""))
    tell(run, ev.AgentSession(now, "a", 2, "open-code", "s2"))
    assert agent.session_version == "", "the version of another runtime says nothing of it"


def test_k5_a_stretch_of_work_is_marked_if_only_a_check_lies_before_it() -> None:
    run = begun()
    for attempt, root in ((1, "/one"), (2, "/two")):
        for moment in ("before", "after"):
            tell(run, ev.WorkspaceSnapshot(1.0, "a", 1, moment, root, f"git:{root}", "a note"))
        tell(run, ev.AgentBegan(1.0, "a", attempt, "cli", "developer", "who", "what"))
    agent = agent_of(run)
    assert [(one.root, one.after_check) for one in agent.periods] == [("/one", False), ("/two", True)]
    assert agent.unrecorded == "a note"
    kept = ev.FilesKept(1.0, "a", 1, "abc", 2, 99)
    tell(run, kept)
    assert run.state.steps["a"].kept == kept


def test_e1_the_longest_prompt_and_the_runtime_of_each_attempt_are_known() -> None:
    run = begun()
    began(run)
    now, agent = run.clock.now(), agent_of(run)
    for tokens in (200, 250, 300):
        used(run, ev.Usage(tokens, 1, model="m-1"))
    assert (agent.prompt, agent.done_by) == (200, {1: ("cli", "m-1")})
    tell(run, ev.UsageReported(now, "a", 2, ev.Usage(7, 1)))
    assert (agent.prompt, agent.done_by[2]) == (200, ("cli", "m-1")), "of a report that names none, the last one's"


def test_a7_a_runtime_that_takes_over_has_its_own_retries_and_its_own_conversation() -> None:
    run = begun({"id": "a", "retry": {"max": 1, "delay": 1}})
    began(run, "claude-code")
    run.fail("a", Failure(Category.TRANSIENT, "no"))
    run.pass_time(60)
    agent, steps = agent_of(run), run.state.steps
    assert (agent.session, steps["a"].failures) == ("s1", {Category.TRANSIENT: 1})
    now = run.clock.now()
    run.running.clear()
    tell(run, ev.RuntimeFellBack(now, "a", "open-code", "cli", "busy", final=False))
    assert (agent.instead, agent.session) == (None, "s1"), "for this attempt alone"
    tell(run, ev.RuntimeFellBack(now, "a", "open-code", "cli", "gone"))
    assert (agent.instead, agent.given_up, agent.session) == ("cli", ("open-code",), "s1")
    tell(run, ev.AttemptFailed(now, "a", 2, Failure(Category.TRANSIENT, "no")))
    tell(run, ev.RuntimeFellBack(now, "a", "claude-code", "cli", "gone"))
    assert (agent.given_up, agent.session, list(agent.left)) == (("open-code", "claude-code"), None, ["claude-code"])
    assert (steps["a"].failures, steps["a"].status) == (None, "paused")


@pytest.mark.parametrize(
    ("given", "session", "unheard", "runtime", "model", "goes_on"),
    [
        ({}, "s1", False, "cli", "m-1", True),
        ({"fresh": True}, None, False, "cli", "m-1", False),
        ({"edits": {"prompt": "do other things"}}, "s1", True, "cli", "m-1", False),
        ({"runtime": "open-code", "model": "m-9"}, "s1", False, "open-code", "m-9", True),
    ],
)
def test_d10_a_retry_of_an_agent_goes_on_in_its_conversation_unless_a_person_wants_a_new_one_or_other_work(
    given: dict[str, Any], session: str | None, unheard: bool, runtime: str, model: str, goes_on: bool
) -> None:
    run = begun({"id": "a", "check": "make test"})
    began(run)
    now, agent, step = run.clock.now(), agent_of(run), run.state.steps["a"]
    run.fail("a", Failure(Category.LOGIC, "no"))
    tell(run, ev.ExecutionReopened(now, "ada"), ev.StepRetried(now, "a", "ada", runtime="cli", model="m-1"))
    rounds = agent.rounds
    tell(run, ev.AgentClaimed(now, "a", 1, "it is done"))
    check(run, 2, False)
    tell(run, ev.StepRetried(now, "a", "ada", **given))
    assert (agent.session, agent.unheard, step.runtime, step.model) == (session, unheard, runtime, model)
    claim, checks = ("it is done", -1) if goes_on else (None, 0)
    assert (agent.claim, agent.checks, agent.checked, agent.rounds) == (claim, checks, None, rounds + 2)


def test_d10_a_fresh_retry_forgets_every_conversation_and_the_checks_that_failed_in_it() -> None:
    run = begun({"id": "a", "check": "make test", "runtime": "claude-code"})
    began(run, "claude-code", session="s1")
    began(run, "open-code", session="s2")
    check(run, 1, False)
    agent = agent_of(run)
    assert (list(agent.left), agent.refused) == (["claude-code"], 1)
    run.fail("a", Failure(Category.LOGIC, "no"))
    now = run.clock.now()
    tell(run, ev.ExecutionReopened(now, "ada"), ev.StepRetried(now, "a", "ada", fresh=True))
    assert (agent.session, agent.left, agent.refused) == (None, {}, 0)


def test_d10_what_an_agent_has_not_heard_is_not_forgotten_by_another_retry() -> None:
    run = begun()
    began(run)
    run.fail("a", Failure(Category.LOGIC, "no"))
    run.state.apply(ev.ExecutionReopened(run.clock.now(), "ada"))
    for edits in ({"prompt": "do other things"}, {}):
        tell(run, ev.StepRetried(run.clock.now(), "a", "ada", edits))
        assert agent_of(run).unheard


def test_d10_a_persons_retry_does_not_wait_for_the_quota_and_asks_the_first_runtime_again() -> None:
    run = begun({"id": "a", "runtime": "claude-code"}, {"id": "b", "runtime": "open-code"})
    began(run, "claude-code")
    now, back = run.clock.now(), run.clock.now() + 3600
    run.fail("a", Failure(Category.TRANSIENT, "no", elsewhere=True, kind=MODEL_API))
    assert run.state.steps["a"].waiting_for == "retry"
    tell(run, ev.AttemptStarted(now, "a", 2, "agent", {}, "repeatable"))
    tell(run, ev.RuntimeFellBack(now, "a", "claude-code", "open-code", "no"))
    wait(run, "quota", back, step="b")
    tell(run, ev.AttemptStopped(now, "a", 2, "paused"))
    run.state.quotas.update({"claude-code": back, "open-code": back})
    tell(run, ev.StepRetried(now, "a", "ada"))
    agent = agent_of(run)
    assert (agent.instead, agent.given_up, agent.gave_up_because, agent.api_failures) == (None, (), "", 0)
    run.pass_time(1)
    assert list(run.running) == ["a"]


WORKER = {"id": "a", "agent": "developer", "prompt": "do it", "workspace": "worktree"}


def test_d10_a_retry_of_a_merge_lets_it_have_its_agents_go_on_as_often_as_before() -> None:
    run = Simulation(Plan.model_validate({"steps": [WORKER, {"id": "m", "merge": "a", "needs": ["a"]}]}))
    run.start()
    began(run)
    run.finish("a")
    tell(run, *(ev.AgentReopened(run.clock.now(), "a", attempt, "m") for attempt in (2, 3)))
    assert agent_of(run).reopened == 2
    run.fail("m", Failure(Category.LOGIC, "no"))
    run.retry("m")
    assert agent_of(run).reopened == 0


def test_e1_an_agent_that_a_merge_had_go_on_leaves_an_unknown_behind_if_the_merge_is_cut_off() -> None:
    run = Simulation(Plan.model_validate({"steps": [WORKER, {"id": "m", "merge": "a", "needs": ["a"]}]}))
    run.start()
    began(run)
    used(run, USAGE)
    run.finish("a")
    now = run.clock.now()
    tell(run, ev.AgentReopened(now, "a", 2, "m"), ev.AgentBegan(now, "a", 2, "cli", "developer", "who", "what"))
    run.crash()
    run.resume()
    assert (run.state.cost, agent_of(run).lost) == (Cost(0.5, 1, 100, 10), 2)
    tell(run, ev.WorkspaceCommitted(now, "a", 2, "b-1", "c0ffee"))
    run.crash()
    run.resume()
    assert run.state.cost.unknown == 1, "it had come to its end"


# -- quota and budget ----------------------------------------------------------------------------


def wait(
    run: Simulation, reason: Any, until: float | None = None, *, step: str = "a", scope: str = "execution"
) -> None:
    now, attempt = run.clock.now(), run.running.pop(step).attempt
    tell(run, ev.AttemptStopped(now, step, attempt, reason))
    tell(run, ev.StepWaiting(now, step, reason, until, "why", "cli", scope))


@pytest.mark.parametrize(
    ("reason", "until", "waits", "expected"),
    [
        ("quota", 60.0, True, None),
        ("quota", 60.0, False, "quota"),
        ("budget", None, True, "budget"),
        ("budget", 0.5, False, None),
    ],
)
def test_what_stands_still_is_what_only_a_person_or_a_long_time_helps(
    reason: str, until: float | None, waits: bool, expected: str | None
) -> None:
    run = begun()
    wait(run, reason, None if until is None else run.clock.now() + until)
    assert standing_still(run.state, Policy(wait_for_quota=waits)) == expected


def test_a_decision_comes_before_money_and_money_before_an_approval() -> None:
    run = begun({"id": "a"}, {"id": "b"}, {"id": "c", "approve": "always"}, limits={"parallel": 8})
    wait(run, "budget")
    assert standing_still(run.state) is None, "b is at work"
    wait(run, "budget", step="b")
    assert standing_still(run.state) == "budget"
    tell(run, ev.BudgetAnswered(run.clock.now(), True, "me", usd=9.0))
    run.pass_time(0)
    for step in ("a", "b"):
        run.finish(step)
    assert run.state.paused_for == "approval"


def test_e3_a_yes_holds_for_its_scope_alone() -> None:
    run = begun({"id": "a"}, {"id": "b"}, {"id": "c"}, limits={"parallel": 8})
    for step, scope in (("a", "step"), ("b", "step"), ("c", "day")):
        wait(run, "budget", step=step, scope=scope)
    tell(run, ev.BudgetAnswered(run.clock.now(), True, "me", "a", "step", 2.0))
    assert set(run.state.questions) == {"b", "c"}
    assert run.state.allowed == {"step:a": Budget(usd=2.0)}
    tell(run, ev.BudgetAnswered(run.clock.now(), True, "me", scope="day", usd=3.0))
    assert set(run.state.questions) == {"b"}


def test_e3_answers_add_up_by_their_unit() -> None:
    run = begun()
    for usd, tokens in ((1.0, None), (None, 500), (2.0, None)):
        tell(run, ev.BudgetAnswered(run.clock.now(), True, "me", usd=usd, tokens=tokens))
    assert run.state.allowed["execution"] == Budget(usd=2.0, tokens=500)
    tell(run, ev.BudgetAnswered(run.clock.now(), True, "me"))
    assert run.state.allowed["execution"] == Budget()


def test_e1_a_limit_that_was_passed_is_told_until_a_person_raises_it_far_enough() -> None:
    run = begun({"id": "a", "foreach": [1]})
    now = run.clock.now()
    tell(run, ev.BudgetWarned(now, "a[0]", "a limit is reached, and it goes on"))
    assert run.state.overruns == {}
    for scope in ("step", "execution"):
        tell(run, ev.BudgetWarned(now, "a[0]", "passed", scope, "usd", 2.0, 2.5))
    seen = []
    for usd in (2.4, 2.5):
        tell(run, ev.BudgetAnswered(now, True, "me", "a", "step", usd))
        seen.append(list(run.state.overruns))
    assert seen == [[("step:a", "usd"), ("execution", "usd")], [("execution", "usd")]]
    tell(run, ev.BudgetAnswered(now, True, "me"))
    assert run.state.overruns == {}, "no limit is passed that is none"


def test_e3_a_no_pauses_the_execution() -> None:
    run = begun({"id": "a"}, {"id": "b", "needs": ["a"]})
    tell(run, ev.BudgetAnswered(run.clock.now(), False, "me"))
    run.finish("a")
    assert (run.state.status, run.state.paused_for) == ("paused", "budget")


def test_e3_a_no_does_not_take_a_cancel_back() -> None:
    run = begun()
    run.cancel()
    tell(run, ev.BudgetAnswered(run.clock.now(), False, "me"))
    assert run.state.wanted is not None
    assert run.state.wanted.kind == "cancel"


def test_a_resume_asks_for_money_anew_and_waits_on_for_a_quota() -> None:
    run = begun({"id": "a"}, {"id": "b"}, limits={"parallel": 8})
    back = run.clock.now() + 600
    wait(run, "quota", back, step="a")
    wait(run, "budget", step="b")
    tell(run, Policy().paused(run.clock.now(), "budget"))
    tell(run, ev.ExecutionResumed(run.clock.now(), "other"))
    assert (run.state.steps["a"].waiting_for, run.state.steps["a"].until) == ("quota", back)
    assert list(run.state.ready) == ["b"]
    assert run.state.quotas == {"cli": back}


def test_an_agent_goes_on_at_the_second_in_which_its_quota_comes_back() -> None:
    run = begun()
    wait(run, "quota", run.clock.now() + 600)
    run.pass_time(599)
    assert run.running == {}
    run.pass_time(1)
    assert list(run.running) == ["a"]


def test_c3_a_reduced_attempt_that_was_interrupted_does_not_go_on_beside_another_that_begins_again() -> None:
    run = begun({"id": "a"}, {"id": "big"})
    run.fail("big", Failure(Category.RESOURCE, "out of memory"))
    wait(run, "budget")
    run.pass_time(60)
    assert list(run.running) == ["big"]
    tell(run, ev.BudgetAnswered(run.clock.now(), True, "me", usd=9.0))
    run.interrupt()
    run.stop("big")
    run.resume()
    assert list(run.running) == ["a"]
    run.pass_time(1)
    assert list(run.running) == ["a"]
    run.finish("a")
    assert list(run.running) == ["big"]


def test_c6_an_agent_that_waits_for_an_answer_leaves_its_place_to_one_other() -> None:
    run = begun({"id": "a"}, {"id": "b"}, {"id": "c"}, limits={"parallel": 1})
    tell(run, ev.ApprovalAsked(run.clock.now(), "a", "d", "Bash", {"command": "ls"}, run.clock.now() + 100, 1))
    run.pass_time(1)
    assert list(run.running) == ["a", "b"]


def test_c6_an_agent_whose_question_nobody_can_answer_is_stopped_at_once_and_the_execution_pauses() -> None:
    run = begun()
    now = run.clock.now()
    tell(run, ev.ApprovalAsked(now, "a", "d", "Bash", {"command": "ls"}, now + 100, 1))
    run.pass_time(1)
    assert run.journal[-1] == ev.ControlRequested(now + 1, "pause", "windlass", now=True, reason="approval")
    run.stop("a")
    assert (run.state.status, run.state.paused_for) == ("paused", "approval")


def test_c6_an_answer_that_an_agent_gets_while_it_runs_is_not_told_to_its_next_attempt() -> None:
    run = begun()
    now = run.clock.now()
    tell(run, ev.ApprovalAsked(now, "a", "d", "Bash", {"command": "ls"}, now + 100, 1))
    tell(run, ev.ApprovalAnswered(now, "a", "d", True, "ada"))
    answered = run.state.steps["a"].approval
    assert answered is not None
    assert (answered.allow, answered.untold) == (True, False)


def test_e3_the_answer_to_an_agent_lets_those_go_on_that_wait_for_its_reservation_and_no_others() -> None:
    run = begun({"id": "a"}, {"id": "b"}, {"id": "c"}, limits={"parallel": 8})
    now = run.clock.now()

    def ask_and_answer(digest: str) -> None:
        tell(run, ev.ApprovalAsked(now, "a", digest, "Bash", {"command": "ls"}, now + 100, 1))
        tell(run, ev.ApprovalAnswered(now, "a", digest, True, "ada"))

    wait(run, "budget", now + 600, step="b")
    ask_and_answer("d1")
    assert list(run.state.ready) == ["b"]
    tell(run, ev.StepWaiting(now, "b", "budget", None, "a person has to allow it"))
    wait(run, "quota", now + 600, step="c")
    ask_and_answer("d2")
    assert (list(run.state.ready), list(run.state.questions)) == ([], ["b"])


def test_c6_what_changed_since_an_answer_takes_it_back_and_not_the_answers_to_the_agents_own_questions() -> None:
    run = begun({"id": "a", "approve": "always"})
    run.driving = run.hold = True
    tell(run, ev.ExecutionResumed(run.clock.now(), "other"))
    run.approve("a")
    now, step = run.clock.now(), run.state.steps["a"]
    tell(run, ev.ApprovalAsked(now, "a", "d", "Bash", {"command": "ls"}, now + 100, 1))
    tell(run, ev.ApprovalAnswered(now, "a", "d", True, "ada"))
    assert len(step.answers or {}) == 2
    tell(run, ev.AttemptStopped(now, "a", 1, "changed", changes=("a file has changed",)))
    assert list(step.answers or {}) == ["d"]


def test_c6_a_question_of_an_agent_that_is_stopped_stays_open() -> None:
    run = begun()
    run.hold = True
    tell(run, ev.ApprovalAsked(run.clock.now(), "a", "d", "Bash", {"command": "ls"}, run.clock.now() + 100, 1))
    run.interrupt()
    run.stop("a")
    assert (run.state.status, list(run.state.questions)) == ("paused", ["a"])
    tell(run, ev.ApprovalAnswered(run.clock.now(), "a", "d", True, "ada"))
    answered = run.state.steps["a"].approval
    assert answered is not None
    assert (answered.untold, list(run.state.ready)) == (True, ["a"]), "the next attempt is told"


def test_e1_an_attempt_whose_worker_died_leaves_an_unknown_behind() -> None:
    run = begun()
    tell(run, ev.AttemptPlaced(run.clock.now(), "a", 1, "worker-7"))
    began(run)
    assert agent_of(run).worker == "worker-7"
    tell(run, ev.AttemptStopped(run.clock.now(), "a", 1, "lost"))
    assert (agent_of(run).worker, run.state.cost.unknown) == ("", 1)


def test_k1_a_model_api_that_fails_before_the_agent_began_counts_for_the_agent() -> None:
    run = begun()
    run.fail("a", Failure(Category.TRANSIENT, "no", kind=MODEL_API))
    agent = agent_of(run)
    assert (agent.role, agent.api_failures, agent.failing_since) == ("developer", 1, run.clock.now())


def test_c6_a_question_that_an_agent_asks_is_denied_when_it_expires_and_the_agent_goes_on() -> None:
    run = begun()
    run.hold, now = True, run.clock.now()
    tell(run, ev.ApprovalAsked(now, "a", "d", "Bash", {"command": "ls"}, now + 100, 1))
    run.pass_time(99)
    assert list(run.state.questions) == ["a"]
    run.pass_time(1)
    answer = run.journal[-1]
    assert isinstance(answer, ev.ApprovalAnswered)
    assert (answer.allow, answer.by, answer.note) == (False, "windlass", "the approval expired")
    step = run.state.steps["a"]
    assert (run.state.questions, step.status, step.waiting_for, step.off_work) == ({}, "running", None, 100.0)


def test_e1_what_steps_had_cost_that_a_changed_plan_makes_begin_anew_still_counts_once() -> None:
    run = begun({"id": "a"}, {"id": "b"})
    for step in ("a", "b"):
        began(run, step=step)
        used(run, USAGE, step=step)
    run.finish("a")
    run.fail("b", Failure(Category.LOGIC, "no"))
    run.retry("b")
    spent = run.state.cost
    assert spent.usd == 1.0
    event = ev.ExecutionReplanned(run.clock.now(), msgspec.Raw(run.plan.encoded), ev.Source())
    for _ in range(2):
        tell(run, event)
        assert run.state.cost == spent


def test_d5_a_changed_plan_leaves_a_quota_no_question() -> None:
    run = begun()
    wait(run, "quota", run.clock.now() + 600)
    tell(run, Policy().paused(run.clock.now(), "quota"))
    changed = run.plan.model_copy(update={"name": "other"})
    event = ev.ExecutionReplanned(run.clock.now(), msgspec.Raw(changed.encoded), ev.Source())
    tell(run, event)
    assert run.state.questions == {}
    assert run.state.next_timer() == run.clock.now() + 600


def test_b2_the_delegation_names_who_did_what_in_the_order_of_the_work() -> None:
    run = begun({"id": "b", "agent": "reviewer", "needs": ["a"]}, {"id": "a"})
    began(run)
    run.finish("a", "words")
    assert snapshot(run.state)["delegation"] == [
        {
            "step": "a",
            "role": "developer",
            "runtime": "cli",
            "handed_over_by": [],
            "status": "completed",
            "output": "words",
        },
        {
            "step": "b",
            "role": "reviewer",
            "runtime": None,
            "handed_over_by": ["a"],
            "status": "running",
            "output": None,
        },
    ]
