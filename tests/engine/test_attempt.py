"""One attempt of an agent: what it asks of the runtime, how it goes on, and what it says of its end (A1, A5, K1)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from agent_worlds import GONE, AgentWorld, agent, done, occurred, plan

from windlass.core import events as ev
from windlass.core.breaker import Breaker
from windlass.core.budget import tokens_of
from windlass.engine import driver
from windlass.engine.agents.runtimes import GuardedRunner
from windlass.engine.gates.memory import MemoryGateStore
from windlass.errors import REFUSED_CONTENT, Category, Failure
from windlass.homes import user_folder
from windlass.journal.memory import MemoryLedger
from windlass.ports import AgentRequest, AgentResult, Amount, Charge, Host, Usage
from windlass.testing import FakeClock, ScriptedRunner, Turn
from windlass.trust import Trust

if TYPE_CHECKING:
    from conftest import Project

Act = Callable[[Host], Awaitable[AgentResult]]


def cli(*script: Turn) -> ScriptedRunner:
    return ScriptedRunner(script, name="cli")


class Acting(ScriptedRunner):
    """A runtime that keeps no conversation; its agent does with the host what functions do, one for each run."""

    def __init__(self, *acts: Act) -> None:
        super().__init__(name="cli")
        self.acts = list(acts)

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        self.requests.append(request)
        return await self.acts.pop(0)(host)


class Late(ScriptedRunner):
    """A runtime that reports what a turn used with its result alone."""

    def __init__(self, *results: AgentResult) -> None:
        super().__init__(name="cli")
        self.results = list(results)

    async def run(self, request: AgentRequest, host: Host) -> AgentResult:
        self.requests.append(request)
        return self.results.pop(0)


class Priced(ScriptedRunner):
    """A runtime that notes the sizes of prompts that it is asked the price of."""

    sizes: list[int]

    def call_cost(self, model: str | None, prompt: int) -> Amount:
        self.sizes = [*getattr(self, "sizes", []), prompt]
        return Amount(0.01, 10)


def told(events: list[ev.Event], kind: type[ev.Event]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def notes(events: list[ev.Event]) -> str:
    return "".join(event.text for event in told(events, ev.OutputWritten) if event.stream == "note")


# -- what it asks ---------------------------------------------------------------------------------


async def test_a1_a_request_has_all_that_the_step_says_and_the_journal_has_the_prompt(project: Project) -> None:
    runner = cli(done(), done())
    world = AgentWorld(project, runner)
    given = agent("given", model="m-1", max_turns=7, prompt="{{ inputs.what }}", output={"type": "object"}, tries=1)
    state = await world.run(plan(agent("plain"), given, inputs={"what": {"do": "größer"}}, limits={"parallel": 1}))
    plain, other = runner.requests
    assert (plain.id, plain.task) == (f"{state.id}:plain:1", "do plain")
    assert (plain.session, plain.inherited, plain.form, plain.model, plain.handoff) == (None, None, None, None, ())
    assert plain.metadata == {"execution": state.id, "step": "plain"}
    assert (other.model, other.max_turns, other.form) == ("m-1", 7, {"type": "object"})
    assert other.task == '{"do": "größer"}'
    assert '{"do": "größer"}\n\n' in other.brief.prompt, "the form of the result comes after the task"
    assert '"object"' in other.brief.prompt
    assert '"object"' not in plain.brief.prompt
    began = told(await world.events(state.id), ev.AgentBegan)
    assert [(one.runtime, one.role, one.model, one.session) for one in began] == [
        ("cli", "developer", "", None),
        ("cli", "developer", "m-1", None),
    ]
    assert [one.prompt for one in began] == [plain.brief.prompt, other.brief.prompt]
    assert {one.heading for one in await world.ledger.spent("model")} == {"", "m-1"}


DRAFT = "```yaml\nname: drafted\nsteps: [{id: a, run: 'true'}]\n```"


@pytest.mark.parametrize("limit", [None, 2.5])
async def test_k9_an_agent_that_drafts_a_plan_is_told_the_tools_the_roles_and_the_budget(
    project: Project, limit: float | None
) -> None:
    runner = cli(Turn().say(DRAFT))
    state = await AgentWorld(project, runner).run(plan(agent(output="plan"), budget=limit))
    assert state.status == "completed", state.error
    assert state.steps["work"].agent is not None
    assert state.steps["work"].agent.verdict == "claimed", "its form says nothing about its steps"
    prompt = runner.requests[0].brief.prompt
    assert "do work\n\nWhen you are done, give the plan as your last message" in prompt
    assert ("All of it, this draft too, may cost $2.50." in prompt) is (limit is not None)
    assert "\n- shell(" in prompt
    assert "\n- developer: " in prompt


async def test_b2_the_output_of_the_step_before_is_handed_on_unless_the_plan_says_no(project: Project) -> None:
    runner = cli(Turn().say("the first part"), done(), done())
    steps = [agent("a"), agent("b", needs=["a"]), agent("c", needs=["a"], handoff=False)]
    await AgentWorld(project, runner).run(plan(*steps, limits={"parallel": 1}))
    first, second, third = runner.requests
    assert [(one.step, one.output) for one in second.handoff] == [("a", "the first part")]
    assert "the first part" in second.brief.prompt
    assert (first.handoff, third.handoff) == ((), ())
    assert "the first part" not in third.brief.prompt


@pytest.mark.parametrize(("size", "whole"), [(11_900, True), (12_500, False)])
async def test_f3_files_may_have_half_of_what_comes_before_a_summary_at_three_characters_a_token(
    project: Project, size: int, whole: bool
) -> None:
    project.file("data.txt", "x" * size)
    runner = ScriptedRunner([done()], name="cli")
    world = AgentWorld(project, runner, context={"models": {"m-1": {"window": 10_000}}})
    state = await world.run(plan(agent(files=["data.txt"], model="m-1")))
    assert state.status == "completed"
    assert ("x" * size in runner.requests[0].brief.prompt) == whole


async def test_a5_a_file_outside_of_the_folder_is_given_where_the_plan_names_it_and_no_template_does(
    project: Project,
) -> None:
    outside = project.user / "notes.txt"
    outside.write_text("from the user")
    runner = cli(done())
    steps = [agent("named", files=[str(outside)]), agent("filled", files=["{{ inputs.where }}"])]
    world = AgentWorld(project, runner)
    state = await world.run(plan(*steps, inputs={"where": str(outside)}, limits={"parallel": 1}))
    assert [state.steps[name].status for name in ("named", "filled")] == ["completed", "failed"]
    (request,) = runner.requests
    assert "from the user" in request.brief.prompt


async def test_e1_the_price_of_a_first_call_is_asked_for_its_prompt_and_the_conversation_before_it(
    project: Project,
) -> None:
    begins = Turn(session="s1").spend(tokens_in=5000, tokens_out=1, usd=0.0).fail("no answer", category="transient")
    runner = Priced([begins, done()], name="cli")
    await AgentWorld(project, runner).run(plan(agent(budget=5)))
    own = [tokens_of(request.brief.system + request.brief.prompt) for request in runner.requests]
    assert runner.requests[1].session == "s1"
    assert runner.sizes[0] == own[0]
    assert 5000 + own[1] in runner.sizes


@pytest.mark.parametrize("trusted", [True, False])
async def test_a5_a_runtime_that_reads_the_rules_itself_gets_them_only_in_a_folder_that_is_not_trusted(
    project: Project, trusted: bool
) -> None:
    project.file("AGENTS.md", "Use tabs.")
    if trusted:
        Trust(user_folder()).add(project.path)
    runners = [ScriptedRunner([done()], name=name) for name in ("open-code", "cli")]
    state = await AgentWorld(project, *runners).run(
        plan(*(agent(runner.name, runtime=runner.name) for runner in runners))
    )
    assert state.status == "completed"
    shown = ["Use tabs." in runner.requests[0].brief.prompt for runner in runners]
    assert shown == [not trusted, True]


async def test_c4_a_runtime_whose_account_for_the_steps_model_keeps_failing_is_left_for_another(
    project: Project,
) -> None:
    class Named(ScriptedRunner):
        def account(self, model: str | None, env: Mapping[str, str]) -> str:
            return f"account of {model}"

    clock, book = FakeClock(), MemoryGateStore()
    guarded: Any = GuardedRunner(Named([done()], name="claude-code"), book, clock)
    book.keep_breaker(guarded.circuit("account of m-1"), Breaker(5, 1, clock.now() + 30.0, because="no answer"))
    world = AgentWorld(project, guarded, ScriptedRunner([done()], name="open-code"), clock=clock)
    steps = [agent(name, runtime="claude-code", model=name) for name in ("m-1", "m-2")]
    state = await world.run(plan(*steps))
    (fell,) = told(await world.events(state.id), ev.RuntimeFellBack)
    assert (state.status, fell.step) == ("completed", "m-1")
    assert fell.because == "circuit open with account of m-1 after 5 failures (last: no answer), retry in 30 s"


# -- how it goes on -------------------------------------------------------------------------------


async def test_k1_a_new_attempt_goes_on_in_the_conversation_and_without_one_it_is_told_what_was_done(
    project: Project,
) -> None:
    works = Turn(session="s1").act("Bash", "make test", {"command": "make test"})
    goes_on = cli(works.fail("the line broke", category="transient"), done())
    await AgentWorld(project, goes_on).run(plan())
    first, second = goes_on.requests
    assert "make test" not in first.brief.prompt
    assert (second.session, "do work" in second.brief.prompt) == ("s1", False)
    assert "the line broke" in second.brief.prompt
    assert "make test" not in second.brief.prompt, "the conversation knows it"

    refused = Failure(Category.TRANSIENT, "refused", kind=REFUSED_CONTENT)
    begins_anew = cli(works.fail(refused), done())
    world = AgentWorld(project, begins_anew)
    state = await world.run(plan())
    second = begins_anew.requests[1]
    assert (second.session, second.inherited) == (None, None)
    assert "do work" in second.brief.prompt
    assert "make test" in second.brief.prompt
    events = await world.events(state.id)
    said = told(events, ev.AgentBegan)[1].notes
    assert any("about earlier attempts" in note for note in said)
    assert notes(events) == "".join(f"{note}\n" for note in said), "what the journal notes is shown"


async def test_k1_a_runtime_that_keeps_no_conversation_tells_who_wrote_too_late(project: Project) -> None:
    world = AgentWorld(project)

    async def quiet(host: Host) -> AgentResult:
        return AgentResult("done")

    async def with_message(host: Host) -> AgentResult:
        host.text("working")
        await host.wait_told()
        return AgentResult("done")

    world.runners["cli"] = Acting(quiet, with_message)
    async with world.engine() as engine:
        silent = await (await engine.start(plan())).wait()
        execution = await engine.start(plan())
        await occurred(execution, ev.AgentBegan)
        await engine.say(execution.id, "work", "one thing more")
        late = await execution.wait()
    assert (silent.status, late.status) == ("completed", "completed")
    assert notes(await world.events(silent.id)) == ""
    assert "a message came too late: cli keeps no conversation to go on in" in notes(await world.events(late.id))


async def test_a7_who_takes_over_at_once_is_told_and_a_denied_use_is_noted(project: Project) -> None:
    second = ScriptedRunner([Turn().ask("Bash", {"command": "rm"}).say("done")], name="open-code")
    world = AgentWorld(project, ScriptedRunner(name="claude-code", health=GONE), second)
    async with world.engine() as engine:
        execution = await engine.start(plan(agent(runtime="claude-code")), hold=True)
        await occurred(execution, ev.ApprovalAsked)
        await engine.approve(execution.id, "work", allow=False, note="too dangerous")
        await execution.wait()
    events = await world.events(execution.id)
    (fell,) = told(events, ev.RuntimeFellBack)
    assert (fell.runtime, fell.instead, fell.final) == ("claude-code", "open-code", False)
    assert "Bash was denied: too dangerous" in notes(events)


async def test_a_step_whose_runtime_has_no_quota_left_is_held_though_it_fell_back(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "LONGEST_NAP", 0.01)  # nobody wakes a driver when the clock is set
    clock = FakeClock()
    back = clock.now() + 3600.0
    opencode = ScriptedRunner([Turn().fail("used up", category="resource", resets_at=back), done()], name="open-code")
    world = AgentWorld(project, ScriptedRunner(name="claude-code", health=GONE), opencode, clock=clock)
    async with world.engine() as engine:
        execution = await engine.start(
            plan(agent("a", runtime="open-code"), agent("b", runtime="claude-code"), limits={"parallel": 1})
        )
        held = [await occurred(execution, ev.StepWaiting, count) for count in (1, 2)]
        assert [(one.step, one.reason, one.until, one.runtime) for one in held] == [
            ("a", "quota", back, "open-code"),
            ("b", "quota", back, "open-code"),
        ]
        assert held[1].question == "the quota of open-code is used up"
        assert len(opencode.requests) == 1
        await execution.cancel()


async def test_k7_who_gets_its_step_back_is_told_what_the_other_runtime_did_since(project: Project) -> None:
    mine = Turn(session="s1").act("Bash", "make mine", {"command": "make mine"}).fail("gone", elsewhere=True)
    theirs = Turn(session="s2").act("Bash", "make theirs", {"command": "make theirs"}).fail("stuck")
    first = ScriptedRunner([mine, done()], name="claude-code")
    world = AgentWorld(project, first, ScriptedRunner([theirs], name="open-code"))
    state = await world.run(plan(agent(runtime="claude-code", retry=0)))
    async with world.engine() as engine:
        await engine.retry(state.id, "work")
        state = await (await engine.resume(state.id)).wait()
    request = first.requests[1]
    assert (state.status, request.session) == ("completed", "s1")
    assert "make theirs" in request.brief.prompt
    assert "make mine" not in request.brief.prompt, "that is in its conversation"


async def test_k1_an_agent_that_was_not_done_is_told_to_go_on_and_then_the_message(project: Project) -> None:
    runner = cli(Turn(session="s1").fail("the disk is full"), done())
    world = AgentWorld(project, runner)
    state = await world.run(plan())
    async with world.engine() as engine:
        await engine.say(state.id, "work", "there is room now")
        await (await engine.resume(state.id)).wait()
    prompt = runner.requests[1].brief.prompt
    assert "Go on with your task" in prompt
    assert prompt.endswith("\n\nthere is room now")


async def test_k1_an_agent_that_was_done_goes_on_with_the_message_alone(project: Project) -> None:
    runner = cli(Turn(session="s1").say("done"), done("better"))
    world = AgentWorld(project, runner)
    state = await world.run(plan())
    async with world.engine() as engine:
        receipt = await engine.say(state.id, "work", "make it better")
        await (await engine.resume(receipt.state.id, keep_plan=True)).wait()
    brief = runner.requests[1].brief
    assert (brief.prompt, brief.nudge) == ("make it better", False)


async def test_k1_a_lost_conversation_is_forgotten_and_the_new_one_is_told_what_was_done(project: Project) -> None:
    """Also that of a completed step, which goes on with a message."""
    lost = Turn.giving(AgentResult(metadata={"session_lost": True}, failure=Failure(Category.LOGIC, "gone")))
    works = Turn(session="s1").act("Bash", "make test", {"command": "make test"}).say("done")
    runner = cli(works, lost, Turn(session="s2").say("anew"))
    world = AgentWorld(project, runner)
    state = await world.run(plan())
    async with world.engine() as engine:
        receipt = await engine.say(state.id, "work", "make it better")
        forked = await (await engine.resume(receipt.state.id, keep_plan=True)).wait()
    assert forked.steps["work"].output == "anew"
    assert [request.session for request in runner.requests] == [None, "s1", None]
    for known in ("do work", "make test", "make it better"):
        assert known in runner.requests[2].brief.prompt
    named = [event.session for event in told(await world.events(forked.id), ev.AgentSession)]
    assert named[-2:] == [None, "s2"]


async def test_k2_a_stronger_model_that_goes_on_is_told_of(project: Project) -> None:
    def turn(request: AgentRequest) -> Turn:
        if request.model == "sonnet":
            (request.workdir / "ok").touch()
        return done()

    world = AgentWorld(project, ScriptedRunner(turn, name="cli"))
    state = await world.run(plan(agent(check="test -e ok", tries=5, models=["haiku", "sonnet"])))
    assert state.status == "completed"
    said = "sonnet goes on in place of haiku, whose work failed its checks\n"
    assert said in notes(await world.events(state.id))


class HeldLedger(MemoryLedger):
    """A ledger in which an attempt is settled once `let_go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.settling, self.let_go = asyncio.Event(), asyncio.Event()

    async def settle(self, charge: Charge, at: float, usage: Usage) -> None:
        self.settling.set()
        await self.let_go.wait()
        await super().settle(charge, at, usage)


async def test_k1_a_message_that_comes_while_an_attempt_is_settled_goes_into_a_fork_and_is_not_lost(
    project: Project,
) -> None:
    ledger = HeldLedger()
    runner = cli(Turn(when="do work", session="s1").say("done"), Turn(when="do other").hang())
    world = AgentWorld(project, runner, ledger=ledger)
    async with world.engine() as engine:
        execution = await engine.start(plan(agent(), agent("other")))
        await ledger.settling.wait()
        saying = asyncio.create_task(engine.say(execution.id, "work", "one thing more"))
        await engine.say(execution.id, "other", "its driver reads this one after the first")
        ledger.let_go.set()
        receipt = await saying
        await execution.cancel()
    assert receipt.forked
    assert [one.step for one in told(await world.events(execution.id), ev.AgentTold)] == ["other"]


async def test_e1_a_turn_that_follows_has_what_is_left_of_the_budget_and_the_message_alone(project: Project) -> None:
    first = Turn(session="s1").spend(tokens_in=5, tokens_out=1, usd=0.4).ask("Bash", {"command": "x"}).say("done")
    runner = cli(first, done("with it"))
    world = AgentWorld(project, runner)
    async with world.engine() as engine:
        execution = await engine.start(plan(agent(budget=1)), hold=True)
        await occurred(execution, ev.ApprovalAsked)
        await engine.say(execution.id, "work", "one thing more")
        await engine.approve(execution.id, "work")
        state = await execution.wait()
    assert (state.status, state.steps["work"].output) == ("completed", "with it")
    request = runner.requests[1]
    assert (request.session, request.inherited, request.brief.prompt) == ("s1", None, "one thing more")
    assert request.brief.system == runner.requests[0].brief.system
    assert request.budget.usd == pytest.approx(0.6)


async def test_k2_a_runtime_that_reports_nothing_on_the_way_is_given_each_message_once(project: Project) -> None:
    runner = Late(*[AgentResult("x", session="s1")] * 2)
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(check="false", tries=2, retry=0)))
    assert (state.steps["work"].status, len(runner.requests)) == ("failed", 2)
    assert len(told(await world.events(state.id), ev.AgentHeard)) == 1


async def test_e1_no_turn_follows_one_whose_result_tells_that_the_budget_is_used_up(project: Project) -> None:
    runner = Late(*[AgentResult("x", usage=Usage(9, usd=0.6), session="s1")] * 2)
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(budget=1, check="false", tries=9, retry=0)), hold=False)
    (asked,) = told(await world.events(state.id), ev.StepWaiting)
    assert (state.paused_for, asked.needed, len(runner.requests)) == ("budget", 2.2, 2)


async def test_e1_each_turn_has_what_all_turns_before_it_left_of_the_budget(project: Project) -> None:
    costs = [(0.4, 100), (0.1, 100), (0.495, 100), (0.0, 0)]
    runner = Late(*(AgentResult("x", usage=Usage(count, 10, usd=usd), session="s1") for usd, count in costs))
    await AgentWorld(project, runner).run(
        plan(agent(budget={"usd": 1, "tokens": 5000}, check="false", tries=4, retry=0))
    )
    budgets = [request.budget for request in runner.requests]
    assert [budget.usd for budget in budgets] == pytest.approx([1.0, 0.6, 0.5, 0.01])
    assert [budget.tokens for budget in budgets] == [5000, 4890, 4780, 4670]


async def test_e3_work_that_does_not_pass_when_the_money_is_gone_asks_for_all_that_it_cost(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(host: Host) -> AgentResult:
        host.usage(Usage(10, usd=1.5))
        await host.watched()  # type: ignore[attr-defined]
        return AgentResult("done", usage=Usage(20, usd=5.0), session="s1")

    monkeypatch.setattr("windlass.engine.agents.host.LAST_REPLY", 0.0)
    world = AgentWorld(project, Acting(run))
    state = await world.run(plan(agent(budget=1, check="false", retry=0)), hold=False)
    (asked,) = told(await world.events(state.id), ev.StepWaiting)
    assert (state.paused_for, asked.needed) == ("budget", 6.0)
    assert asked.question == "the limit of $1.00 for this step is exceeded ($5.00 spent)"


@pytest.mark.parametrize(
    ("budget", "needed"), [({"usd": 0.2}, 0.9), ({"tokens": 5000}, 11_000)], ids=["dollars", "tokens"]
)
async def test_e3_a_runtime_that_stops_at_its_allowance_is_asked_about_with_what_it_spent(
    project: Project, budget: dict[str, float], needed: float
) -> None:
    failure = Failure(Category.RESOURCE, "its budget is used up")
    runner = Late(AgentResult("", failure, Usage(6000, usd=0.7), "s1", metadata={"budget": True}))
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(budget=budget, retry=0)), hold=False)
    (asked,) = told(await world.events(state.id), ev.StepWaiting)
    assert (state.paused_for, asked.question, asked.scope) == ("budget", "its budget is used up", "step")
    assert asked.needed == pytest.approx(needed)


async def test_a_quota_that_is_used_up_is_that_of_the_account(project: Project) -> None:
    class Named(ScriptedRunner):
        def account(self, model: str | None, env: Mapping[str, str]) -> str:
            return "acme, account 1"

    clock = FakeClock()
    back = clock.now() + 3600.0
    world = AgentWorld(
        project, Named([Turn().fail("used up", category="resource", resets_at=back)], name="cli"), clock=clock
    )
    async with world.engine() as engine:
        execution = await engine.start(plan())
        waits = await occurred(execution, ev.StepWaiting)
        await execution.cancel()
    assert (waits.runtime, waits.account, waits.until) == ("cli", "acme, account 1", back)
    assert waits.question == "used up (acme, account 1)"


# -- its end --------------------------------------------------------------------------------------


async def test_a1_a_turn_that_ends_by_itself_before_it_is_done_is_tried_again(project: Project) -> None:
    world = AgentWorld(project, cli(Turn.giving(AgentResult("half", interrupted=True)), done("whole")))
    state = await world.run(plan())
    (failed,) = told(await world.events(state.id), ev.AttemptFailed)
    assert (failed.failure.category, failed.failure.message) == (
        Category.TRANSIENT,
        "cli stopped before the task was done",
    )
    assert failed.failure.elsewhere
    assert (state.steps["work"].output, state.steps["work"].attempts) == ("whole", 2)


async def test_e1_an_attempt_is_settled_as_soon_as_its_turn_has_ended(project: Project) -> None:
    runner = cli(Turn().say("done").spend(tokens_in=7, tokens_out=1, usd=0.9))
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(budget=0.5)))
    assert (state.status, runner.interrupts) == ("completed", []), "its last reply was let come to its end"
    (spent,) = await world.ledger.spent("execution")
    assert (spent.usd, spent.tokens_in, spent.reserved_usd) == (0.9, 7, 0.0)


@pytest.mark.parametrize("failure", [None, Failure(Category.LOGIC, "it broke")], ids=["its checks", "its runtime"])
async def test_e1_work_that_fails_is_paid_with_the_runtimes_last_report(
    project: Project, failure: Failure | None
) -> None:
    async def run(host: Host) -> AgentResult:
        host.usage(Usage(3, 1, usd=0.1))
        return AgentResult("done", failure, Usage(9, 2, usd=0.3))

    world = AgentWorld(project, Acting(run))
    state = await world.run(plan(agent(check="false", tries=1, retry=0)))
    assert state.steps["work"].status == "failed"
    (spent,) = await world.ledger.spent("execution")
    assert (spent.usd, spent.tokens_in, spent.tokens_out) == (0.3, 9, 2)


async def test_e1_an_agent_that_is_refused_before_it_begins_costs_nothing(project: Project) -> None:
    runner = cli(done())
    runner.call = Amount(None, 10)
    world = AgentWorld(project, runner)
    state = await world.run(plan(agent(budget=1)))
    assert (state.steps["work"].status, state.cost.text) == ("failed", "$0.00")
    assert await world.ledger.spent("execution") == []


@pytest.mark.parametrize("trouble", ["", "its interrupt hangs", "its interrupt fails", "its run fails"])
async def test_e1_what_a_stopped_agent_told_last_is_what_it_used(project: Project, trouble: str) -> None:
    stopped = asyncio.Event()

    async def run(host: Host) -> AgentResult:
        host.usage(Usage(3, 1, usd=0.1))
        await stopped.wait()
        if trouble == "its run fails":
            raise RuntimeError(trouble)
        return AgentResult("half", interrupted=True, usage=Usage(9, 2, usd=0.3))

    class Polite(Acting):
        async def interrupt(self, request: str) -> None:
            stopped.set()
            if trouble == "its interrupt hangs":
                await asyncio.Event().wait()
            if trouble == "its interrupt fails":
                raise RuntimeError(trouble)

    world = AgentWorld(project, Polite(run))
    async with world.engine() as engine:
        execution = await engine.start(plan())
        await occurred(execution, ev.UsageReported)
        assert (await execution.interrupt()).status == "paused"
    (spent,) = await world.ledger.spent("execution")
    assert told(await world.events(execution.id), ev.AttemptFailed) == []
    last = (0.1, 3, 1) if trouble == "its run fails" else (0.3, 9, 2)
    assert (spent.usd, spent.tokens_in, spent.tokens_out) == last
